"""``oasis info``."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oasis.cli.console import Column, file_size, people, print_json, remark, table
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile
from oasis.errors import InputError, MissingExtraError, StorageError

if TYPE_CHECKING:
    from PIL import Image

    from oasis.collection.records import Plane

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
_SIDE, _LEGEND = 960, 260
_COLOURS = (
    *("#0b6f7d", "#b3541e", "#5b4fb5", "#3d7a2a", "#b0306a", "#8a6d00"),
    *("#2667b5", "#7a4a2b", "#0f7f5c", "#9a3bb0", "#c0392b", "#55606e"),
)
_OTHER = "#b9bcc4"

_NAMES = 5
"""Names of new classes that are shown of a round."""

_CHARACTERS = 40
"""Characters of these names: a line of 80 then fits, also in a file or a pipe."""


def info(
    collection: ExistingOrServed,
    map_file: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="FILE",
            help="Draw the items in the plane, in the colours of their classes: .png or .svg.",
        ),
    ] = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
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
        if map_file is not None:
            _draw(opened.plane(), map_file)
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


def _draw(plane: Plane, path: Path) -> None:
    """Draw a map into a file: SVG, or PNG with the names of the most frequent classes."""
    from oasis import store
    from oasis.collection.notebook import plane_svg

    kind = path.suffix.lower()
    if kind not in (".png", ".svg"):
        raise InputError(f"a map is drawn as .png or .svg, got {path.name}")
    try:
        with store.replacing(path) as temporary:
            if kind == ".svg":
                temporary.write_text(plane_svg(plane, _SIDE), encoding="utf-8")
            else:
                _map_image(plane).save(temporary, "PNG")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
    remark(f"map: {path}")


def _map_image(plane: Plane) -> Image.Image:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="images", what="drawing a map") from error
    counts = Counter(each.label for each in plane.points if each.label is not None)
    colours = {name: colour for (name, _), colour in zip(counts.most_common(), _COLOURS)}  # noqa: B905
    image = Image.new("RGB", (_SIDE + _LEGEND, _SIDE), "white")
    draw = ImageDraw.Draw(image)
    for each in plane.points:
        x, y = 10 + each.x * (_SIDE - 20), 10 + (1 - each.y) * (_SIDE - 20)
        colour = colours.get(each.label or "", _OTHER)
        # predicted classes are rings
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), None if each.predicted else colour, colour)
    font = ImageFont.load_default(18)
    for row, (name, colour) in enumerate(colours.items()):
        y = 20 + 30 * row
        draw.ellipse((_SIDE + 10, y, _SIDE + 24, y + 14), colour)
        draw.text((_SIDE + 34, y - 4), f"{name[:20]} ({counts[name]:,})", "black", font)
    return image


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
