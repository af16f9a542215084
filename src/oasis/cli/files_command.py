"""``oasis check``, ``backup``, ``restore`` and ``export``: the files of a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oasis.cli.console import people, print_json, tell
from oasis.cli.opening import open_directory, open_to_read
from oasis.cli.options import AsJson, Existing, ExistingOrServed, TokenFile, is_address
from oasis.errors import InputError

Target = Annotated[
    Path, typer.Argument(metavar="DEST", help="A directory that does not exist, or is empty.")
]


def check(
    collection: ExistingOrServed,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rebuild what can be derived from the items (the index, the postings and counts "
            "of classes), and remove files that no commit names. Not through a service.",
        ),
    ] = False,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Read everything in a collection and report damage.

    The exit code is 1 if damage is found, or remains after --repair. Items, thumbnails, class
    names, rounds and the model cannot be rebuilt: restore a backup.

    Example: oasis check photos.oasis --repair
    """
    from oasis.collection import Collection

    if repair and is_address(collection):
        raise typer.BadParameter(
            "a service does not repair: stop it, and give the collection's directory",
            param_hint="--repair",
        )
    with open_to_read(collection, token_file) as seen:  # nothing is made where there is none
        found, n_items = [] if repair else seen.check(), len(seen)
    if repair:
        with Collection.open(collection) as opened:
            found = opened.repair()
    if as_json:
        print_json({"n_items": n_items, "findings": found})
    elif found:
        for each in found:
            typer.echo(each)
    else:
        people().print(f"{n_items:,} items: everything was read and is sound")
    if found:
        raise typer.Exit(1)


def backup(collection: Existing, target: Target) -> None:
    """Copy one commit of a collection, even while it is being written to.

    The copy is a collection like any other. oasis restore copies it back.

    Example: oasis backup photos.oasis /backups/photos-monday.oasis
    """
    from oasis.collection.backup import backup as copy

    n = copy(collection, target)
    people().print(f"{n:,} items copied to {target}")


def restore(
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A directory that oasis backup has made.")
    ],
    target: Target,
) -> None:
    """Check a backup and copy it to a new directory.

    Example: oasis restore /backups/photos-monday.oasis photos.oasis
    """
    from oasis.collection.backup import restore as put_back

    n = put_back(source, target)
    people().print(f"{n:,} items restored to {target}")


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
    from oasis.collection import exporting

    with open_directory(collection) as opened:
        ending = out.suffix.lower().removeprefix(".")
        if not form and ending and ending not in exporting.FORMATS:
            raise InputError(
                f"{out.name} ends in .{ending}, which is no format of codes; name it with --format "
                f"{', '.join(exporting.FORMATS)}"
            )
        written = exporting.export(opened, out, form or ending or "npz")
    line = (
        f"{written['items']:,} codes of {written['n_bits']} bits in {', '.join(written['files'])}"
    )
    tell(written, line, as_json=as_json)
