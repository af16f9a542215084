"""Texts of many words: against the formula over all items; and a line of stop words."""

import numpy as np
import pytest
from fused_truth import truth

from oasis.collection import Collection
from oasis.collection.texts.shares import WordShares, _Word
from oasis.features.extractor import Extractor
from oasis.model import OASIS

KINDS = ["river", "engine", "kitchen", "garden"]
N = 120


def articles():
    """Return articles of 60 to 200 words about four kinds of things; each has a word of its own."""
    rng = np.random.default_rng(0)
    common = [f"{kind}{letter}" for kind in KINDS for letter in "abcdefghijklmnopqrstuvwxyz"]
    for row in range(N):
        kind = row % len(KINDS)
        own = common[26 * kind : 26 * kind + 26]
        words = [*rng.choice(own, 40), *rng.choice(common, rng.integers(20, 160)), KINDS[kind]]
        words.insert(len(words) // 2, f"only{row:03}")
        yield {"id": row, "text": " ".join(words), "labels": [KINDS[kind]]}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    extractor = Extractor.of(image="none", text="words")
    path = tmp_path_factory.mktemp("articles") / "c"
    with Collection.open(path, model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items([*articles(), {"id": "plus", "text": "About\nall of it"}])
        yield c


@pytest.mark.parametrize(
    "text", ["only007", "river", "rivera rivers gardenb", "only003 enginea gardenc"]
)
def test_answers_equal_the_formula_over_all_items(filled, text):
    (hits,) = filled.search_items([{"text": text}], 20)
    expected = truth(filled, text, 20)
    assert [hit.id for hit in hits] == [each for each, _ in expected]
    scores = [score for _, score in expected]
    np.testing.assert_allclose([hit.score for hit in hits], scores, atol=1e-6)


def test_long_texts_have_the_shares_of_captions_of_the_same_relative_length():
    word = np.arange(2), np.empty(0, dtype=np.int64), 1.0
    shares = []
    for sizes in ([6, 12], [60, 120], [80, 160]):
        keys, labelled, idf = word
        words = [_Word(keys, np.array(sizes, dtype=np.uint8), labelled, idf)]
        shares.append(WordShares(words, labelled, labelled).of(keys))
    np.testing.assert_allclose(shares[0], 1 / (1 + 0.1 * 6 / 9 * np.array([5, 11])))
    np.testing.assert_allclose(shares[1], shares[0], rtol=0.1)
    np.testing.assert_allclose(shares[2], shares[1], rtol=0.1)


def test_a_line_of_stop_words_is_found_and_not_weak(filled):
    (hits,) = filled.search_items([{"text": "all of it"}], 1)
    assert (hits[0].id, hits[0].score, hits[0].weak) == ("plus", 1.0, False)
    assert filled.evidence_items([{"text": "all of it"}, {"text": "both of them"}])[0] >= 0.5
