"""A connection to one Milvus: requests with a deadline, retried while a fault may be temporary."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from oasis.errors import EngineError, InputError
from oasis.scale.milvus import lite
from oasis.scale.milvus.address import Address
from oasis.scale.milvus.engine import protocol

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_AFTER_LOADING = 1.0
"""Seconds for the request after a collection was loaded, if loading has used up the timeout."""

# permanent errors of gRPC: a retry of the same request would fail in the same way
_FINAL = ("UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT")

# error codes of Milvus; texts are matched only for cases that have no code in version 2.3
_NOT_THERE = frozenset({100, 700})  # no such collection, no such index
_NOT_LOADED = 101
_FULL = frozenset({3, 9})  # out of memory, over the quota
_REFUSED = frozenset({1100, 1101, 1102})  # invalid parameters
_UNREADABLE = ("cannot parse expression", "failed to create query plan", "Invalid expr")

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # by default gRPC waits for minutes between attempts, long after the server is back
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # by default channels to one target share their connections, and so their faults
    ("grpc.use_local_subchannel_pool", 1),
)


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
        wire = protocol()
        self.address = address
        self.timeout = timeout
        target = lite.acquire(address.target) if address.lite else address.target
        access = address.access
        self._metadata = access.metadata()
        if access.tls:
            trusted = wire.grpc.ssl_channel_credentials(access.certificates())
            self._channel = wire.grpc.secure_channel(target, trusted, options=_OPTIONS)
        else:
            self._channel = wire.grpc.insecure_channel(target, options=_OPTIONS)
        self._stub = wire.service.MilvusServiceStub(self._channel)
        self._closed = False

    def close(self) -> None:
        """End the connection; closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._channel.close()
            if self.address.lite:
                lite.release(self.address.target)

    def call(
        self,
        method: str,
        request: Any,
        *,
        timeout: float | None = None,
        reload: Callable[[float], None] | None = None,
    ) -> Any:
        """Send a request and return the answer.

        Parameters
        ----------
        method : str
            The name of the remote procedure.
        request : message
        timeout : float, optional
            Seconds for this request; by default those of the connection.
        reload : callable, optional
            Called with the remaining seconds if the server reports that the collection is not
            loaded, as after a restart. Then the request is sent once more, even if no time remains.

        Raises
        ------
        EngineError
            The server was absent, too slow or full during all of ``timeout``, or refused the
            request; or the connection was closed, perhaps by another thread.
        InputError
            The server does not understand an expression.
        """
        wire = protocol()
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        pause = _FIRST_PAUSE
        least = 0.001
        while True:
            if self._closed:
                raise self._fault_of_closing()
            left = max(deadline - time.monotonic(), least)
            loaded = False
            try:
                answer = getattr(self._stub, method)(request, timeout=left, metadata=self._metadata)
            except wire.grpc.RpcError as error:
                code = error.code()
                fault = self._fault_of_transport(code, str(error.details()))
                # milvus-lite answers UNKNOWN to unsupported requests, a dying server to any
                if code.name in _FINAL or (code.name == "UNKNOWN" and self.address.lite):
                    raise fault from None
            except ValueError:
                # gRPC raises this if the channel was closed between our check and the request
                if not self._closed:
                    raise
                raise self._fault_of_closing() from None
            else:
                status = getattr(answer, "status", answer)
                if not status.code and not status.error_code:
                    return answer
                fault = self._fault_of_status(status)
                if status.code == _NOT_LOADED or "not loaded" in status.reason:
                    left = deadline - time.monotonic()
                    if reload is None or left <= 0:
                        raise fault
                    reload(left)
                    loaded = True
            if not loaded and time.monotonic() + pause >= deadline:
                raise fault
            least = _AFTER_LOADING if loaded else 0.001
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _fault_of_closing(self) -> EngineError:
        return EngineError(f"the connection to Milvus at {self.address} is closed; open another")

    def _fault_of_transport(self, code: Any, details: str) -> EngineError:
        codes = protocol().grpc.StatusCode
        details = " ".join(details.split())
        if code == codes.UNAVAILABLE:
            tls = (
                "that it speaks TLS, and that tls_ca names who signed its certificate"
                if self.address.access.tls
                else "with tls=1 if it speaks TLS"
            )
            return EngineError(
                f"no Milvus answered at {self.address} for {self.timeout:g} s ({details}); "
                f"start the server, or check the address, {tls}"
            )
        if code in (codes.UNAUTHENTICATED, codes.PERMISSION_DENIED):
            return EngineError(
                f"Milvus at {self.address} did not accept the user and token ({details}); check "
                "them where the address says that they are: user@, token_env, token_file"
            )
        if code == codes.DEADLINE_EXCEEDED:
            return EngineError(
                f"Milvus at {self.address} gave no answer within {self.timeout:g} s; "
                "try again, or allow a longer timeout"
            )
        return EngineError(f"Milvus at {self.address} failed: {code.name}, {details}")

    def _fault_of_status(self, status: Any) -> EngineError:
        """Return the error for a temporary status; raise the error for a permanent one."""
        if status.code in _NOT_THERE:
            raise NotThereError(
                f"Milvus at {self.address} has no collection {self.address.name!r} any more, or no "
                f"index on it: {status.reason}"
            )
        if any(text in status.reason for text in _UNREADABLE):
            raise InputError(f"Milvus does not understand the expression: {status.reason}")
        if status.code in _REFUSED:
            raise EngineError(f"Milvus at {self.address} refused the request: {status.reason}")
        if status.code in _FULL:
            return EngineError(
                f"Milvus at {self.address} is full: {status.reason}; give it memory or disk, or "
                "raise its quota, and send the same again"
            )
        return EngineError(
            f"Milvus at {self.address} failed for {self.timeout:g} s: {status.reason}"
        )
