"""Running the service: a socket, signals, a graceful stop, and limits of connections.

The server of uvicorn bounds neither the connections of an address, nor time and size of a
request's head, nor the requests that wait on a connection, nor the time in which a caller takes
what it is sent; `protocol_of` does. Bodies are bounded by `oasis.service.guard`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oasis.collection import Collection
from oasis.errors import CollectionError, InputError
from oasis.features.image import EfficientNetLite0
from oasis.service import create_app
from oasis.service.problems import Problem
from oasis.service.settings import Settings
from oasis.service.telemetry import LOG

_SWITCH_SECONDS = 0.0001
_GC_THRESHOLDS = (20_000, 20, 50)  # decoding makes thousands of objects, and few cycles
_GRACE_SECONDS = 4
STOP_SECONDS = 9.0
"""After SIGTERM or SIGINT the process ends within this time, whatever runs."""
_KEEP_ALIVE_SECONDS = 30
_BACKLOG = 256  # as many are accepted at once, before others are answered
_FILES = 4096
_OTHER_FILES = 128  # of the collection, of decoders, of libraries


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server((address[0], address[1]), family=family, backlog=_BACKLOG)
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
    gc.set_threshold(*_GC_THRESHOLDS)
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
            ready()
            LOG.info("started", extra={"facts": {"address": address_of(listening)}})

    server = Server(
        uvicorn.Config(
            app,
            http=protocol_of(settings, _most_connections()),
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=sorted(settings.proxies),
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
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


# -- connections -------------------------------------------------------------------------------

_REFUSALS = {
    400: ("request", "Bad Request"),
    408: ("slow", "Request Timeout"),
    429: ("busy", "Too Many Requests"),
    431: ("head", "Request Header Fields Too Large"),
    503: ("busy", "Unavailable"),
}
_SHUT_OUT_SECONDS = 1.0
_HEAD_BLOCK, _BODY_BLOCK = 1 << 10, 1 << 16


def protocol_of(settings: Settings, most: int) -> type[HttpToolsProtocol]:
    """Return the protocol of a server with these settings.

    Parameters
    ----------
    settings : Settings
    most : int
        Connections of all addresses together.
    """
    limits, proxies = settings.limits, settings.proxies
    open_by_address: Counter[str] = Counter()
    shut_out: dict[str, float] = {}  # address -> until when; it sent far more than it may

    class BoundedConnection(HttpToolsProtocol):
        """A connection that is closed at the first limit that it passes."""

        _address = ""
        _in_head = True
        _head_bytes = 0
        _late: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None
        _answered: Any = None  # the cycle whose answer is being made

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            open_by_address[self._address] += 1
            own = open_by_address[self._address]
            if self._address in shut_out:
                if self.loop.time() < shut_out[self._address]:
                    transport.abort()
                    return
                del shut_out[self._address]
            if own > limits.connections and self._address not in proxies:
                self._refuse(503, f"this address has {limits.connections} connections already")
            elif open_by_address.total() > most:
                self._refuse(503, f"there are {most} connections already")
            else:
                self._begin_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            self.resume_writing()
            open_by_address[self._address] -= 1
            if not open_by_address[self._address]:
                del open_by_address[self._address]
            self.pipeline.clear()  # nobody is there for the answers
            if self._answered is not None and not self._answered.response_complete:
                self._answered.disconnected = True
                self._answered.message_event.set()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            # in blocks, so that little is parsed of what comes after a refusal
            start = 0
            while start < len(data) and not self.transport.is_closing():
                in_body = self.cycle is not None and self.cycle.more_body
                block = data[start : start + (_BODY_BLOCK if in_body else _HEAD_BLOCK)]
                start += len(block)
                super().data_received(block)
                if self._in_head:
                    self._head_bytes += len(block)
                    if self._head_bytes > limits.head_bytes:
                        self._refuse(431, f"the head has more than {limits.head_bytes} bytes")

        def on_message_begin(self) -> None:
            self._begin_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._end_head()
            if self.transport.is_closing():
                return
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits.head_bytes:
                self._refuse(431, f"the head has more than {limits.head_bytes} bytes")
            elif len(self.pipeline) >= limits.pipelined:
                if self._address not in proxies:
                    shut_out[self._address] = self.loop.time() + _SHUT_OUT_SECONDS
                self._refuse(429, f"{limits.pipelined} requests wait on this connection already")
            elif not self._is_here(self.url):
                self._refuse(400, "the address of the request is that of another host")
            else:
                super().on_headers_complete()
                if not self.pipeline:
                    self._answered = self.cycle

        def _is_here(self, url: bytes) -> bool:
            """Return whether an absolute address, as for a proxy, names the host of the request."""
            if url.startswith((b"/", b"*")):
                return True
            host = next((value for name, value in self.headers if name == b"host"), b"")
            try:
                return urlsplit(url).netloc.lower() == host.lower()
            except ValueError:
                return False

        def on_body(self, body: bytes) -> None:
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.transport.is_closing():
                super().on_message_complete()

        def on_response_complete(self) -> None:
            if self.pipeline:
                self._answered = self.pipeline[-1][0]
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._unread is None:
                self._unread = self.loop.call_later(limits.body_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _begin_head(self) -> None:
            self._in_head, self._head_bytes = True, 0
            if self._late is None:
                self._late = self.loop.call_later(limits.head_seconds, self._too_slow)

        def _end_head(self) -> None:
            self._in_head = False
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _too_slow(self) -> None:
            self._late = None
            self._refuse(408, f"the head did not arrive within {limits.head_seconds:g} seconds")

        def _refuse(self, status: int, detail: str) -> None:
            """Close the connection, with an answer unless an earlier one may be under way."""
            self._end_head()
            if self.transport.is_closing():
                return
            if self.cycle is None or self.cycle.response_complete:
                kind, phrase = _REFUSALS[status]
                answer = Problem(status, kind, detail).response("none")
                head = f"HTTP/1.1 {status} {phrase}\r\nconnection: close\r\n"
                lines = b"".join(
                    name + b": " + value + b"\r\n" for name, value in answer.raw_headers
                )
                self.transport.write(head.encode() + lines + b"\r\n" + bytes(answer.body))
            self.transport.close()

    return BoundedConnection
