"""Conformance checks: what every hasher must pass.

`check_hasher` runs them all. ``make(seed)`` returns a new hasher of `N_BITS` bits whose random
numbers follow the seed. Each check is a function of ``make`` and raises a `CheckError` that says
what was found and what was expected. A hasher that cannot pass a check by design leaves it out by
name: a batch method, for instance, keeps old features, so its memory grows.

>>> from oasis.hashers.checks import CHECKS
>>> list(CHECKS)[:2]
['check_codes_have_the_promised_shape_and_type', 'check_inputs_stay_as_they_were']

`docs/hashers.md` writes a hasher and runs them.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from oasis.errors import CheckError, InputError, NotFittedError, OasisError
from oasis.hashers.examples import (
    BAD_CHUNKS,
    CLASS_NAMES,
    MALFORMED,
    NEW_MODALITY,
    WIDTHS,
    ChunkOf,
    example_chunk,
    shuffled_csr,
    with_parts,
)

__all__ = [
    "BAD_CHUNKS",
    "CHECKS",
    "CLASS_NAMES",
    "MALFORMED",
    "N_BITS",
    "WIDTHS",
    "Make",
    "check_hasher",
    "example_chunk",
    "fingerprint",
    "held_bytes",
    "refused",
    "require",
    "shuffled_csr",
    "with_parts",
]

N_BITS = 16
"""Bits of the hashers that are checked."""

Make: TypeAlias = Callable[[int], Any]
"""Returns a new hasher of `N_BITS` bits for a seed."""


def check_hasher(make: Make, leave_out: Collection[str] = ()) -> None:
    """Run every check; the first that fails raises a `CheckError`.

    Parameters
    ----------
    make : callable of a seed, returns a new hasher of 16 bits
    leave_out : names of checks, as in `CHECKS`, that do not apply to this hasher
    """
    unknown = [name for name in leave_out if name not in CHECKS]
    if unknown:
        raise InputError(f"there is no check {unknown[0]!r}; the checks are {', '.join(CHECKS)}")
    for name, check in CHECKS.items():
        if name not in leave_out:
            check(make)


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
    """Return a digest of everything that can be reached from an object, caches left out."""
    digest = hashlib.sha256()
    for value in _reachable(thing, {}, caches=False):
        if isinstance(value, np.ndarray):
            digest.update(repr((value.dtype.str, value.shape)).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def held_bytes(thing: object) -> int:
    """Return the bytes of all arrays that can be reached from an object."""
    found = [each for each in _reachable(thing, {}, caches=True) if isinstance(each, np.ndarray)]
    return sum({id(array): array.nbytes for array in found}.values())


def _reachable(value: Any, seen: dict[int, object], caches: bool) -> Iterator[Any]:
    """Yield the arrays and simple values in an object, names of types and keys between them."""
    if isinstance(value, (np.ndarray, str, bytes, int, float, bool, type(None), np.generic)):
        yield value
        return
    inner: Any
    if hasattr(value, "indptr"):  # a CSR matrix
        inner = [value.data, value.indices, value.indptr]
    elif isinstance(value, np.random.Generator):
        inner = value.bit_generator.state.items()
    elif isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, (set, frozenset)):
        inner = sorted(value, key=repr)
    elif isinstance(value, (list, tuple)):
        inner = value
    elif id(value) in seen:
        return
    else:
        seen[id(value)] = value  # kept, so that no other object gets its id
        inner = dict(getattr(value, "__dict__", {}))
        if dataclasses.is_dataclass(value) and not caches:
            inner = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    yield type(value).__qualname__
    for each in inner.items() if isinstance(inner, dict) else inner:
        yield from _reachable(each, seen, caches)


def _chunks(n_chunks: int, **options: Any) -> list[ChunkOf]:
    return [example_chunk(40, seed=number, **options) for number in range(n_chunks)]


def _fitted(make: Make, n_chunks: int = 2, seed: int = 0) -> Any:
    hasher = make(seed)
    for X, y in _chunks(n_chunks):
        hasher.partial_fit(X, y)
    return hasher


def _queries(n: int = 20) -> dict[str, Any]:
    return example_chunk(n, 99)[0]


def check_codes_have_the_promised_shape_and_type(make: Make) -> None:
    """``codes_`` and `encode` are packed uint8, `project` float32, `transform` the bits."""
    X, y = example_chunk(30)
    hasher = make(0)
    require(hasher.n_bits == N_BITS, f"make must return {N_BITS} bits, got {hasher.n_bits}")
    require(hasher.partial_fit(X, y) is hasher, "partial_fit must return the hasher itself")
    found = {
        "codes_": (hasher.codes_, (30, N_BITS // 8), np.uint8),
        "encode": (hasher.encode(X), (30, N_BITS // 8), np.uint8),
        "project": (hasher.project(X), (30, N_BITS), np.float32),
        "transform": (hasher.transform(X), (30, N_BITS), np.uint8),
    }
    for name, (array, shape, dtype) in found.items():
        require(
            array.shape == shape and array.dtype == dtype,
            f"{name} has shape {array.shape} and type {array.dtype}, expected {shape} and "
            f"{np.dtype(dtype)}",
        )
    projected = hasher.project(X)
    require(np.isfinite(projected).all(), "project holds NaN or infinity")
    bits = (projected > 0).astype(np.uint8)
    require(
        np.array_equal(hasher.encode(X), np.packbits(bits, axis=1, bitorder="little")),
        "encode differs from the signs of project, packed with the lowest bit first",
    )
    require(np.array_equal(hasher.transform(X), bits), "transform differs from the bits of encode")


def check_inputs_stay_as_they_were(make: Make) -> None:
    """Neither learning nor encoding writes into X or y."""
    X, y = example_chunk(40, sparse=("text",))
    before = fingerprint([X, y])
    make(0).partial_fit(X, y).encode(X)
    require(fingerprint([X, y]) == before, "X or y was changed")


def check_same_seed_gives_same_codes(make: Make) -> None:
    """Two hashers of one seed give the same codes for the same stream."""
    runs = []
    for _ in range(2):
        hasher, codes = make(5), []
        for X, y in _chunks(3):
            codes.append(hasher.partial_fit(X, y).codes_.copy())
        codes.append(hasher.encode(_queries()))
        runs.append(codes)
    same = all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))
    require(same, "two hashers of one seed gave different codes for the same chunks")


def check_codes_of_earlier_chunks_never_change(make: Make) -> None:
    """An array of codes that was handed out is not written to by later rounds."""
    hasher, kept = make(0), []
    for X, y in _chunks(4):
        codes = hasher.partial_fit(X, y).codes_
        kept.append((codes, codes.copy()))
    hasher.encode(_queries())
    for number, (now, then) in enumerate(kept):
        require(np.array_equal(now, then), f"the codes of chunk {number} changed in a later round")


def check_encoding_changes_nothing(make: Make) -> None:
    """`encode` gives the same codes twice and leaves the hasher as it was."""
    hasher = _fitted(make)
    before = fingerprint(hasher)
    first = hasher.encode(_queries())
    require(
        np.array_equal(first, hasher.encode(_queries())),
        "encode gave different codes when called again",
    )
    require(fingerprint(hasher) == before, "encode changed the hasher")


def check_encoding_is_row_wise(make: Make) -> None:
    """The code of a sample does not depend on the samples that are encoded with it."""
    hasher, X = _fitted(make), _queries()
    together = hasher.encode(X)
    for row in range(20):
        alone = hasher.encode({name: values[row : row + 1] for name, values in X.items()})
        require(
            np.array_equal(alone[0], together[row]),
            f"sample {row} has a different code when it is encoded alone",
        )


def check_a_query_may_lack_modalities(make: Make) -> None:
    """Any subset of the modalities is encoded, as if the others were rows of zeros."""
    hasher, X = _fitted(make), _queries()
    for name in X:
        codes = hasher.encode({name: X[name]})
        zeros = {other: values if other == name else 0 * values for other, values in X.items()}
        require(
            np.array_equal(codes, hasher.encode(zeros)),
            f"a query of {name!r} alone has a different code than with zeros for the rest",
        )


def check_sparse_features_give_the_codes_of_dense_ones(make: Make) -> None:
    """CSR and dense features of the same values give the same codes."""
    dense, sparse = make(0), make(0)
    for (X, y), (S, _) in zip(_chunks(3), _chunks(3, sparse=("image", "text")), strict=True):
        dense.partial_fit(X, y)
        sparse.partial_fit(S, y)
        require(np.array_equal(dense.codes_, sparse.codes_), "sparse features gave other codes_")
    same = np.allclose(dense.project(_queries()), sparse.project(_queries()), 1e-3, 1e-4)
    require(same, "a hasher that learned from sparse features projects differently")
    X = _queries()
    loose = {name: shuffled_csr(values) for name, values in X.items()}
    same = np.allclose(dense.project(X), dense.project(loose), 1e-3, 1e-4)
    require(same, "unsorted and duplicate entries of CSR project differently")


def check_memory_does_not_grow_with_samples(make: Make) -> None:
    """After the third chunk, more samples of the same classes take no more memory."""
    hasher, sizes = make(0), []
    for number in range(12):
        hasher.partial_fit(*example_chunk(40, seed=number))
        sizes.append(held_bytes(vars(hasher)))
    require(
        sizes[2] >= 40 * N_BITS // 8, f"found {sizes[2]} bytes, which is less than the codes alone"
    )
    require(sizes[-1] == sizes[2], f"memory grew from {sizes[2]} to {sizes[-1]} bytes")


def check_a_refused_chunk_changes_nothing(make: Make) -> None:
    """A chunk with any fault raises `InputError` and leaves the hasher as it was.

    A new modality is no fault for a hasher with ``may_add``.
    """
    hasher = _fitted(make)
    before = fingerprint(hasher)
    for name, spoil in BAD_CHUNKS.items():
        if name == NEW_MODALITY and getattr(hasher, "may_add", False):
            continue
        with refused(f"a chunk with {name}"):
            hasher.partial_fit(*spoil(*example_chunk(30, 50)))
        require(fingerprint(hasher) == before, f"a chunk refused for {name} changed the hasher")
    X, y = example_chunk(30, 51)
    unspoiled = _fitted(make)
    require(
        np.array_equal(hasher.partial_fit(X, y).codes_, unspoiled.partial_fit(X, y).codes_),
        "after refused chunks the next chunk got different codes",
    )


def check_a_refused_query_says_why(make: Make) -> None:
    """A query with any fault raises `InputError`."""
    hasher, X = _fitted(make), _queries(10)
    for name, spoiled in {
        "no modality": {},
        "an unknown modality": {"sound": X["image"]},
        "another width": {"image": X["image"][:, :3]},
        "rows that differ": {"image": X["image"], "text": X["text"][:2]},
        "NaN": {"image": X["image"] * np.nan},
        "an array for two modalities": X["image"],
        **{f"CSR with {name}": {"text": spoil(X["text"])} for name, spoil in MALFORMED.items()},
    }.items():
        with refused(f"a query with {name}"):
            hasher.encode(spoiled)


def check_an_unfitted_hasher_says_so(make: Make) -> None:
    """Before the first chunk, `encode` raises and ``hasattr(hasher, "classes_")`` is False."""
    with refused("encoding before the first chunk", NotFittedError):
        make(0).encode(example_chunk(3)[0])
    for name in ("classes_", "n_seen_"):
        require(not hasattr(make(0), name), f"{name} is there before the first chunk")


def check_classes_and_samples_are_counted(make: Make) -> None:
    """``classes_`` is in order of arrival (or as announced), ``n_seen_`` counts every sample."""
    hasher = make(0)
    met: dict[str, None] = {}
    for number in range(3):
        X, y = example_chunk(20, seed=number, classes=CLASS_NAMES[: 2 + 2 * number], bare=0.2)
        hasher.partial_fit(X, y)
        met |= dict.fromkeys(name for names in y for name in names)
        n_seen = 20 * (number + 1)
        require(hasher.n_seen_ == n_seen, f"n_seen_ is {hasher.n_seen_}, expected {n_seen}")
        announced = getattr(hasher, "classes", None)
        expected = tuple(met if announced is None else announced)
        require(hasher.classes_ == expected, f"classes_ is {hasher.classes_}, expected {expected}")


def check_odd_but_valid_chunks_give_finite_codes(make: Make) -> None:
    """One sample, one class, no labels, a modality of zeros: in any order, also as first chunk."""
    X, y = example_chunk(30)
    cases = {
        "one sample": example_chunk(1, 60),
        "fewer samples than bits": example_chunk(7, 61),
        "one class": example_chunk(30, 62, classes=("sky",)),
        "all unlabelled": example_chunk(30, 63, bare=1.0),
        "a modality of zeros": ({**X, "text": np.zeros((30, WIDTHS["text"]))}, y),
    }
    usual = ("a usual chunk", example_chunk(40, 64))
    for first in cases.items():
        hasher = make(0)
        for name, (X, y) in (first, usual, *cases.items()):
            codes = hasher.partial_fit(X, y).codes_
            require(
                codes.shape == (len(y), N_BITS // 8),
                f"a chunk of {name} has codes_ of shape {codes.shape}",
            )
            require(
                np.isfinite(hasher.project(X)).all(),
                f"projections are not finite after a chunk of {name}",
            )


def check_clone_and_deepcopy(make: Make) -> None:
    """A clone has the parameters and has learned nothing; a deep copy continues identically."""
    # only this check needs scikit-learn
    from sklearn.base import clone

    hasher = _fitted(make)
    fresh, twin = clone(hasher), copy.deepcopy(hasher)
    require(repr(fresh) == repr(make(0)), f"the clone is {fresh!r}, expected {make(0)!r}")
    with refused("encoding by a clone", OasisError):
        fresh.encode(example_chunk(3)[0])
    X, y = example_chunk(30, 70)
    require(
        np.array_equal(hasher.partial_fit(X, y).codes_, twin.partial_fit(X, y).codes_),
        "a deep copy gave different codes for the next chunk",
    )


def check_fit_starts_anew(make: Make) -> None:
    """`fit` forgets what was learned before."""
    X, y = example_chunk(40, 80)
    fresh, used = make(0).fit(X, y), _fitted(make).fit(X, y)
    require(used.n_seen_ == 40, f"n_seen_ is {used.n_seen_} after fit, expected 40")
    require(
        np.array_equal(fresh.codes_, used.codes_), "fit after other chunks gave different codes"
    )


CHECKS: dict[str, Callable[[Make], None]] = {
    each.__name__: each
    for each in (
        check_codes_have_the_promised_shape_and_type,
        check_inputs_stay_as_they_were,
        check_same_seed_gives_same_codes,
        check_codes_of_earlier_chunks_never_change,
        check_encoding_changes_nothing,
        check_encoding_is_row_wise,
        check_a_query_may_lack_modalities,
        check_sparse_features_give_the_codes_of_dense_ones,
        check_memory_does_not_grow_with_samples,
        check_a_refused_chunk_changes_nothing,
        check_a_refused_query_says_why,
        check_an_unfitted_hasher_says_so,
        check_classes_and_samples_are_counted,
        check_odd_but_valid_chunks_give_finite_codes,
        check_clone_and_deepcopy,
        check_fit_starts_anew,
    )
}
"""Every check by name."""
