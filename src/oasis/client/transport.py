"""Connections to a service: kept open, replaced when stale, patient while it is busy."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from typing import Any, NoReturn
from urllib.parse import urlsplit

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


_MOST_IDLE = 8


class Transport:
    """Sends requests to one service; any thread may.

    Parameters
    ----------
    url, token, timeout, patience : as in `oasis.client.Client`
    """

    def __init__(self, url: str, token: str | None, timeout: float, patience: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"the url must be like http://127.0.0.1:8000, got {url!r}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.patience = patience
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, parts.port)
        self._path = parts.path.rstrip("/")
        self._headers = {"Accept": JSON}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
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
        self, path: str, body: bytes | None = None, kind: str | None = None, *, change: bool = False
    ) -> Any:
        """Send a request and return the JSON of its answer; go on while the service is busy."""
        headers = {} if kind is None else {"Content-Type": kind}
        method = "GET" if body is None else "POST"
        deadline = time.monotonic() + self.patience
        while True:
            status, content = self.exchange(method, path, body, headers, change=change)
            if status == 200:
                return json.loads(content)
            problem = problem_of(content)
            pause = float(problem.get("retry_after", 0))
            if not pause or time.monotonic() + pause > deadline:
                raise_for(status, problem)
            time.sleep(pause)

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        change: bool = False,
    ) -> tuple[int, bytes]:
        """Send one request; a connection that went stale is replaced, but never under a change."""
        connection = None if change else self._used()
        if connection is not None:
            try:
                return self._over(connection, method, path, body, headers)
            except ConnectionError:
                connection.close()  # closed by the service while it lay idle
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
        doubt = "; the change may or may not have been made" if change else ""
        return UnreachableError(
            f"{self.url} does not answer: {str(error) or type(error).__name__}{doubt}"
        )

    def _over(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str] | None,
    ) -> tuple[int, bytes]:
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
        retry = response.getheader("Retry-After", "")
        if response.status != 200 and retry.isdecimal():
            content = json.dumps({**problem_of(content), "retry_after": int(retry)}).encode()
        self._give_back(connection, response)
        return response.status, content

    def _used(self) -> http.client.HTTPConnection | None:
        with self._guard:
            if self._closed:
                raise CollectionError("this client is closed")
            return self._idle.pop() if self._idle else None

    def _new(self) -> http.client.HTTPConnection:
        if self._closed:
            raise CollectionError("this client is closed")
        host, port = self._address
        if self._secure:
            return http.client.HTTPSConnection(
                host, port, timeout=self.timeout, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self.timeout)

    def _give_back(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        with self._guard:
            room = len(self._idle) < _MOST_IDLE  # every change brings a connection of its own
            if room and not self._closed and not response.will_close:
                self._idle.append(connection)
                return
        connection.close()


def problem_of(content: bytes) -> dict[str, Any]:
    """Return the problem details of an answer; anything else that came is quoted."""
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    return {"detail": content[:200].decode(errors="replace")}


def raise_for(status: int, problem: dict[str, Any]) -> NoReturn:
    kind = str(problem.get("type", "")).removeprefix("urn:oasis:problem:")
    detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
    if kind in _KINDS:
        raise _KINDS[kind](detail)
    raise ServiceError(f"the service answered with status {status}: {detail}")
