"""``oasis delete``."""

from __future__ import annotations

from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile


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
    from oasis.cli.asked_ids import asked_ids
    from oasis.cli.opening import open_to_write

    with open_to_write(collection, token_file) as opened:
        n, left = opened.delete(asked_ids(opened, ids)), len(opened)
    if as_json:
        print_json({"deleted": n, "items": left})
    else:
        people().print(f"{n:,} deleted; {left:,} in the collection")
