"""Codes and ids for other tools."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from oasis.codes import Codes
from oasis.errors import InputError, MissingExtraError
from oasis.index.hamming import HammingIndex
from oasis.store import replacing

BIT_ORDER = "little"
"""Bit i of a code is bit i % 8, the least significant first, of byte i // 8."""


def export(index: HammingIndex, path: str | os.PathLike[str], format: str) -> None:  # noqa: A002
    """Write all items, one code and id each, in order of insertion.

    Parameters
    ----------
    index : HammingIndex
    path : path-like
        Replaced atomically.
    format : {"faiss", "numpy", "parquet"}
        - faiss: an ``IndexBinaryIDMap`` over an ``IndexBinaryFlat``, for
          ``faiss.read_index_binary``.
        - numpy: an ``.npz`` with ``codes`` (n, n_bits / 8) uint8, ``ids`` (n,) int64,
          ``n_bits`` and ``bit_order``.
        - parquet: columns ``id`` (int64) and ``code`` (fixed-size binary), with ``n_bits`` and
          ``bit_order`` in the metadata of the schema. Needs the extra ``parquet``.

    In all of them bit i of a code is bit ``i % 8`` of byte ``i // 8``, the least significant first
    (``bit_order`` "little", as in ``numpy.unpackbits(..., bitorder="little")``).
    """
    writers = {"faiss": _faiss, "numpy": _numpy, "parquet": _parquet}
    if format not in writers:
        raise InputError(f"unknown export format {format!r}; expected one of {sorted(writers)}")
    write = writers[format](index)
    with replacing(Path(path)) as temporary, temporary.open("wb") as out:
        write(out)


def _faiss(index: HammingIndex) -> Any:
    import faiss

    codes, ids = index.items()
    flat = faiss.IndexBinaryFlat(index.n_bits)
    mapped = faiss.IndexBinaryIDMap(flat)
    if len(ids):
        mapped.add_with_ids(codes, ids)

    def write(out: IO[bytes]) -> None:
        writer = faiss.PyCallbackIOWriter(out.write)  # type: ignore[attr-defined]
        faiss.write_index_binary(mapped, writer)

    return write


def _numpy(index: HammingIndex) -> Any:
    codes, ids = index.items()

    def write(out: IO[bytes]) -> None:
        np.savez(
            out,
            codes=codes,
            ids=ids,
            n_bits=np.int64(index.n_bits),
            bit_order=np.array(BIT_ORDER),
        )

    return write


def _parquet(index: HammingIndex) -> Any:
    codes, ids = index.items()
    return parquet_writer(codes, ids)


def parquet_writer(
    codes: Codes, ids: Any, metadata: Mapping[str, str] | None = None
) -> Callable[[IO[bytes]], None]:
    """Return what writes codes (n, n_bits / 8) with their ids to a Parquet file, see `export`.

    ``metadata`` goes into that of the schema, beside ``n_bits`` and ``bit_order``.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="export to Parquet") from error

    width = codes.shape[1]
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(codes), [None, pa.py_buffer(codes.tobytes())]
    )
    table = pa.table({"id": pa.array(ids), "code": column}).replace_schema_metadata(
        {"n_bits": str(8 * width), "bit_order": BIT_ORDER, **(metadata or {})}
    )

    def write(out: IO[bytes]) -> None:
        parquet.write_table(table, out)

    return write
