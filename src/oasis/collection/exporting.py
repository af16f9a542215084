"""The codes of a collection for other tools, with the users' ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis import store
from oasis.codes import Codes
from oasis.collection.collection import Collection
from oasis.collection.records import Stored
from oasis.errors import InputError, MissingExtraError, StorageError
from oasis.index import HammingIndex
from oasis.index.export import BIT_ORDER
from oasis.index.export import export as export_index

FORMATS = ("faiss", "npz", "parquet")


def export(collection: Collection, out: Path, form: str) -> dict[str, Any]:
    """Write all items to ``out``, which is replaced, and return what was written.

    - faiss: an ``IndexBinaryIDMap``. Its ids are the users' where all of them are whole numbers
      that are not negative; otherwise they are keys, and ``OUT.ids.jsonl`` says whose.
    - npz: ``codes`` (n, n_bits / 8) uint8, ``ids`` (int64, or text if any is text), ``keys``,
      ``n_bits`` and ``bit_order``.
    - parquet: ``id``, ``code``, ``labels``, ``predicted``, ``payload`` (JSON text), with ``n_bits``
      and ``bit_order`` in the metadata of the schema.

    Keys number the items of the file from 1 on, the oldest first.
    """
    if form not in FORMATS:
        raise InputError(f"unknown format {form!r}; expected one of {', '.join(FORMATS)}")
    items = list(collection.items())
    written = [str(out)]
    try:
        if form == "faiss":
            written += _faiss(items, collection.n_bits, out)
        elif form == "npz":
            _npz(items, collection.n_bits, out)
        else:
            _parquet(items, collection.n_bits, out)
    except OSError as error:
        raise StorageError(f"cannot write {out}: {error.strerror or error}") from error
    return {"format": form, "items": len(items), "n_bits": collection.n_bits, "files": written}


def _codes(items: list[Stored], n_bits: int) -> Codes:
    packed = b"".join(item.code for item in items)
    return np.frombuffer(packed, dtype=np.uint8).reshape(len(items), n_bits // 8)


def _keys(items: list[Stored]) -> npt.NDArray[np.int64]:
    return np.arange(1, len(items) + 1)


def _faiss(items: list[Stored], n_bits: int, out: Path) -> list[str]:
    numbers = [each.id for each in items if isinstance(each.id, int) and each.id >= 0]
    own = len(numbers) == len(items)
    index = HammingIndex(n_bits)
    index.add(_codes(items, n_bits), np.array(numbers, dtype=np.int64) if own else _keys(items))
    export_index(index, out, "faiss")
    if own:
        return []
    beside = out.with_name(f"{out.name}.ids.jsonl")
    lines = (
        json.dumps({"key": key, "id": each.id}, ensure_ascii=False) + "\n"
        for key, each in enumerate(items, 1)
    )
    with store.replacing(beside) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return [str(beside)]


def _npz(items: list[Stored], n_bits: int, out: Path) -> None:
    with store.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            codes=_codes(items, n_bits),
            ids=np.array(*_column(items)),
            keys=_keys(items),
            n_bits=np.int64(n_bits),
            bit_order=np.array(BIT_ORDER),
        )


def _parquet(items: list[Stored], n_bits: int, out: Path) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="export to Parquet") from error
    table = pa.table(
        {
            "id": pa.array(_column(items)[0]),
            "code": pa.array([each.code for each in items], pa.binary(n_bits // 8)),
            "labels": pa.array([each.labels for each in items], pa.list_(pa.string())),
            "predicted": pa.array([each.predicted for each in items], pa.list_(pa.string())),
            "payload": pa.array(
                [json.dumps(each.payload, ensure_ascii=False) for each in items], pa.string()
            ),
        }
    ).replace_schema_metadata({"n_bits": str(n_bits), "bit_order": BIT_ORDER})
    with store.replacing(out) as temporary:
        parquet.write_table(table, temporary)


def _column(items: list[Stored]) -> tuple[list[Any], Any]:
    """Return the ids as one type, numbers or texts, and the type."""
    if all(isinstance(each.id, int) for each in items):
        return [each.id for each in items], np.int64
    return [str(each.id) for each in items], np.str_
