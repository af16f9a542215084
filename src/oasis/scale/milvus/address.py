"""Where a Milvus collection is: a server and a name, or a file and a name."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from oasis.errors import InputError

_PORT = 19530
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_FILE = re.compile(r"[A-Za-z0-9._-]{1,36}")


@dataclass(frozen=True)
class Address:
    """One collection's place.

    Attributes
    ----------
    target : str
        "host:port", or the absolute path of milvus-lite's file.
    name : str
        The collection's name there.
    lite : bool
        Whether the target is a file.
    timeout : float or None
        Seconds that a request may take, where the address says so.
    """

    target: str
    name: str
    lite: bool
    timeout: float | None = None

    @classmethod
    def parse(cls, uri: Any, name: str) -> Address:
        """Read an address; a name in its path goes before ``name``.

        What could not be kept is refused: a user, a password, a fragment, and all of a query but
        ``timeout``.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis")
        Address(target='db.example:19530', name='photos', lite=False, timeout=60.0)
        >>> Address.parse("http://localhost", "oasis")
        Address(target='localhost:19530', name='oasis', lite=False, timeout=None)
        >>> Address.parse("/data/codes.db", "oasis")
        Address(target='/data/codes.db', name='oasis', lite=True, timeout=None)
        """
        if not isinstance(uri, (str, os.PathLike)) or not os.fspath(uri):
            raise InputError(f"uri must be an address or a file path, got {uri!r}")
        text = os.fspath(uri)
        if "://" not in text:
            path = Path(text).absolute()
            if not _FILE.fullmatch(path.name):
                raise InputError(
                    f"milvus-lite cannot use a file named {path.name!r}; expected up to 36 "
                    "letters, digits, dots, dashes and underscores"
                )
            return cls(str(path), _check_name(name), lite=True)
        parts = urlsplit(text)
        if "@" in parts.netloc:
            raise InputError(
                f"{without_user(text)!r} has a user or password; requests to Milvus go without "
                "authentication and without TLS, leave it out"
            )
        if parts.scheme not in ("milvus", "http"):
            raise InputError(
                f"{text!r} has the scheme {parts.scheme!r}; expected milvus://host:port/name, "
                "http://host:port, or the path of a milvus-lite file"
            )
        try:
            host, port = parts.hostname, parts.port or _PORT
        except ValueError as error:
            raise InputError(f"{text!r} is no address: {error}") from None
        if not host:
            raise InputError(f"{text!r} names no host; expected milvus://host:port/name")
        if parts.fragment:
            raise InputError(f"{text!r} has a fragment, {parts.fragment!r}; leave it out")
        inside = parts.path.strip("/")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(place, _check_name(inside or name), False, _timeout_in(parts.query))

    @property
    def uri(self) -> str:
        """The address in full, every part of it there: what is recorded.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis").uri
        'milvus://db.example:19530/photos?timeout=60'
        """
        if self.lite:
            return self.target
        query = "" if self.timeout is None else f"?timeout={self.timeout:g}"
        return f"milvus://{self.target}/{self.name}{query}"

    def __str__(self) -> str:
        return self.target


def without_user(text: str) -> str:
    """Return an address as it may be shown: errors go to logs and screens.

    >>> without_user("http://me:secret@host/x")
    'http://***@host/x'
    """
    return re.sub(r"//[^/]*@", "//***@", text)


def _timeout_in(query: str) -> float | None:
    if not query:
        return None
    name, _, value = query.partition("=")
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if name != "timeout" or not 0 < seconds < math.inf:
        raise InputError(
            f"an address of Milvus ends in {'?' + query!r}; expected nothing, or a number of "
            "seconds above 0, as in ?timeout=60"
        )
    return seconds


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name for a Milvus collection; expected a letter or underscore, then "
            "up to 254 letters, digits and underscores"
        )
    return name
