"""Labels and payloads in the form of Milvus's dynamic field: one JSON object per item."""

from __future__ import annotations

import json
from typing import Any

from oasis.errors import InputError
from oasis.index import Ids

_MOST_BYTES = 65_536  # Milvus refuses longer ones
_SETS = (tuple, list, set, frozenset)


def encode_extras(ids: Ids, labels: Any, payload: Any) -> list[bytes] | None:
    """Return one JSON object per item, or None if neither labels nor payload are given.

    >>> import numpy as np
    >>> encode_extras(np.array([7]), [("sky",)], [{"year": 2024}])
    [b'{"labels":["sky"],"payload":{"year":2024}}']
    """
    if labels is None and payload is None:
        return None
    all_labels = _as_many(ids, labels, "labels", "tuple of labels")
    payloads = _as_many(ids, payload, "payload", "dict")
    out = []
    for key, names, fields in zip(ids.tolist(), all_labels, payloads, strict=True):
        extra: dict[str, Any] = {}
        if labels is not None:
            if not isinstance(names, _SETS) or not all(isinstance(name, str) for name in names):
                raise InputError(f"labels of id {key} must be a tuple of str, got {names!r}")
            extra["labels"] = list(names)
        if payload is not None:
            if not isinstance(fields, dict):
                raise InputError(f"payload of id {key} must be a dict, got {fields!r}")
            extra["payload"] = fields
        out.append(_to_json(key, extra))
    return out


def _as_many(ids: Ids, values: Any, name: str, what: str) -> list[Any]:
    if values is None:
        return [None] * len(ids)
    if isinstance(values, (str, bytes, dict)):
        raise InputError(f"{name} must hold one {what} per item, got {values!r}")
    found = list(values)
    if len(found) != len(ids):
        raise InputError(f"got {len(ids)} ids and {len(found)} {name}; expected as many")
    return found


def _to_json(key: int, extra: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(extra, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data = text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"labels and payload of id {key} are no JSON: {error}") from None
    if len(data) > _MOST_BYTES:
        raise InputError(
            f"labels and payload of id {key} take {len(data):,} bytes as JSON, "
            f"at most {_MOST_BYTES:,} are possible"
        )
    return data
