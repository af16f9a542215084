"""``oasis demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the collection and the page.")
    ] = Path("demo-out"),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the choice of icons that are held out as queries.")
    ] = 0,
) -> None:
    """Stream 1,446 icons into a collection, 12 rounds of new categories, and search them.

    Leaves DIR/icons.oasis and DIR/index.html, a page that shows the results; those of an earlier
    demo are replaced. Needs no network.

    Example: oasis demo --out demo-out
    """
    from oasis.demo.run import run

    run(out, seed)
