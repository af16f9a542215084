"""Connections to a service, patience while it is busy, and its answers as records and errors.

Another server at the address is recognised by its answers: an oasis service answers with JSON, and
its errors are problem details of the type ``urn:oasis:problem:...``. A field that this version does
not know is left out, so that a newer service can be asked.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import oasis
from oasis import errors
from oasis.client.requests import Sent

Answer = TypeVar("Answer")

_KINDS: dict[str, type[errors.OasisError]] = {
    "unknown-id": errors.UnknownIdError,
    "duplicate-id": errors.DuplicateIdError,
    "unknown-word": errors.UnknownWordError,
    "input": errors.InputError,
    "too-large": errors.InputError,
    "answer-too-large": errors.TooLargeError,
    "tensors": errors.InputError,
    "not-fitted": errors.NotFittedError,
    "data": errors.DataError,
    "locked": errors.LockedError,
    "engine": errors.EngineError,
    "storage": errors.StorageError,
    "collection": errors.CollectionError,
    "readonly": errors.CollectionError,
    "format": errors.FormatError,
    "busy": errors.BusyError,
    "stopping": errors.BusyError,
    "token": errors.RefusedError,
    "scope": errors.RefusedError,
    "host": errors.RefusedError,
    "origin": errors.RefusedError,
}
"""Kind of problem -> the error that the collection itself would raise, or one of the service's."""

_PROBLEM = "urn:oasis:problem:"
_MOST_IDLE = 8
_CONNECT_SECONDS = 10.0
_SECONDS = re.compile("[0-9]{1,6}")  # of Retry-After, which may be a date too
_HOST = re.compile(r"[^\x00-\x20\x7f]+")
_FAILURES = (http.client.HTTPException, OSError)


class Transport:
    """Sends requests to one service; safe to use from any thread.

    Parameters
    ----------
    url, token, timeout, patience : as in `oasis.client.Client`
    """

    def __init__(self, url: str, token: str | None, timeout: float, patience: float) -> None:
        self._kind, self._host, self._port, self._path = _address(url)
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.patience = patience
        self._version: str | None = None  # of oasis there, from the last answer that had it
        self._headers = {"Accept": "application/json"}
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
        sent: Sent | None = None,
        *,
        change: bool = False,
        method: str | None = None,
        read: Callable[[dict[str, Any]], Answer],
    ) -> Answer:
        """Send a request and return what ``read`` makes of the JSON of its answer.

        The method is GET without a body and POST with one, unless another is given.
        """
        method = method or ("GET" if sent is None else "POST")
        status, content = self._answer(method, path, sent, change=change)
        if status != 200:
            self._raise_for(status, _problem_of(content))
        found = _object(content)
        place = f"/v1/{path.partition('?')[0]}"
        if found is None:
            raise errors.ServiceError(
                f"{self.url} is no oasis service: it answered {place} with {_quoted(content)}"
            )
        try:
            return read(found)
        except _Strange as error:
            if self._version is None:
                reason = f"{self.url} is no oasis service: {error} to {place}"
            else:
                reason = (
                    f"{self.url} runs oasis {self._version}, this is oasis {oasis.__version__}, "
                    f"and {error}; install the same version on both sides"
                )
            raise errors.ServiceError(reason) from error

    def picture(self, path: str) -> bytes | None:
        """Return a picture, or None where an item has none."""
        status, content = self._answer("GET", path, None)
        if status == 200:
            return content
        problem = _problem_of(content)
        if problem.get("type") != f"{_PROBLEM}no-picture":
            self._raise_for(status, problem)
        return None

    def _answer(
        self, method: str, path: str, sent: Sent | None, *, change: bool = False
    ) -> tuple[int, bytes]:
        """Return status and content of an answer.

        A busy service is asked again when it says so, if that is within ``patience`` seconds.
        """
        deadline = time.monotonic() + self.patience
        while True:
            status, content, pause = self._exchange(method, path, sent, change)
            if status == 200 or not pause or time.monotonic() + pause > deadline:
                return status, content
            time.sleep(pause)

    def _exchange(
        self, method: str, path: str, sent: Sent | None, change: bool
    ) -> tuple[int, bytes, int]:
        """Send one request; return status, content, and the seconds after which to ask again.

        A stale connection is replaced; a change always uses a new connection.
        """
        with self._guard:
            if self._closed:
                raise errors.CollectionError("this client is closed")
            used = self._idle.pop() if self._idle and not change else None
        for connection in (used, None):
            if connection is None:
                connection = self._connected()
            try:
                return self._over(connection, method, path, sent)
            except _FAILURES as error:
                connection.close()
                if connection is not used or not isinstance(error, ConnectionError):
                    raise self._unreachable(error, change) from error
        raise AssertionError  # the second connection was new

    def _connected(self) -> http.client.HTTPConnection:
        # connecting has a shorter timeout than waiting for an answer
        wait = min(self.timeout, _CONNECT_SECONDS)
        connection = self._kind(self._host, self._port, timeout=wait)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise self._unreachable(error, False) from error
        connection.sock.settimeout(self.timeout)
        return connection

    def _over(
        self, connection: http.client.HTTPConnection, method: str, path: str, sent: Sent | None
    ) -> tuple[int, bytes, int]:
        body, kind = sent or (None, None)
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        try:
            connection.request(method, f"{self._path}/v1/{path}", body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # a service refuses a body that is too large before it has arrived
            if connection.sock is None:
                raise
        response = connection.getresponse()
        content = response.read()
        self._version = response.getheader("X-Oasis-Version") or self._version
        retry = response.getheader("Retry-After", "")
        with self._guard:
            room = len(self._idle) < _MOST_IDLE  # every change opens a connection of its own
            if kept := room and not self._closed and not response.will_close:
                self._idle.append(connection)
        if not kept:
            connection.close()
        return response.status, content, int(retry) if _SECONDS.fullmatch(retry) else 0

    def _unreachable(self, error: Exception, change: bool) -> errors.UnreachableError:
        if isinstance(error, ConnectionRefusedError):
            reason = "connection refused; is `oasis serve` running there?"
        else:
            reason = str(error) or type(error).__name__
        doubt = "; the change may or may not have been made" if change else ""
        return errors.UnreachableError(f"{self.url} does not answer: {reason}{doubt}")

    def _raise_for(self, status: int, problem: dict[str, Any]) -> NoReturn:
        """Raise the error that an answer other than 200 stands for."""
        kind = str(problem.get("type", ""))
        detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        if not kind.startswith(_PROBLEM):
            raise errors.ServiceError(
                f"{self.url} is no oasis service, or a proxy stands before it: it answered with "
                f"status {status}: {detail}"
            )
        kind = kind.removeprefix(_PROBLEM)
        if kind in _KINDS:
            raise _KINDS[kind](detail)
        if kind == "no-route":
            raise errors.ServiceError(
                f"{self.url} lacks part of this API; the url must be the address of the page. The "
                f"version of oasis there is {self._version or 'unknown'}, here {oasis.__version__}"
            )
        raise errors.ServiceError(f"the service answered with status {status}: {detail}")


# -- answers -----------------------------------------------------------------------------------


class _Strange(Exception):
    """An answer without the expected shape; the message says what is missing."""


def value_of(name: str) -> Callable[[Any], Any]:
    """Return a function that reads a field of an answer.

    >>> value_of("n")({"n": 3})
    3
    """

    def read(found: Any) -> Any:
        if not isinstance(found, Mapping) or name not in found:
            raise _Strange(f"its answer lacks {name!r}")
        return found[name]

    return read


def parts(found: Any, name: str) -> list[Any]:
    """Return a field of an answer that holds a list."""
    value = value_of(name)(found)
    if not isinstance(value, list):
        raise _Strange(f"its answer has no list in {name!r}")
    return value


def record(kind: Callable[..., Answer], found: Any, **changed: Any) -> Answer:
    """Return a record made of the fields of an answer that it has.

    >>> from oasis.collection import ClassInfo
    >>> record(ClassInfo, {"name": "sky", "n": 2, "round": 1, "colour": "blue"})
    ClassInfo(name='sky', n=2, round=1, n_predicted=0)
    """
    known: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in changed:
            known[each.name] = changed[each.name]
        elif isinstance(found, Mapping) and each.name in found:
            known[each.name] = found[each.name]
        elif each.default is MISSING and each.default_factory is MISSING:
            raise _Strange(f"its answer lacks {each.name!r}")
    return kind(**known)


def _problem_of(content: bytes) -> dict[str, Any]:
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


# -- what a client is made with ----------------------------------------------------------------


def _address(url: str) -> tuple[type[http.client.HTTPConnection], str, int | None, str]:
    """Return the kind of connection, host, port and path of the address of a service.

    What it holds before an "@" is not repeated in errors.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # otherwise connecting would raise it
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if "@" in parts.netloc:
        raise errors.InputError("the url holds a name or password; leave it out, and give a token")
    is_web = parts.scheme in ("http", "https") and not parts.query and not parts.fragment
    if not is_web or not host or not _HOST.fullmatch(host):
        shown = url.rpartition("@")[2]
        raise errors.InputError(f"the url must be like http://127.0.0.1:8000, got {shown!r}")
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind, host, port, parts.path.rstrip("/")


def _checked_token(token: str) -> str:
    """Return a token that a header can carry; the error does not repeat it."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise errors.InputError(
            "the token must have plain printable characters, and at least one; this one has others"
        )
    return token
