"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def is_address(collection: str | Path) -> bool:
    """Return whether an argument is the address of a service, not a directory.

    >>> is_address("http://127.0.0.1:8000"), is_address("photos.oasis")
    (True, False)
    """
    return str(collection).startswith(("http:/", "https:/"))


def _directory(path: Path) -> Path:
    if is_address(path):
        raise typer.BadParameter(
            "this command works on the files of a collection: give its directory, not the address "
            "of a service"
        )
    return path


Existing = Annotated[
    Path,
    typer.Argument(metavar="COLLECTION", help="The collection's directory.", callback=_directory),
]
"""The collection of the commands that need its files."""

ExistingOrServed = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="The collection's directory, or the address of a service: http://HOST:PORT.",
    ),
]
"""The collection of the commands that a service can be asked for, too."""

TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File that holds the token of the service; if not given, the environment variable "
        "OASIS_TOKEN is used if it is set.",
    ),
]
"""``--token-file`` of the same commands."""

Index = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Where to search codes from now on: local, milvus://HOST:PORT/NAME, or a milvus-lite "
        "file that ends in .db; if not given, where the collection has them.",
    ),
]
"""``--index`` of the commands that write to a collection."""

TrustEmbedders = Annotated[
    bool,
    typer.Option(
        "--trust-embedders",
        help="Import the package.module:factory that the collection names for its features. It "
        "runs with your rights: only for a collection whose origin you trust.",
    ),
]
"""``--trust-embedders`` of the commands that make features."""


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
