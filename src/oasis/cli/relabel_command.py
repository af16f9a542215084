"""``oasis relabel``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from oasis.cli.console import count, people, print_json, visible
from oasis.cli.options import AsJson, ExistingOrServed, TokenFile


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
    from oasis.cli.opening import open_to_write
    from oasis.cli.progress import progress_of

    with open_to_write(collection, token_file) as opened, progress_of("relabel", None) as advance:
        done = opened.rename_label(old, new, progress=advance)
    if as_json:
        print_json({"old": old, "new": new, **asdict(done)})
    else:
        line = f"{old} is {new} now: {count(done.changed, 'item')} changed"
        people().print(visible(line), markup=False, soft_wrap=True)
