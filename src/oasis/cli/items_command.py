"""``oasis update``, ``relabel``, ``delete`` and ``duplicates``: what becomes of items."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from oasis.cli.console import (
    count,
    people,
    progress_of,
    tell,
)
from oasis.cli.opening import asked_ids, open_to_read, open_to_write
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile
from oasis.errors import InputError

_SHOWN = 20


def update(
    collection: ExistingOrServed,
    item: Annotated[str, typer.Argument(metavar="ID", help="The item to change.")],
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
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Change the labels or the payload of an item; what is not given does not change.

    Given labels replace all labels of the item, predicted ones too. Where its features are kept,
    the model learns from them; where they are not, a line says so.

    Example: oasis update photos.oasis a.jpg --label cat --label dog --payload '{"year": 2020}'
    """
    facts: dict[str, Any] = {}
    if label or no_labels:
        facts["labels"] = label or []
    if label and no_labels:
        raise typer.BadParameter("give --label or --no-labels, not both")
    if payload is not None:
        facts["payload"] = _object(payload)
    if not facts:
        raise typer.BadParameter("give --label, --no-labels, --payload, or several of them")
    with open_to_write(collection, token_file) as opened:
        (found,) = asked_ids(opened, [item])
        opened.update(found, **facts)
        stored = opened.get(found)
    labels = ", ".join(stored.labels) or "no labels"
    tell(
        {"id": stored.id, "labels": stored.labels, "payload": stored.payload},
        f"{stored.id}: {labels}; {json.dumps(stored.payload, ensure_ascii=False)}",
        as_json=as_json,
    )


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
