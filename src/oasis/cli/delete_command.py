"""``oasis delete``."""

from __future__ import annotations

from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.options import AsJson, Existing


def delete(
    collection: Existing,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Items to delete.")],
    as_json: AsJson = False,
) -> None:
    """Delete items for ever: codes, texts, payloads and thumbnails.

    Every id must be there, or nothing is deleted. What was learned from the items stays learned.

    Example: oasis delete photos.oasis a.jpg b.jpg
    """
    from oasis.cli.opening import open_to_read
    from oasis.collection import Collection
    from oasis.collection.filters.conditions import stored_id

    with open_to_read(collection) as opened:  # nothing is made where there is no collection
        wanted = [stored_id(opened, each) for each in ids]
    with Collection.open(collection) as opened:
        n, left = opened.delete(wanted), len(opened)
    if as_json:
        print_json({"deleted": n, "items": left})
    else:
        people().print(f"{n:,} deleted; {left:,} in the collection")
