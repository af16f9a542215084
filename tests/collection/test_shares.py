"""Shares of the words of a query: against the formula, item by item."""

import math
from dataclasses import replace

import numpy as np
import pytest

from oasis.collection import Collection
from oasis.collection.texts import shares
from oasis.collection.texts.fusion import QueryWords
from oasis.collection.texts.phrases import kept_words
from oasis.collection.texts.vocabulary import Vocabulary
from oasis.features.extractor import Extractor
from oasis.model import OASIS

WORDS = [f"w{number}x" for number in range(30)]
N = 250


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 14))) for _ in range(N)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("shares") / "c"
    extractor = Extractor.of(image="none", text="words")
    labels = [["w3x"] if row % 4 == 0 else ["w5x w7x"] for row in range(N)]
    with Collection.open(path, model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items([{"id": row, "text": texts[row], "labels": labels[row]} for row in range(N)])
        yield c


def literal(asked, texts, row):
    """The formula of `oasis.collection.texts.fusion` for one item."""
    named = ["w3x"] if row % 4 == 0 else ["w5x", "w7x"]
    own = kept_words(texts[row])
    given = asked

    def n_having(word):
        return sum(
            word in kept_words(text) or word in (["w3x"] if at % 4 == 0 else ["w5x", "w7x"])
            for at, text in enumerate(texts)
        )

    asked = QueryWords([word for word in asked.words if n_having(word)], asked.tokens)
    idf = {word: math.log1p(N / (n_having(word) + 0.5)) for word in asked.words}
    mass = sum(
        idf[word] * (1 if word in own else 0.9 if word in named else 0) for word in asked.words
    )
    matched = len(set(own) & set(asked.words))
    part, other = mass / sum(idf.values()), (len(own) if matched else 0) - matched
    whole = [len(kept_words(text)) for text in texts if set(asked.words) <= set(kept_words(text))]
    names_class = "w3x" in asked.words or {"w5x", "w7x"} <= set(asked.words)
    if whole and not names_class:
        fewer = (min(whole) - len(asked.words)) * min(1, 10 / len(whole))
        other = max(other - fewer, min(other, 0.5))
    if set(own) == set(asked.words):
        part, other = 1.0, 0.5
    if given.is_exactly(texts[row]):
        return 1.0
    sizes = [len(kept_words(text)) for text in texts for w in asked.words if w in kept_words(text)]
    length = max(6, sum(sizes) / max(1, len(sizes)))
    return part**8 / (1 + 6 / length * other / (10 * len(asked.words)))


@pytest.mark.parametrize(
    "query",
    [["w1x"], WORDS[:3], ["w9x", "w6x", "w1x", "w2x"], WORDS[:12], [*WORDS[2:11], "nowhere"], None],
)
@pytest.mark.parametrize("at_once", [7, 8192])
def test_shares_are_those_of_the_formula(filled, texts, query, at_once, monkeypatch):
    monkeypatch.setattr(shares, "_AT_ONCE", at_once)
    asked = QueryWords.of(texts[17] if query is None else " ".join(query))
    head = filled._snapshot.head
    keys = np.arange(1, N + 1)
    with filled._catalog.reading() as connection:
        made = shares.WordShares.read(
            connection, asked, Vocabulary(), filled._snapshot.classes, head
        )
    expected = np.array([literal(asked, texts, row) for row in range(N)])
    np.testing.assert_allclose(made.of(keys), expected, rtol=1e-12)
    for some in (keys[:1], keys[::9], keys[:0]):  # a share does not depend on what else is asked
        assert made.of(some).tobytes() == made.of(keys)[some - 1].tobytes()
    assert made.of_just().tobytes() == made.of(made.just).tobytes()


def test_lists_of_a_commit_leave_out_later_items(filled, texts):
    head = filled._snapshot.head
    asked, vocabulary = QueryWords.of("w3x"), Vocabulary()
    names = filled._snapshot.classes
    older = replace(head, next_key=100, commits=head.commits - 1)
    with filled._catalog.reading() as connection:
        for at in (head, older, head):
            made = shares.WordShares.read(connection, asked, vocabulary, names, at)
            having = [key for key in range(1, N + 1) if "w3x" in texts[key - 1].split()]
            labelled = [key for key in range(1, N + 1) if (key - 1) % 4 == 0]
            expected = sorted({*having, *labelled})
            assert made.having(0).tolist() == [key for key in expected if key < at.next_key]


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"mode": "hamming"}, {"content": None}])
def test_search_with_evidence_is_both_and_extracts_once(filled, texts, options, monkeypatch):
    queries = [{"text": text} for text in (texts[3], "w1x nowhere", "nowhere")]
    hits, evidence = filled.search_items(queries, 5, **options), filled.evidence_items(queries)
    calls = []
    extract = Extractor.extract

    def counted(self, items, *rest, **more):
        calls.append(len(items))
        return extract(self, items, *rest, **more)

    monkeypatch.setattr(Extractor, "extract", counted)
    assert filled.search_items_with_evidence(queries, 5, **options) == (hits, evidence)
    assert calls == [3]
