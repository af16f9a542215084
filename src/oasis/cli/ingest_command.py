"""``oasis ingest``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oasis.cli.console import count, people, print_json, progress_of, remark, visible
from oasis.cli.options import AsJson, Index, TokenFile, TrustEmbedders, columns_of, is_address
from oasis.errors import DataError, InputError, UnreachableError

if TYPE_CHECKING:
    from oasis.features.extractor import Extractor
    from oasis.items import Item, Reject, RejectsFile

_FIRST = 256
"""Rows that are looked at before a collection is begun."""


def ingest(
    collection: Annotated[
        str,
        typer.Argument(
            metavar="COLLECTION",
            help="The collection's directory, created if it does not exist; or the address of a "
            "service: http://HOST:PORT.",
        ),
    ],
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A .jsonl, .csv, .tsv, .parquet, .npz or .npy file, or a folder.",
        ),
    ],
    bits: Annotated[
        int | None,
        typer.Option(
            help="Length of the codes of a new collection, at most 4096; 256 if not given."
        ),
    ] = None,
    owned: Annotated[
        int | None,
        typer.Option(
            help="For a new collection: number of bits that are owned by single classes. 0 is best "
            "for plain Hamming distances, all bits for asymmetric search; in between by default."
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, help="Number of items in a chunk to learn from.")
    ] = 256,
    id_field: Annotated[
        str,
        typer.Option(help="Column of the ids. Without one, an item is known by its file."),
    ] = "id",
    image_field: Annotated[
        str, typer.Option(help="Column of the paths of pictures; or file, path, picture, ...")
    ] = "image",
    text_field: Annotated[
        str, typer.Option(help="Column of the texts; or caption, title, description.")
    ] = "text",
    labels_field: Annotated[
        str, typer.Option(help="Column of the labels; or label, tags, category, class, ...")
    ] = "labels",
    payload_field: Annotated[
        str,
        typer.Option(
            help="Column that holds the payload, an object. Without one, all columns that have no "
            "other use are kept."
        ),
    ] = "payload",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Keep this column and no others, as payload. May be repeated. A CSV cell that is "
            "a number is kept as one: 1.10 as 1.1.",
        ),
    ] = None,
    labels_separator: Annotated[
        str, typer.Option(help="What separates labels in one text, as in a CSV cell.")
    ] = ";",
    labels_from_folders: Annotated[
        bool, typer.Option("--labels-from-folders", help="Names of sub-folders are labels.")
    ] = False,
    text_from_names: Annotated[
        bool,
        typer.Option(
            "--text-from-names",
            help="Of a folder: a picture without a caption gets the words of its file name as its "
            "text, so that red-boat.jpg is found by them.",
        ),
    ] = False,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODALITY=COLUMN",
            help="Features you already have: a column of vectors. May be repeated; features of "
            "pictures and texts are then computed only where an extractor is named.",
        ),
    ] = None,
    image_extractor: Annotated[
        str | None,
        typer.Option(
            help="For a new collection: efficientnet (if not given), gradients, none, or "
            "package.module:factory."
        ),
    ] = None,
    text_extractor: Annotated[
        str | None,
        typer.Option(
            help="For a new collection: words+meaning (if not given), words, meaning, none, a full "
            "name such as hashed-text-512-tf@3, or package.module:factory."
        ),
    ] = None,
    thumbnails: Annotated[
        bool, typer.Option(help="Keep a small picture of each item, at most 10 kB.")
    ] = True,
    keep_text: Annotated[
        bool | None,
        typer.Option(
            help="For a new collection: whether texts are kept, so that items are found by their "
            "words; they are if not given."
        ),
    ] = None,
    keep_features: Annotated[
        bool | None,
        typer.Option(
            help="For a new collection: whether features are kept, so that labels given later "
            "teach; if not given, those of pictures and texts are, and your own vectors are not."
        ),
    ] = None,
    picture_meaning: Annotated[
        bool | None,
        typer.Option(
            help="For a new collection: whether what pictures show is guessed, so that words find "
            "those without a text; it is if not given."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Check all items first; stop before anything is written."),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace the items whose ids are there, instead of skipping them."
        ),
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option(
            help="File that lists the items left out; if not given, COLLECTION.rejects.jsonl, and "
            "for a service FILE.rejects.jsonl in this folder."
        ),
    ] = None,
    allow_outside: Annotated[
        bool,
        typer.Option("--allow-outside", help="Accept pictures outside the folder of the data."),
    ] = False,
    index: Index = None,
    trust_embedders: TrustEmbedders = False,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Learn from a file or a folder of pictures, and store its items.

    A table has a header such as file,caption,labels; paths are relative to its folder. What each
    column was taken for is printed.

    Items that cannot be used are left out and listed with the reason; it is an error if no item can
    be used. Items whose id exists are skipped, so the same command continues an interrupted ingest;
    with --replace they are replaced, all of them each time. --strict computes all features twice:
    first to check them, then to store them.

    With the address of a service, items are sent to it, pictures as files, in batches within its
    limits; it computes the features. Options for a new collection are refused then.

    Example: oasis ingest photos.oasis photos/ --labels-from-folders
    """
    from oasis.collection.feeding import FeedSummary, expected_items
    from oasis.items import Fields, RejectsFile, fields_in, read_items, vector_widths

    payload = tuple(keep) if keep else payload_field
    vectors = dict(columns_of(each) for each in feature or [])
    fields = Fields(id_field, image_field, text_field, labels_field, payload, vectors)
    if not source.is_dir() or vectors:
        fields = fields_in(source, fields)
    begun = {
        "bits": bits,
        "owned": owned,
        "image_extractor": image_extractor,
        "text_extractor": text_extractor,
        "keep_text": keep_text,
        "keep_features": keep_features,
        "picture_meaning": picture_meaning,
        "index": index,
        "trust_embedders": trust_embedders or None,
    }

    has_text = False

    def read() -> Iterator[Item | Reject]:
        nonlocal has_text
        for each in read_items(
            source,
            fields,
            separator=labels_separator,
            labels_from_folders=labels_from_folders,
            text_from_names=text_from_names,
            allow_outside=allow_outside,
        ):
            has_text = has_text or getattr(each, "text", None) is not None
            yield each

    # a source that is missing or empty is refused before anything else is checked
    first = _first_items(source, read())
    widths = vector_widths(read(), fields) if fields.vectors else None
    total = expected_items(source)
    summary = FeedSummary()

    def progress(what: str) -> AbstractContextManager[Callable[[int], object]]:
        if what == "ingest" and fields.told and not as_json:
            people().print(visible(fields.told), soft_wrap=True, markup=False)
        return progress_of(what, total)

    how: dict[str, Any] = {
        "batch": batch,
        "with_thumbnails": thumbnails,
        "replaces": replace,
        "progress": progress,
        "summary": summary,
    }
    try:
        if is_address(collection):
            listed = rejects or Path(f"{source.resolve().name}.rejects.jsonl")
            listing = RejectsFile(listed)
            _ingest_there(collection, token_file, read, listing, begun, strict, how)
        else:
            path = Path(collection)
            listed = rejects or path.with_name(f"{path.name}.rejects.jsonl")
            listing = RejectsFile(listed)
            _ingest_here(path, read, listing, begun, widths, strict, how)
    except KeyboardInterrupt:
        remark(
            f"interrupted: {summary.stored:,} items are stored; give the same command again "
            "to go on"
        )
        raise typer.Exit(1) from None
    except UnreachableError as error:
        raise UnreachableError(
            f"{error}; {summary.stored:,} items were stored before: give the same command again "
            "to go on"
        ) from error
    if as_json:
        print_json(
            {
                "collection": collection,
                "source": str(source),
                **summary.as_dict(),
                "rejects": str(listed) if summary.rejected else None,
            }
        )
        return
    rate = summary.stored / summary.seconds if summary.seconds else 0.0
    done = f"{count(summary.ingested, 'item')} ingested"
    if replace:
        done += f", {summary.replaced:,} replaced"
    people().print(
        f"{done} in {count(summary.rounds, 'round')}, "
        f"{summary.seconds:.1f} s ({rate:,.0f} a second); {summary.items:,} in the collection"
    )
    if source.is_dir() and summary.ingested and not has_text and picture_meaning is False:
        remark(
            "note: no picture has a caption (a .txt file of the same name); with --text-from-names "
            "the words of file names are taken instead"
        )
    if fields.told and (near := _unsplit(first, labels_separator)) is not None:
        remark(
            f"note: {near!r} is one label, because labels are separated by {labels_separator!r}; "
            "if it is several, ingest into a new collection with --labels-separator"
        )
    if summary.skipped:
        people().print(f"{summary.skipped:,} skipped: their ids were there already; not changed")
    if summary.rejected:
        line = visible(f"{summary.rejected:,} left out: {listing.told()}")
        people().print(line, soft_wrap=True, markup=False)


def _first_items(source: Path, results: Iterator[Item | Reject]) -> list[Item]:
    """Return the items among the first 256 rows of a source; one without rows is refused."""
    from oasis.items import Reject

    rows = list(islice(results, _FIRST))
    if not rows:
        raise DataError(f"{source} holds no {'picture' if source.is_dir() else 'item'}")
    return [row for row in rows if not isinstance(row, Reject)]


def _unsplit(first: list[Item], separator: str) -> str | None:
    """Return a label that looks like several, unless some item has several."""
    if any(len(item.labels) > 1 for item in first):
        return None
    others = [each for each in ",;|" if each != separator]
    labels = (label for item in first for label in item.labels)
    return next((label for label in labels if any(each in label for each in others)), None)


def _ingest_here(
    path: Path,
    read: Callable[[], Iterator[Item | Reject]],
    rejects: RejectsFile,
    begun: dict[str, Any],
    widths: dict[str, int] | None,
    strict: bool,
    how: dict[str, Any],
) -> None:
    from oasis.cli.opening import extractor_to_fill, model_to_fill
    from oasis.collection.feeding import ingest_all

    extractor = extractor_to_fill(
        path,
        begun["image_extractor"],
        begun["text_extractor"],
        widths,
        trust_embedders=bool(begun["trust_embedders"]),
    )
    ingest_all(
        path,
        read,
        extractor,
        rejects,
        n_bits=begun["bits"],
        model=model_to_fill(path, begun["bits"], begun["owned"]),
        index=begun["index"],
        keep_text=begun["keep_text"],
        keep_features=begun["keep_features"],
        picture_meaning=begun["picture_meaning"],
        strict=strict,
        **how,
    )


def _ingest_there(
    url: str,
    token_file: Path | None,
    read: Callable[[], Iterator[Item | Reject]],
    rejects: RejectsFile,
    begun: dict[str, Any],
    strict: bool,
    how: dict[str, Any],
) -> None:
    from oasis.cli.opening import client_of
    from oasis.collection.feeding import ingest_into

    for name, value in begun.items():
        if value is not None:
            raise typer.BadParameter(
                "the service has its collection already; leave it out",
                param_hint=f"--{name.replace('_', '-')}",
            )
    with client_of(url, token_file) as client:
        checker = _checker(client.stats().extractor) if strict else None
        limits = client.limits()
        ingest_into(
            client,
            read,
            rejects,
            checker=checker,
            fitting=lambda items: client.fitting(items, limits),
            **how,
        )


def _checker(recorded: dict[str, Any] | None) -> Extractor:
    """Return what makes the features of a service here, to check items before they are sent.

    Code that the service names is refused: it would run with the rights of this user.
    """
    from oasis.features.extractor import Extractor

    if recorded is None:
        return Extractor.default()
    extractor = Extractor.from_description(recorded)
    for entry in recorded.values():
        if ":" in entry["embedder"]:
            raise InputError(
                f"--strict would run {entry['embedder'][:200]} here because the service names it; "
                "leave --strict out, and the service tells which items it refuses"
            )
    return extractor
