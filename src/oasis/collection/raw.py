"""Raw items: their features by the recorded extractor, and what has to be left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from oasis.collection.intake import check_id
from oasis.collection.records import Id, Rejected
from oasis.errors import InputError
from oasis.features.extractor import Extractor, Features


class Extracted(NamedTuple):
    """The items that can be ingested, in their order: rows, features, ids, labels, payloads."""

    rows: list[int]
    X: dict[str, Features]
    ids: list[Id]
    labels: list[Any]
    payloads: list[Any]


def extract_items(
    extractor: Extractor,
    items: Sequence[Any],
    known: Callable[[list[Id]], set[Id]],
    progress: Callable[[int], object] | None,
) -> tuple[Extracted, list[Rejected]]:
    """Return what can be ingested of raw items, and what cannot, by row.

    An item is an object with ``id``, ``labels`` and ``payload`` beside the fields of the extractor,
    or a mapping with such keys. ``known`` says which ids are in the collection already: their items
    are left out before anything is extracted, and so are those that have none of the fields.
    """
    ids = [check_id(_field(item, "id")) for item in items]
    there = known(ids)
    fields = sorted({field for field, _ in extractor.sources.values()})
    rejected: list[Rejected] = []
    seen: set[Id] = set()
    rows: list[int] = []
    for row, each in enumerate(ids):
        if each in there:
            rejected.append(Rejected(row, each, f"id {each!r} is in the collection already"))
        elif each in seen:
            rejected.append(Rejected(row, each, f"id {each!r} is given more than once"))
        elif all(_is_nothing(_field(items[row], field)) for field in fields):
            reason = f"it has nothing to learn from; expected one of {fields}"
            rejected.append(Rejected(row, each, reason))
        else:
            seen.add(each)
            rows.append(row)
    X, failures = extractor.extract([items[row] for row in rows], progress)
    failed: dict[int, str] = {}
    for failure in failures:
        failed.setdefault(failure.row, f"{failure.modality}: {failure.reason}")
    rejected += [Rejected(rows[at], ids[rows[at]], reason) for at, reason in failed.items()]
    kept = [at for at in range(len(rows)) if at not in failed]
    if failed:
        X = {name: matrix[kept] for name, matrix in X.items()}
    rows = [rows[at] for at in kept]
    extracted = Extracted(
        rows,
        X,
        [ids[row] for row in rows],
        [_field(items[row], "labels") for row in rows],
        [_field(items[row], "payload") for row in rows],
    )
    return extracted, sorted(rejected, key=lambda each: each.row)


def extract_queries(extractor: Extractor, items: Sequence[Any]) -> dict[str, Features]:
    """Return the features of raw queries; one that has none is refused."""
    X, failures = extractor.extract(items)
    if failures:
        first = failures[0]
        raise InputError(f"query {first.row} cannot be used: {first.modality}: {first.reason}")
    some = np.zeros(len(items), dtype=np.bool_)
    for matrix in X.values():
        filled = np.diff(matrix.indptr) > 0 if isinstance(matrix, sp.csr_array) else matrix.any(1)
        some |= filled
    if not some.all():
        raise InputError(
            f"query {int(np.argmin(some))} has nothing to search with; expected one of "
            f"{sorted(field for field, _ in extractor.sources.values())}"
        )
    return X


def check_sequence(items: Any, what: str) -> Sequence[Any]:
    """Return items as a sequence, or refuse what is a single one."""
    if isinstance(items, (str, bytes, Mapping)) or not hasattr(items, "__iter__"):
        raise InputError(f"{what} must be a list of items, got {type(items).__name__}")
    return items if isinstance(items, Sequence) else list(items)


def _is_nothing(raw: Any) -> bool:
    return raw is None or (isinstance(raw, str) and not raw.strip())


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
