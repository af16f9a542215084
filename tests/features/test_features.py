"""Texts to vectors, against a count by hand, and the extractor of several modalities."""

from __future__ import annotations

import json
import types
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

from oasis.errors import InputError
from oasis.features.extractor import Extractor, Failure, Function, embedder_of_name
from oasis.features.image import EfficientNetLite0
from oasis.features.text import ENGLISH_STOP_WORDS, HashedText

pytest.importorskip("PIL.Image")

# ---------------------------------------------------------------- text


def murmur3(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0, as a signed number; transcribed from its definition."""

    def rotate(x: int, r: int) -> int:
        return (x << r | x >> (32 - r)) & 0xFFFFFFFF

    def mix(k: int) -> int:
        return rotate(k * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF

    h, whole = 0, len(data) // 4 * 4
    for start in range(0, whole, 4):
        h ^= mix(int.from_bytes(data[start : start + 4], "little"))
        h = (rotate(h, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    if data[whole:]:
        h ^= mix(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        h = (h ^ h >> shift) * factor & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


def bag(words: list[str], n_features: int, weighting: str) -> np.ndarray[Any, Any]:
    row = np.zeros(n_features, dtype=np.float32)
    for word, count in Counter(words).items():
        h = murmur3(word.encode())
        row[abs(h) % n_features] += (count if weighting == "tf" else 1) * (1 if h >= 0 else -1)
    return row


@given(
    st.lists(st.lists(st.text("abcé1ß", min_size=2, max_size=4), max_size=12), max_size=5),
    st.sampled_from([1, 7, 2048]),
    st.sampled_from(["tf", "binary"]),
)
def test_text_agrees_with_a_count_by_hand(
    documents: list[list[str]], n_features: int, weighting: str
) -> None:
    X, failures = HashedText(n_features, weighting).embed([" ".join(words) for words in documents])
    assert failures == {}
    assert (X.dtype, X.shape) == (np.float32, (len(documents), n_features))
    assert X.has_canonical_format
    assert np.all(X.data != 0)
    for row, words in enumerate(documents):
        folded = [word.casefold() for word in words]
        assert np.array_equal(X[[row]].toarray()[0], bag(folded, n_features, weighting))


@given(st.lists(st.text(max_size=60) | st.none(), max_size=6), st.sampled_from([7, 64, 2048]))
def test_text_agrees_with_the_feature_hasher_of_scikit_learn(
    texts: list[str | None], n_features: int
) -> None:
    embedder = HashedText(n_features)
    X, _ = embedder.embed(texts)
    assert X.dtype == np.float32 and X.indices.dtype == X.indptr.dtype == np.int32
    assert X.has_canonical_format and X.data.all()
    hasher = FeatureHasher(n_features, input_type="string", dtype=np.float32)
    words = [[] if text is None else embedder.words(text) for text in texts]
    if texts:
        assert np.array_equal(X.toarray(), hasher.transform(words).toarray())
    dense, failures = embedder.embed_dense(texts)
    assert dense.dtype == np.float32 and failures == {}
    assert np.array_equal(dense, X.toarray())


def test_queries_are_extracted_dense_on_demand() -> None:
    extractor = Extractor({"text": ("text", HashedText(64))})
    items = [{"text": f"red boat {i} of {i % 3}"} for i in range(40)] + [{}]
    sparse, dense = extractor.extract(items)[0], extractor.extract(items, dense=True)[0]
    assert isinstance(dense["text"], np.ndarray) and not isinstance(sparse["text"], np.ndarray)
    assert np.array_equal(dense["text"], sparse["text"].toarray())


def test_text_columns_never_change() -> None:
    """Stored collections depend on these numbers: a change needs a new version in the name."""
    X, _ = HashedText().embed(["a red boat on the sea", "Żółw 42, żółw"])
    assert [(int(r), int(c), float(X[r, c])) for r, c in zip(*X.nonzero(), strict=True)] == [
        (0, 158, -1.0),
        (0, 259, -1.0),
        (0, 546, -1.0),
        (0, 576, -1.0),
        (0, 1591, -1.0),
        (1, 970, -1.0),
        (1, 1024, -2.0),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A boat, a BOAT!", ["boat", "boat"]),
        ("snake_case x2 7 42", ["snake", "case", "x2", "42"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        (
            "cafe\N{COMBINING ACUTE ACCENT} café \N{LATIN SMALL LIGATURE FI}sh",
            ["café", "café", "fish"],
        ),
        ("日本 привет", ["日本", "привет"]),
        ("!? \n\t . a", []),
    ],
)
def test_text_words_are_runs_of_letters_and_digits(text: str, words: list[str]) -> None:
    assert HashedText().words(text) == words


def test_text_leaves_out_stop_words_on_demand() -> None:
    assert HashedText(stop_words="english").words("The boat isn't on the Sea") == ["boat", "sea"]
    assert all(HashedText().words(word) == [word] for word in ENGLISH_STOP_WORDS)


def test_text_missing_is_a_zero_row_and_other_types_are_failures() -> None:
    X, failures = HashedText(16).embed([None, "", "!", 5, b"boat", "boat\ud800s 1"])
    assert X[[0, 1, 2, 3, 4]].nnz == 0
    assert np.array_equal(X[[5]].toarray()[0], bag(["boat"], 16, "tf"))
    assert failures.keys() == {3, 4}
    assert failures[3] == "the text is of type int, expected str"
    assert HashedText(16).embed([])[0].shape == (0, 16)


@pytest.mark.parametrize("stop_words", [None, "english"])
@pytest.mark.parametrize("weighting", ["tf", "binary"])
def test_text_name_says_everything(weighting: str, stop_words: str | None) -> None:
    embedder = HashedText(77, weighting, stop_words)
    again = HashedText.from_name(embedder.name)
    assert again is not None
    assert (again.n_features, again.weighting, again.stop_words) == (77, weighting, stop_words)


@pytest.mark.parametrize(
    "arguments",
    [(0,), (2**31,), (True,), (2.0,), (8, "tfidf"), (8, "tf", "german")],
)
def test_text_refuses_wrong_settings(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="got"):
        HashedText(*arguments)


# ---------------------------------------------------------------- the extractor


def lengths(raws: list[Any]) -> Any:
    return [[len(raw), 1.0] for raw in raws]


def test_extractor_feeds_fields_to_modalities() -> None:
    extractor = Extractor(
        {"words": ("caption", HashedText(32)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    items = [
        {"caption": "a boat", "blob": b"abc"},
        {"caption": None, "blob": b""},
        {"caption": "sea"},
        {},
    ]
    X, failures = extractor.extract(items)
    assert failures == []
    assert X["size"].tolist() == [[3, 1], [0, 1], [0, 0], [0, 0]]
    truth, _ = HashedText(32).embed(["a boat", None, "sea", None])
    assert isinstance(X["words"], sp.csr_array)
    assert np.array_equal(X["words"].toarray(), truth.toarray())
    assert extractor.n_features == {"words": 32, "size": 2}
    as_objects = [
        types.SimpleNamespace(caption=item.get("caption"), blob=item.get("blob")) for item in items
    ]
    again, _ = extractor.extract(as_objects)
    assert np.array_equal(again["size"], X["size"])
    with pytest.raises(InputError, match="no field 'caption'"):
        extractor.extract([object()])


def test_extractor_batches_agree_with_one_by_one_and_report_progress() -> None:
    texts: list[Any] = [f"word{i} and more" if i % 3 else None for i in range(71)]
    texts[50] = 5
    extractor = Extractor({"text": ("text", HashedText(64))})
    done: list[int] = []
    X, failures = extractor.extract([{"text": text} for text in texts], done.append)
    assert done == [32, 32, 7]
    assert failures == [Failure(50, "text", "the text is of type int, expected str")]
    for row, text in enumerate(texts):
        one, _ = HashedText(64).embed([text])
        assert np.array_equal(X["text"][[row]].toarray(), one.toarray())


def test_extractor_of_nothing_gives_empty_matrices_of_the_right_kind() -> None:
    extractor = Extractor(
        {"text": ("text", HashedText(8)), "size": ("blob", Function("lengths@1", lengths, 2))}
    )
    for items in ([], [{}] * 40):
        X, failures = extractor.extract(items)
        assert failures == []
        assert (X["text"].shape, X["size"].shape) == ((len(items), 8), (len(items), 2))
        assert isinstance(X["text"], sp.csr_array)
        assert X["text"].nnz == 0
        assert not np.any(X["size"])


def test_extractor_lists_failures_by_row_and_modality() -> None:
    extractor = Extractor(
        {"image": ("image", EfficientNetLite0()), "text": ("text", HashedText(8))}
    )
    items = [{"text": 1}, {"image": b"none", "text": 2}, {"text": "fine"}]
    X, failures = extractor.extract(items)
    assert [(failure.row, failure.modality) for failure in failures] == [
        (0, "text"),
        (1, "image"),
        (1, "text"),
    ]
    assert X["image"].shape == (3, 1280)


def test_function_that_raises_is_asked_for_each_value() -> None:
    asked: list[int] = []

    def fragile(raws: list[Any]) -> Any:
        asked.append(len(raws))
        return sp.csr_matrix([[1.0 / raw, 0] for raw in raws])

    X, failures = Function("fragile@1", fragile, 2).embed([1, 0, 4])
    assert asked == [3, 1, 1, 1]
    assert X.toarray().tolist() == [[1, 0], [0, 0], [0.25, 0]]
    assert failures == {1: "ZeroDivisionError: float division by zero"}


@pytest.mark.parametrize("sparse", [False, True])
def test_function_rows_that_are_not_finite_are_failures(sparse: bool) -> None:
    values = np.array([[1, 2], [np.nan, 1], [np.inf, -np.inf], [3, 4], [1e99, 0]])
    embedder = Function("x@1", lambda raws: sp.csr_array(values) if sparse else values, 2)
    X, failures = embedder.embed([0] * 5)
    dense = X.toarray() if sparse else X
    assert dense.tolist() == [[1, 2], [0, 0], [0, 0], [3, 4], [0, 0]]
    assert (X.dtype, failures.keys()) == (np.float32, {1, 2, 4})


@pytest.mark.parametrize(
    "values", [[[1.0]], [[1.0, 2.0, 3.0]], [1.0, 2.0], "ab", [["a", "b"]], None]
)
def test_function_of_another_shape_is_an_error(values: Any) -> None:
    with pytest.raises(InputError, match=r"embedder 'x@1' returned"):
        Function("x@1", lambda raws: values, 2).embed([0])


def test_extractor_can_be_described_and_made_again() -> None:
    extractor = Extractor(
        {
            "image": ("photo", EfficientNetLite0()),
            "text": ("text", HashedText(512, "binary", "english")),
            "size": ("blob", Function("lengths@1", lengths, 2)),
        }
    )
    description = json.loads(json.dumps(extractor.describe()))
    again = Extractor.from_description(description, {"lengths@1": lengths})
    assert again.name == extractor.name
    assert again.describe() == extractor.describe()
    again.check_same(description)
    with pytest.raises(InputError, match=r"no embedder is called 'lengths@1'.*callable"):
        Extractor.from_description(description)


def test_a_callable_can_take_the_place_of_an_embedder_by_name() -> None:
    description = Extractor.default().describe()
    name = EfficientNetLite0.name
    extractor = Extractor.from_description(
        description, {name: lambda raws: np.ones((len(raws), 1280))}
    )
    X, _ = extractor.extract([{"image": "anything"}])
    assert X["image"].sum() == 1280
    extractor.check_same(description)


@pytest.mark.parametrize(
    "other",
    [
        {"text": ("text", HashedText(16, "binary"))},
        {"text": ("text", HashedText(32))},
        {"words": ("text", HashedText(16))},
        {"text": ("text", HashedText(16)), "more": ("text", HashedText(16))},
    ],
)
def test_another_extractor_is_refused(other: dict[str, Any]) -> None:
    recorded = Extractor({"text": ("text", HashedText(16))}).describe()
    with pytest.raises(InputError, match="recorded"):
        Extractor(other).check_same(recorded)
    # the same features from a field of another name are the same
    Extractor({"text": ("caption", HashedText(16))}).check_same(recorded)


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"text": 5},
        {"text": {"field": "text"}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@2", "n_features": 16}},
        {"text": {"field": "text", "embedder": "hashed-text-16-tf@1", "n_features": 17}},
    ],
)
def test_a_wrong_description_is_refused(description: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Extractor.from_description(description)


@pytest.mark.parametrize(
    "sources",
    [{}, {"": ("text", HashedText())}, {"text": HashedText()}, {"text": ("text", lengths)}],
)
def test_extractor_refuses_wrong_sources(sources: Any) -> None:
    with pytest.raises(InputError):
        Extractor(sources)


@pytest.mark.parametrize("arguments", [("", lengths, 2), ("x", 5, 2), ("x", lengths, 0)])
def test_function_refuses_wrong_settings(arguments: Any) -> None:
    with pytest.raises(InputError, match="got"):
        Function(*arguments)


def test_embedders_are_found_by_name() -> None:
    for embedder in (EfficientNetLite0(), HashedText(), HashedText(9, "binary", "english")):
        assert embedder_of_name(embedder.name).name == embedder.name
    for name in ("hashed-text-0x10-tf@1", "hashed-text-16-tf@1 ", "efficientnet-lite0@2", ""):
        with pytest.raises(InputError, match="no embedder is called"):
            embedder_of_name(name)
