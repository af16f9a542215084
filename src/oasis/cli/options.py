"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Index = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where codes are searched from now on: local, milvus://HOST:PORT/NAME, or a "
        "milvus-lite file that ends in .db; if not given, as recorded.",
    ),
]
"""``--index`` of the commands that write to a collection."""
