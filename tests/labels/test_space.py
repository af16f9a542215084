"""The label space against plain loops and hand-made cases."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from oasis.errors import DataError, FormatError, InputError, UnknownWordError
from oasis.labels import DEFAULT_AXES, LabelSpace
from oasis.model import OASIS

NAMES = ("sky", "sea", "sand", "sun")
VECTORS = dict(
    zip(NAMES, np.random.default_rng(5).normal(size=(4, 7)) * [[1], [3], [0.2], [8]], strict=True)
)
SETS = [["sky"], ["sea", "sun"], [], None, ["sun", "sand", "sky"], ["sea", "sun"], ["sand"]]

finite = st.floats(-4, 4, allow_subnormal=False).map(lambda v: 0.0 if abs(v) < 1e-3 else v)


def slow_k(names: tuple[str, ...], axes: float) -> np.ndarray:
    """Write K down class by class."""
    rows = []
    for j, name in enumerate(names):
        word = VECTORS[name]
        if axes == 0:
            rows.append(word)
            continue
        unit = word / np.sqrt(sum(v * v for v in word))
        axis = np.zeros(len(names))
        axis[j] = 1
        words = np.sqrt(1 - axes) * unit if axes < 1 else np.zeros(0)
        rows.append(np.concatenate([words, np.sqrt(axes) * axis]))
    return np.array(rows)


def slow_g(K: np.ndarray, names: tuple[str, ...], sets: list) -> np.ndarray:
    G = np.zeros((len(sets), K.shape[1]))
    for i, labels in enumerate(sets):
        for name in set(labels or ()):
            G[i] += K[names.index(name)]
        length = np.sqrt(sum(v * v for v in G[i]))
        if length > 0:
            G[i] /= length
    return G


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def through_json(space: LabelSpace, words: str | Path | None = None) -> LabelSpace:
    meta, arrays = space.state()
    stored = {name: array.copy() for name, array in arrays.items()}
    return LabelSpace.from_state(json.loads(json.dumps(meta)), stored, words)


@pytest.mark.parametrize("axes", [0.0, 0.25, 0.5, 1.0])
def test_represent_equals_plain_loop(axes: float) -> None:
    space = LabelSpace(VECTORS, axes=axes).grown(NAMES)
    G = space.represent(SETS)
    assert G.dtype == np.float64
    np.testing.assert_allclose(G, slow_g(slow_k(NAMES, axes), NAMES, SETS), atol=1e-14)
    assert space.n_features == G.shape[1]


def test_without_axes_vectors_are_taken_as_given() -> None:
    space = LabelSpace({"short": [1, 0], "long": [0, 3]}).grown(["short", "long"])
    np.testing.assert_allclose(
        space.represent([["short", "long"]]), [[1 / np.sqrt(10), 3 / np.sqrt(10)]]
    )


@pytest.mark.parametrize("axes", [0.0, 0.5, 1.0])
def test_growth_keeps_rows_and_appends_columns(axes: float) -> None:
    small = LabelSpace(VECTORS, axes=axes).grown(["sun", "sky"])
    large = small.grown(["sky", "sea", "sand", "sea"])
    assert large.names == ("sun", "sky", "sea", "sand")
    sets = [["sun"], ["sky"], ["sky", "sun"], []]
    before, after = small.represent(sets), large.represent(sets)
    width = small.n_features
    assert same_bits(np.ascontiguousarray(after[:, :width]), before)
    assert not after[:, width:].any()
    assert large.n_features == width + (2 if axes else 0)


@pytest.mark.parametrize("axes", [0.0, 0.5, 1.0])
def test_growing_is_pure_and_the_same_in_one_step_or_many(axes: float) -> None:
    space = LabelSpace(VECTORS, axes=axes).grown(["sky"])
    before = space.represent([["sky"]])
    in_one = space.grown(["sea", "sand", "sun"])
    in_many = space.grown(["sea"]).grown(["sand"]).grown(["sun"])
    assert space.names == ("sky",)
    assert same_bits(space.represent([["sky"]]), before)
    assert same_bits(in_one.represent(SETS), in_many.represent(SETS))


def test_failed_growth_changes_nothing() -> None:
    space = LabelSpace(VECTORS, axes=0.5).grown(["sky"])
    before = space.state()
    with pytest.raises(UnknownWordError, match="'moon'"):
        space.grown(["sea", "moon"])
    after = space.state()
    assert after[0] == before[0]
    assert all(same_bits(after[1][name], before[1][name]) for name in before[1])


def test_vectors_that_cancel_give_zero_rows() -> None:
    vectors = {"up": [0.1, 0.7], "down": [-0.1, -0.7 * (1 + 1e-15)], "nil": [0.0, 0.0]}
    space = LabelSpace(vectors).grown(vectors)
    G = space.represent([["up", "down"], ["nil"], ["nil", "up"], []])
    assert not G[[0, 1, 3]].any()
    np.testing.assert_allclose(np.linalg.norm(G[2]), 1)
    # with axes nothing cancels: the axes are left
    blended = LabelSpace(vectors, axes=0.5).grown(vectors)
    np.testing.assert_allclose(
        blended.represent([["up", "down"], ["nil"]]),
        [[0, 0, 0.5**0.5, 0.5**0.5, 0], [0, 0, 0, 0, 1]],
        atol=1e-14,
    )


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    vectors=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=finite
    ),
    sets=st.lists(st.lists(st.integers(0, 5), max_size=5), max_size=8),
    axes=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
)
def test_rows_are_unit_or_zero_and_depend_on_the_set_alone(
    vectors: np.ndarray, sets: list[list[int]], axes: float
) -> None:
    names = [f"c{i}" for i in range(len(vectors))]
    space = LabelSpace(dict(zip(names, vectors, strict=True)), axes=axes).grown(names)
    labels = [[names[i % len(names)] for i in row] for row in sets]
    G = space.represent(labels)
    lengths = np.linalg.norm(G, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-12) | (lengths == 0))
    assert not lengths[[not row for row in labels]].any()
    assert same_bits(G, space.represent([[*reversed(row), *row] for row in labels]))
    for i, row in enumerate(labels):
        assert same_bits(G[i : i + 1], space.represent([row]))


@pytest.mark.parametrize("width", [1, 2, 255, 300, 9001])
def test_rows_do_not_depend_on_other_rows_at_any_width(width: int) -> None:
    vectors = dict(zip("abc", np.random.default_rng(width).normal(size=(3, width)), strict=True))
    space = LabelSpace(vectors, axes=0.5).grown(["a"]).grown(["b", "c"])
    together = LabelSpace(vectors, axes=0.5).grown(["a", "b", "c"])
    sets = [["a"], ["b"], ["a", "c"], ["a", "b", "c"]]
    G = together.represent(sets)
    assert same_bits(space.represent(sets), G)
    for i, labels in enumerate(sets):
        assert same_bits(space.represent([labels]), G[[i]])


def test_represent_takes_arrays_and_generators() -> None:
    space = LabelSpace(VECTORS).grown(NAMES)
    expected = space.represent([["sky", "sea"], ["sun"]])
    assert same_bits(space.represent([np.array(["sky", "sea"]), {"sun"}]), expected)
    assert same_bits(space.represent(iter([iter(["sea", "sky"]), ("sun",)])), expected)
    assert space.represent([]).shape == (0, 7)


def test_represent_does_not_need_a_dense_indicator() -> None:
    # 20,000 x 100,000 would be 16 GB
    space = LabelSpace.from_state(
        {
            "axes": 0.0,
            "names": [f"c{i}" for i in range(100_000)],
            "source": {"kind": "given", "names": ["word"]},
        },
        {"rows": np.ones((100_000, 2)), "given": np.ones((1, 2))},
    )
    G = space.represent([[f"c{i}", "c7"] for i in range(20_000)])
    np.testing.assert_allclose(G, np.sqrt(0.5))


def test_represent_refuses_unknown_classes_and_plain_strings() -> None:
    space = LabelSpace(VECTORS).grown(["sky"])
    with pytest.raises(UnknownWordError, match="'sea' is not one of the 1 classes"):
        space.represent([["sea"]])
    for sets in ([["sky"], "sky"], [3], [[["sky"]]]):
        with pytest.raises(InputError):
            space.represent(sets)


@pytest.mark.parametrize("axes", [0.0, 0.5])
def test_query_vectors_of_classes_and_other_words(axes: float) -> None:
    space = LabelSpace(VECTORS, axes=axes).grown(["sea", "sun"])
    Q = space.query_vectors(["sun", "sky", "sun", "sea sky"])
    assert Q.shape == (4, space.n_features)
    assert same_bits(Q[[0]], space.represent([["sun"]]))
    assert same_bits(Q[[2]], Q[[0]])
    np.testing.assert_allclose(Q[1, :7], VECTORS["sky"] / np.linalg.norm(VECTORS["sky"]))
    mean = (VECTORS["sea"] + VECTORS["sky"]) / 2
    np.testing.assert_allclose(Q[3, :7], mean / np.linalg.norm(mean))
    assert not Q[[1, 3], 7:].any()
    assert space.names == ("sea", "sun")


def test_query_vectors_before_any_class_and_for_no_name() -> None:
    space = LabelSpace(VECTORS, axes=0.5)
    assert space.query_vectors(["sky"]).shape == (1, 7)
    assert space.query_vectors([]).shape == (0, 7)


def test_query_vectors_need_words() -> None:
    for space in (LabelSpace.of("orthogonal"), LabelSpace(VECTORS, axes=1.0)):
        with pytest.raises(InputError, match="no words"):
            space.grown(["sky"]).query_vectors(["sky"])
    with pytest.raises(UnknownWordError, match="'moon'"):
        LabelSpace(VECTORS).query_vectors(["moon"])
    with pytest.raises(InputError, match="iterable of class names, got 'sky'"):
        LabelSpace(VECTORS).query_vectors("sky")


def test_a_class_keeps_its_vector_when_the_mapping_gets_its_name() -> None:
    space = LabelSpace(VECTORS).grown(["sea sky"])
    before = space.represent([["sea sky"]])
    space.add({"sea sky": np.ones(7)})
    assert same_bits(space.grown(["sun"]).represent([["sea sky"]]), before)


def test_add_reaches_every_space_of_the_same_mapping() -> None:
    first = LabelSpace(VECTORS, axes=0.5)
    second = first.grown(["sky"])
    first.add({"moon": np.arange(7)})
    assert second.grown(["moon"]).names == ("sky", "moon")


def test_add_fills_an_empty_mapping() -> None:
    space = LabelSpace({})
    assert space.n_features == 0
    with pytest.raises(UnknownWordError, match=r"'moon'.*LabelSpace\.add"):
        space.grown(["moon"])
    space.add({"moon": [1.0, 2.0]})
    assert space.grown(["moon"]).n_features == 2


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"new": np.ones(7), "moon": [1.0]}, "'moon' has 1 values, expected 7"),
        ({"new": np.ones(7), "sky": np.ones(7)}, "'sky' has another vector"),
        ({"new": np.ones(7), "moon": [np.nan] * 7}, "'moon' holds nan at position 0"),
        ({"new": np.ones(7), "moon": ["a"] * 7}, "'moon' has shape .* expected a list of numbers"),
        ({"new": np.ones(7), "moon": np.ones((1, 7))}, r"'moon' has shape \(1, 7\)"),
        ({"new": np.ones(7), "moon": [1e300] * 7}, "up to 1e"),
        ({"new": np.ones(7), "moon": [[1], [1, 2]]}, "'moon' is no list of numbers"),
        ({"new": np.ones(7), " ": np.ones(7)}, "non-empty strings"),
        ({"new": np.ones(7), 3: np.ones(7)}, "non-empty strings, got 3"),
        ([("new", np.ones(7))], "expected a mapping"),
    ],
)
def test_add_takes_all_or_nothing(vectors: object, message: str) -> None:
    space = LabelSpace(VECTORS)
    with pytest.raises(InputError, match=message):
        space.add(vectors)  # type: ignore[arg-type]
    with pytest.raises(UnknownWordError):
        space.grown(["new"])


def test_add_of_the_same_vector_is_accepted_and_of_other_sources_refused() -> None:
    LabelSpace(VECTORS).add({"sky": VECTORS["sky"].tolist()})
    with pytest.raises(InputError, match="takes words from 'wordllama'"):
        LabelSpace("wordllama").add({"sky": [1.0]})
    with pytest.raises(InputError, match="has no words"):
        LabelSpace.of("orthogonal").add({"sky": [1.0]})


@pytest.mark.parametrize("labels", [VECTORS, "orthogonal", LabelSpace(VECTORS, axes=0.5)])
def test_state_round_trip_goes_on_bit_for_bit(labels: object) -> None:
    space = LabelSpace.of(labels).grown(["sun", "sky sea"])
    loaded = through_json(space)
    assert (loaded.names, loaded.axes, loaded.n_features, loaded.has_words) == (
        space.names,
        space.axes,
        space.n_features,
        space.has_words,
    )
    sets = [["sun"], ["sky sea", "sun"], []]
    assert same_bits(loaded.represent(sets), space.represent(sets))
    sets += [["sand"], ["sand", "sea", "sun"]]
    assert same_bits(
        loaded.grown(["sea", "sand"]).represent(sets), space.grown(["sea", "sand"]).represent(sets)
    )
    if space.has_words:
        assert same_bits(loaded.query_vectors(["sea"]), space.query_vectors(["sea"]))


def test_state_arrays_cannot_change_the_space() -> None:
    space = LabelSpace(VECTORS).grown(["sky"])
    with pytest.raises(ValueError, match="read-only"):
        space.state()[1]["rows"][:] = 0
    arrays = {name: array.copy() for name, array in space.state()[1].items()}
    loaded = LabelSpace.from_state(space.state()[0], arrays)
    arrays["rows"][:] = 0
    assert same_bits(loaded.represent([["sky"]]), space.represent([["sky"]]))


@pytest.mark.parametrize(
    "change",
    [
        {"axes": 2},
        {"names": ["sky", "sky"]},
        {"names": ["sky"]},
        {"names": None},
        {"source": {"kind": "telepathy"}},
        {"source": {"kind": "file"}},
        {"source": None},
        {"source": None, "axes": 1.0},
        {"source": {"kind": "given", "names": ["sky"]}},
    ],
)
def test_damaged_state_is_refused(change: dict) -> None:
    meta, arrays = LabelSpace(VECTORS, axes=0.5).grown(["sky", "sea"]).state()
    with pytest.raises(FormatError, match="label space is damaged"):
        LabelSpace.from_state({**meta, **change}, arrays)


@pytest.mark.parametrize(
    "rows", [np.ones(2), np.ones((3, 7)), np.full((2, 7), np.nan), np.ones((2, 6)), np.array("x")]
)
def test_damaged_arrays_are_refused(rows: np.ndarray) -> None:
    meta, arrays = LabelSpace(VECTORS).grown(["sky", "sea"]).state()
    with pytest.raises(FormatError):
        LabelSpace.from_state(meta, {**arrays, "rows": rows})
    with pytest.raises(FormatError, match="rows"):
        LabelSpace.from_state(meta, {"given": arrays["given"]})


def test_a_path_for_words_without_a_file_is_refused() -> None:
    for space in (LabelSpace(VECTORS), LabelSpace.of("orthogonal")):
        with pytest.raises(InputError, match="but this label space has its words from"):
            LabelSpace.from_state(*space.state(), words="elsewhere.txt")
    with pytest.raises(InputError, match="path of a file, got dict"):
        LabelSpace.from_state(*LabelSpace(VECTORS).state(), words={})  # type: ignore[arg-type]


def test_of_takes_everything_that_users_may_mean(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("sky 3 4\n")
    space = LabelSpace(VECTORS)
    assert LabelSpace.of(space) is space
    assert LabelSpace.of(None).axes == DEFAULT_AXES
    assert LabelSpace.of(None).has_words
    assert LabelSpace.of("wordllama").axes == 0
    assert LabelSpace.of(VECTORS).n_features == 7
    for place in (path, str(path)):
        G = LabelSpace.of(place).grown(["sky"]).represent([["sky"]])
        np.testing.assert_allclose(G, [[0.6, 0.8]])
    with pytest.raises(InputError, match="got int"):
        LabelSpace.of(3)


def test_constructor_says_what_is_wrong(tmp_path: Path) -> None:
    for axes in (-0.1, 1.1, np.nan, "0.5", None, True):
        with pytest.raises(InputError, match="axes must be a number from 0 to 1"):
            LabelSpace(VECTORS, axes=axes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs axes=1"):
        LabelSpace()
    with pytest.raises(InputError, match="words must be a mapping"):
        LabelSpace(["sky"])
    with pytest.raises(DataError, match=r"no file .*wordlama.*'wordllama'"):
        LabelSpace("wordlama")
    with pytest.raises(DataError, match="no file"):
        LabelSpace(tmp_path)


def test_grown_says_what_is_wrong() -> None:
    space = LabelSpace.of("orthogonal")
    for names in ("sky", 3, ["sky", 3], ["sky", " "], [None]):
        with pytest.raises(InputError, match="class names"):
            space.grown(names)  # type: ignore[arg-type]
    assert space.grown(["sky"]).grown(["sky"]).names == ("sky",)


def test_copies_are_independent_and_go_on() -> None:
    space = LabelSpace(VECTORS, axes=0.5).grown(["sky"])
    copied = copy.deepcopy(space)
    space.add({"moon": np.ones(7)})
    with pytest.raises(UnknownWordError):
        copied.grown(["moon"])
    assert same_bits(
        copied.grown(["sea"]).represent([["sea"]]), space.grown(["sea"]).represent([["sea"]])
    )


@pytest.mark.parametrize("first", [["+"], ["+", "sky"], ["sky", "❤", "+"]])
def test_a_name_without_words_is_a_class_with_its_axis_alone(first: list[str]) -> None:
    space = LabelSpace(VECTORS, axes=0.5).grown(first).grown(["sea", "++"])
    assert space.n_features == len(VECTORS["sky"]) + len(space.names)
    width = len(VECTORS["sky"])
    rows = space.represent([[name] for name in space.names])
    for name, row in zip(space.names, rows, strict=True):
        number = space.names.index(name)
        if name in VECTORS:
            assert row[width + number] == pytest.approx(np.sqrt(0.5))
        else:
            assert np.array_equal(row, np.eye(space.n_features)[width + number])
    assert np.array_equal(space.query_vectors(["++"]), rows[[space.names.index("++")]])
    with pytest.raises(UnknownWordError, match="which has no words"):
        space.query_vectors(["!!"])
    again = LabelSpace.from_state(*space.state()).grown(["sand"])
    assert np.array_equal(again.represent([["+"]])[:, : space.n_features], space.represent([["+"]]))


def test_a_name_without_words_needs_an_axis() -> None:
    with pytest.raises(UnknownWordError, match="which has no words"):
        LabelSpace(VECTORS).grown(["+"])
    assert LabelSpace({"+": [1.0, 0.0]}).grown(["+"]).represent([["+"]]).tolist() == [[1.0, 0.0]]


def test_a_blend_with_a_file_takes_its_width_from_the_file(tmp_path: Path) -> None:
    for content in ("2 3\nsky 0 1 0\nsea 1 0 0\n", "sky 0 1 0\nsea 1 0 0\n"):
        path = tmp_path / "vectors.txt"
        path.write_text(content)
        space = LabelSpace(path, axes=0.5).grown(["+"])
        assert space.represent([["+"]]).tolist() == [[0.0, 0.0, 0.0, 1.0]]
        assert space.grown(["sky"]).n_features == 5


def test_a_default_model_learns_classes_without_words() -> None:
    X = {"image": np.eye(4)}
    model = OASIS(16, random_state=0).partial_fit(X, [["❤"], ["+"], ["❤", "sky"], ["sky"]])
    assert model.classes_ == ("❤", "+", "sky")
    assert np.isfinite(model.project_words(["❤", "sky", "sea"])).all()


def test_white_space_around_names_is_removed() -> None:
    space = LabelSpace({" sky": [1.0, 0.0], "sea": [0.0, 1.0]}).grown([" sky ", "sky", "sea\n"])
    assert space.names == ("sky", "sea")
    assert np.array_equal(space.represent([["sea"]]), space.query_vectors([" sea "]))
    with pytest.raises(InputError, match="'sky' has another vector already"):
        LabelSpace({"sky": [1.0], " sky ": [2.0]})


@pytest.mark.parametrize("axes", [0.0, 0.5])
def test_nearness_is_that_of_dense_vectors(axes: float) -> None:
    space = LabelSpace(VECTORS, axes=axes).grown(["sun", "sky"])
    inner, words = space.nearness(["sky", "sea"])
    names = space.query_vectors(["sky", "sea"])
    np.testing.assert_allclose(inner, names @ space.represent([["sun"], ["sky"]]).T, atol=1e-14)
    unit = [VECTORS[name] / np.linalg.norm(VECTORS[name]) for name in ("sky", "sea", "sun")]
    np.testing.assert_allclose(words, np.array(unit[:2]) @ np.array([unit[2], unit[0]]).T)
    assert space.grown([]).without_classes().nearness(["sea"])[0].shape == (1, 0)
