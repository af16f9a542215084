"""Words, stems, hashed text against a count by hand, and the meaning of texts."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasis import wordllama
from oasis.errors import DataError, InputError
from oasis.features import meaning
from oasis.features.meaning import Meaning
from oasis.features.text import HashedText
from oasis.features.words import STOP_WORDS, stem, words_of

# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A boat, a BOAT!", ["boat", "boat"]),
        ("snake_case x2 7 42", ["snake", "case", "x2", "7", "42"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        (
            "cafe\N{COMBINING ACUTE ACCENT} CAFÉ ﬁsh \N{FULLWIDTH LATIN CAPITAL LETTER A}1",
            ["cafe", "cafe", "fish", "a1"],
        ),
        ("Łódź Ærø Đặng", ["lodz", "aero", "dang"]),
        ("привет Ёлка и я", ["привет", "елка"]),
        ("שָׁלוֹם مُحَمَّد", ["שלום", "محمد"]),
        ("हिन्दी में बिल्ली", ["हिन्दी", "में", "बिल्ली"]),
        ("猫", ["猫"]),
        ("黒い猫がいる", ["黒", "黒い", "い猫", "猫", "猫が", "がい", "いる"]),
        ("ネコ cat猫x2", ["ネコ", "cat", "猫", "x2"]),
        ("개가 개", ["개", "개가", "가", "개"]),
        ("I ❤️ NY 🐱cat ©", ["❤", "ny", "🐱", "cat"]),
        ("!? \n\t . a é", []),
        ("boat\ud800s 1", ["boat", "1"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == [stem(word) for word in words]


def test_stop_words_of_the_common_languages_are_left_out() -> None:
    for text, words in {
        "The boat isn't on the Sea": ["boat", "sea"],
        "Der Hund und die Katze sind im Haus": ["hund", "katze", "haus"],
        "le chat est sur la table": ["chat", "table"],
        "el perro está en la casa": ["perro", "casa"],
        "o gato não está na mesa com a senhora": ["gato", "mesa", "senhora"],
        "il gatto è nella scatola": ["gatto", "scatola"],
        "de kat zit niet op het dak": ["kat", "zit", "dak"],
        "кошка и собака на диване": ["кошка", "собака", "диване"],
    }.items():
        assert words_of(text) == [stem(word) for word in words]
    english = "hat war son sin van door fur bin pour cat red car plus par sans sob tot uno os ai"
    assert STOP_WORDS.isdisjoint(english.split())
    assert words_of("A red car") == ["red", "car"]
    assert words_of("The boat", stop_words=False) == ["the", "boat"]
    for word in STOP_WORDS:  # as a text is folded, so that each of them can be met
        assert len(word) == 1 or words_of(word, stop_words=False) == [stem(word)]


@pytest.mark.parametrize(
    ("forms", "other"),
    [
        ("dog dogs dog's", "dot"),
        ("baby babies", "bab"),
        ("building buildings", "bui"),
        ("care cares caring cared", "car"),
        ("plane planes", "plan"),
        ("ski skis skiing", "sky"),
        ("lens lenses", "len"),
        ("bicycle bicycling bicycles", "bicep"),
        ("bee bees", "be"),
        ("leaf leaves", "lead"),
        ("bus buses", "bush"),
        ("glass glasses", "gas"),
        ("box boxes", "boxer"),
        ("sit sits sitting", "sitter"),
        ("carry carries carried carrying", "carriage"),
        ("fly flies flying", "flow"),
        ("child children", "chili"),
        ("mouse mice", "mouth"),
        ("person people", "persona"),
        ("speed speeds", "spe"),
    ],
)
def test_forms_of_a_word_meet_in_one_stem(forms: str, other: str) -> None:
    stems = {stem for form in forms.split() for stem in words_of(form)}
    assert len(stems) == 1
    assert words_of(other) != list(stems)


def test_words_that_have_no_english_ending_stay() -> None:
    for word in ("猫", "42", "x2s", "gas", "is", "собаки", "bus", "glass", "tennis", "red"):
        assert stem(word) == word


# ---------------------------------------------------------------- hashed text


def bag(words: list[str], n_features: int) -> np.ndarray[Any, Any]:
    row = np.zeros(n_features, dtype=np.float32)
    for word, count in Counter(words).items():
        h = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
        row[(h // 2) % n_features] += count * (1 if h % 2 else -1)
    return row


@given(
    st.lists(st.lists(st.text("bcé1ß猫", min_size=2, max_size=4), max_size=12), max_size=5),
    st.sampled_from([1, 7, 2048]),
)
def test_text_agrees_with_a_count_by_hand(documents: list[list[str]], n_features: int) -> None:
    embedder = HashedText(n_features)
    texts = [" ".join(words) for words in documents]
    X, failures = embedder.embed(texts)
    assert failures == {}
    assert (X.dtype, X.shape) == (np.float32, (len(documents), n_features))
    assert X.has_canonical_format
    assert np.all(X.data != 0)
    dense, _ = embedder.embed_dense(texts)
    assert dense.dtype == np.float32
    assert np.array_equal(dense, X.toarray())
    for row, text in enumerate(texts):
        assert np.array_equal(dense[row], bag(words_of(text), n_features))


def test_text_columns_never_change() -> None:
    """Stored collections depend on these numbers: a change needs a new version in the name."""
    X, _ = HashedText().embed(["a red boat on the sea", "Żółw 42, żółw"])
    assert [(int(r), int(c), float(X[r, c])) for r, c in zip(*X.nonzero(), strict=True)] == [
        (0, 760, 1.0),
        (0, 1158, 1.0),
        (0, 1322, 1.0),
        (1, 555, 1.0),
        (1, 1259, 2.0),
    ]


def test_text_missing_is_a_zero_row_and_other_types_are_failures() -> None:
    raws = [None, "", "!", 5, b"boat", "boat\ud800s x"]
    for X, failures in (HashedText(16).embed(raws), HashedText(16).embed_dense(raws)):
        dense = X if isinstance(X, np.ndarray) else X.toarray()
        assert not dense[:5].any()
        assert np.array_equal(dense[5], bag(["boat"], 16))
        assert failures.keys() == {3, 4}
        assert failures[3] == "the text is of type int, expected str"
    assert HashedText(16).embed([])[0].shape == (0, 16)
    assert HashedText(16).embed_dense([])[0].shape == (0, 16)


@pytest.mark.parametrize("stop_words", [True, False])
def test_text_name_says_everything(stop_words: bool) -> None:
    embedder = HashedText(77, stop_words=stop_words)
    again = HashedText.from_name(embedder.name)
    assert again is not None
    assert vars(again) == vars(embedder)
    words = ["the"] * (not stop_words) + ["dog"]
    assert np.array_equal(embedder.embed_dense(["The dogs"])[0][0], bag(words, 77))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((0,), {}),
        ((2**31,), {}),
        ((True,), {}),
        ((2.0,), {}),
        ((8,), {"stop_words": "english"}),
    ],
)
def test_text_refuses_wrong_settings(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="got"):
        HashedText(*arguments, **options)


# ---------------------------------------------------------------- meaning


def test_meaning_is_the_unit_vector_of_the_text_in_lower_case() -> None:
    texts = ["A feline asleep", "the cat sleeps", "quarterly economics report", "猫 cat"]
    X, failures = Meaning().embed(texts)
    assert failures == {}
    assert (X.shape, X.dtype) == ((4, 256), np.float32)
    truth = wordllama.word_vectors().embed([text.lower() for text in texts]).astype(np.float64)
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    np.testing.assert_allclose(X, truth, atol=1e-6)
    assert X[0] @ X[1] > 0.5 > 0.3 > X[0] @ X[2]
    for row, text in enumerate(texts):  # in any company
        assert Meaning().embed(["a", text.upper()])[0][1].tobytes() == X[row].tobytes()


def test_meaning_of_nothing_is_a_zero_row_and_other_types_are_failures() -> None:
    X, failures = Meaning().embed([None, "", " !? ", 5, b"boat", "boat\ud800"])
    assert not X[:5].any()
    assert X[5].tobytes() == Meaning().embed(["boat"])[0][0].tobytes()
    assert failures.keys() == {3, 4}
    assert Meaning().embed([])[0].shape == (0, 256)


def test_meaning_reads_the_beginning_of_a_long_text() -> None:
    long = "boat " * 2000
    X, _ = Meaning().embed([long, long[: meaning.MAX_CHARACTERS]])
    assert X[0].tobytes() == X[1].tobytes()


def test_meaning_of_other_vectors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning, "CHECKSUM", "0" * 64)
    with pytest.raises(DataError, match="has other vectors than 'wordllama-256@1' stands for"):
        Meaning().embed(["boat"])
