"""One service over HTTP: what is sent, connections, patience while it is busy, and its answers.

Another server at the address is recognised by its answers: an oasis service answers with JSON, and
its errors are problem details of the type ``urn:oasis:problem:...``. A field that this version does
not know is left out, so that a newer service can be asked.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import secrets
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import oasis
from oasis import errors
from oasis.errors import DataError, InputError

Answer = TypeVar("Answer")
Sent = tuple[bytes, str]
"""A body, and its type."""

_KINDS: dict[str, type[errors.OasisError]] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "-", name.removesuffix("Error")).lower(): kind
    for name, kind in vars(errors).items()
    if name.endswith("Error")
}
_KINDS |= dict.fromkeys(("too-large", "tensors"), errors.InputError)
_KINDS |= dict.fromkeys(("token", "scope", "host", "origin"), errors.RefusedError)
_KINDS |= {"stopping": errors.BusyError, "readonly": errors.CollectionError}
_KINDS |= {"answer-too-large": errors.TooLargeError}
"""Kind of problem -> the error that the collection itself would raise, or one of the service's."""

_PROBLEM = "urn:oasis:problem:"
_MOST_IDLE = 8
_CONNECT_SECONDS = 10.0
_SECONDS = re.compile("[0-9]{1,6}")  # of Retry-After, which may be a date too
_HOST = re.compile(r"[^\x00-\x20\x7f]+")
_PNG_MODES = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")


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
        read: Callable[[dict[str, Any]], Answer],
    ) -> Answer:
        """Return what ``read`` makes of the JSON of an answer; with a body it is a POST."""
        status, content = self._answer(path, sent, change=change)
        if status != 200:
            self._raise_for(status, _problem_of(content))
        found, place = _object(content), f"/v1/{path.partition('?')[0]}"
        if found is None:
            raise errors.ServiceError(
                f"{self.url} is no oasis service: it answered {place} with {_quoted(content)}"
            )
        try:
            return read(found)
        except StrangeAnswer as error:
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
        status, content = self._answer(path, None)
        if status == 200:
            return content
        problem = _problem_of(content)
        if problem.get("type") != f"{_PROBLEM}no-picture":
            self._raise_for(status, problem)
        return None

    def _answer(self, path: str, sent: Sent | None, *, change: bool = False) -> tuple[int, bytes]:
        """Return status and content of an answer; a busy service is asked again when it says so."""
        deadline = time.monotonic() + self.patience
        while True:
            status, content, pause = self._exchange(path, sent, change)
            if status == 200 or not pause or time.monotonic() + pause > deadline:
                return status, content
            time.sleep(pause)

    def _exchange(self, path: str, sent: Sent | None, change: bool) -> tuple[int, bytes, int]:
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
                return self._over(connection, path, sent)
            except (http.client.HTTPException, OSError) as error:
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
        self, connection: http.client.HTTPConnection, path: str, sent: Sent | None
    ) -> tuple[int, bytes, int]:
        body, kind = sent or (None, None)
        headers = {**self._headers, **({"Content-Type": kind} if kind else {})}
        try:
            method = "POST" if sent else "GET"
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
        raise InputError("the url holds a name or password; leave it out, and give a token")
    is_web = parts.scheme in ("http", "https") and not parts.query and not parts.fragment
    if not is_web or not host or not _HOST.fullmatch(host):
        shown = url.rpartition("@")[2]
        raise InputError(f"the url must be like http://127.0.0.1:8000, got {shown!r}")
    secure = parts.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    return kind, host, port, parts.path.rstrip("/")


def _checked_token(token: str) -> str:
    """Return a token that a header can carry; the error does not repeat it."""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
        raise InputError(
            "the token must have plain printable characters, and at least one; this one has others"
        )
    return token


# -- answers -----------------------------------------------------------------------------------


class StrangeAnswer(Exception):
    """An answer without the expected shape; the message says what is missing."""


def value_of(name: str, kind: type = object) -> Callable[[Any], Any]:
    """Return a function that reads a field of an answer.

    >>> value_of("n")({"n": 3})
    3
    """

    def read(found: Any) -> Any:
        if not isinstance(found, Mapping) or name not in found:
            raise StrangeAnswer(f"its answer lacks {name!r}")
        if not isinstance(found[name], kind):
            raise StrangeAnswer(f"its answer has no {kind.__name__} in {name!r}")
        return found[name]

    return read


def record(kind: Callable[..., Answer], found: Any) -> Answer:
    """Return a record made of the fields of an answer that it has.

    >>> from oasis.collection import ClassInfo
    >>> record(ClassInfo, {"name": "sky", "n": 2, "round": 1, "colour": "blue"})
    ClassInfo(name='sky', n=2, round=1, n_predicted=0)
    """
    known: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        has_default = each.default is not MISSING or each.default_factory is not MISSING
        if has_default and (not isinstance(found, Mapping) or each.name not in found):
            continue
        if str(each.type).startswith("tuple"):
            known[each.name] = tuple(value_of(each.name, list)(found))
        elif each.type == "bytes":
            known[each.name] = b64decode(value_of(each.name, str)(found))
        else:
            known[each.name] = value_of(each.name)(found)
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


# -- bodies ------------------------------------------------------------------------------------


def plain(**asked: Any) -> Sent:
    """Return a request as JSON."""
    try:
        return json.dumps(asked, allow_nan=False, default=_number).encode(), "application/json"
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {error}") from error


def _number(value: object) -> Any:
    """Return a number of NumPy as one of Python."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        return value.item()  # type: ignore[attr-defined]
    raise TypeError(f"{type(value).__name__} is no JSON")


def tensors(X: Mapping[str, Any], **asked: Any) -> Sent:
    """Return matrices by modality, and the rest of a request, as safetensors."""
    if not isinstance(X, Mapping) or not X:
        raise InputError(f"X must map modality names to matrices, got {type(X).__name__}")
    # whoever has matrices has NumPy; a client without them loads the standard library alone
    import safetensors.numpy

    found: dict[str, Any] = {}
    widths: dict[str, int] = {}
    for name, matrix in X.items():
        if hasattr(matrix, "tocsr"):
            rows = _csr(name, matrix)
            widths[name] = rows.shape[1]
            for part in ("data", "indices", "indptr"):
                found[f"{name}:{part}"] = getattr(rows, part)
        else:
            found[name] = _dense(name, matrix)
    metadata = {"request": plain(**asked)[0].decode(), "sparse": json.dumps(widths)}
    return safetensors.numpy.save(found, metadata), "application/x-safetensors"


def _dense(name: str, matrix: Any) -> Any:
    import numpy as np

    try:
        values = np.asarray(matrix)
    except ValueError as error:
        raise InputError(f"modality {name!r} is no matrix: {error}") from error
    if values.dtype.kind not in "biuf":
        raise InputError(f"modality {name!r} holds {values.dtype}, expected numbers")
    return np.ascontiguousarray(values.astype(np.uint8) if values.dtype.kind == "b" else values)


def _csr(name: str, matrix: Any) -> Any:
    # SciPy is there where a sparse matrix is
    from oasis.arrays import checked_csr

    try:
        return checked_csr(matrix)
    except InputError as error:
        raise InputError(f"modality {name!r} {error}") from error


def form(files: Mapping[int, bytes], **asked: Any) -> Sent:
    """Return a request with pictures by row; without pictures it is plain JSON.

    A form takes the bytes of the pictures, base64 in JSON would take a third more.
    """
    if not files:
        return plain(**asked)
    boundary = secrets.token_hex(16)  # 128 random bits, so that no file holds it
    start = f'--{boundary}\r\nContent-Disposition: form-data; name="'
    sent = [f'{start}request"\r\n\r\n'.encode(), plain(**asked)[0], b"\r\n"]
    for row, content in files.items():
        sent.append(f'{start}image.{row}"; filename="{row}"\r\n\r\n'.encode())
        sent += [content, b"\r\n"]
    sent.append(f"--{boundary}--\r\n".encode())
    return b"".join(sent), f"multipart/form-data; boundary={boundary}"


def files_of(pictures: Iterable[Any]) -> tuple[dict[int, bytes], dict[int, str]]:
    """Return pictures as the bytes of files, and why some cannot be read, by row."""
    files: dict[int, bytes] = {}
    unread: dict[int, str] = {}
    for row, picture in enumerate(pictures):
        try:
            if picture is not None:
                files[row] = file_of(picture)
        except DataError as error:
            unread[row] = str(error)
    return files, unread


def file_of(picture: Any) -> bytes:
    """Return a picture as the bytes of a file: read from a path, or encoded here."""
    if isinstance(picture, (str, Path)):
        path = Path(picture)
        try:
            if not path.is_file():  # a pipe or a device would never end
                raise DataError(f"the picture {path} is missing, or no regular file")
            return path.read_bytes()
        except (OSError, ValueError) as error:  # a ValueError: the name holds a NUL
            raise DataError(f"the picture cannot be read: {error}") from error
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return bytes(picture)
    if hasattr(picture, "__array_interface__") and hasattr(picture, "shape"):
        from PIL import Image

        try:
            picture = Image.fromarray(picture)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the picture is an array of shape {picture.shape} and type {picture.dtype}, "
                "expected (height, width, 3) uint8"
            ) from error
    if hasattr(picture, "getexif") and hasattr(picture, "save"):  # of Pillow, which is there then
        file = io.BytesIO()
        kind = "PNG" if picture.mode in _PNG_MODES else "TIFF"
        picture.save(file, kind, exif=picture.getexif())
        return file.getvalue()
    raise InputError(
        f"a picture is a path, bytes, a PIL image or an array, got {type(picture).__name__}"
    )
