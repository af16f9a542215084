"""A connection to one Milvus: requests with a deadline, repeated while a fault may be temporary.

Requests are methods of pymilvus's `MilvusClient`. It repeats a request that no server answered, and
connects again; what a server that is starting or full refuses is repeated here. A file is served by
milvus-lite, a process of its own, which is stopped when its last user closes it.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oasis.errors import EngineError, InputError, MissingExtraError
from oasis.scale.milvus.address import Address

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_CONNECT = 2.0
"""Seconds of one attempt to connect, by which a request may end late."""

_AFTER_LOADING = 1.0
"""Seconds for the request after a collection was loaded, if loading has used up the timeout."""

# permanent errors of gRPC: a retry of the same request would fail in the same way
_FINAL = ("UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT")

# error codes of Milvus; texts are matched only for cases that have no code in version 2.3
_NOT_THERE = frozenset({100, 700})  # no such collection, no such index
_NOT_LOADED = 101
_FULL = frozenset({3, 8, 9})  # out of memory, over the rate or the quota
_REFUSED = frozenset({1100, 1101, 1102})  # invalid parameters
_UNREADABLE = ("cannot parse expression", "failed to create query plan", "Invalid expr")

_OPTIONS = {
    # by default gRPC waits for minutes between attempts, long after the server is back
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
    # by default channels to one target share their connections, and so their faults
    "grpc.use_local_subchannel_pool": 1,
    # pymilvus pings every 10 s, for which milvus-lite ends a connection; requests have deadlines
    "grpc.keepalive_time_ms": 2**31 - 1,
}


def pymilvus() -> Any:
    """Import and return pymilvus; raises MissingExtraError if it is not installed."""
    try:
        import pymilvus as found
    except ImportError:
        raise MissingExtraError("pymilvus", extra="scale", what="a Milvus index") from None
    log = logging.getLogger("pymilvus")
    if log.level == logging.WARNING:
        # by default it prints a traceback for every fault, also for those that are repeated here
        log.setLevel(logging.CRITICAL)
    return found


class NotThereError(EngineError):
    """The server has no collection of this name, or no index on it."""


class Connection:
    """Requests to one Milvus server, or to milvus-lite for a file. Threads may share it.

    Parameters
    ----------
    address : Address
    timeout : float
        Seconds that one request may take, including retries.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        library = pymilvus()
        self.address = address
        self.timeout = timeout
        self._client: Any = None
        self._closed = False
        options = {"token": address.token(), "grpc_options": _OPTIONS, "dedicated": True}
        if address.tls:
            options |= {"secure": True, "server_pem_path": address.certificates()}
        uri = _serve(address.target) if address.lite else f"http://{address.target}"

        def connect(left: float) -> Any:
            return library.MilvusClient(uri, timeout=min(left, _CONNECT), **options)

        try:
            self._client = self._repeated(connect, timeout, None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; closing again does nothing."""
        if not self._closed:
            self._closed = True
            if self._client is not None:
                self._client.close()
            if self.address.lite:
                _release(self.address.target)

    def call(
        self,
        method: str,
        *arguments: Any,
        within: float | None = None,
        reload: Callable[[float], None] | None = None,
        **options: Any,
    ) -> Any:
        """Return the result of a method of `MilvusClient` for the collection of the address.

        Parameters
        ----------
        method : str
        arguments, options
            What follows the name of the collection.
        within : float, optional
            Seconds for this request; by default those of the connection.
        reload : callable, optional
            Called with the remaining seconds if the server reports that the collection is not
            loaded, as after a restart. Then the request is sent once more, even if no time remains.

        Raises
        ------
        EngineError
            The server was absent, too slow or full during all of the time, or refused the request;
            or the connection was closed, perhaps by another thread.
        InputError
            The server does not understand an expression.
        """
        ask = getattr(self._client, method)

        def send(left: float) -> Any:
            return ask(self.address.name, *arguments, timeout=left, **options)

        return self._repeated(send, self.timeout if within is None else within, reload)

    def _repeated(
        self,
        ask: Callable[[float], Any],
        within: float,
        reload: Callable[[float], None] | None,
    ) -> Any:
        import grpc

        deadline = time.monotonic() + within
        pause = _FIRST_PAUSE
        least = 0.001
        while True:
            loaded = False
            try:
                if not self._closed:
                    return ask(max(deadline - time.monotonic(), least))
            except (grpc.RpcError, pymilvus().MilvusException) as error:
                # the connection may have been closed by another thread meanwhile
                if not self._closed:
                    fault, code = self._fault(error)
                    left = deadline - time.monotonic()
                    if code == _NOT_LOADED and reload is not None and left > 0:
                        reload(left)
                        loaded = True
                    elif left <= pause:
                        raise fault from None
            if self._closed:
                raise EngineError(
                    f"the connection to Milvus at {self.address} is closed; open another"
                )
            least = _AFTER_LOADING if loaded else 0.001
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _fault(self, error: Exception) -> tuple[EngineError, int]:
        """Return the error for a temporary fault, and Milvus's code of it or 0; raise others."""
        import grpc

        # pymilvus raises errors from themselves, so the context says more than the cause
        inner: BaseException | None = error
        while inner is not None:
            if isinstance(inner, grpc.RpcError):
                return self._fault_of_transport(inner), 0
            inner = inner.__context__
        return self._fault_of_status(error)

    def _fault_of_transport(self, error: Any) -> EngineError:
        code, details = error.code().name, " ".join(str(error.details()).split())
        if code == "UNAVAILABLE":
            tls = (
                "that it speaks TLS, and that tls_ca names who signed its certificate"
                if self.address.tls
                else "with tls=1 if it speaks TLS"
            )
            return EngineError(
                f"no Milvus answered at {self.address} for {self.timeout:g} s ({details}); "
                f"start the server, or check the address, {tls}"
            )
        if code == "DEADLINE_EXCEEDED":
            return EngineError(
                f"Milvus at {self.address} gave no answer within {self.timeout:g} s; "
                "try again, or allow a longer timeout"
            )
        if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            raise EngineError(
                f"Milvus at {self.address} did not accept the user and token ({details}); check "
                "them where the address says that they are: user@, token_env, token_file"
            )
        fault = EngineError(f"Milvus at {self.address} failed: {code}, {details}")
        if code in _FINAL:
            raise fault
        return fault

    def _fault_of_status(self, error: Any) -> tuple[EngineError, int]:
        code, reason = int(error.code), str(error.message)
        if code in _NOT_THERE:
            raise NotThereError(
                f"Milvus at {self.address} has no collection {self.address.name!r} any more, or no "
                f"index on it: {reason}"
            )
        if any(text in reason for text in _UNREADABLE):
            raise InputError(f"Milvus does not understand the expression: {reason}")
        if code in _REFUSED:
            raise EngineError(f"Milvus at {self.address} refused the request: {reason}")
        if code in _FULL:
            fault = (
                f"Milvus at {self.address} is full: {reason}; give it memory or disk, or raise its "
                "quota, and send the same again"
            )
        else:
            fault = f"Milvus at {self.address} failed for {self.timeout:g} s: {reason}"
        return EngineError(fault), _NOT_LOADED if "not loaded" in reason else code


_lock = threading.Lock()
_users: Counter[str] = Counter()


def _serve(path: str) -> str:
    """Return the address of the server for a file; it is started if it is not running."""
    if not Path(path).parent.is_dir():
        raise EngineError(f"milvus-lite cannot open {path}: its folder does not exist; make it")
    try:
        with warnings.catch_warnings():
            # milvus-lite imports pkg_resources, which gives a deprecation warning
            warnings.simplefilter("ignore")
            from milvus_lite.server_manager import server_manager_instance
    except ImportError:
        raise MissingExtraError(
            "milvus-lite 2.5, which imports pkg_resources",
            command="pip install 'milvus-lite==2.5.1' 'setuptools<81'",
            what="a Milvus index in a file",
        ) from None
    with _lock:
        target: str | None = server_manager_instance.start_and_get_uri(path)
        if target is None:
            raise EngineError(
                f"milvus-lite cannot open {path}: it is in use by another process, or is no "
                "file of milvus-lite; close the other process, or choose another file"
            )
        _users[path] += 1
    return target


def _release(path: str) -> None:
    """Release one use of a file's server."""
    from milvus_lite.server_manager import server_manager_instance

    with _lock:
        _users[path] -= 1
        if not _users[path]:
            del _users[path]
            server_manager_instance.release_server(path)
