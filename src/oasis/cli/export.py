"""The codes of a collection for other tools, with the users' ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oasis import store
from oasis.codes import Codes
from oasis.collection.catalog import Catalog, Keys
from oasis.collection.records import Id
from oasis.collection.schema import label_numbers
from oasis.errors import InputError, MissingExtraError, StorageError
from oasis.index import HammingIndex
from oasis.index.export import BIT_ORDER
from oasis.index.export import export as export_index

FORMATS = ("faiss", "npz", "parquet")


class Items(NamedTuple):
    """Everything stored of the items, oldest first."""

    keys: Keys
    codes: Codes
    ids: list[Id]
    labels: list[list[str]]
    payloads: list[str]


def export(collection: Path, n_bits: int, out: Path, form: str) -> dict[str, Any]:
    """Write all items to ``out``, which is replaced, and return what was written.

    - faiss: an ``IndexBinaryIDMap``. Its ids are the users' where all of them are whole numbers
      that are not negative; otherwise they are keys, and ``OUT.ids.jsonl`` says whose.
    - npz: ``codes`` (n, n_bits / 8) uint8, ``ids`` (int64, or text if any is text), ``keys``,
      ``n_bits`` and ``bit_order``.
    - parquet: ``id``, ``code``, ``labels``, ``payload`` (JSON text), with ``n_bits`` and
      ``bit_order`` in the metadata of the schema.
    """
    if form not in FORMATS:
        raise InputError(f"unknown format {form!r}; expected one of {', '.join(FORMATS)}")
    items = read(collection, n_bits)
    written = [str(out)]
    try:
        if form == "faiss":
            written += _faiss(items, n_bits, out)
        elif form == "npz":
            _npz(items, n_bits, out)
        else:
            _parquet(items, n_bits, out)
    except OSError as error:
        raise StorageError(f"cannot write {out}: {error.strerror or error}") from error
    return {"format": form, "items": len(items.keys), "n_bits": n_bits, "files": written}


def read(collection: Path, n_bits: int) -> Items:
    """Return all items, in one reading transaction."""
    catalog = Catalog(collection, writable=False)
    try:
        with catalog.reading() as connection:
            names = catalog.class_names(connection)
            blocks = list(catalog.codes(connection, 0, n_bits))
            keys = np.concatenate([np.zeros(0, np.int64), *(block[0] for block in blocks)])
            empty = np.zeros((0, n_bits // 8), dtype=np.uint8)
            rows = {
                key: rest
                for key, *rest in catalog.rows(
                    connection, "key, id, labels, payload", keys.tolist()
                )
            }
    finally:
        catalog.close()
    ordered = [rows[key] for key in keys.tolist()]
    return Items(
        keys,
        np.concatenate([empty, *(block[1] for block in blocks)]),
        [row[0] for row in ordered],
        [[names[number] for number in label_numbers(row[1])] for row in ordered],
        [row[2] or "{}" for row in ordered],
    )


def _faiss(items: Items, n_bits: int, out: Path) -> list[str]:
    numbers = [each for each in items.ids if isinstance(each, int) and each >= 0]
    own = len(numbers) == len(items.ids)
    index = HammingIndex(n_bits)
    index.add(items.codes, np.array(numbers, dtype=np.int64) if own else items.keys)
    export_index(index, out, "faiss")
    if own:
        return []
    beside = out.with_name(f"{out.name}.ids.jsonl")
    pairs = zip(items.keys.tolist(), items.ids, strict=True)
    lines = (json.dumps({"key": key, "id": each}, ensure_ascii=False) + "\n" for key, each in pairs)
    with store.replacing(beside) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    return [str(beside)]


def _npz(items: Items, n_bits: int, out: Path) -> None:
    with store.replacing(out) as temporary, temporary.open("wb") as file:
        np.savez(
            file,
            codes=items.codes,
            ids=np.array(*_column(items.ids)),
            keys=items.keys,
            n_bits=np.int64(n_bits),
            bit_order=np.array(BIT_ORDER),
        )


def _parquet(items: Items, n_bits: int, out: Path) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", extra="parquet", what="export to Parquet") from error
    table = pa.table(
        {
            "id": pa.array(_column(items.ids)[0]),
            "code": pa.array([code.tobytes() for code in items.codes], pa.binary(n_bits // 8)),
            "labels": pa.array(items.labels, pa.list_(pa.string())),
            "payload": pa.array(items.payloads, pa.string()),
        }
    ).replace_schema_metadata({"n_bits": str(n_bits), "bit_order": BIT_ORDER})
    with store.replacing(out) as temporary:
        parquet.write_table(table, temporary)


def _column(ids: list[Id]) -> tuple[list[Any], Any]:
    """Return ids of one type, numbers or texts, and the type."""
    if all(isinstance(each, int) for each in ids):
        return list(ids), np.int64
    return [str(each) for each in ids], np.str_
