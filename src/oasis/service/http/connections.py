"""Limits of connections: number per address, and time and size of a request's head.

The server of uvicorn bounds neither; a few hundred unfinished heads would take every file that the
process may open. Bodies are bounded by `oasis.service.http.guard`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oasis.service.http.problems import Problem
from oasis.service.settings import Settings

_STATUS = {408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Unavailable"}


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

    class BoundedConnection(HttpToolsProtocol):
        """A connection that is closed when its request's head is too slow or too large."""

        _address = ""
        _in_head = True
        _head_bytes = 0
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            open_by_address[self._address] += 1
            own = open_by_address[self._address]
            if own > limits.connections and self._address not in proxies:
                self._close(503, f"this address has {limits.connections} connections already")
            elif open_by_address.total() > most:
                self._close(503, f"there are {most} connections already")
            else:
                self._begin_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            open_by_address[self._address] -= 1
            if not open_by_address[self._address]:
                del open_by_address[self._address]
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > limits.head_bytes:
                    self._close(431, f"the head has more than {limits.head_bytes} bytes")

        def on_message_begin(self) -> None:
            self._begin_head()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._end_head()
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits.head_bytes:
                self._close(431, f"the head has more than {limits.head_bytes} bytes")
            elif not self.transport.is_closing():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            if not self.transport.is_closing():
                super().on_message_complete()

        def _begin_head(self) -> None:
            self._in_head, self._head_bytes = True, 0
            if self._deadline is None:
                self._deadline = self.loop.call_later(limits.head_seconds, self._too_slow)

        def _end_head(self) -> None:
            self._in_head = False
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            self._deadline = None
            self._close(408, f"the head did not arrive within {limits.head_seconds:g} seconds")

        def _close(self, status: int, detail: str) -> None:
            self._end_head()
            if self.transport.is_closing():
                return
            # an answer to an earlier request on this connection may be under way
            if self.cycle is None or self.cycle.response_complete:
                kind = {408: "slow", 431: "head", 503: "busy"}[status]
                answer = Problem(status, kind, detail).response("none")
                head = f"HTTP/1.1 {status} {_STATUS[status]}\r\nconnection: close\r\n"
                lines = b"".join(
                    name + b": " + value + b"\r\n" for name, value in answer.raw_headers
                )
                self.transport.write(head.encode() + lines + b"\r\n" + bytes(answer.body))
            self.transport.close()

    return BoundedConnection
