"""``oasis ingest``, ``search``, ``info`` and ``export``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from oasis.cli.conditions import parse_where, stored_id
from oasis.cli.console import Column, file_size, people, print_json, progress_of, remark, table
from oasis.cli.options import Index

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Existing = Annotated[Path, typer.Argument(metavar="COLLECTION", help="The collection's directory.")]

_HIT_COLUMNS: tuple[Column, ...] = (
    ("", "right"),
    ("score", "right"),
    ("bits", "right"),
    ("id", "left"),
    ("labels", "line"),
    ("payload", "line"),
)
_CLASS_COLUMNS: tuple[Column, ...] = (
    ("class", "left"),
    ("items", "right"),
    ("since round", "right"),
)
_ROUND_COLUMNS: tuple[Column, ...] = (
    ("round", "right"),
    ("items", "right"),
    ("precision@10", "right"),
    ("chance", "right"),
    ("seconds", "right"),
    ("new classes", "left"),
)


class Mode(StrEnum):
    """How codes are compared."""

    asymmetric = "asymmetric"
    hamming = "hamming"


def ingest(
    collection: Annotated[
        Path, typer.Argument(metavar="COLLECTION", help="Its directory; made where there is none.")
    ],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="A .jsonl, .csv, .tsv or .parquet file, or a folder."
        ),
    ],
    bits: Annotated[
        int | None, typer.Option(help="Length of the codes of a new collection; 64 if not given.")
    ] = None,
    owned: Annotated[
        int | None,
        typer.Option(
            help="For a new collection: so many of the bits are owned by classes. 0 is best for "
            "plain Hamming distances, all bits for asymmetric search; in between if not given."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Items that are learned at a time.")] = 256,
    id_field: Annotated[str, typer.Option(help="Field or column of the ids.")] = "id",
    image_field: Annotated[str, typer.Option(help="Field of the paths of pictures.")] = "image",
    text_field: Annotated[str, typer.Option(help="Field of the texts.")] = "text",
    labels_field: Annotated[str, typer.Option(help="Field of the labels.")] = "labels",
    payload_field: Annotated[
        str, typer.Option(help="Field of the payload, an object.")
    ] = "payload",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Instead: a field that goes into the payload. May be repeated."
        ),
    ] = None,
    labels_separator: Annotated[
        str, typer.Option(help="What separates labels in a CSV cell.")
    ] = ";",
    labels_from_folders: Annotated[
        bool, typer.Option("--labels-from-folders", help="Names of sub-folders are labels.")
    ] = False,
    image_extractor: Annotated[
        str | None, typer.Option(help="For a new collection: efficientnet (if not given) or none.")
    ] = None,
    text_extractor: Annotated[
        str | None,
        typer.Option(
            help="For a new collection: hashed (if not given), none, or a full name such as "
            "hashed-text-512-binary@1."
        ),
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option(help="Keep a small picture of each item, at most 10 kB.")
    ] = True,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Check all items first; stop before anything is written."),
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            help="Where items left out are listed; COLLECTION.rejects.jsonl if not given."
        ),
    ] = None,
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Paths may leave the folder of the data.")
    ] = False,
    index: Index = None,
    as_json: AsJson = False,
) -> None:
    """Learn from a file or a folder of pictures, and store its items.

    Items that cannot be used are left out and listed with the reason. Items whose id is there
    already are skipped, so an ingest that was interrupted goes on when it is given again.
    --strict makes all features twice: once to check them, once to keep them.

    Example: oasis ingest photos.oasis photos/ --labels-from-folders
    """
    from oasis.cli.ingest import Summary, check_all, expected, feed
    from oasis.cli.opening import exists, extractor_to_fill, model_to_fill
    from oasis.collection import Collection
    from oasis.items import Fields, RejectsFile, read_items

    payload = tuple(keep) if keep else payload_field
    fields = Fields(id_field, image_field, text_field, labels_field, payload)

    def read() -> Any:
        return read_items(
            source,
            fields,
            separator=labels_separator,
            labels_from_folders=labels_from_folders,
            allow_outside=allow_outside,
        )

    results = read()  # says at once when there is no such file
    extractor = extractor_to_fill(collection, image_extractor, text_extractor)
    total = expected(source)
    if strict:
        with progress_of("checking", total) as progress:
            if exists(collection):
                with Collection.open(collection, readonly=True) as opened:
                    check_all(results, extractor, opened.known, progress)
            else:
                check_all(results, extractor, lambda _: set(), progress)
        results = read()
    summary = Summary()
    listed = rejects or collection.with_name(f"{collection.name}.rejects.jsonl")
    file = RejectsFile(listed)
    model = model_to_fill(collection, bits, owned)
    with Collection.open(collection, bits, model=model, extractor=extractor, index=index) as opened:
        try:
            with file, progress_of("ingest", total) as progress:
                feed(
                    opened,
                    results,
                    file,
                    batch=batch,
                    with_thumbnails=thumbnails,
                    progress=progress,
                    summary=summary,
                )
        except KeyboardInterrupt:
            remark(
                f"interrupted: {summary.ingested:,} items are stored; give the same command again "
                "to go on"
            )
            raise typer.Exit(1) from None
        finally:
            if not file.count:
                listed.unlink(missing_ok=True)
        n_items = len(opened)
    found = {
        "collection": str(collection),
        "source": str(source),
        **summary.as_dict(),
        "items": n_items,
        "rejects": str(listed) if summary.rejected else None,
    }
    if as_json:
        print_json(found)
        return
    rate = summary.ingested / summary.seconds if summary.seconds else 0.0
    people().print(
        f"{summary.ingested:,} items ingested in {summary.rounds} rounds, {summary.seconds:.1f} s "
        f"({rate:,.0f} a second); {n_items:,} in the collection"
    )
    if summary.skipped:
        people().print(f"{summary.skipped:,} skipped: their ids were there already")
    if summary.rejected:
        people().print(f"{summary.rejected:,} left out: {listed} says why", soft_wrap=True)


def search(
    collection: Existing,
    text: Annotated[str | None, typer.Option(help="Words to search with.")] = None,
    image: Annotated[Path | None, typer.Option(help="A picture to search with.")] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ID", help="An item: more like this one.")
    ] = None,
    word: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A class, or any word, by its meaning. May be repeated."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many hits.")] = 10,
    mode: Annotated[
        Mode, typer.Option(help="Compare projections, or codes alone.")
    ] = Mode.asymmetric,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help='year=2024, "year>=2020", or JSON such as {"$labels": {"has": "sky"}}; all must '
            "hold.",
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the hits as a contact sheet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search by text, by picture, by both, by an item, or by the name of a class.

    A class need not have been seen: words that mean nearly the same lie near each other.

    Example: oasis search photos.oasis --text "red boat" --image query.jpg -k 5
    """
    from oasis.cli.opening import open_to_read

    kinds = [text is not None or image is not None, like is not None, bool(word)]
    if sum(kinds) != 1:
        raise typer.BadParameter(
            "give --text, --image or both of them; or --like; or --word"
            + (" (only one kind at a time)" if any(kinds) else "")
        )
    condition = parse_where(where or [])
    with open_to_read(collection) as opened:
        options: dict[str, Any] = {"k": k, "mode": mode.value, "where": condition or None}
        if word:
            queries: list[dict[str, Any]] = [{"word": name} for name in word]
            lists = opened.search_words(word, **options)
        elif like is not None:
            found = stored_id(opened, like)
            queries, lists = [{"like": found}], [opened.more_like(found, **options)]
        else:
            asked = {"text": text, "image": image}
            queries = [{name: str(value) for name, value in asked.items() if value is not None}]
            lists = opened.search_items([asked], **options)
        if save is not None:
            _save_hits(opened, queries, lists, save)
    if as_json:
        results = [
            {"query": query, "hits": [asdict(hit) for hit in hits]}
            for query, hits in zip(queries, lists, strict=True)
        ]
        print_json({"mode": mode.value, "k": k, "where": condition, "results": results})
        return
    for query, hits in zip(queries, lists, strict=True):
        rows = (
            (
                str(place),
                f"{hit.score:+.3f}",
                str(hit.distance),
                str(hit.id),
                ", ".join(hit.labels),
                _line(hit.payload),
            )
            for place, hit in enumerate(hits, 1)
        )
        people().print(table(_HIT_COLUMNS, rows, _title(query)))
        if not hits:
            people().print("nothing found")
        elif not any(hit.score for hit in hits):
            remark("all scores are 0: nothing like this query has been learned yet")
        people().print()
    if save is not None:
        people().print(f"contact sheet: {save}", soft_wrap=True)


def info(collection: Existing, as_json: AsJson = False) -> None:
    """Show classes, rounds with their quality, sizes and the norms of the model.

    Precision is that of a round's items among the ten best hits, asked before they were learned;
    chance is what items drawn at random would give.

    Example: oasis info photos.oasis --json
    """
    from oasis.cli.opening import open_to_read
    from oasis.collection.home import LOCAL

    with open_to_read(collection) as opened:
        stats, classes, rounds = opened.stats(), opened.classes(), opened.rounds()
        norms = _norms(opened.model) if stats.modalities else {}
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
    console.print(table((("", "left"), ("", "left")), facts, str(collection)))
    rows = ((each.name, f"{each.n:,}", str(each.round)) for each in classes)
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
                    ", ".join(each.new_classes),
                )
                for each in rounds
            ),
            "rounds",
        )
    )


def export(
    collection: Existing,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; replaced.")],
    form: Annotated[str, typer.Option("--format", help="faiss, npz or parquet.")] = "npz",
    as_json: AsJson = False,
) -> None:
    """Write all codes and ids for other tools.

    Bit i of a code is bit i % 8 of byte i // 8, the least significant first.

    Example: oasis export photos.oasis codes.parquet --format parquet
    """
    from oasis.cli import export as exporting
    from oasis.cli.opening import open_to_read

    with open_to_read(collection) as opened:
        written = exporting.export(opened, out, form)
    if as_json:
        print_json(written)
        return
    people().print(
        f"{written['items']:,} codes of {written['n_bits']} bits in {', '.join(written['files'])}",
        soft_wrap=True,
    )


def _title(query: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in query.items())


def _line(payload: dict[str, Any]) -> str:
    """Return a payload in one line: scalars first, as they tell most."""
    nested = {name: value for name, value in payload.items() if isinstance(value, (list, dict))}
    plain = [f"{name}: {value}" for name, value in payload.items() if name not in nested]
    return ", ".join([*plain, *(f"{name}: {value}" for name, value in nested.items())])[:200]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _norms(model: Any) -> dict[str, float]:
    """Return the Frobenius norms of what the model has learned, by name."""
    import numpy as np

    state = model.state_
    norms = {f"W {name}": float(np.linalg.norm(r.W)) for name, r in state.ridges.items()}
    norms["sum G'V"] = float(np.linalg.norm(state.sums.GV))
    norms["sum V'V"] = float(np.linalg.norm(state.sums.VV))
    return norms


def _save_hits(
    opened: Any, queries: list[dict[str, Any]], lists: list[list[Any]], path: Path
) -> None:
    from oasis.cli.pictures import Picture, contact_sheet

    sections = [
        (
            _title(query),
            [
                Picture(
                    opened.thumbnail(hit.id),
                    (f"{place}. {hit.id}", f"{hit.score:+.3f}  {', '.join(hit.labels)}"),
                )
                for place, hit in enumerate(hits, 1)
            ],
        )
        for query, hits in zip(queries, lists, strict=True)
    ]
    contact_sheet(sections, path)
