"""``oasis serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oasis.cli.console import people
from oasis.cli.options import Index, TrustEmbedders

if TYPE_CHECKING:
    from oasis.collection import Collection


def serve(
    collection: Annotated[
        Path,
        typer.Argument(
            metavar="COLLECTION", help="The collection's directory; created if it does not exist."
        ),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    read_token: Annotated[
        str | None,
        typer.Option(
            envvar="OASIS_READ_TOKEN",
            help="Token that permits searching. Better set in the environment as "
            "OASIS_READ_TOKEN: arguments of a command are visible to other users.",
        ),
    ] = None,
    write_token: Annotated[
        str | None,
        typer.Option(
            envvar="OASIS_WRITE_TOKEN",
            help="Token that permits everything; better set as OASIS_WRITE_TOKEN.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A host name to accept besides its address. May be repeated."
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of a proxy whose X-Forwarded-For is trusted. May be repeated.",
        ),
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Length of the codes of a new collection; 256 if not given.")
    ] = None,
    index: Index = None,
    readonly: Annotated[
        bool, typer.Option("--readonly", help="Serve searches only; another process may write.")
    ] = False,
    pictures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the original pictures, named by the items' ids; the page shows them "
            "instead of previews. No file outside this folder is sent.",
        ),
    ] = None,
    trust_embedders: TrustEmbedders = False,
    max_body: Annotated[
        int, typer.Option(min=1, metavar="MB", help="Largest body of a request.")
    ] = 64,
    queue: Annotated[
        int,
        typer.Option(min=1, help="Changes that may wait or run; one more is answered with 429."),
    ] = 8,
) -> None:
    """Serve a collection over HTTP, with a page for searching, viewing and adding items.

    The page is at /, the API is described at /docs. Stops on Ctrl-C or SIGTERM when the running
    change is done.

    Example: oasis serve photos.oasis --port 8000
    """
    from oasis.collection.feeding import collection_exists
    from oasis.errors import MissingExtraError
    from oasis.service.settings import Limits, Settings, Tokens

    try:
        from oasis.service.server import address_of, listen, run
        from oasis.service.telemetry import LOG, log_as_json
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "", extra="service", what="the service") from error

    limits = Limits(
        body_bytes=max_body << 20, bodies_bytes=max(256, 4 * max_body) << 20, ingests=queue
    )
    names = frozenset(name.lower() for name in allow_host or ())
    tokens = Tokens(read_token, write_token)
    settings = Settings.of(host, tokens, names, limits, frozenset(proxy or ()), pictures)
    serving, is_new = False, not collection_exists(collection)
    try:
        with (
            listen(host, port) as listening,
            _open(
                collection, bits, index, readonly=readonly, trust_embedders=trust_embedders
            ) as opened,
        ):

            def ready() -> None:
                nonlocal serving
                serving = True
                log_as_json()
                name = f"{collection} (new)" if is_new else str(collection)
                people().print(
                    f"{len(opened):,} items of {name} at {address_of(listening)}", soft_wrap=True
                )

            run(opened, listening, settings, ready)
    except BaseException:
        if not serving:
            raise
        LOG.critical("ended by an error", exc_info=True)
        raise typer.Exit(1) from None


def _open(
    path: Path, bits: int | None, index: str | None, *, readonly: bool, trust_embedders: bool
) -> Collection:
    from oasis.cli.opening import open_directory
    from oasis.collection import Collection

    if readonly:
        return open_directory(path, index=index, trust_embedders=trust_embedders)
    return Collection.open(path, bits, index=index, trust_embedders=trust_embedders)
