"""The address of a Milvus collection: a server and a name, or a file and a name."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from oasis.errors import InputError
from oasis.scale.milvus.access import Access

_ANYONE = Access()
_PORT = 19530
_OPTIONS = {"timeout", "tls", "tls_ca", "token_env", "token_file"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_FILE = re.compile(r"[A-Za-z0-9._-]{1,36}")


@dataclass(frozen=True)
class Address:
    """The address of one collection.

    Attributes
    ----------
    target : str
        "host:port", or the absolute path of milvus-lite's file.
    name : str
        The collection's name there.
    lite : bool
        Whether the target is a file.
    timeout : float or None
        Seconds that a request may take, if the address has this option.
    access : Access
        TLS and credentials.
    """

    target: str
    name: str
    lite: bool
    timeout: float | None = None
    access: Access = _ANYONE

    @classmethod
    def parse(cls, uri: Any, name: str) -> Address:
        """Parse an address; a name in its path takes precedence over ``name``.

        An address may have a user with a password, or with the place of the password, and the
        options ``tls``, ``tls_ca`` and ``timeout``. Anything else is refused.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis").target
        'db.example:19530'
        >>> Address.parse("https://me@localhost/x?token_env=MILVUS_TOKEN", "oasis").access
        Access(user='me', tls=True, tls_ca='', token_env='MILVUS_TOKEN', token_file='')
        >>> Address.parse("/data/codes.db", "oasis").lite
        True
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
        shown = without_user(text)
        if parts.scheme not in ("milvus", "http", "https"):
            raise InputError(
                f"{shown!r} has the scheme {parts.scheme!r}; expected milvus://host:port/name, "
                "http://host:port, https://host:port, or the path of a milvus-lite file"
            )
        try:
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            # the message of urllib may quote a part of a password
            raise InputError(
                f"{shown!r} is not an address: host and port cannot be read; expected "
                "milvus://host:port/name, with / ? # @ : in a password as %2F %3F %23 %40 %3A"
            ) from None
        if not host:
            raise InputError(f"{shown!r} names no host; expected milvus://host:port/name")
        if parts.fragment:
            raise InputError(f"{shown!r} has a fragment; leave it out")
        inside = parts.path.strip("/")
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = _options_in(parts.query, shown)
        timeout = options.pop("timeout", None)
        access = Access(
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            tls=options.pop("tls", "0") == "1" or parts.scheme == "https",
            **options,
        )
        seconds = None if timeout is None else _seconds(timeout)
        return cls(place, _check_name(inside or name), False, seconds, access)

    @property
    def uri(self) -> str:
        """The complete address with all its parts, as it is recorded.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis").uri
        'milvus://db.example:19530/photos?timeout=60'
        """
        if self.lite:
            return self.target
        if self.access.password:
            raise InputError(
                f"the address of Milvus at {self.target} has a password in it, which would be "
                "recorded; give ?token_env=VARIABLE or ?token_file=PATH instead, which name where "
                "it is"
            )
        options = dict(self.access.options())
        if self.timeout is not None:
            options["timeout"] = f"{self.timeout:g}"
        user = f"{quote(self.access.user, safe='')}@" if self.access.user else ""
        query = f"?{urlencode(options, safe='/:')}" if options else ""
        return f"milvus://{user}{self.target}/{self.name}{query}"

    def __str__(self) -> str:
        return self.target


def without_user(text: str) -> str:
    """Return an address without user and password, for errors, which go to logs and screens.

    >>> without_user("http://me:secret@host/x"), without_user("http://me:se/c@ret@host/x")
    ('http://***@host/x', 'http://***@host/x')
    """
    return re.sub(r"//.*@", "//***@", text, flags=re.DOTALL)


def _options_in(query: str, shown: str) -> dict[str, str]:
    """Return the options of an address; ``shown`` is the address for error texts."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        pairs = [("", "")]
    options = dict(pairs)
    if (
        not options.keys() <= _OPTIONS
        or len(options) < len(pairs)
        or "" in options.values()
        or options.get("tls", "1") not in ("0", "1")
    ):
        raise InputError(
            f"{shown!r} does not end as an address of Milvus can; expected nothing after the name, "
            "or some of ?timeout=SECONDS, tls=1, tls_ca=PATH, token_env=VARIABLE, token_file=PATH, "
            "joined by &"
        )
    return options


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(
            f"an address of Milvus has timeout={text}; expected a number of seconds above 0, as in "
            "?timeout=60"
        )
    return seconds


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not a name for a Milvus collection; expected a letter or underscore, "
            "then up to 254 letters, digits and underscores"
        )
    return name
