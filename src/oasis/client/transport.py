"""Connections to a service: kept open, replaced when stale, patient while it is busy.

Another server at the address is recognised by its answers: an oasis service answers with JSON, and
its errors are problem details of the type ``urn:oasis:problem:...``.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import oasis
from oasis.client.answers import Strange
from oasis.client.requests import JSON
from oasis.errors import (
    BusyError,
    CollectionError,
    DataError,
    DuplicateIdError,
    EngineError,
    FormatError,
    InputError,
    LockedError,
    NotFittedError,
    OasisError,
    RefusedError,
    ServiceError,
    StorageError,
    TooLargeError,
    UnknownIdError,
    UnknownWordError,
    UnreachableError,
)

Answer = TypeVar("Answer")

_KINDS: dict[str, type[OasisError]] = {
    "unknown-id": UnknownIdError,
    "duplicate-id": DuplicateIdError,
    "unknown-word": UnknownWordError,
    "input": InputError,
    "too-large": InputError,
    "answer-too-large": TooLargeError,
    "tensors": InputError,
    "not-fitted": NotFittedError,
    "data": DataError,
    "locked": LockedError,
    "engine": EngineError,
    "storage": StorageError,
    "collection": CollectionError,
    "readonly": CollectionError,
    "format": FormatError,
    "busy": BusyError,
    "stopping": BusyError,
    "token": RefusedError,
    "scope": RefusedError,
    "host": RefusedError,
    "origin": RefusedError,
}
"""Kind of problem -> the error that the collection itself would raise, or one of the service's."""


_PROBLEM = "urn:oasis:problem:"
_VERSION = "X-Oasis-Version"
_MOST_IDLE = 8
_CONNECT_SECONDS = 10.0
_SECONDS = re.compile("[0-9]{1,6}")  # of Retry-After, which may be a date too
_HOST = re.compile(r"[^\x00-\x20\x7f]+")


class Transport:
    """Sends requests to one service; safe to use from any thread.

    Parameters
    ----------
    url, token, timeout, patience : as in `oasis.client.Client`

    Attributes
    ----------
    version : str or None
        Version of oasis at the service, from the last answer that had it.
    """

    def __init__(self, url: str, token: str | None, timeout: float, patience: float) -> None:
        secure, host, port, path = _address(url)
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.patience = patience
        self.version: str | None = None
        self._secure = secure
        self._address = (host, port)
        self._path = path
        self._headers = {"Accept": JSON}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {_checked_token(token)}"
        self._idle: list[http.client.HTTPConnection] = []
        self._guard = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def ask(
        self,
        path: str,
        body: bytes | None = None,
        kind: str | None = None,
        *,
        change: bool = False,
        method: str | None = None,
        read: Callable[[dict[str, Any]], Answer],
    ) -> Answer:
        """Send a request and return what ``read`` makes of the JSON of its answer.

        The method is GET without a body and POST with one, unless another is given. A service that
        is busy is asked again.
        """
        headers = {} if kind is None else {"Content-Type": kind}
        method = method or ("GET" if body is None else "POST")
        status, content = self.answer(method, path, body, headers, change=change)
        if status != 200:
            self.raise_for(status, problem_of(content))
        found = self._document(path, content)
        try:
            return read(found)
        except Strange as error:
            raise ServiceError(self._strange(path, error)) from error

    def answer(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        change: bool = False,
    ) -> tuple[int, bytes]:
        """Send a request, again while the service is busy; return status and content.

        It is sent again when the service says so, if that is within ``patience`` seconds.
        """
        deadline = time.monotonic() + self.patience
        while True:
            status, content, pause = self._exchange(method, path, body, headers, change)
            if status == 200 or not pause or time.monotonic() + pause > deadline:
                return status, content
            time.sleep(pause)

    def _document(self, path: str, content: bytes) -> dict[str, Any]:
        """Return the JSON object of an answer; any other answer is not from an oasis service."""
        found = _object(content)
        if found is None:
            raise ServiceError(
                f"{self.url} is no oasis service: it answered /v1/{path.partition('?')[0]} with "
                f"{_quoted(content)}"
            )
        return found

    def _strange(self, path: str, error: Exception) -> str:
        if self.version is None:
            return f"{self.url} is no oasis service: {error} to /v1/{path.partition('?')[0]}"
        return (
            f"{self.url} runs oasis {self.version}, this is oasis {oasis.__version__}, and "
            f"{error}; install the same version on both sides"
        )

    def raise_for(self, status: int, problem: dict[str, Any]) -> NoReturn:
        """Raise the error that an answer other than 200 stands for."""
        kind = str(problem.get("type", ""))
        detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        if not kind.startswith(_PROBLEM):
            raise ServiceError(
                f"{self.url} is no oasis service, or a proxy stands before it: it answered with "
                f"status {status}: {detail}"
            )
        kind = kind.removeprefix(_PROBLEM)
        if kind in _KINDS:
            raise _KINDS[kind](detail)
        if kind == "no-route":
            raise ServiceError(
                f"{self.url} lacks part of this API; the url must be the address of the page. The "
                f"version of oasis there is {self.version or 'unknown'}, here {oasis.__version__}"
            )
        raise ServiceError(f"the service answered with status {status}: {detail}")

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str] | None,
        change: bool,
    ) -> tuple[int, bytes, int]:
        """Send one request; return status, content, and the seconds after which to ask again.

        A stale connection is replaced; a change always uses a new connection.
        """
        connection = None if change else self._used()
        if connection is not None:
            try:
                return self._over(connection, method, path, body, headers)
            except ConnectionError:
                connection.close()  # closed by the service while it was idle
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                raise self._unreachable(error, change) from error
        connection = self._new()
        try:
            return self._over(connection, method, path, body, headers)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise self._unreachable(error, change) from error

    def _unreachable(self, error: Exception, change: bool) -> UnreachableError:
        if isinstance(error, ConnectionRefusedError):
            reason = "connection refused; is `oasis serve` running there?"
        else:
            reason = str(error) or type(error).__name__
        doubt = "; the change may or may not have been made" if change else ""
        return UnreachableError(f"{self.url} does not answer: {reason}{doubt}")

    def _over(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str] | None,
    ) -> tuple[int, bytes, int]:
        try:
            connection.request(
                method, f"{self._path}/v1/{path}", body, {**self._headers, **(headers or {})}
            )
        except (BrokenPipeError, ConnectionResetError):
            # a service refuses a body that is too large before it has arrived
            if connection.sock is None:
                raise
        response = connection.getresponse()
        content = response.read()
        self.version = response.getheader(_VERSION) or self.version
        retry = response.getheader("Retry-After", "")
        self._give_back(connection, response)
        return response.status, content, int(retry) if _SECONDS.fullmatch(retry) else 0

    def _used(self) -> http.client.HTTPConnection | None:
        with self._guard:
            if self._closed:
                raise CollectionError("this client is closed")
            return self._idle.pop() if self._idle else None

    def _new(self) -> http.client.HTTPConnection:
        if self._closed:
            raise CollectionError("this client is closed")
        host, port = self._address
        # connecting has a shorter timeout than waiting for an answer
        wait = min(self.timeout, _CONNECT_SECONDS)
        connection = (
            http.client.HTTPSConnection(
                host, port, timeout=wait, context=ssl.create_default_context()
            )
            if self._secure
            else http.client.HTTPConnection(host, port, timeout=wait)
        )
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error, False) from error
        connection.sock.settimeout(self.timeout)
        return connection

    def _give_back(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        with self._guard:
            room = len(self._idle) < _MOST_IDLE  # every change opens a connection of its own
            if room and not self._closed and not response.will_close:
                self._idle.append(connection)
                return
        connection.close()


def problem_of(content: bytes) -> dict[str, Any]:
    """Return the problem details of an answer; anything else that came is quoted."""
    return _object(content) or {"detail": _quoted(content)}


def _object(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object that came, or None for anything else."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _quoted(content: bytes) -> str:
    """Return the beginning of what came, in one line."""
    return repr(" ".join(content[:200].decode(errors="replace").split()))


def _address(url: str) -> tuple[bool, str, int | None, str]:
    """Return whether it is secure, host, port and path of the address of a service.

    What it holds before an "@" is not repeated in errors.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # otherwise connecting would raise it
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if "@" in parts.netloc:
        raise InputError("the url holds a name or password; leave it out, and give a token")
    is_web = parts.scheme in ("http", "https") and not parts.query and not parts.fragment
    if not is_web or not host or not _HOST.fullmatch(host):
        shown = url.rpartition("@")[2]
        raise InputError(f"the url must be like http://127.0.0.1:8000, got {shown!r}")
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


def _checked_token(token: str) -> str:
    """Return a token that a header can carry; the error does not repeat it."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InputError(
            "the token must have plain printable characters, and at least one; this one has others"
        )
    return token
