"""Settings of a service: limits, tokens, and accepted host names."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Self

from oasis.errors import InputError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names of a service that listens on loopback."""

MIN_TOKEN = 16
"""Minimum number of characters of a token."""


class Scope(IntEnum):
    """Permissions of a caller; a larger value includes the smaller ones."""

    NOTHING = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Limits:
    """Upper limits of one request, of one client, and of all requests together.

    A client is an address, with its token if it has one.

    Attributes
    ----------
    body_bytes : size of a body
    json_bytes : size of its JSON in an ingest
    search_json_bytes, update_json_bytes, ids_bytes : the same in a search, an update, a list of ids
    json_values, json_containers, json_depth : values, lists and objects, and nesting of that JSON
    query_bytes : size of the text of one query
    answer_bytes : size of the payloads of all hits of a request
    bodies_bytes : total size of the bodies of all running requests
    body_seconds : time for a body to arrive, and for each part of an answer to be taken
    head_bytes, head_seconds : size of the head of a request, and time for it to arrive
    connections : open connections of one address, except that of a proxy
    pipelined : requests that wait on one connection
    answer_seconds : time for a search; an ingest has no limit
    requests : running requests
    client_cost : cost of what one client has running, see `oasis.service.work`
    ingests : changes waiting or running, half of them of one client; others are answered with 429
    batch : samples of one ingest, or queries of one search
    raw_batch : the same for raw items, whose features are computed first
    k : hits of a query
    hits : hits of all queries of a request, including skipped ones
    labels : labels of an item
    pixels : width x height of a picture
    picture_seconds : time to decode a picture; all pictures of a request have ``answer_seconds``
    picture_processes : pictures that are decoded at the same time
    original_bytes : size of an original picture; of a larger one the preview is sent
    search_threads : searches that run at the same time; 0 for twice the cores, at least four
    """

    body_bytes: int = 64 << 20
    json_bytes: int = 16 << 20
    search_json_bytes: int = 4 << 20
    update_json_bytes: int = (3 << 20) + (1 << 16)  # a payload of 1 MiB, escaped
    ids_bytes: int = 2 << 20
    json_values: int = 300_000
    json_containers: int = 50_000
    json_depth: int = 100
    query_bytes: int = 1 << 16
    answer_bytes: int = 16 << 20
    bodies_bytes: int = 256 << 20
    body_seconds: float = 60.0
    head_bytes: int = 64 << 10
    head_seconds: float = 10.0
    connections: int = 128
    pipelined: int = 16
    answer_seconds: float = 30.0
    requests: int = 256
    client_cost: int = 3_000
    ingests: int = 8
    batch: int = 10_000
    raw_batch: int = 256
    k: int = 1_000
    hits: int = 10_000
    labels: int = 1_000
    pixels: int = 40_000_000
    picture_seconds: float = 5.0
    picture_processes: int = 2
    original_bytes: int = 32 << 20
    search_threads: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "search_threads"):
                raise InputError(f"the limit {name} must be more than 0, got {value!r}")


@dataclass(frozen=True)
class Tokens:
    """Who may do what. Without tokens everybody may do everything.

    With the read token one may search and look; with the write token, everything. When only a
    write token is given, reading needs it too; when only a read token is given, nobody may write.

    >>> tokens = Tokens(read="r" * 16, write="w" * 16)
    >>> tokens.scope("r" * 16).name, tokens.scope("wrong").name, Tokens().scope(None).name
    ('READ', 'NOTHING', 'WRITE')
    """

    read: str | None = field(default=None, repr=False)
    write: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, token in (("read", self.read), ("write", self.write)):
            if token is None:
                continue
            if len(token) < MIN_TOKEN or not (token.isascii() and token.isprintable()):
                raise InputError(
                    f"the {name} token must have at least {MIN_TOKEN} plain characters, such as "
                    'python -c "import secrets; print(secrets.token_urlsafe())" makes'
                )
        if self.read is not None and self.read == self.write:
            raise InputError("the read token and the write token must differ")

    def __bool__(self) -> bool:
        return self.read is not None or self.write is not None

    def scope(self, token: str | None) -> Scope:
        """Return what a token permits; the comparison takes constant time."""
        if not self:
            return Scope.WRITE
        found = Scope.NOTHING
        for own, scope in ((self.read, Scope.READ), (self.write, Scope.WRITE)):
            if own is not None and token is not None and _same(own, token):
                found = scope
        return found


def _same(own: str, given: str) -> bool:
    # digests have one length, so that not even the length of the token shows
    digests = (
        hashlib.sha256(each.encode("utf-8", "surrogateescape")).digest() for each in (own, given)
    )
    return hmac.compare_digest(*digests)


@dataclass(frozen=True)
class Settings:
    """How a service is set up.

    Attributes
    ----------
    limits, tokens : see there
    hosts : accepted names in the Host header, without the port; None for any. With loopback names
        only, a page of another site cannot reach the service through a host name of its own.
    proxies : addresses of proxies, whose X-Forwarded-For and X-Forwarded-Proto are trusted. From
        other addresses they are ignored.
    pictures : folder of original pictures, visible to callers who may read; None for none
    """

    limits: Limits = field(default_factory=Limits)
    tokens: Tokens = field(default_factory=Tokens)
    hosts: frozenset[str] | None = LOOPBACK
    proxies: frozenset[str] = frozenset()
    pictures: Path | None = None

    @classmethod
    def of(
        cls,
        host: str,
        tokens: Tokens,
        names: frozenset[str] = frozenset(),
        limits: Limits | None = None,
        proxies: frozenset[str] = frozenset(),
        pictures: Path | None = None,
    ) -> Self:
        """Return the settings for an address to listen on; any but loopback needs a token.

        >>> Settings.of("0.0.0.0", Tokens())
        Traceback (most recent call last):
            ...
        oasis.errors.InputError: listening on 0.0.0.0 opens the collection to others, so a token ...
        """
        local = host in ("localhost", "127.0.0.1", "::1")
        if not local and not tokens:
            raise InputError(
                f"listening on {host} opens the collection to others, so a token is needed: give "
                "OASIS_READ_TOKEN and OASIS_WRITE_TOKEN, or one of them"
            )
        hosts = LOOPBACK | names if local else (names or None)
        if pictures is not None and not pictures.is_dir():
            raise InputError(f"the folder of pictures {pictures} is not there, or no folder")
        return cls(limits or Limits(), tokens, hosts, proxies, pictures)
