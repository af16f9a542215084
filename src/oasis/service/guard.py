"""Applied to every request: an id, checks of host and origin, limits, headers, log, counters."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

import oasis
from oasis.service.problems import Problem, busy
from oasis.service.settings import Settings
from oasis.service.telemetry import LOG
from oasis.service.work import BODY_COST, Call

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from oasis.service.work import Service

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_PORT = re.compile(r":\d*\Z")
_SAFE = ("GET", "HEAD", "OPTIONS")
_PART = 1 << 18
_CLOSE = {"Connection": "close"}

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "X-Oasis-Version": oasis.__version__,
}
"""Of every answer that does not set its own."""
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    """The outermost layer of the application.

    It gives every request an id (the caller's ``X-Request-ID`` if that is plain), refuses unknown
    hosts and foreign origins, limits the size of bodies and their time to arrive, sets the security
    headers, turns uncaught exceptions into a problem without internals, and logs one line.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app = app
        self.service = service
        self.running = 0
        self.body_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()

    def admit(self, method: str, headers: Headers) -> None:
        """Refuse a request that must not come in, from its head alone."""
        settings = self.service.settings
        hosts = headers.getlist("host")
        if len(hosts) > 1:
            raise Problem(400, "host", "there is more than one Host header", headers=_CLOSE)
        host = hosts[0] if hosts else ""
        name = _PORT.sub("", host).lower()
        if settings.hosts is not None and name not in settings.hosts:
            raise Problem(
                421,
                "host",
                f"unknown Host header {name[:100]!r}; --allow-host adds a name",
            )
        if method not in _SAFE and not _same_origin(headers, host):
            raise Problem(403, "origin", "a page of another site may not change anything here")
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding != "identity":
            raise Problem(
                415,
                "media-type",
                f"the body has the content encoding {coding[:100]!r}; send it as it is",
                headers=_CLOSE,
            )
        if self.running > settings.limits.requests:
            raise busy(f"{settings.limits.requests} requests are being answered already")
        length = headers.get("content-length", "0")
        # digits that are no ASCII, and signs, are refused by the server before
        if length.isdecimal() and int(length) > settings.limits.body_bytes:
            raise _too_large(settings.limits.body_bytes)


class _Exchange:
    """One request and its answer."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self.guard = guard
        self.scope = scope
        self.headers = Headers(scope=scope)
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self.status = 0
        self.received = 0
        self.address = (scope.get("client") or ("",))[0]
        self.call = Call(guard.service, self._client(guard.service.settings), self._gone)
        self._receive = receive
        self._send = send
        self._deadline = time.monotonic() + self.call.limits.body_seconds
        self._arrived = False

    def _client(self, settings: Settings) -> str:
        """Return the address, and the scope of the token: one token may be of many people."""
        token = self.headers.get("authorization", "")[7:]  # after "Bearer "
        scope = settings.tokens.scope(token).name if settings.tokens else ""
        return f"{self.address} {scope}"

    async def run(self) -> None:
        guard, scope = self.guard, self.scope
        began = time.perf_counter()
        scope.setdefault("state", {}).update(request_id=self.id, call=self.call)
        guard.running += 1
        try:
            guard.admit(scope["method"], self.headers)
            await guard.app(scope, self.receive, self.send)
        except Problem as problem:
            await self._refuse(problem)
        except ClientDisconnect:
            self.status = 0  # nobody is there to be answered; it is logged as 499
        except Exception:  # noqa: BLE001 - it is logged, and told to nobody else
            LOG.exception("failed", extra={"facts": {"request_id": self.id}})
            await self._refuse(
                Problem(500, "internal", "the service has logged what happened under this request")
            )
        finally:
            guard.running -= 1
            guard.body_bytes -= self.received
            self.call.end()
            self._record(time.perf_counter() - began)

    async def receive(self) -> Message:
        """Return the next part of the body, within the limits of size and time."""
        if self._arrived:
            return await self._receive()
        limits = self.call.limits
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise Problem(
                408,
                "slow",
                f"the body did not arrive within {limits.body_seconds:g} seconds",
                headers=_CLOSE,
            ) from None
        self._arrived = not message.get("more_body", False)
        n = len(message.get("body", b""))
        self.received += n
        self.guard.body_bytes += n
        if self.received > limits.body_bytes:
            raise _too_large(limits.body_bytes)
        if self.guard.body_bytes > limits.bodies_bytes:
            raise busy("the bodies of all requests together are too large now")
        self.call.charge(BODY_COST * n)
        return message

    async def _gone(self) -> None:
        """Return when the caller has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def send(self, message: Message) -> None:
        """Pass an answer on, with the headers that every answer has; a large one in parts.

        The server takes a part when most of the one before was taken by the caller.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            own = {name for name, _ in headers}
            headers.extend(each for each in _HEADERS if each[0] not in own)
            headers.append((b"x-request-id", self.id.encode()))
        body = message.get("body", b"")
        for start in range(0, len(body) - _PART, _PART):
            part = body[start : start + _PART]
            await self._send({"type": message["type"], "body": part, "more_body": True})
        if len(body) > _PART:
            message = {**message, "body": body[(len(body) - 1) // _PART * _PART :]}
        await self._send(message)

    async def _refuse(self, problem: Problem) -> None:
        if not self.status:  # else the answer has begun, and is broken off
            await problem.response(self.id)(self.scope, self.receive, self.send)

    def _record(self, seconds: float) -> None:
        route: Any = self.scope.get("route")
        path = getattr(route, "path", None) or "other"
        method = self.scope["method"] if route is not None else "other"
        # nothing was sent: the caller hung up
        status = str(self.status or 499)
        counters = self.guard.service.counters
        counters.count(
            "oasis_requests_total",
            "Requests answered.",
            {"method": method, "route": path, "status": status},
        )
        counters.observe(
            "oasis_request_seconds", "Time to answer a request.", seconds, {"route": path}
        )
        facts = {
            "request_id": self.id,
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": int(status),
            "ms": round(1e3 * seconds, 2),
            "bytes_in": self.received,
            "client": self.address or None,
        }
        LOG.info("request", extra={"facts": facts})


def _same_origin(headers: Headers, host: str) -> bool:
    origin = headers.get("origin")
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return False
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _too_large(limit: int) -> Problem:
    return Problem(
        413,
        "too-large",
        f"a request may have at most {limit} bytes; send smaller batches",
        headers=_CLOSE,
    )
