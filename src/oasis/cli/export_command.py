"""``oasis export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.options import AsJson, Existing
from oasis.errors import InputError


def export(
    collection: Existing,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; replaced.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="faiss, npz or parquet; if not given, what OUT ends in; npz without an ending.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write all codes and ids for other tools.

    Bit i of a code is bit i % 8 of byte i // 8, the least significant first.

    Example: oasis export photos.oasis codes.parquet
    """
    from oasis.cli.opening import open_directory
    from oasis.collection import exporting

    with open_directory(collection) as opened:
        ending = out.suffix.lower().removeprefix(".")
        if not form and ending and ending not in exporting.FORMATS:
            raise InputError(
                f"{out.name} ends in .{ending}, which is no format of codes; name it with --format "
                f"{', '.join(exporting.FORMATS)}"
            )
        written = exporting.export(opened, out, form or ending or "npz")
    if as_json:
        print_json(written)
        return
    people().print(
        f"{written['items']:,} codes of {written['n_bits']} bits in {', '.join(written['files'])}",
        soft_wrap=True,
    )
