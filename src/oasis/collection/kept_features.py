"""Kept features: what an item taught, so that labels given later can teach; and the journal.

A row of ``features`` has the features of one item, as they were learned: for each modality that it
has, the length and the name of the modality, a letter for the kind of the values, their number, and
the values. The letters are those of `struct`: "e" half, "f" single, "d" double precision; a capital
letter stands for a sparse row, whose positions (uint32) come before its values.

Values are kept in half precision where that is exact, and `halved` makes it exact: a collection
that keeps features learns from values in half precision (a relative error of 0.0005), so what is
subtracted later is what was added.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix, Rows, Single, has_row, is_sparse
from oasis.collection.rows import ROWS_AT_ONCE, Keys, insert_rows, row_crc
from oasis.errors import FormatError
from oasis.model import OASIS, AnyModel
from oasis.model.content import ENOUGH_ROWS

_HEAD = struct.Struct("<BcI")
_KINDS: dict[str, np.dtype[Any]] = {
    "e": np.dtype("<f2"),
    "f": np.dtype("<f4"),
    "d": np.dtype("<f8"),
}
_ROUGH = 1 / 1024


def halved(X: Mapping[str, Matrix]) -> dict[str, Matrix]:
    """Return features with values of half precision; as they are where that is too coarse.

    >>> halved({"a": np.array([[0.1, 1e6]]), "b": np.array([[0.1, 3.0]])})
    {'a': array([[1.e-01, 1.e+06]]), 'b': array([[0.09997559, 3.        ]])}
    """
    return {name: _halved(matrix) for name, matrix in X.items()}


def _halved(matrix: Matrix) -> Matrix:
    values = matrix.data if is_sparse(matrix) else matrix
    with np.errstate(over="ignore"):
        half = values.astype(np.float16).astype(values.dtype)
    largest = np.abs(values).max(initial=0.0)
    if not np.abs(half - values).max(initial=0.0) <= _ROUGH * largest:
        return matrix  # beyond its range, or so small that little of them is left
    if not is_sparse(matrix):
        return half
    made = matrix.copy()
    made.data = half
    return made


def packed_features(X: Mapping[str, Matrix]) -> list[bytes]:
    """Return the features of each row, as they are kept."""
    parts = [_packed(name, matrix) for name, matrix in X.items()]
    return [b"".join(each) for each in zip(*parts, strict=True)]


def _packed(name: str, matrix: Matrix) -> list[bytes]:
    title = name.encode()
    values = matrix.data if is_sparse(matrix) else matrix
    with np.errstate(over="ignore"):
        half = values.astype("<f2")
    kind = "e" if np.array_equal(half, values) else "d" if values.dtype == np.float64 else "f"
    values = half if kind == "e" else values.astype(_KINDS[kind])
    if not is_sparse(matrix):
        width = matrix.shape[1]
        head = _HEAD.pack(len(title), kind.encode(), width) + title
        there = np.any(matrix, axis=1).tolist()
        return [
            head + row.tobytes() if any_ else b"" for row, any_ in zip(values, there, strict=True)
        ]
    found: list[bytes] = []
    places, code = matrix.indices.astype("<u4"), kind.upper().encode()
    for start, stop in zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True):
        if start == stop:
            found.append(b"")
            continue
        head = _HEAD.pack(len(title), code, stop - start) + title
        found.append(head + places[start:stop].tobytes() + values[start:stop].tobytes())
    return found


def unpacked_features(
    rows: Sequence[bytes], widths: Mapping[str, int], sparse_names: Iterable[str] = ()
) -> dict[str, Matrix]:
    """Return the features that `packed_features` made, by modality: (n, width) each.

    A modality that no row has is dense, unless named.
    """
    dense: dict[str, npt.NDArray[Any]] = {}
    sparse: dict[str, list[tuple[int, bytes, bytes, np.dtype[Any]]]]
    sparse = {name: [] for name in sparse_names}
    for at, row in enumerate(rows):
        offset = 0
        while offset < len(row):
            n_title, letter, n = _HEAD.unpack_from(row, offset)
            offset += _HEAD.size + n_title
            name = row[offset - n_title : offset].decode()
            kind = _KINDS[letter.decode().lower()]
            size = n * kind.itemsize
            if letter.isupper():
                values = row[offset + 4 * n : offset + 4 * n + size]
                sparse.setdefault(name, []).append((at, row[offset : offset + 4 * n], values, kind))
                offset += 4 * n + size
                continue
            if name not in dense:
                dense[name] = np.zeros((len(rows), n), dtype=np.float32)
            if kind.itemsize == 8 and dense[name].dtype == np.float32:
                dense[name] = dense[name].astype(np.float64)
            dense[name][at] = np.frombuffer(row, kind, n, offset)
            offset += size
    made: dict[str, Matrix] = {}
    for name, width in widths.items():
        if name in sparse:
            made[name] = _csr(sparse[name], len(rows), width)
        else:
            made[name] = dense.get(name, np.zeros((len(rows), width), dtype=np.float32))
    return made


def _csr(found: list[tuple[int, bytes, bytes, np.dtype[Any]]], n_rows: int, width: int) -> Matrix:
    # a collection without sparse features needs no SciPy
    import scipy.sparse as sp

    sizes = np.zeros(n_rows + 1, dtype=np.int64)
    for at, places, _, _ in found:
        sizes[at + 1] = len(places) // 4
    values = np.concatenate([np.empty(0), *(np.frombuffer(each, kind) for *_, each, kind in found)])
    joined = b"".join(places for _, places, _, _ in found)
    indices = np.frombuffer(joined, "<u4").astype(np.int32)
    double = any(kind.itemsize == 8 for *_, kind in found)
    values = values.astype(np.float64 if double else np.float32)
    return sp.csr_array((values, indices, np.cumsum(sizes)), shape=(n_rows, width))


def unsettled_rows(model: AnyModel, X: Mapping[str, Matrix]) -> Rows:
    """Return the rows of a learned chunk whose codes are to be made anew later.

    Those are the first samples, and the first with some modality, whose content bits have no
    function for good yet.
    """
    if not isinstance(model, OASIS) or not model.n_content_bits:
        return np.empty(0, dtype=np.intp)
    state, n = model.state_, next(iter(X.values())).shape[0]
    if state.n_seen < ENOUGH_ROWS:
        return np.arange(n)
    some = np.zeros(n, dtype=np.bool_)
    for name, size in state.content.sizes.items() if state.unsettled else ():
        if size and name in X and state.content.rows.get(name, 0) < ENOUGH_ROWS:
            some |= has_row(X[name])
    return np.flatnonzero(some)


def insert_features(
    connection: sqlite3.Connection, keys: Keys, X: Mapping[str, Matrix], rows: Rows
) -> None:
    """Keep the features of some rows of new items; inside a transaction."""
    if len(rows) < len(keys):
        X = {name: matrix[rows] for name, matrix in X.items()}
    insert_rows(connection, "features", zip(keys[rows].tolist(), packed_features(X), strict=True))


def read_features(connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, bytes]:
    """Return the kept features of those keys that have some."""
    found: dict[int, bytes] = {}
    for start in range(0, len(keys), ROWS_AT_ONCE):
        block = keys[start : start + ROWS_AT_ONCE]
        marks = ",".join("?" * len(block))
        for key, row, crc in connection.execute(
            f"SELECT key, data, crc FROM features WHERE key IN ({marks})",  # noqa: S608
            block,
        ):
            if row_crc(key, row) != crc:
                raise FormatError(f"the kept features with key {key} do not match their checksum")
            found[key] = row
    return found


def kept_modality(
    connection: sqlite3.Connection, keys: Sequence[int], name: str
) -> tuple[Rows, Single]:
    """Return which of some items have kept dense features of a modality, and these (n, d)."""
    listed = json.dumps(list(keys))
    born = dict(
        connection.execute(
            "SELECT key, born FROM items WHERE key IN (SELECT value FROM json_each(?))", (listed,)
        )
    )
    kept = read_features(connection, list(born.values()))
    rows = [at for at, key in enumerate(keys) if born.get(key) in kept]
    found = unpacked_features([kept[born[keys[at]]] for at in rows], {name: 0})[name]
    there = has_row(found)
    dense = np.asarray(found[there], dtype=np.float32)
    return np.array(rows, dtype=np.intp)[there], dense


def kept_sizes(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return of how many items features are kept, and about how many bytes these have.

    The bytes are estimated from the newest 100.
    """
    row = connection.execute("SELECT n FROM tallies WHERE name = 'features'").fetchone()
    n = row[0] if row else 0
    (mean,) = connection.execute(
        "SELECT avg(length(data)) FROM (SELECT data FROM features ORDER BY key DESC LIMIT 100)"
    ).fetchone()
    return n, round(n * (mean or 0))
