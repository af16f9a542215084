"""TLS and credentials of a Milvus server.

A secret is never recorded, shown or logged. An address names the environment variable or the file
that holds it, which is read when a connection is made.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oasis.errors import EngineError, InputError


@dataclass(frozen=True)
class Access:
    """TLS and credentials of an address.

    Attributes
    ----------
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

    user: str = ""
    tls: bool = False
    tls_ca: str = ""
    token_env: str = ""
    token_file: str = ""
    password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
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

    def options(self) -> Iterator[tuple[str, str]]:
        """Yield the options after the ``?`` of an address, in a fixed order."""
        if self.tls:
            yield "tls", "1"
        for name in ("tls_ca", "token_env", "token_file"):
            if value := getattr(self, name):
                yield name, value

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of every request: empty, or the credentials.

        Raises
        ------
        EngineError
            The variable is not set, the file cannot be read, or it is empty.
        """
        token = self._token()
        if not token:
            return ()
        whole = f"{self.user}:{token}" if self.user else token
        return (("authorization", base64.b64encode(whole.encode()).decode()),)

    def certificates(self) -> bytes | None:
        """Return the trusted certificates; None: those that come with gRPC."""
        return _read(self.tls_ca, "tls_ca") if self.tls_ca else None

    def _token(self) -> str:
        if self.token_env:
            token = os.environ.get(self.token_env, "").strip()
            if not token:
                raise EngineError(
                    f"the environment variable {self.token_env}, which an address of Milvus names "
                    "as token_env, is not set or empty; put the token there"
                )
            return token
        if self.token_file:
            try:
                token = _read(self.token_file, "token_file").decode().strip()
            except UnicodeDecodeError:
                token = ""
            if not token:
                raise EngineError(
                    f"the file {self.token_file}, which an address of Milvus names as token_file, "
                    "holds no token; expected one line of text"
                )
            return token
        return self.password


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise EngineError(
            f"the file {path}, which an address of Milvus names as {name}, cannot be read: "
            f"{error.strerror}"
        ) from None
