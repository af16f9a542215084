"""What the conformance checks look at: conditions, refusals, and all that an object holds."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from oasis.errors import CheckError, InputError


def require(condition: object, message: str) -> None:
    """Raise a `CheckError` with this message unless the condition holds."""
    if not condition:
        raise CheckError(message)


@contextmanager
def refused(what: str, error: type[Exception] = InputError) -> Iterator[None]:
    """Require that the block raises this error; ``what`` names the block."""
    try:
        yield
    except error:
        return
    raise CheckError(f"{what} was accepted, expected {error.__name__}")


def fingerprint(thing: object) -> str:
    """Return a digest of everything that can be reached from an object."""
    digest = hashlib.sha256()
    seen: set[int] = set()

    def feed(value: Any) -> None:
        if isinstance(value, np.ndarray):
            digest.update(repr((value.dtype.str, value.shape)).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        elif hasattr(value, "indptr"):  # a CSR matrix
            feed([value.data, value.indices, value.indptr])
        elif isinstance(value, np.random.Generator):
            feed(value.bit_generator.state)
        elif isinstance(value, dict):
            for key in value:
                digest.update(repr(key).encode())
                feed(value[key])
        elif isinstance(value, (list, tuple, set, frozenset)):
            digest.update(f"{type(value).__name__}{len(value)}".encode())
            for item in sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value:
                feed(item)
        elif isinstance(value, (str, bytes, int, float, bool, type(None), np.generic)):
            digest.update(repr(value).encode())
        elif id(value) not in seen:
            seen.add(id(value))
            digest.update(type(value).__qualname__.encode())
            if dataclasses.is_dataclass(value):
                feed({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
            else:
                feed(dict(getattr(value, "__dict__", {})))

    feed(thing)
    return digest.hexdigest()


def held_bytes(thing: object) -> int:
    """Return the bytes of all arrays that can be reached from an object."""
    total = 0
    seen: dict[int, object] = {}
    waiting: list[Any] = [thing]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that no other object gets its id
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif hasattr(value, "indptr"):  # a CSR matrix
            waiting += [value.data, value.indices, value.indptr]
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set)):
            waiting += value
        elif hasattr(value, "__dict__"):
            waiting.append(vars(value))
    return total
