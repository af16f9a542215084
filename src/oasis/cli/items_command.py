"""``oasis update``, ``relabel``, ``delete``, ``duplicates`` and ``next``: what becomes of items."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from oasis.cli.console import (
    Column,
    count,
    people,
    print_json,
    progress_of,
    remark,
    table,
    tell,
)
from oasis.cli.opening import asked_ids, open_to_read, open_to_write
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile
from oasis.errors import InputError

_SHOWN = 20
_LISTED = 10
_NEXT_COLUMNS: tuple[Column, ...] = (
    ("", "right"),
    ("id", "left"),
    ("predicted", "line"),
    ("text", "line"),
)


def update(
    collection: ExistingOrServed,
    item: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The item to change; or use --from.")
    ] = None,
    table_file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="A .csv, .tsv, .jsonl or .parquet file: ids, and labels, payloads, or both. The "
            "payload is an object, or made of all columns that have no other use.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A new label of the item. May be repeated."),
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Leave it without labels.")
    ] = False,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Its whole new payload, a JSON object."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --from: make the payload of this column alone. Repeatable."
        ),
    ] = None,
    labels_separator: Annotated[
        str, typer.Option(help="What separates labels in one text, as in a CSV cell.")
    ] = ";",
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Change labels or payloads: of one item, or of all items that a table names.

    What is not given does not change; a table without a column of labels changes none, an empty
    cell takes all labels away. Given labels replace all labels of an item, predicted ones too.
    Where features are kept, the model learns from them; where they are not, a line says so. Rows
    whose id no item has are left out and listed. The same command continues an interrupted one.

    Example: oasis update photos.oasis --from labels.csv
    """
    if (item is None) == (table_file is None):
        raise typer.BadParameter("give an id or --from, one of them")
    facts: dict[str, Any] = {}
    if label or no_labels:
        facts["labels"] = label or []
    if label and no_labels:
        raise typer.BadParameter("give --label or --no-labels, not both")
    if payload is not None:
        facts["payload"] = _object(payload)
    if table_file is not None:
        if facts:
            raise typer.BadParameter("--from takes labels and payloads from the table")
        _update_from(collection, table_file, keep, labels_separator, token_file, as_json)
        return
    if not facts:
        raise typer.BadParameter("give --label, --no-labels, --payload, or several of them")
    with open_to_write(collection, token_file) as opened:
        (found,) = asked_ids(opened, [str(item)])
        opened.update(found, **facts)
        stored = opened.get(found)
    labels = ", ".join(stored.labels) or "no labels"
    tell(
        {"id": stored.id, "labels": stored.labels, "payload": stored.payload},
        f"{stored.id}: {labels}; {json.dumps(stored.payload, ensure_ascii=False)}",
        as_json=as_json,
    )


def _update_from(
    collection: str,
    path: Path,
    keep: list[str] | None,
    separator: str,
    token_file: Path | None,
    as_json: bool,
) -> None:
    from oasis.collection.feeding import expected_items

    if not path.is_file():
        raise InputError(f"there is no file {path}")
    how: dict[str, Any] = {"payload": tuple(keep)} if keep else {}
    with (
        open_to_write(collection, token_file) as opened,
        progress_of("update", expected_items(path)) as advance,
    ):
        done, rejected = opened.update_table(path, separator=separator, progress=advance, **how)
    for each in rejected[:_LISTED]:
        remark(f"row {each.row + 1}: {each.reason}")
    if len(rejected) > _LISTED:
        remark(f"... and {len(rejected) - _LISTED:,} more rows that were left out")
    line = f"{count(done.changed, 'item')} changed, the model learned from {done.learned:,}"
    if rejected:
        line += f"; {count(len(rejected), 'row')} left out"
    tell({**asdict(done), "rejected": [asdict(each) for each in rejected]}, line, as_json=as_json)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"it is no JSON: {error}", param_hint="--payload") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(
            f"expected a JSON object such as '{{\"year\": 2020}}', got {text[:100]}",
            param_hint="--payload",
        )
    return found


def relabel(
    collection: ExistingOrServed,
    old: Annotated[str, typer.Argument(metavar="OLD", help="The class to rename.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Its new name; a class that exists is joined.")
    ],
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Rename a class, or join it with another one.

    Where features are kept, the model learns from the new labels; where they are not, a line says
    so.

    Example: oasis relabel photos.oasis cat cats
    """
    with open_to_write(collection, token_file) as opened, progress_of("relabel", None) as advance:
        done = opened.rename_label(old, new, progress=advance)
    line = f"{old} is {new} now: {count(done.changed, 'item')} changed"
    tell({"old": old, "new": new, **asdict(done)}, line, as_json=as_json)


def delete(
    collection: ExistingOrServed,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Items to delete.")],
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Delete items permanently: codes, texts, payloads and thumbnails.

    Every id must exist, or nothing is deleted. What was learned from the items stays in the model
    where their features were not kept.

    Example: oasis delete photos.oasis a.jpg b.jpg
    """
    with open_to_write(collection, token_file) as opened:
        n, left = opened.delete(asked_ids(opened, ids)), len(opened)
    tell(
        {"deleted": n, "items": left}, f"{n:,} deleted; {left:,} in the collection", as_json=as_json
    )


def duplicates(
    collection: ExistingOrServed,
    delete_all_but_first: Annotated[
        bool,
        typer.Option(
            "--delete-all-but-first", help="Keep the oldest item of each group, after a question."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without the question.")] = False,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List groups of items that repeat each other, by fingerprints of their features.

    A picture that was saved again, or made a little smaller, brighter or darker, repeats another.

    Example: oasis duplicates photos.oasis --delete-all-but-first
    """
    with (
        open_to_read(collection, token_file) as opened,
        progress_of("comparing", len(opened)) as advance,
    ):
        groups = opened.duplicates(advance)
    extra = [each for group in groups for each in group[1:]]
    deleted = 0
    if delete_all_but_first and extra:
        if not yes:
            if as_json:
                raise InputError("--delete-all-but-first asks; with --json it needs --yes")
            _show(groups)
            typer.confirm(f"delete {len(extra):,} items for ever?", abort=True)
        with open_to_write(collection, token_file) as writer:
            deleted = writer.delete(extra)
    if as_json or deleted:
        line = f"{deleted:,} deleted; the first of {len(groups):,} groups are kept"
        tell({"groups": groups, "deleted": deleted}, line, as_json=as_json)
    else:
        _show(groups)


def _show(groups: list[list[str | int]]) -> None:
    for group in groups[:_SHOWN]:
        people().print(" = ".join(map(str, group)), markup=False, soft_wrap=True)
    if len(groups) > _SHOWN:
        people().print(f"... and {len(groups) - _SHOWN:,} more groups")
    n = sum(len(group) - 1 for group in groups)
    people().print(f"{len(groups):,} groups, {n:,} items beyond the first of each")


def next_items(
    collection: ExistingOrServed,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of items.")] = 20,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List the unlabelled items whose labels would teach most, the most useful first.

    They are uncertain, and differ from each other. The classes are predicted, each with its chance.
    Labels are given by `oasis update`; the page of `oasis serve` shows the same items as pictures.

    Example: oasis next photos.oasis -k 20
    """
    with open_to_read(collection, token_file) as opened:
        found = opened.next_to_label(k)
    if as_json:
        print_json([asdict(each) for each in found])
    elif not found:
        people().print("every item has a label")
    else:
        rows = [
            (
                str(place),
                str(each.id),
                ", ".join(
                    f"{name} {chance:.2f}"
                    for name, chance in zip(each.classes, each.chances, strict=True)
                ),
                each.text or "",
            )
            for place, each in enumerate(found, 1)
        ]
        people().print(table(_NEXT_COLUMNS, rows))
        people().print(f"next: oasis update {collection} ID --label NAME", markup=False)
