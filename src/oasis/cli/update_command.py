"""``oasis update``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from oasis.cli.console import people, print_json, visible
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile


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
    from oasis.cli.asked_ids import asked_ids
    from oasis.cli.opening import open_to_write

    if label and no_labels:
        raise typer.BadParameter("give --label or --no-labels, not both")
    facts: dict[str, Any] = {}
    if label or no_labels:
        facts["labels"] = label or []
    if payload is not None:
        facts["payload"] = _object(payload)
    if not facts:
        raise typer.BadParameter("give --label, --no-labels, --payload, or several of them")
    with open_to_write(collection, token_file) as opened:
        (found,) = asked_ids(opened, [item])
        opened.update(found, **facts)
        stored = opened.get(found)
    if as_json:
        print_json({"id": stored.id, "labels": stored.labels, "payload": stored.payload})
    else:
        labels = ", ".join(stored.labels) or "no labels"
        facts_text = json.dumps(stored.payload, ensure_ascii=False)
        line = visible(f"{stored.id}: {labels}; {facts_text}")
        people().print(line, markup=False, soft_wrap=True)


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
