"""The address of a Milvus collection: a server and a name, or a file and a name.

A secret is never recorded, shown or logged. An address names the environment variable or the file
that holds it, which is read when a connection is made.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from oasis.errors import EngineError, InputError

_PORT = 19530
_OPTIONS = ("tls", "tls_ca", "token_env", "token_file", "timeout")
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
    user : str
        The user's name; empty for a token without a user.
    tls : bool
    tls_ca : str
        The file of the trusted certificates; empty: those that come with gRPC.
    token_env, token_file : str
        The environment variable, or the file, that holds the token, or the password of ``user``.
    password : str
        A token or password in the address itself.
    """

    target: str
    name: str
    lite: bool = False
    timeout: float | None = None
    user: str = ""
    tls: bool = False
    tls_ca: str = ""
    token_env: str = ""
    token_file: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, uri: Any, name: str) -> Address:
        """Parse an address; a name in its path takes precedence over ``name``.

        An address may have a user with a password, or with the place of the password, and the
        options ``tls``, ``tls_ca`` and ``timeout``. Anything else is refused.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis").target
        'db.example:19530'
        >>> Address.parse("https://me@localhost/x?token_env=MILVUS_TOKEN", "oasis").tls
        True
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
        options = _options_in(parts.query, shown)
        address = cls(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            _check_name(parts.path.strip("/") or name),
            timeout=_seconds(options["timeout"]) if "timeout" in options else None,
            user=unquote(parts.username or ""),
            tls=options.get("tls") == "1" or parts.scheme == "https",
            tls_ca=options.get("tls_ca", ""),
            token_env=options.get("token_env", ""),
            token_file=options.get("token_file", ""),
            password=unquote(parts.password or ""),
        )
        address._check_access()
        return address

    @property
    def uri(self) -> str:
        """The complete address with all its parts, as it is recorded.

        >>> Address.parse("milvus://db.example/photos?timeout=60", "oasis").uri
        'milvus://db.example:19530/photos?timeout=60'
        """
        if self.lite:
            return self.target
        if self.password:
            raise InputError(
                f"the address of Milvus at {self.target} has a password in it, which would be "
                "recorded; give ?token_env=VARIABLE or ?token_file=PATH instead, which name where "
                "it is"
            )
        texts = {name: getattr(self, name) for name in _OPTIONS}
        texts["tls"] = "1" if self.tls else ""
        texts["timeout"] = "" if self.timeout is None else f"{self.timeout:g}"
        options = {name: text for name, text in texts.items() if text}
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        query = f"?{urlencode(options, safe='/:')}" if options else ""
        return f"milvus://{user}{self.target}/{self.name}{query}"

    def __str__(self) -> str:
        return self.target

    def token(self) -> str:
        """Return the token, or "user:password"; empty if the address has neither.

        Raises
        ------
        EngineError
            The variable is not set, the file cannot be read, or it is empty.
        """
        token = self.password
        if self.token_env:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise EngineError(
                    f"the environment variable {self.token_env}, which an address of Milvus names "
                    "as token_env, is not set or empty; put the token there"
                )
        elif self.token_file:
            token = _read(self.token_file, "token_file").decode(errors="ignore").strip()
            if not token:
                raise EngineError(
                    f"the file {self.token_file}, which an address of Milvus names as token_file, "
                    "holds no token; expected one line of text"
                )
        return f"{self.user}:{token}" if self.user else token

    def certificates(self) -> str:
        """Return the file of the trusted certificates, which can be read; empty for the default."""
        if self.tls_ca:
            _read(self.tls_ca, "tls_ca")
        return self.tls_ca

    def _check_access(self) -> None:
        given = [name for name in ("password", "token_env", "token_file") if getattr(self, name)]
        if len(given) > 1:
            raise InputError(
                f"an address of Milvus gives a token in several ways ({', '.join(given)}); "
                "expected one"
            )
        if self.user and not given:
            raise InputError(
                "an address of Milvus names a user and no password; expected ?token_env=VARIABLE "
                "or ?token_file=PATH, which name where it is"
            )
        if self.tls_ca and not self.tls:
            raise InputError("an address of Milvus has tls_ca without tls=1; expected both")


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
        not options.keys() <= set(_OPTIONS)
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


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EngineError(
            f"the file {path}, which an address of Milvus names as {name}, cannot be read: "
            f"{error.strerror}"
        ) from None
