"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

Existing = Annotated[Path, typer.Argument(metavar="COLLECTION", help="The collection's directory.")]
"""The collection of the commands that read one."""

Index = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to search codes from now on: local, milvus://HOST:PORT/NAME, or a milvus-lite "
        "file that ends in .db; if not given, where the collection has them.",
    ),
]
"""``--index`` of the commands that write to a collection."""


def columns_of(value: str) -> tuple[str, str]:
    """Return the modality and the column, file or vector that ``MODALITY=...`` names.

    >>> columns_of("image=clip_image"), columns_of("image")
    (('image', 'clip_image'), ('image', 'image'))
    """
    modality, equals, column = value.partition("=")
    if not modality or (equals and not column):
        raise typer.BadParameter(
            f"expected MODALITY=COLUMN, such as image=clip_image; got {value!r}"
        )
    return modality, column or modality
