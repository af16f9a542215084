"""The service: a collection over HTTP, and a page to search, look and add (extra ``service``).

::

    request -> server -> guard -> bodies -> lanes of threads   -> collection
                                         \\-> the one writer   -/

========== =========================================================================================
app        `create_app`: puts the rest together; the page and its files
settings   limits, tokens and host names
server     running it: a socket, signals, a graceful stop; limits of connections
guard      applied to every request: id, headers, hosts, sizes, time, log, counters
problems   errors as problem details (RFC 9457)
telemetry  the log, one JSON object a line; counters for Prometheus
work       costs of requests, lanes of threads, the one writer
operations common to all operations: permissions, descriptions, limits
searching  the search, in slices
reading    reads besides the search: items, pictures, classes, statistics, health
changing   what changes the collection, by the one writer
bodies     JSON, multipart and safetensors bodies into requests
shapes     the shapes of requests and answers
decoding   untrusted pictures, decoded in processes that are killed at a limit
========== =========================================================================================

Searches use the last committed state and never wait for learning, which one thread does, one chunk
at a time. Searches of about a millisecond run in the event loop, because a thread would cost more;
all others run in threads. There is no module state: `create_app` makes an application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oasis.errors import MissingExtraError
from oasis.service.settings import Limits, Settings, Tokens

if TYPE_CHECKING:
    from fastapi import FastAPI

    from oasis.collection import Collection

__all__ = ["Limits", "Settings", "Tokens", "create_app"]


def create_app(collection: Collection, settings: Settings | None = None) -> FastAPI:
    """Return an ASGI application that serves an open collection.

    The application does not close the collection. On shutdown it finishes the running change.

    Parameters
    ----------
    collection : Collection
        Open for writing, or with ``readonly=True``; then every change is refused.
    settings : Settings, optional
        Limits, tokens and host names; by default no token, and loopback names only.

    Examples
    --------
    >>> import tempfile
    >>> from oasis.collection import Collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Collection.open(f"{folder}/photos.oasis", n_bits=16) as c:
    ...         app = create_app(c)
    >>> app.title
    'oasis'
    """
    try:
        from oasis.service.app import assemble
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "oasis":
            raise
        raise MissingExtraError(error.name or "", extra="service", what="the service") from error
    return assemble(collection, settings or Settings())
