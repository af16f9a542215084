"""Forms (``multipart/form-data``): the JSON of a request, and pictures by row.

A body is in memory and of bounded size before it is decoded, so its parts stay there too: no
temporary file is made that a broken form could leave behind.
"""

from __future__ import annotations

import re
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from oasis.service.http.problems import Problem

_FILE = re.compile(r"image\.(\d{1,6})")
_MAX_HEAD = 2048


class _Refused(Exception):
    """Why a form is refused, in words."""


class _Parts:
    """The parts of a form by name, filled by the callbacks of the parser.

    Parameters
    ----------
    most : int
        Maximum number of parts.
    """

    def __init__(self, most: int) -> None:
        self.found: dict[str, bytes] = {}
        self.is_whole = False
        self._most = most
        self._field = self._value = b""
        self._head_bytes = 0
        self._disposition: bytes | None = None
        self._name = ""
        self._content: list[bytes] = []

    def callbacks(self) -> Any:
        """Return the callbacks for the parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._add_field,
            "on_header_value": self._add_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_head,
            "on_part_data": lambda data, start, end: self._content.append(data[start:end]),
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        if len(self.found) >= self._most:
            raise _Refused(f"it has more than {self._most} parts")
        self._head_bytes, self._disposition, self._content = 0, None, []

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._field += self._bounded(data[start:end])

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._bounded(data[start:end])

    def _bounded(self, part: bytes) -> bytes:
        self._head_bytes += len(part)
        if self._head_bytes > _MAX_HEAD:
            raise _Refused(f"the head of a part has more than {_MAX_HEAD} bytes")
        return part

    def _end_header(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _end_head(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise _Refused("a part has no name")
        self._name = options[b"name"].decode("utf-8", errors="replace")
        if self._name in self.found:
            raise _Refused(f"the part {self._name[:100]!r} is given twice")

    def _end(self) -> None:
        self.found[self._name] = b"".join(self._content)

    def _finish(self) -> None:
        self.is_whole = True


def parse_form(content: bytes, content_type: str, max_files: int) -> tuple[bytes, dict[int, bytes]]:
    """Return the JSON of a form's request, and its pictures by row; or refuse it.

    >>> part = b'--x\\r\\nContent-Disposition: form-data; name="%s"\\r\\n\\r\\n%s\\r\\n'
    >>> form = part % (b"request", b"{}") + part % (b"image.3", b"PNG") + b"--x--\\r\\n"
    >>> parse_form(form, "multipart/form-data; boundary=x", 10)
    (b'{}', {3: b'PNG'})
    """
    parts = _Parts(max_files + 1)
    try:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise _Refused("its type names no boundary")
        MultipartParser(boundary, parts.callbacks()).write(content)
        if not parts.is_whole:
            raise _Refused("it does not end with its boundary")
        return parts.found.pop("request", b"{}"), _pictures(parts.found)
    except (_Refused, FormParserError) as error:
        raise _bad_form(str(error)) from error
    except (ValueError, LookupError, AttributeError) as error:  # the parser's, for broken forms
        raise _bad_form("its parts cannot be told apart") from error


def _pictures(parts: dict[str, bytes]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for name, picture in parts.items():
        match = _FILE.fullmatch(name)
        if match is None:
            raise _Refused(f"the part {name[:100]!r} is not known")
        row = int(match[1])
        if row in found:  # image.1 and image.01
            raise _Refused(f"the file image.{row} is given twice")
        found[row] = picture
    return found


def _bad_form(reason: str) -> Problem:
    return Problem(
        400,
        "form",
        f"the form cannot be read: {reason[:300]}; expected a field 'request' with JSON, and files "
        "image.0, image.1 and so on",
    )
