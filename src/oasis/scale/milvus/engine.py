"""The parts of pymilvus that are used: the messages of Milvus's protocol, and gRPC."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from oasis.errors import MissingExtraError


class Protocol(NamedTuple):
    """The modules that pymilvus generates from Milvus's protocol, and gRPC itself."""

    grpc: Any
    common: Any
    schema: Any
    milvus: Any
    service: Any


@functools.cache
def protocol() -> Protocol:
    """Import and return the protocol; raises MissingExtraError if pymilvus is not installed."""
    try:
        import grpc
        from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc, schema_pb2
    except ImportError:
        raise MissingExtraError("pymilvus", extra="scale", what="a Milvus index") from None
    return Protocol(grpc, common_pb2, schema_pb2, milvus_pb2, milvus_pb2_grpc)
