"""``oasis info``."""

from __future__ import annotations

from dataclasses import asdict

from oasis.cli.console import Column, file_size, people, print_json, table
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile

_CLASS_COLUMNS: tuple[Column, ...] = (
    ("class", "left"),
    ("items", "right"),
    ("predicted", "right"),
    ("since round", "right"),
)
_ROUND_COLUMNS: tuple[Column, ...] = (
    ("round", "right"),
    ("items", "right"),
    ("precision@10", "right"),
    ("chance", "right"),
    ("seconds", "right"),
    ("new classes", "line"),
)
_NAMES = 5
"""Names of new classes that are shown of a round."""

_CHARACTERS = 40
"""Characters of these names: a line of 80 then fits, also in a file or a pipe."""


def info(
    collection: ExistingOrServed, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Show classes, rounds with their quality, sizes and the norms of the model.

    precision@10 is measured before a round is learned: its items are queries, and a hit is right if
    it shares a label. Chance is the precision of hits drawn at random. The second count of a class
    is of unlabelled items for which it is predicted; a class with "-" as its round was added by an
    update.

    Example: oasis info photos.oasis --json
    """
    from oasis.cli.opening import open_to_read
    from oasis.collection.replica import LOCAL

    with open_to_read(collection, token_file) as opened:
        stats, classes, rounds = opened.stats(), opened.classes(), opened.rounds()
        norms = opened.norms()
    if as_json:
        print_json(
            {
                **asdict(stats),
                "norms": norms,
                "classes": [asdict(each) for each in classes],
                "rounds": [asdict(each) for each in rounds],
            }
        )
        return
    console = people()
    extractor = {
        name: entry["embedder"] for name, entry in (stats.extractor or {}).items()
    } or dict.fromkeys(stats.modalities, "ready features")
    where = "" if stats.index == LOCAL else f", searched at {stats.index}"
    facts = [
        ("items", f"{stats.n_items:,} now, {stats.n_seen:,} ever"),
        ("codes", f"{stats.n_bits} bits{where}"),
        ("rounds", f"{stats.n_rounds:,}, {stats.journal_entries} of them in the journal"),
        *(
            (name, f"{stats.modalities.get(name, 0):,} features, {embedder}")
            for name, embedder in extractor.items()
        ),
        ("on disk", ", ".join(f"{kind} {file_size(n)}" for kind, n in stats.bytes.items())),
        ("norms", ", ".join(f"{name} {value:,.4g}" for name, value in norms.items())),
    ]
    console.print(table((("", "left"), ("", "left")), facts, collection))
    rows = (
        (each.name, f"{each.n:,}", f"{each.n_predicted:,}", str(each.round or "-"))
        for each in classes
    )
    console.print()
    console.print(table(_CLASS_COLUMNS, rows, f"{len(classes)} classes, in order of arrival"))
    console.print()
    console.print(
        table(
            _ROUND_COLUMNS,
            (
                (
                    str(each.number),
                    f"{each.n:,}",
                    _share(each.precision),
                    _share(each.chance),
                    f"{each.seconds:.2f}",
                    _first_names(each.new_classes),
                )
                for each in rounds
            ),
            "rounds",
        )
    )


def _first_names(names: tuple[str, ...]) -> str:
    """Return the first names; the classes, with their rounds, are listed above.

    >>> _first_names(("cat", "dog")), _first_names(tuple("abcdefgh"))
    ('cat, dog', 'a, b, c, d, e and 3 more')
    >>> _first_names(("a long name of a class", "and another of them", "a third"))
    'a long name of a class and 2 more'
    """
    if len(joined := ", ".join(names)) <= _CHARACTERS and len(names) <= _NAMES + 1:
        return joined
    n = max(n for n in range(1, _NAMES + 1) if n == 1 or len(", ".join(names[:n])) <= _CHARACTERS)
    shown = ", ".join(names[:n])
    shown = shown if len(shown) <= _CHARACTERS else f"{shown[: _CHARACTERS - 1]}…"
    return f"{shown} and {len(names) - n:,} more" if len(names) > n else shown


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
