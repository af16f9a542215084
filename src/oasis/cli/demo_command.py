"""``oasis demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the collection and the page are left.")
    ] = Path("demo-out"),
    seed: Annotated[int, typer.Option(min=0, help="Deals out the icons that are held out.")] = 0,
) -> None:
    """Stream 1,446 icons into a collection, 12 rounds of new categories, and search them.

    Leaves DIR/icons.oasis and DIR/index.html, a page that shows it all; replaces those that an
    earlier demo left there. Needs no network.

    Example: oasis demo --out demo-out
    """
    from oasis.demo.run import run

    run(out, seed)
