"""What every hasher must pass: ``run(make)`` for OASIS, every rival and every control.

``make(seed)`` returns a new hasher of 16 bits. Each check is a function of ``make``; a hasher whose
kind excludes one leaves it out by name and says why where it does so.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib

import numpy as np
import pytest
import scipy.sparse as sp
import toy
from sklearn.base import clone

from oasis.errors import InputError, NotFittedError, OasisError

N_BITS = 16


def chunks(n_chunks=3, n=40, **options):
    return [toy.chunk(n, seed=number, **options) for number in range(n_chunks)]


def fitted(make, n_chunks=2, seed=0, **options):
    hasher = make(seed)
    for X, y in chunks(n_chunks, **options):
        hasher.partial_fit(X, y)
    return hasher


def fingerprint(thing) -> str:
    """A digest of everything that can be reached from an object."""
    digest, seen = hashlib.sha256(), set()

    def feed(value):
        if isinstance(value, np.ndarray):
            digest.update(repr((value.dtype.str, value.shape)).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        elif sp.issparse(value):
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
                feed(
                    {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
                )
            else:
                feed(dict(getattr(value, "__dict__", {})))

    feed(thing)
    return digest.hexdigest()


def held_bytes(thing) -> int:
    """The bytes of all arrays that can be reached from an object."""
    total, seen, waiting = 0, {}, [thing]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # kept, so that no other object gets its id
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif sp.issparse(value):
            waiting += [value.data, value.indices, value.indptr]
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set)):
            waiting += value
        elif hasattr(value, "__dict__"):
            waiting.append(vars(value))
    return total


def check_codes_have_the_promised_shape_and_type(make):
    X, y = toy.chunk(30)
    hasher = make(0)
    assert hasher.n_bits == N_BITS
    assert hasher.partial_fit(X, y) is hasher
    assert hasher.codes_.shape == (30, N_BITS // 8) and hasher.codes_.dtype == np.uint8
    encoded, projected = hasher.encode(X), hasher.project(X)
    assert encoded.shape == (30, N_BITS // 8) and encoded.dtype == np.uint8
    assert projected.shape == (30, N_BITS) and projected.dtype == np.float32
    assert np.isfinite(projected).all()
    assert np.array_equal(encoded, np.packbits(projected > 0, axis=1, bitorder="little"))


def check_inputs_stay_as_they_were(make):
    X, y = toy.chunk(40, sparse=("text",))
    before = fingerprint([X, y])
    hasher = make(0).partial_fit(X, y)
    hasher.encode(X)
    assert fingerprint([X, y]) == before


def check_same_seed_gives_same_codes(make):
    runs = []
    for _ in range(2):
        hasher, codes = make(5), []
        for X, y in chunks(3):
            codes.append(hasher.partial_fit(X, y).codes_.copy())
        codes.append(hasher.encode(toy.chunk(20, 99)[0]))
        runs.append(codes)
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


def check_codes_of_earlier_chunks_never_change(make):
    hasher, kept = make(0), []
    for X, y in chunks(4):
        codes = hasher.partial_fit(X, y).codes_
        kept.append((codes, codes.copy()))
    hasher.encode(toy.chunk(20, 99)[0])
    assert all(np.array_equal(now, then) for now, then in kept)


def check_encoding_changes_nothing(make):
    hasher = fitted(make)
    before = fingerprint(hasher)
    X, _ = toy.chunk(20, 99)
    first = hasher.encode(X)
    assert np.array_equal(first, hasher.encode(X))
    assert fingerprint(hasher) == before


def check_encoding_is_row_wise(make):
    hasher = fitted(make)
    X, _ = toy.chunk(20, 99)
    together = hasher.encode(X)
    for row in range(20):
        alone = hasher.encode({name: values[row : row + 1] for name, values in X.items()})
        assert np.array_equal(alone[0], together[row])


def check_a_query_may_lack_modalities(make):
    hasher = fitted(make)
    X, _ = toy.chunk(20, 99)
    for name in X:
        codes = hasher.encode({name: X[name]})
        assert codes.shape == (20, N_BITS // 8)
        zeros = {other: values if other == name else 0 * values for other, values in X.items()}
        assert np.array_equal(codes, hasher.encode(zeros))


def check_sparse_features_give_the_codes_of_dense_ones(make):
    dense, sparse = make(0), make(0)
    for (X, y), (S, _) in zip(chunks(3), chunks(3, sparse=("image", "text")), strict=True):
        dense.partial_fit(X, y)
        sparse.partial_fit(S, y)
        assert np.array_equal(dense.codes_, sparse.codes_)
    query = toy.chunk(20, 99)[0]
    assert np.allclose(dense.project(query), sparse.project(query), rtol=1e-3, atol=1e-4)


def check_memory_does_not_grow_with_samples(make):
    hasher, sizes = make(0), []
    for number in range(12):
        X, y = toy.chunk(40, seed=number)
        hasher.partial_fit(X, y)
        sizes.append(held_bytes(vars(hasher)))
    assert sizes[-1] == sizes[2]
    assert sizes[2] >= 40 * N_BITS // 8  # at least the codes were found


BAD_CHUNKS = {
    "another width": lambda X, y: ({**X, "image": X["image"][:, :-1]}, y),
    "a modality that is new": lambda X, y: ({**X, "sound": X["image"]}, y),
    "a modality that is renamed": lambda X, y: ({"picture": X["image"], "text": X["text"]}, y),
    "a modality that is missing": lambda X, y: ({"image": X["image"]}, y),
    "no modality": lambda X, y: ({}, y),
    "an array for X": lambda X, y: (X["image"], y),
    "NaN": lambda X, y: ({**X, "image": np.where(np.eye(*X["image"].shape) > 0, np.nan, 1.0)}, y),
    "infinity": lambda X, y: ({**X, "text": sp.csr_array(X["text"] + np.inf)}, y),
    "one dimension": lambda X, y: ({**X, "image": X["image"][:, 0]}, y),
    "text in place of numbers": lambda X, y: ({**X, "image": X["image"].astype(str)}, y),
    "rows that differ": lambda X, y: ({**X, "image": X["image"][1:]}, y),
    "an empty chunk": lambda X, y: ({name: values[:0] for name, values in X.items()}, []),
    "too few labels": lambda X, y: (X, y[:-1]),
    "one string for all labels": lambda X, y: (X, "sky"),
    "a string beside lists of names": lambda X, y: (X, [*y[:-1], "sky"]),
    "a list beside single labels": lambda X, y: (
        X,
        [["sky"] if i else "sky" for i in range(len(y))],
    ),
    "a matrix without names": lambda X, y: (X, np.ones((len(y), 2))),
    "labels that are numbers": lambda X, y: (X, [[1]] * len(y)),
    "an empty class name": lambda X, y: (X, [[" "]] * len(y)),
    "no labels at all": lambda X, y: (X, None),
}


def check_a_refused_chunk_changes_nothing(make):
    hasher = fitted(make)
    before = fingerprint(hasher)
    for name, spoil in BAD_CHUNKS.items():
        X, y = toy.chunk(30, 50)
        with pytest.raises(InputError):
            hasher.partial_fit(*spoil(X, y))
            pytest.fail(f"accepted {name}")
        assert fingerprint(hasher) == before, name
    X, y = toy.chunk(30, 51)
    unspoiled = fitted(make)
    assert np.array_equal(hasher.partial_fit(X, y).codes_, unspoiled.partial_fit(X, y).codes_)


def check_a_refused_query_says_why(make):
    hasher = fitted(make)
    X, _ = toy.chunk(10, 99)
    for spoiled in (
        {},
        {"sound": X["image"]},
        {"image": X["image"][:, :3]},
        {"image": X["image"], "text": X["text"][:2]},
        {"image": X["image"] * np.nan},
        X["image"],
    ):
        with pytest.raises(InputError):
            hasher.encode(spoiled)


def check_an_unfitted_hasher_says_so(make):
    with pytest.raises(NotFittedError):
        make(0).encode(toy.chunk(3)[0])


def check_classes_and_samples_are_counted(make):
    hasher, met = make(0), {}
    with pytest.raises(NotFittedError):
        _ = hasher.n_seen_
    for number in range(3):
        X, y = toy.chunk(20, seed=number, classes=toy.NAMES[: 2 + 2 * number], bare=0.2)
        hasher.partial_fit(X, y)
        met |= dict.fromkeys(name for names in y for name in names)
        assert hasher.n_seen_ == 20 * (number + 1)
        announced = getattr(hasher, "classes", None)
        assert hasher.classes_ == tuple(met if announced is None else announced)


def check_odd_but_valid_chunks_give_finite_codes(make):
    cases = {
        "one sample": toy.chunk(1, 60),
        "fewer samples than bits": toy.chunk(7, 61),
        "one class": toy.chunk(30, 62, classes=("sky",)),
        "all unlabelled": toy.chunk(30, 63, bare=1.0),
        "a modality of zeros": ({**toy.chunk(30)[0], "text": np.zeros((30, 14))}, toy.chunk(30)[1]),
    }
    for first in cases.values():
        hasher = make(0)
        for X, y in (first, toy.chunk(40, 64), *cases.values()):
            codes = hasher.partial_fit(X, y).codes_
            assert codes.shape == (len(y), N_BITS // 8)
            assert np.isfinite(hasher.project(X)).all()


def check_clone_and_deepcopy(make):
    hasher = fitted(make)
    fresh, twin = clone(hasher), copy.deepcopy(hasher)
    assert repr(fresh) == repr(make(0))
    with pytest.raises(OasisError):
        fresh.encode(toy.chunk(3)[0])
    X, y = toy.chunk(30, 70)
    assert np.array_equal(hasher.partial_fit(X, y).codes_, twin.partial_fit(X, y).codes_)


CHECKS = {name: check for name, check in list(globals().items()) if name.startswith("check_")}


def cases(**makers):
    """Return pytest parameters: every check of every hasher, ``name=(make, {left out})``."""
    return [
        pytest.param(check, make, id=f"{hasher}-{name.removeprefix('check_')}")
        for hasher, (make, left_out) in makers.items()
        for name, check in CHECKS.items()
        if name not in left_out
    ]
