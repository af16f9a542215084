"""OASIS against the literal formulas, and its life: save, load, refuse, go on."""

import json
import struct
import tracemalloc
from itertools import islice

import hasher_checks
import literal
import numpy as np
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from oasis.codes import pack, unpack
from oasis.errors import (
    FormatError,
    InputError,
    MissingFileError,
    NewerVersionError,
    NotFittedError,
    SimilarNamesWarning,
    StorageError,
)
from oasis.labels import LabelSpace
from oasis.model import OASIS, hash_functions
from oasis.model.codewords import no_class
from oasis.store import Disk, read_arrays, write_arrays

VECTORS = toy.class_vectors()


def paper(seed=0, **options):
    return OASIS.paper(hasher_checks.N_BITS, labels=VECTORS, random_state=seed, **options)


def orthogonal(seed=0, **options):
    return OASIS(hasher_checks.N_BITS, labels="orthogonal", random_state=seed, **options)


def owned(seed=0):
    return orthogonal(seed, owned=5)


def content(seed=0):
    return orthogonal(seed, content=8)


def content_alone(seed=0):
    return orthogonal(seed, content=hasher_checks.N_BITS)


def blended(seed=0):
    return OASIS(
        hasher_checks.N_BITS, labels=LabelSpace(words=VECTORS, axes=0.5), random_state=seed
    )


@pytest.mark.parametrize(
    ("check", "make"),
    hasher_checks.cases(
        paper=(paper, set()),
        content=(content, set()),
        content_alone=(content_alone, set()),
        # without content bits a model cannot begin without labels
        orthogonal=(orthogonal, {"check_odd_but_valid_chunks_give_finite_codes"}),
        owned=(owned, {"check_odd_but_valid_chunks_give_finite_codes"}),
        blended=(blended, {"check_odd_but_valid_chunks_give_finite_codes"}),
    ),
)
def test_conformance(check, make):
    check(make)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(40, 60, 30), (200, 17, 90)])
@pytest.mark.parametrize("options", [{}, {"alpha": 0.5, "beta": 3.0, "gamma": 20.0, "delta": 0.1}])
def test_paper_equals_the_literal_formulas(sizes, options, seed):
    r = 8
    vectors = toy.class_vectors(10, width=16, seed=seed)
    model = OASIS.paper(r, labels=vectors, random_state=seed, **options)
    slow = literal.LiteralOASIS(r, vectors, seed=seed, **options)
    for number, n in enumerate(sizes):
        # classes keep arriving: 8, then 9, then 10
        X, y = toy.chunk(n, [seed, number], classes=toy.NAMES[: 8 + number])
        expected = slow.partial_fit(X, y)
        model.partial_fit(X, y)
        assert np.array_equal(unpack(model.codes_), expected)
        for name, W in slow.W.items():
            assert np.allclose(model.state_.ridges[name].W, W, rtol=1e-7, atol=1e-9)
    query = toy.chunk(50, [seed, 99])[0]
    projections = sum(query[name] @ slow.W[name].T for name in query)
    assert np.allclose(model.project(query), projections, rtol=1e-4, atol=1e-5)
    sums = model.state_.sums
    assert sums.n == model.n_seen_ == sum(sizes)
    assert np.allclose(sums.BG, slow.B.T @ slow.G, atol=1e-8)
    assert np.allclose(sums.GV, slow.G.T @ slow.V, atol=1e-7)
    assert np.allclose(sums.VV, slow.V.T @ slow.V, atol=1e-7)
    for name, ridge in model.state_.ridges.items():
        assert np.allclose(ridge.gram(), slow.X[name].T @ slow.X[name], atol=1e-8)
        assert np.allclose(ridge.BX, slow.B.T @ slow.X[name], atol=1e-8)


def test_queries_through_labels_equal_a_dense_regression_on_everything_seen():
    model = orthogonal()
    Xs, Ls, codes = [], [], []
    for number in range(3):
        X, y = toy.chunk(80, number, classes=toy.NAMES[: 4 + number])
        model.partial_fit(X, y)
        Xs.append(
            {
                name: values / np.linalg.norm(values, axis=1, keepdims=True)
                for name, values in X.items()
            }
        )
        Ls.append(y)
        codes.append(unpack(model.codes_).astype(float))
    classes = model.classes_
    L = np.array([[name in names for name in classes] for y in Ls for names in y], dtype=float)
    B = np.vstack(codes)
    Bc = B - B.mean(axis=0)
    C = model.state_.codewords
    n, bits = B.shape
    A = Bc.T @ Bc + 0.001 * n * np.eye(bits)
    D0 = C.T / np.abs(C).sum(axis=1)
    D = np.linalg.solve(A, Bc.T @ (L - L.mean(axis=0)) + 0.001 * n * D0)
    S = (Bc.T @ Bc + 50 * np.eye(bits)) / (n + 50)
    D = np.linalg.solve(S + 0.5 * np.eye(bits), S @ D)  # for Hamming distance
    D /= np.linalg.norm(D, axis=0)
    query = toy.chunk(30, 99, classes=toy.NAMES[:6])[0]
    shares = L.mean(axis=0)
    evidence = odds = 0.0
    for name in query:
        A = np.vstack([X[name] for X in Xs])
        A = np.column_stack([A, np.ones(len(A))])  # the intercept
        delta = model.state_.ridges[name].delta
        M = np.linalg.solve(A.T @ A + delta * np.eye(A.shape[1]), A.T @ L)  # (d + 1, c)
        mean = (A @ M * L).sum(axis=0) / L.sum(axis=0)  # prediction over a class's samples
        R = np.clip((mean - shares) / (1 - shares), 0, 0.95)
        unit = query[name] / np.linalg.norm(query[name], axis=1, keepdims=True)
        evidence = evidence + (unit @ M[:-1] + M[-1] - shares) / (1 - R)
        odds = odds + R / (1 - R)
    above = evidence / (1 + odds) + shares - 0.5 * shares * (1 - shares) ** 2
    wanted = np.maximum(above, 0) ** 1.75
    assert np.allclose(model.project(query), wanted @ D.T, rtol=1e-3, atol=1e-4)
    assert np.array_equal(model.encode(query), pack(model.project(query)))


@pytest.mark.parametrize("make", [paper, orthogonal, blended])
def test_float32_features_give_the_codes_of_float64_ones(make):
    single, double = make(3), make(3)
    for number in range(4):
        X, y = toy.chunk(120, number, dtype=np.float32, bare=0.1)
        double.partial_fit({name: values.astype(np.float64) for name, values in X.items()}, y)
        single.partial_fit(X, y)
        assert np.array_equal(single.codes_, double.codes_)
    X, _ = toy.chunk(200, 99, dtype=np.float32)
    assert np.array_equal(single.encode(X), double.encode(X))


def test_gram_and_count_of_one_round_equal_those_of_two():
    X, y = toy.chunk(90)
    once = paper().partial_fit(X, y)
    twice = paper()
    for rows in (slice(0, 50), slice(50, 90)):
        twice.partial_fit({name: values[rows] for name, values in X.items()}, y[rows])
    assert once.n_seen_ == twice.n_seen_ == 90
    for name, ridge in once.state_.ridges.items():
        assert np.allclose(ridge.gram(), twice.state_.ridges[name].gram(), rtol=1e-12)


def test_classes_are_kept_in_order_of_arrival_and_compared_exactly():
    model = orthogonal()
    X, _ = toy.chunk(3)
    with pytest.warns(SimilarNamesWarning, match="'sky' and 'Sky'"):
        model.partial_fit(X, [["sky"], ["Sky", "sea"], []])
    model.partial_fit(X, [["sea"], ["cat"], None])
    assert model.classes_ == ("sky", "Sky", "sea", "cat")
    assert model.n_seen_ == 6


def test_new_classes_may_arrive_in_any_round_and_are_found():
    model = orthogonal()
    for number, classes in enumerate((toy.NAMES[:3], toy.NAMES[:6], toy.NAMES[6:])):
        X, y = toy.chunk(150, number, classes=classes)
        model.partial_fit(X, y)
    assert set(model.classes_) == set(toy.NAMES)
    query, labels = toy.chunk(200, 99, classes=toy.NAMES[6:])
    distance = (unpack(model.encode(query)) != unpack(model.codes_)[:, None]).sum(axis=2)
    nearest = distance.argmin(axis=0)
    shared = [bool(set(labels[j]) & set(y[i])) for j, i in enumerate(nearest)]
    assert np.mean(shared) > 0.9


def test_unlabelled_rows_are_left_out_of_every_sum_and_coded_by_predicted_labels():
    X, y = toy.chunk(60, bare=0.4)
    labelled = np.array([bool(names) for names in y])
    assert 5 < labelled.sum() < 55
    model = owned().partial_fit(X, y)
    alone = owned().partial_fit(
        {name: values[labelled] for name, values in X.items()}, [names for names in y if names]
    )
    assert np.array_equal(model.codes_[labelled], alone.codes_)
    rest = {name: values[~labelled] for name, values in X.items()}
    state = alone.state_
    p = state.label_map.above_usual(alone.predict_labels(rest)) ** 1.75
    sure, learned = alone.predict_proba(rest), state.codewords[:, :-5]
    nothing = no_class(11) * np.sqrt(np.square(learned).mean())
    expected = []
    for row, chances in zip(p, sure, strict=True):
        likely = (row >= 0.3 * row.max()) & (chances >= 0.2)
        owners = state.codewords[likely][:, -5:].any(axis=0)
        values = row @ learned + max(1 - row.sum(), 0) * nothing
        expected.append([*(values > 0), *owners])
    assert np.array_equal(unpack(model.codes_[~labelled]) > 0, np.array(expected))
    assert hasher_checks.fingerprint(model.state_.ridges) == hasher_checks.fingerprint(
        alone.state_.ridges
    )
    assert model.n_seen_ == 60 and model.state_.codebook.bits.n == labelled.sum()


def test_paper_learns_unlabelled_rows_with_a_zero_representation():
    X, y = toy.chunk(60, bare=0.4)
    model = paper().partial_fit(X, y)
    assert model.state_.sums.n == 60
    everything = X["image"].T @ X["image"]
    assert np.allclose(model.state_.ridges["image"].gram(), everything)


def test_a_row_without_a_modality_adds_nothing_to_its_sums():
    X, y = toy.chunk(60)
    X["text"][::2] = 0
    model = orthogonal().partial_fit(X, y)
    kept = X["text"][1::2] / np.linalg.norm(X["text"][1::2], axis=1, keepdims=True)
    kept = np.column_stack([kept, np.ones(len(kept))])
    assert np.allclose(model.state_.ridges["text"].gram(), kept.T @ kept)


@pytest.mark.parametrize("make", [paper, orthogonal, blended, content, content_alone])
@pytest.mark.parametrize("sizes", [(40, 40), (40, 2, 1), (1, 1), (3, 200)])
def test_a_loaded_model_goes_on_exactly_as_the_saved_one(make, sizes, folder):
    model = make(4)
    widths = {"image": 48, "text": 40}  # wide enough for small chunks to take the small path
    for number, n in enumerate(sizes):
        model.partial_fit(*toy.chunk(n, number, widths=widths, sparse=("text",)))
    path = folder / "model.safetensors"
    model.save(path)
    loaded = OASIS.load(path)
    query = toy.chunk(30, 99, widths=widths)[0]
    assert hasher_checks.fingerprint(loaded.codes_) == hasher_checks.fingerprint(model.codes_)
    assert loaded.classes_ == model.classes_ and loaded.n_seen_ == model.n_seen_
    assert np.array_equal(loaded.project(query), model.project(query))
    for number, n in enumerate((1, 50, 3)):
        X, y = toy.chunk(n, 100 + number, widths=widths)
        model.partial_fit(X, y)
        loaded.partial_fit(X, y)
        assert np.array_equal(loaded.codes_, model.codes_)
        assert np.array_equal(loaded.project(query), model.project(query))
    again = folder / "again.safetensors"
    model.save(path)
    loaded.save(again)
    one, other = (read_arrays(file, lambda _: None)[1] for file in (path, again))
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert np.array_equal(array, other[name]), name


def test_project_words_pulls_towards_the_codes_of_the_class():
    model = blended()
    X, y = toy.chunk(300)
    model.partial_fit(X, y)
    signs = unpack(model.codes_)
    for name in VECTORS:
        scores = signs @ model.project_words([name])[0]
        has = np.array([name in names for names in y])
        assert scores[has].mean() > scores[~has].mean()
    assert model.project_words(["sky", "cat"]).dtype == np.float32


def test_predicted_label_sets_are_those_of_at_least_one_half():
    X, y = toy.chunk(300)
    model = orthogonal().partial_fit(X, y)
    values = model.predict_labels(X)
    assert values.shape == (300, len(model.classes_)) and values.dtype == np.float32
    for row, found in zip(values, model.predict(X), strict=True):
        assert found == tuple(name for name, p in zip(model.classes_, row, strict=True) if p >= 0.5)
    right = [set(found) == set(names) for found, names in zip(model.predict(X), y, strict=True)]
    assert np.mean(right) > 0.8


def test_project_words_needs_words():
    model = orthogonal().partial_fit(*toy.chunk(30))
    with pytest.raises(InputError, match="word"):
        model.project_words(["zebra"])
    with pytest.raises(NotFittedError):
        orthogonal().project_words(["zebra"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_bits": 12}, "n_bits must be a positive multiple of 8, got 12"),
        ({"n_bits": 0}, "got 0"),
        ({"n_bits": "64"}, "got '64'"),
        ({"delta": 0}, "delta must be a finite number, positive, got 0"),
        ({"random_state": "lucky"}, "random_state must be None, an integer >= 0 or a Generator"),
        ({"random_state": -1}, "random_state must be None, an integer >= 0 or a Generator"),
        ({"owned": 65}, "owned must be an integer from 0 to 64, got 65"),
        ({"owned": -1}, "owned must be an integer from 0"),
        ({"owned": True}, "owned must be an integer from 0 to 64, got True"),
        ({"content": 72}, "content must be an integer from 0 to 64, got 72"),
        ({"content": 12}, "content must be a multiple of 8, got 12"),
        ({"content": -8}, "content must be an integer from 0 to 64, got -8"),
    ],
)
def test_bad_parameters_are_refused_on_the_first_chunk(options, message):
    with pytest.raises(InputError, match=message):
        OASIS(**{"labels": "orthogonal"} | options).partial_fit(*toy.chunk(30))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha must be a finite number, at least 0, got -1"),
        ({"theta": float("nan")}, "theta must be a finite number"),
        ({"n_iter": 0}, "n_iter must be an integer of at least 1, got 0"),
    ],
)
def test_bad_parameters_of_the_published_method_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        paper(**options).partial_fit(*toy.chunk(30))


@pytest.mark.parametrize(
    ("make", "options"),
    [(OASIS, {"alpha": 1.0}), (OASIS, {"n_iter": 2}), (OASIS.paper, {"owned": 3})],
)
def test_a_parameter_that_a_model_does_not_have_is_a_type_error(make, options):
    with pytest.raises(TypeError, match=next(iter(options))):
        make(16, **options)


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (orthogonal, {"n_bits": 32, "delta": 2.0, "owned": 8, "content": 8, "labels": None}),
        (paper, {"alpha": 1.0, "n_iter": 2, "gamma": 0.5, "labels": "orthogonal"}),
    ],
)
def test_what_a_model_was_learned_with_is_fixed(make, changes):
    model = make().partial_fit(*toy.chunk(30))
    given = model.get_params(deep=False)
    for name, value in changes.items():
        with pytest.raises(InputError, match=f"{name} is fixed once a model has learned"):
            model.set_params(**{name: value}).partial_fit(*toy.chunk(30, 1))
        model.set_params(**given)
    model.set_params(random_state=7).partial_fit(*toy.chunk(30, 1))


@pytest.mark.parametrize("make", [paper, orthogonal, content, blended])
def test_the_clone_of_a_loaded_model_has_learned_nothing(make, folder):
    model = make().partial_fit(*toy.chunk(40))
    model.save(folder / "model")
    fresh = clone(OASIS.load(folder / "model"))
    assert not hasattr(fresh, "state_") and type(fresh) is type(model)
    X, y = toy.chunk(40, 1, classes=toy.NAMES[:3])
    assert fresh.partial_fit(X, y).classes_ == make().partial_fit(X, y).classes_
    assert np.array_equal(fresh.codes_, make().partial_fit(X, y).codes_)


def test_a_code_of_labels_may_begin_without_any():
    bare, _ = toy.chunk(30, bare=1.0)
    X, y = toy.chunk(60, 1)
    begun = orthogonal().partial_fit(bare, [None] * 30)
    assert len(np.unique(begun.codes_, axis=0)) == 1 == len(np.unique(begun.encode(X), axis=0))
    fresh = orthogonal().partial_fit(X, y)
    assert np.array_equal(begun.partial_fit(X, y).codes_, fresh.codes_)
    # unlabelled rows are the background of predictions, so a few bits of queries may differ
    assert np.unpackbits(begun.encode(X) ^ fresh.encode(X)).mean() < 0.1


def test_an_unknown_class_is_refused_and_changes_nothing():
    model = paper().partial_fit(*toy.chunk(30))
    before = hasher_checks.fingerprint(model)
    X, _ = toy.chunk(2, 1)
    with pytest.raises(InputError, match="unicorn"):
        model.partial_fit(X, [["sky"], ["unicorn"]])
    assert hasher_checks.fingerprint(model) == before


@pytest.fixture
def saved(folder):
    path = folder / "model.safetensors"
    orthogonal().partial_fit(*toy.chunk(30)).save(path)
    return path


def rewrite_header(path, change):
    """Rewrite the metadata of a safetensors file in place."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_a_newer_file_is_refused(saved):
    rewrite_header(saved, lambda metadata: metadata.update(version="18"))
    with pytest.raises(NewerVersionError, match="format version 18, this oasis reads up to 17"):
        OASIS.load(saved)


def test_a_file_from_before_the_first_release_is_refused(saved):
    rewrite_header(saved, lambda metadata: metadata.update(version="1"))
    with pytest.raises(FormatError, match="format version 1, from before the first release"):
        OASIS.load(saved)


def test_a_foreign_file_is_refused(saved, folder):
    rewrite_header(saved, lambda metadata: metadata.update(format="other"))
    with pytest.raises(FormatError, match=r"not one that OASIS\.save wrote"):
        OASIS.load(saved)
    text = folder / "text"
    text.write_text("hello")
    with pytest.raises(FormatError, match="not a safetensors file"):
        OASIS.load(text)
    with pytest.raises(MissingFileError, match="no file at"):
        OASIS.load(folder / "absent")


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("codebook/pairs/columns", lambda a: a + 100),
        ("codebook/pairs/ends", lambda a: a[::-1].copy()),
        ("codebook/pairs/ends", lambda a: a[1:].copy()),
        ("codebook/pairs/data", lambda a: a[1:].copy()),
        ("codebook/counts", lambda a: a[1:].copy()),
        ("codewords", lambda a: a[:, 1:].copy()),
        ("codewords", lambda a: a.astype(np.float32)),
        ("ridges/text/base", lambda a: a[1:].copy()),
        ("ridges/text/W", lambda a: a[:, 1:].copy()),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_refused(saved, key, change):
    metadata, arrays = read_arrays(saved, lambda _: None)
    arrays[key] = change(arrays[key])
    write_arrays(saved, arrays, metadata)  # with the checksum of what is in it
    with pytest.raises(FormatError, match="damaged"):
        OASIS.load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.update(n_seen="many"),
        lambda state: state.update(ridges=3),
        lambda state: state["ridges"].update(sound=state["ridges"]["text"]),
        lambda state: state["codebook"].pop("bits"),
        lambda state: state["generator"].update(bit_generator="MT19937"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(saved, change):
    metadata, arrays = read_arrays(saved, lambda _: None)
    header = json.loads(metadata["model"])
    change(header["state"])
    write_arrays(saved, arrays, metadata | {"model": json.dumps(header)})
    with pytest.raises(FormatError, match="damaged"):
        OASIS.load(saved)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_truncated_or_rewritten_file_is_one_clear_error(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("m") / "model"
    orthogonal().partial_fit(*toy.chunk(20)).save(path)
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
        with pytest.raises(FormatError):
            OASIS.load(path)
        return
    # a changed byte is refused, or was white space of the header and changes nothing
    (length,) = struct.unpack("<Q", whole[:8])
    header = data.draw(st.booleans())
    first, last = (8, 8 + length - 1) if header else (8 + length, len(whole) - 1)
    position = data.draw(st.integers(first, last))
    path.write_bytes(
        whole[:position] + bytes([data.draw(st.integers(0, 255))]) + whole[position + 1 :]
    )
    try:
        loaded = OASIS.load(path)
    except FormatError:
        return
    loaded.save(path)
    metadata, arrays = read_arrays(path, lambda _: None)
    path.write_bytes(whole)
    expected = read_arrays(path, lambda _: None)
    assert metadata == expected[0]
    assert arrays.keys() == expected[1].keys()
    assert all(arrays[key].tobytes() == expected[1][key].tobytes() for key in arrays)


def test_saving_over_a_file_is_atomic(saved, monkeypatch):
    before = saved.read_bytes()
    model = OASIS.load(saved)

    class Full(Disk):
        def fill(self, path, parts):
            super().fill(path, islice(parts, 5))
            raise OSError("disk full")

    monkeypatch.setattr("oasis.store.disk", Full())
    with pytest.raises(StorageError, match="disk full"):
        model.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_pack_of_the_sign_is_the_query_code():
    model = paper().partial_fit(*toy.chunk(50))
    X, _ = toy.chunk(20, 9)
    assert np.array_equal(model.encode(X), pack(model.project(X)))


def test_default_label_space_has_words():
    model = OASIS(16, random_state=0).partial_fit(*toy.chunk(60))
    assert model.project_words(["zebra crossing"]).shape == (1, 16)


def test_a_subclass_does_not_replace_the_class_of_saved_models(folder):
    OASIS(16, labels="orthogonal", random_state=0).partial_fit(*toy.chunk(20)).save(folder / "m")

    class Mine(OASIS):
        """Changes nothing."""

    assert type(OASIS.load(folder / "m")) is OASIS


@pytest.mark.parametrize("make", [orthogonal, owned, content, content_alone, blended])
def test_encode_gives_the_signs_of_project_whatever_the_blocks(make, monkeypatch):
    chunks = [toy.chunk(60, seed) for seed in range(2)]
    model = make().partial_fit(*chunks[0])
    X = chunks[1][0]
    projected, (again, evidence) = model.project(X), model.project_with_evidence(X)
    assert np.array_equal(model.encode(X), pack(projected))
    assert np.array_equal(again, projected)
    monkeypatch.setattr(hash_functions, "_BLOCK_CELLS", 1)  # a row at a time
    assert np.array_equal(model.encode(X), pack(projected))
    parts, evidence_of_parts = model.project_with_evidence(X)
    np.testing.assert_allclose(parts, projected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(evidence_of_parts, evidence, rtol=1e-4, atol=1e-6)


def test_too_many_classes_for_the_features_are_refused_and_change_nothing():
    X, y = toy.chunk(30)
    model = OASIS(16, labels="orthogonal", random_state=0).partial_fit(X, y)
    wide = OASIS(16, labels="orthogonal", random_state=0)
    with pytest.raises(InputError, match=r"12000 classes at 8000 features need regressions of 1.5"):
        wide.partial_fit(np.ones((1, 8000)), [[f"class {n}" for n in range(12_000)]])
    model.partial_fit(X, [[f"class {n}" for n in range(2000)], *y[1:]])  # one item with many
    assert len(model.classes_) == 2000 + len({name for names in y for name in names})
    assert not hasattr(wide, "state_")


@pytest.mark.parametrize("labels", ["orthogonal", None])
@pytest.mark.parametrize("on_one_item", [False, True])
def test_memory_grows_with_classes_not_with_their_square(labels, on_one_item):
    def peak(n_classes):
        names = [f"class {n}" for n in range(n_classes)]
        y = [names, ["other"]] if on_one_item else [[name] for name in names]
        X = np.random.default_rng(0).random((len(y), 12))
        model = OASIS(16, labels=labels, random_state=0)
        tracemalloc.start()
        model.partial_fit(X, y).encode(X[:3])
        if labels is None:
            model.project_words(names[:3])
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)  # what is loaded once
    assert peak(4000) < 3 * peak(2000)  # a matrix of classes by classes would take four times
