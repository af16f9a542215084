"""The four rules of the stream, each tested by what would break it.

1. a stored code never changes; 2. an update has no access to old features, and what is kept does
not grow with samples; 3. the length of a code is fixed; 4. any round may bring classes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hasher_checks import held_bytes
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.errors import InputError
from oasis.model import OASIS

N_BITS = 16
MAKERS = {
    "oasis": lambda: OASIS(N_BITS, random_state=0),
    "oasis-owned": lambda: OASIS(N_BITS, owned=6, random_state=0),
    "oasis-all-owned": lambda: OASIS(N_BITS, owned=N_BITS, random_state=0),
    "oasis-content": lambda: OASIS(N_BITS, content=8, random_state=0),
    "oasis-content-alone": lambda: OASIS(N_BITS, content=N_BITS, random_state=0),
    "paper": lambda: OASIS.paper(N_BITS, random_state=0),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def stream(n_rounds=5, n=60, **options):
    """Rounds that bring one or two further classes each, and some unlabelled samples."""
    return [
        chunk(n, seed=t, classes=NAMES[: 2 + 2 * t], bare=0.1, **options) for t in range(n_rounds)
    ]


def kept(model):
    """All that a model keeps, but for the codes that it hands out."""
    return {name: value for name, value in vars(model).items() if name != "codes_"}


def kept_arrays(model):
    """Every array that a model keeps, by the path to it."""
    found, waiting = {}, [("model", kept(model))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, np.ndarray):
            found[path] = value
        elif isinstance(value, dict):
            waiting += [(f"{path}[{key}]", each) for key, each in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{path}[{number}]", each) for number, each in enumerate(value)]
        elif hasattr(value, "__dict__"):
            waiting += [(f"{path}.{key}", each) for key, each in vars(value).items()]
    return found


# -- 1: a stored code never changes --------------------------------------------------------------


def test_codes_handed_out_are_never_written_to_again(make):
    model, stored = make(), []
    for X, y in stream():
        codes = model.partial_fit(X, y).codes_
        stored.append((codes, codes.tobytes()))
        model.encode(X)
    assert all(codes.tobytes() == before for codes, before in stored)


@pytest.mark.slow
def test_codes_of_a_round_do_not_depend_on_later_rounds(make):
    rounds = stream()
    whole = make()
    codes = [whole.partial_fit(X, y).codes_.tobytes() for X, y in rounds]
    for stop in range(1, len(rounds)):
        model = make()
        for X, y in rounds[:stop]:
            model.partial_fit(X, y)
        assert model.codes_.tobytes() == codes[stop - 1]


@pytest.mark.slow
def test_a_collection_keeps_every_code_byte_for_byte(make, folder):
    expected, reference = {}, make()
    for t, (X, y) in enumerate(stream()):
        # opened anew each time: neither memory nor files may change what was stored
        with Collection.open(folder / "c", model=make()) as c:
            c.ingest(X, y, ids=[60 * t + row for row in range(60)])
            if t % 2:
                c.checkpoint()
            codes, keys = c.index.items()
        found = dict(zip(keys.tolist(), map(bytes, codes), strict=True))
        own, before = reference.partial_fit(X, y).codes_, reference.n_seen_ - 60
        # items from before content bits were made for good are coded anew, as new versions
        since = getattr(reference, "content_since_", 0)
        left = {key: code for key, code in expected.items() if since < before or not since}
        assert {key: found[key] for key in left} == left
        new = [found[key] for key in sorted(set(found) - set(expected))]
        assert [bytes(code) for code in own] in (new[:60], new[-60:])
        assert len(found) == before + 60
        expected = found
    with Collection.open(folder / "c") as c:
        c.delete([3, 70, 200])
        codes, keys = c.index.items()
        left = dict(zip(keys.tolist(), map(bytes, codes), strict=True))
        assert len(left) == 297 and left.items() <= expected.items()
        assert c.check() == []


# -- 2: an update sees the new chunk's features only ---------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [(), ("text",)])
@pytest.mark.parametrize("n", [60, 3])  # small chunks are kept apart from the sums for a while
def test_features_may_be_destroyed_once_learned(make, n, sparse):
    spoilt, clean = make(), make()
    for X, y in stream(n=n, sparse=sparse):
        clean.partial_fit({name: matrix.copy() for name, matrix in X.items()}, y)
        spoilt.partial_fit(X, y)
        for name, matrix in X.items():
            values = matrix.data if name in sparse else matrix
            values[...] = np.nan
        y.clear()
        assert spoilt.codes_.tobytes() == clean.codes_.tobytes()
    query, _ = chunk(20, seed=99)
    assert np.array_equal(spoilt.project(query), clean.project(query))


def test_the_state_shares_no_memory_with_a_chunk(make):
    model = make()
    for X, y in stream():
        model.partial_fit(X, y)
        for path, array in kept_arrays(model).items():
            assert not any(np.shares_memory(array, matrix) for matrix in X.values()), path


def test_the_state_does_not_grow_with_samples(make):
    sizes = {}
    for n in (40, 80, 640):
        model = make()
        for t in range(4):
            model.partial_fit(*chunk(n, seed=t, bare=0.1))
        model.encode(chunk(5)[0])
        sizes[n] = held_bytes(kept(model))
    assert len(set(sizes.values())) == 1


def test_the_state_does_not_grow_with_rounds_but_with_classes(make):
    model, sizes = make(), []
    for t in range(12):
        model.partial_fit(*chunk(40, seed=t))
        sizes.append(held_bytes(kept(model)))
    assert len(set(sizes[2:])) == 1
    model.partial_fit(*chunk(40, seed=50, classes=NAMES))
    assert held_bytes(kept(model)) > sizes[-1]


def test_no_feature_row_of_a_large_chunk_is_in_the_state(make):
    X, y = chunk(300, seed=0)
    model = make().partial_fit(X, y)
    for path, array in kept_arrays(model).items():
        for name, matrix in X.items():
            width = matrix.shape[1]
            for rows in (array, array.T):
                if rows.ndim == 2 and rows.shape[1] == width and len(rows):
                    held = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
                    units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
                    assert np.abs(held @ units.T).max() < 1 - 1e-9, f"{name} in {path}"


def test_small_chunks_leave_the_state_too():
    """Rows of small chunks wait beside the factor; their number is bounded by the width."""
    model = OASIS(N_BITS, random_state=0)
    width = 64
    waiting = []
    for t in range(60):
        model.partial_fit(*chunk(3, seed=t, widths={"image": width, "text": 14}))
        waiting.append(len(model.state_.ridges["image"].tail))
    assert max(waiting) <= width // 8 and min(waiting[1:]) == 0


# -- 3: the length is fixed ----------------------------------------------------------------------


def test_the_length_of_codes_is_fixed(make, folder):
    model = make()
    for X, y in stream():
        model.partial_fit(X, y)
        assert model.codes_.shape == (60, N_BITS // 8) == model.encode(X).shape
    model.n_bits = 2 * N_BITS
    before = held_bytes(kept(model))
    with pytest.raises(InputError, match="n_bits is fixed once a model has learned"):
        model.partial_fit(*chunk(40))
    assert held_bytes(kept(model)) == before
    with Collection.open(folder / "c", model=make()):
        pass
    with pytest.raises(InputError):
        Collection.open(folder / "c", n_bits=2 * N_BITS)


# -- 4: any round may bring classes --------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 2])
def test_any_round_may_bring_classes(make, n):
    model, met = make(), []
    for t in range(len(NAMES) // 2):
        names = NAMES[2 * t : 2 * t + 2]  # all classes of the round are new
        X, _ = chunk(n, seed=t, classes=names)
        model.partial_fit(X, [[names[row % 2]] for row in range(n)])
        met += names
        assert model.classes_ == tuple(met)
        assert model.codes_.shape == (n, N_BITS // 8)


def test_a_class_of_a_late_round_is_found():
    """Fails where classes after the first round are accepted, but not learned."""
    model = OASIS(32, random_state=0)
    base, labels = [], []
    for t in range(len(NAMES)):
        X, y = chunk(60, seed=t, classes=NAMES[t : t + 1])
        base.append(np.unpackbits(model.partial_fit(X, y).codes_, axis=1).astype(int))
        labels += [NAMES[t]] * 60
    base, labels = np.concatenate(base), np.array(labels)
    for t, name in enumerate(NAMES):
        X, _ = chunk(10, seed=100 + t, classes=(name,))
        for code in np.unpackbits(model.encode(X), axis=1).astype(int):
            nearest = np.abs(base - code).sum(axis=1).argsort(kind="stable")[:20]
            assert (labels[nearest] == name).mean() > 0.5
