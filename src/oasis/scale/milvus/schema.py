"""The Milvus collection behind an index: created or checked, and loaded."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import Any

from oasis.errors import EngineError, InputError
from oasis.scale.milvus.connection import Connection, NotThereError
from oasis.scale.milvus.engine import protocol

ID = "id"
CODE = "code"
EXTRA = "$meta"
"""Milvus's dynamic field; ``labels`` and ``payload`` are keys in it."""

KINDS: dict[str, dict[str, int]] = {"BIN_FLAT": {}, "BIN_IVF_FLAT": {"nlist": 128}}
"""The kinds of index, with their build parameters."""

PROBES: dict[str, dict[str, int]] = {"BIN_FLAT": {}, "BIN_IVF_FLAT": {"nprobe": 32}}
"""The kinds of index, with their search parameters."""

COPIES = 4
"""Default number of stored copies of each bit."""

_POLL = 0.02
_WIDTH = re.compile(r"([0-9]{1,6}) bits, ([0-9]{1,3}) copies")
"""Description of the field of the codes."""


class Schema:
    """The schema of one index's collection, which is created, checked and loaded here.

    Parameters
    ----------
    connection : Connection
    n_bits : int
    copies : int or None
        Number of stored copies of each bit; None: 4 in a new collection, else as found.
    kind : str
        "BIN_FLAT" or "BIN_IVF_FLAT".
    description : str
        Description of a new collection.

    Attributes
    ----------
    copies : int
        Number of stored copies of each bit, after `prepare`.
    description : str
        Description of the existing collection, after `prepare`.
    """

    def __init__(
        self,
        connection: Connection,
        n_bits: int,
        *,
        copies: int | None,
        kind: str,
        description: str,
    ) -> None:
        self._connection = connection
        self._n_bits = n_bits
        self._wanted = copies
        self._kind = kind
        self.name = connection.address.name
        self.copies = COPIES if copies is None else copies
        self.description = description

    def prepare(self) -> None:
        """Create the collection and its index if they do not exist, check them, and load."""
        try:
            found = self._describe()
        except NotThereError:
            self._create()
            # another process may have created it at the same time, with other settings
            found = self._describe()
        self.copies = self._check(found)
        self.description = str(found.description)
        self._index()
        self.load(self._connection.timeout)

    def load(self, within: float) -> None:
        """Let the server load the collection, and wait for it, at most ``within`` seconds."""
        milvus = protocol().milvus
        deadline = time.monotonic() + within
        self._connection.call(
            "LoadCollection",
            milvus.LoadCollectionRequest(collection_name=self.name, replica_number=1),
            timeout=within,
        )
        while True:
            answer = self._connection.call(
                "GetLoadingProgress",
                milvus.GetLoadingProgressRequest(collection_name=self.name),
                timeout=max(deadline - time.monotonic(), _POLL),
            )
            if answer.progress >= 100:
                return
            if time.monotonic() + _POLL > deadline:
                raise EngineError(
                    f"Milvus at {self._connection.address} has loaded {answer.progress} % of "
                    f"{self.name!r} in {within:.2g} s; open it again, or allow a longer timeout"
                )
            time.sleep(_POLL)

    def _describe(self) -> Any:
        request = protocol().milvus.DescribeCollectionRequest(collection_name=self.name)
        return self._connection.call("DescribeCollection", request).schema

    def _create(self) -> None:
        wire = protocol()
        schema = wire.schema.CollectionSchema(
            name=self.name, description=self.description, enable_dynamic_field=True
        )
        schema.fields.add(name=ID, data_type=wire.schema.Int64, is_primary_key=True)
        code = schema.fields.add(
            name=CODE,
            data_type=wire.schema.BinaryVector,
            description=f"{self._n_bits} bits, {self.copies} copies",
        )
        code.type_params.add(key="dim", value=str(self._n_bits * self.copies))
        self._connection.call(
            "CreateCollection",
            wire.milvus.CreateCollectionRequest(
                collection_name=self.name,
                schema=schema.SerializeToString(),
                shards_num=1,
                consistency_level=wire.common.Strong,
            ),
        )

    def _check(self, found: Any) -> int:
        """Raise if a collection is not as expected; return its number of copies of each bit."""
        types = protocol().schema
        place = f"the Milvus collection {self.name!r} at {self._connection.address}"
        fields = {field.name: field for field in found.fields if not field.is_dynamic}
        expected = {ID: types.Int64, CODE: types.BinaryVector}
        if (
            {name: field.data_type for name, field in fields.items()} != expected
            or not fields[ID].is_primary_key
            or fields[ID].autoID
            or not found.enable_dynamic_field
        ):
            held = ", ".join(
                f"{name} ({types.DataType.Name(field.data_type)})" for name, field in fields.items()
            )
            raise InputError(
                f"{place} is not one of ours: it has the fields {held}; expected {ID} (Int64, "
                f"primary), {CODE} (BinaryVector) and dynamic fields; choose another name"
            )
        dim = int(next(p.value for p in fields[CODE].type_params if p.key == "dim"))
        told = _WIDTH.fullmatch(fields[CODE].description)
        # a collection that was created by hand does not state the number of copies
        n_bits, copies = (dim, 1) if told is None else (int(told[1]), int(told[2]))
        if n_bits * copies != dim:
            raise InputError(
                f"{place} says {fields[CODE].description!r} of vectors of {dim} bits; "
                "choose another name"
            )
        if n_bits != self._n_bits:
            raise InputError(
                f"{place} holds codes of {n_bits} bits, expected {self._n_bits}; "
                f"open it with n_bits={n_bits}, or choose another name"
            )
        if self._wanted not in (None, copies):
            raise InputError(
                f"{place} stores each bit {copies} times, expected {self._wanted}; "
                f"open it with copies={copies}, or choose another name"
            )
        return copies

    def _index(self) -> None:
        """Create the index of the codes, or check the existing one."""
        milvus = protocol().milvus
        described: list[Any] = []
        with contextlib.suppress(NotThereError):
            described += self._connection.call(
                "DescribeIndex",
                milvus.DescribeIndexRequest(collection_name=self.name, field_name=CODE),
            ).index_descriptions
        if not described:
            request = milvus.CreateIndexRequest(
                collection_name=self.name, field_name=CODE, index_name=CODE
            )
            wanted = {
                "index_type": self._kind,
                "metric_type": "HAMMING",
                "params": json.dumps(KINDS[self._kind]),
            }
            for key, value in wanted.items():
                request.extra_params.add(key=key, value=value)
            self._connection.call("CreateIndex", request)
            return
        held = {param.key: param.value for param in described[0].params}
        kind, metric = held.get("index_type"), held.get("metric_type")
        if (kind, metric) != (self._kind, "HAMMING"):
            raise InputError(
                f"the Milvus collection {self.name!r} at {self._connection.address} has an index "
                f"of kind {kind} by {metric}, expected {self._kind} by HAMMING; "
                f"open it with kind={kind!r}, or choose another name"
            )
