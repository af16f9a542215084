"""Running the service: a socket, signals, and a graceful stop."""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from oasis.collection import Collection
from oasis.errors import CollectionError, InputError, MissingExtraError
from oasis.features.image import EfficientNetLite0
from oasis.service import create_app
from oasis.service.http.logs import LOG
from oasis.service.settings import Settings

_SWITCH_SECONDS = 0.0001
_GRACE_SECONDS = 4
STOP_SECONDS = 9.0
"""After SIGTERM or SIGINT the process ends within this time, whatever runs."""
_KEEP_ALIVE_SECONDS = 30
_FILES = 4096
_OTHER_FILES = 128  # of the collection, of decoders, of libraries


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server((address[0], address[1]), family=family, backlog=1024)
        # head and body of an answer are two writes: the second must not wait for an acknowledgement
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        raise CollectionError(f"cannot listen on {host}, port {port}: {error}") from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the address of the page that a socket will serve."""
    host, port = listening.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/"


def _share_the_machine(collection: Collection) -> None:
    """Let searches get the interpreter lock soon while other threads compute."""
    # threads that only compute hand the interpreter over sooner than the 5 ms they may keep it
    sys.setswitchinterval(_SWITCH_SECONDS)
    # objects that exist now are excluded from garbage collections, which stop all threads
    gc.collect()
    gc.freeze()
    try:
        sources = collection.extractor.sources
    except InputError:
        # there is none, or one of the user's own: raw items are refused when they come
        return
    for _, embedder in sources.values():
        if isinstance(embedder, EfficientNetLite0):
            embedder.n_threads = max(1, (os.cpu_count() or 1) - 1)


def _most_connections() -> int:
    """Raise the limit of open files, and return how many connections it allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    free = _FILES if soft == resource.RLIM_INFINITY else soft
    return max(8, free - _OTHER_FILES)


def _end_within(seconds: float) -> None:
    """End the process when it is still there after some seconds."""

    def end() -> None:
        LOG.warning("ended without waiting any longer", extra={"facts": {"seconds": seconds}})
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def run(
    collection: Collection,
    listening: socket.socket,
    settings: Settings,
    ready: Callable[[], Any] = lambda: None,
) -> None:
    """Serve a collection until SIGINT or SIGTERM.

    Then new requests and waiting changes are refused, the running change is finished, and answers
    are sent. If this, and the closing of the collection by the caller, takes longer than
    `STOP_SECONDS`, the process ends as if killed, with exit code 1; everything acknowledged is
    there at the next start. ``ready`` is called when requests are answered.
    """
    try:
        import uvicorn

        from oasis.service.http.connections import protocol_of
    except ImportError as error:
        raise MissingExtraError("uvicorn", extra="service", what="the service") from error

    app = create_app(collection, settings)
    _share_the_machine(collection)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.service.stop()
            _end_within(STOP_SECONDS)
            LOG.info("stopping", extra={"facts": {"signal": signal.Signals(sig).name}})
            super().handle_exit(sig, frame)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            LOG.info("started", extra={"facts": {"address": address_of(listening)}})
            ready()

    server = Server(
        uvicorn.Config(
            app,
            http=protocol_of(settings, _most_connections()),
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=sorted(settings.proxies),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            ws="none",
        )
    )
    # uvicorn raises the signal again when it has stopped; the collection is still to be closed
    before = {each: signal.signal(each, lambda *_: None) for each in _SIGNALS}
    try:
        server.run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    LOG.info("stopped")


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
