"""Words beside codes: against the formula over all items, and what people type."""

import numpy as np
import pytest
from fused_truth import truth
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.collection import Collection
from oasis.collection.search import fused
from oasis.collection.texts import fusion, vocabulary
from oasis.collection.texts.phrases import kept_words
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.features.words import tokens_of
from oasis.model import OASIS
from oasis.model.codeword_state import CodewordState

NOUNS = ["dog", "cat", "bus", "boat", "bird", "train", "clock", "chair"]
REST = ["red", "old", "the", "two", "in", "London", "street", "sitting"]


def captions(n, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        words = [*rng.choice(NOUNS, rng.integers(1, 3)), *rng.choice(REST, rng.integers(0, 4))]
        made.append(" ".join(rng.permutation(words)))
    return made


def two_lines(text):
    """Return a text with its first two words on a line of their own."""
    words = text.split()
    return " ".join(words[:2]) + "\n" + " ".join(["more", *words[2:]])


def items(n, seed=0):
    for row, text in enumerate(captions(n, seed)):
        kinds = [word for word in NOUNS if word in text.split()]
        has_text, has_labels = row % 5, row % 3
        yield {
            "id": row,
            "text": (text if row % 7 else two_lines(text)) if has_text else f"no {row}",
            "labels": kinds[:1] if has_labels else [],
            "payload": {"row": row},
        }


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    extractor = Extractor.of(image="none", text="words")
    path = tmp_path_factory.mktemp("fusion") / "c"
    with Collection.open(path, model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(list(items(300)))
        c.ingest_items([{"id": "bare", "text": "zzz", "labels": ["traffic light"]}])
        c.delete([7, 8, 299])
        yield c


QUERIES = [
    "dog",
    "dogs",
    "a red bus in London",
    "cat boat",
    "the",
    "two old dogs sitting in the street",
    "unheard of",
    "train unheard",
    "traffic light",
    "light",
    "red dog",
    "cats in",
    "bird chair",
    "chair bird",
    *captions(12, seed=1),
]


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("k", [1, 10, 400])
def test_answers_equal_the_formula_over_all_items(filled, text, k):
    (hits,) = filled.search_items([{"text": text}], k)
    expected = truth(filled, text, k)
    assert [hit.id for hit in hits] == [each for each, _ in expected]
    np.testing.assert_allclose(
        [hit.score for hit in hits], [score for _, score in expected], atol=1e-6
    )


@pytest.mark.parametrize("first", [1, 3])
@pytest.mark.parametrize("by_codes", [1, 20])
def test_few_at_a_time_give_the_same_answers(filled, monkeypatch, first, by_codes):
    monkeypatch.setattr(fused, "_FIRST", first)
    monkeypatch.setattr(fused, "_AT_ONCE", 7)
    monkeypatch.setattr(fused, "_BY_CODES", by_codes)
    for text in QUERIES:
        (hits,) = filled.search_items([{"text": text}], 5)
        assert [hit.id for hit in hits] == [each for each, _ in truth(filled, text, 5)]


def test_filters_and_offsets_hold(filled):
    where = {"row": {"gte": 100}}
    allowed = lambda item: item.payload.get("row", 0) >= 100  # noqa: E731
    expected = [each for each, _ in truth(filled, "red dog", 12, allowed)]
    (hits,) = filled.search_items([{"text": "red dog"}], 7, where=where, offset=5)
    assert [hit.id for hit in hits] == expected[5:]


def test_queries_of_one_call_are_answered_as_one_by_one(filled):
    asked = [{"text": text} for text in QUERIES]
    together = filled.search_items(asked, 6)
    for hits, each in zip(together, asked, strict=True):
        (alone,) = filled.search_items([each], 6)
        assert [hit.id for hit in hits] == [hit.id for hit in alone]
        np.testing.assert_allclose([h.score for h in hits], [h.score for h in alone], atol=1e-6)


def test_every_caption_finds_its_item_or_one_with_the_same_words_first(filled):
    for item in filled.items():
        (hits,) = filled.search_items([{"text": item.text}], 1)
        assert tokens_of(filled.get(hits[0].id).text) == tokens_of(item.text)
        assert hits[0].score == 1.0


def test_a_label_that_stands_in_no_text_is_found_and_plurals_too(filled):
    for text in ("traffic light", "Traffic Lights", "light"):
        assert filled.search_items([{"text": text}], 1)[0][0].id == "bare"
    for text in ("dogs", "dog"):
        (hits,) = filled.search_items([{"text": text}], 20)
        assert all("dog" in [*filled.get(h.id).text.split(), *h.labels] for h in hits)


@pytest.mark.parametrize("text", ["dog", "red bus", "unheard of", "two old dogs in the street"])
def test_ties_are_those_of_the_whole_ranking(filled, text):
    ranking = filled.search_items([{"text": text}], 400)[0]
    scores = [None, *(hit.score for hit in ranking), None]
    truth = [
        here in (before, after)
        for before, here, after in zip(scores, scores[1:], scores[2:], strict=False)
    ]
    for k, offset in [(1, 0), (4, 0), (3, 2), (20, 50), (400, 0)]:
        (hits,) = filled.search_items([{"text": text}], k, offset=offset)
        assert [hit.tied for hit in hits] == truth[offset : offset + k]
    assert any(truth)


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"mode": "hamming"}])
def test_hits_are_weak_where_evidence_says_so(filled, options):
    texts = [*QUERIES, "xyzzy", "plugh xyzzy", "xyzzy dog"]
    queries = [{"text": text} for text in texts if text != "the"]  # which has no features
    told = filled.evidence_items(queries)
    assert min(told) < 0.5 <= max(told)
    for hits, evidence in zip(filled.search_items(queries, 2, **options), told, strict=True):
        assert [hit.weak for hit in hits] == [evidence < 0.5] * 2


def test_a_title_on_a_line_of_its_own_is_found_first(folder):
    extractor = Extractor.of(image="none", text="words")
    titles = ["Circle", "Circle Check", "Check", "Circles", "The Check", "A", "A Z", "Z A"]
    more = "round shape circle check mark letter"
    with Collection.open(folder / "c", model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(
            [
                {"id": title, "text": f"{title}\n{more} {row}", "labels": [f"kind {row % 3}"]}
                for row, title in enumerate(titles)
            ]
        )
        for title in titles:
            first, second = c.search_items([{"text": title}], 2)[0]
            assert (first.id, first.score) == (title, 1.0) and second.score < 1
            assert [hit.id for hit in c.search_items([{"text": title}], 8)[0]] == [
                each for each, _ in truth(c, title, 8)
            ]
        c.delete(["Circle"])
        assert c.search_items([{"text": "Circle"}], 1)[0][0].id == "Circles"
        assert c.check() == []


def test_what_the_index_should_not_have_is_no_hit(folder, monkeypatch):
    """In Milvus deleted items may stay for a while."""
    extractor = Extractor.of(image="none", text="words")
    monkeypatch.setattr(fused, "_BY_CODES", 5)
    with Collection.open(folder / "c", model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(list(items(100)))
        monkeypatch.setattr(c._snapshot.replica, "is_local", False)
        monkeypatch.setattr(c._snapshot.replica, "forget", lambda keys: None)
        for text in ("dog", "red bus", "cat boat"):
            gone = [hit.id for hit in c.search_items([{"text": text}], 4)[0]]
            c.delete(gone)
            (hits,) = c.search_items([{"text": text}], 4)
            assert [hit.id for hit in hits] == [each for each, _ in truth(c, text, 4)]
            assert not set(gone) & {hit.id for hit in hits}


def test_it_can_be_switched_off(filled):
    query = [{"text": "red dog"}]
    X, _ = filled.extractor.extract(query)
    plain = filled.search(X, 10, fuse=False)
    assert filled.search_items(query, 10, fuse=False) == plain
    assert not plain[0][0].weak
    assert filled.search_items(query, 10) != plain
    assert filled.search_items(query, 10, "hamming") == filled.search(X, 10, "hamming")


def test_labels_alone_are_found_where_no_texts_are_kept(folder):
    extractor = Extractor.of(image="none", text="words")
    model = OASIS(64, random_state=0)
    with Collection.open(folder / "c", model=model, extractor=extractor, keep_text=False) as c:
        c.ingest_items(list(items(60)))
        (hits,) = c.search_items([{"text": "dog"}], 5)
        n = next(each.n for each in c.classes() if each.name == "dog")
        assert all("dog" in hit.labels for hit in hits[:n])


def test_a_label_space_without_words_is_no_hindrance(folder):
    extractor = Extractor.of(image="none", text="words")
    model = OASIS(64, labels="orthogonal", random_state=0)
    with Collection.open(folder / "c", model=model, extractor=extractor) as c:
        c.ingest_items(list(items(60)))
        assert c.search_items([{"text": "dog"}], 1)[0][0].score > 0


@pytest.mark.parametrize(
    ("text", "line"),
    [("x" * 10_000_000, "at most 1048576"), ("\ud800", "half a surrogate")],
)
def test_a_query_that_cannot_be_used_gets_one_line(filled, text, line):
    with pytest.raises(InputError, match=line) as caught:
        filled.search_items([{"text": text}])
    assert len(str(caught.value)) < 200


@settings(deadline=None, max_examples=40)
@given(st.text(max_size=40).filter(lambda text: kept_words(text)))
def test_any_text_is_data(filled, text):
    (hits,) = filled.search_items([{"text": text}], 3)
    assert len(hits) == 3


@pytest.mark.parametrize(
    "text", ['"dog" OR "cat"', "dog*", "NEAR(dog, 3)", "dog\x00cat", "'; --dog"]
)
def test_operators_are_words_or_nothing(filled, text):
    (hits,) = filled.search_items([{"text": text}], 3)
    words = " ".join(kept_words(text))
    assert [hit.id for hit in hits] == [each for each, _ in truth(filled, text, 3)], words


def test_a_query_with_a_word_that_is_here_is_not_near_to_nothing(filled):
    queries = [{"text": text} for text in ("xyzzy", "xyzzy dogs", "light", "plugh")]
    told = filled.evidence_items(queries)
    X, _ = filled.extractor.extract(queries)
    plain = filled.model.evidence(X)
    assert [value >= 0.5 for value in told] == [False, True, True, False]
    expected = np.where([False, True, True, False], np.maximum(plain, 0.5), plain**3)
    names = [query["text"] for query in queries]
    near = filled.model.project_words_with_evidence(names)[1]  # of the name of a class
    expected = np.maximum(expected, near * (expected < 0.5) * (near >= 0.55))
    np.testing.assert_allclose(told, expected, atol=1e-6)


def test_a_class_that_comes_while_words_are_gathered_is_found_later():
    class Growing(list):
        def __getitem__(self, at):
            if len(self) == 2:
                self.append("old boat")
            return super().__getitem__(at)

    words, names = fusion.ClassWords(), Growing(["red boat", "dog"])
    assert words.having(names) == {"red": (0,), "boat": (0,), "dog": (1,)}
    assert words.having(names) == {"red": (0,), "boat": (0, 2), "dog": (1,), "old": (2,)}
    assert words.named(names, ["old", "boat", "dog"]) == ["dog", "old boat"]


def test_a_text_that_means_nearly_a_class_is_not_weak_and_finds_it(tmp_path):
    extractor = Extractor.of(image="none", text="words")
    kinds, told = ["dog", "furniture", "vehicle", "bird"], ["bark", "wood", "wheel", "wing"]
    with Collection.open(tmp_path / "c", model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(
            [{"id": n, "text": f"{told[n % 4]} {n}", "labels": [kinds[n % 4]]} for n in range(60)]
        )
        for text, kind in (("sofa", 1), ("a puppy", 0), ("automobile", 2)):
            (hits,) = c.search_items([{"text": text}], 10)
            assert not any(hit.weak for hit in hits), text
            assert [hit.id % 4 for hit in hits] == [kind] * 10, text
            assert c.evidence_items([{"text": text}])[0] >= 0.5
        assert all(hit.weak for hit in c.search_items([{"text": "xqzvv blorf"}], 3)[0])


def test_strings_that_are_no_words_are_weak_whatever_the_model_makes_of_them(tmp_path, monkeypatch):
    extractor = Extractor.of(image="none", text="words", vectors={"image": 6})
    sure = np.full(1, 0.99, dtype=np.float32)
    monkeypatch.setattr(CodewordState, "evidence", lambda *arguments: sure)
    picture = {"vectors": {"image": np.ones(6)}}
    for keep_text, asked, is_weak in (
        (True, {"text": "xkqzjwvbp"}, True),
        (True, {"text": "xkqzjwvbp zebra"}, False),  # a word, though nobody has it here
        (True, {"text": "known"}, False),
        (True, {"text": "qzxjkwvbg"}, False),  # stands in a text
        (True, {"text": "xkqzjwvbp", **picture}, False),
        (False, {"text": "xkqzjwvbp"}, False),  # texts are not kept: somebody may have it
    ):
        path, model = tmp_path / f"{keep_text}", OASIS(64, random_state=0)
        with Collection.open(path, model=model, extractor=extractor, keep_text=keep_text) as c:
            if not c.stats().n_items:
                c.ingest_items(
                    [
                        {"id": n, "text": f"known qzxjkwvbg {n}", "labels": [f"{n % 2}"], **picture}
                        for n in range(8)
                    ]
                )
            (hits,) = c.search_items([asked], 3)
            assert {hit.weak for hit in hits} == {is_weak}, asked
            assert (c.evidence_items([asked])[0] < 0.5) == is_weak


def test_unknown_words_are_weak_where_there_are_no_labels(tmp_path):
    extractor = Extractor.of(image="none")
    texts = ["cat face", "red car", "smiling dog", "rain cloud"]
    for keep_text in (True, False):
        with Collection.open(
            tmp_path / f"{keep_text}", extractor=extractor, keep_text=keep_text
        ) as c:
            c.ingest_items([{"id": n, "text": text} for n, text in enumerate(texts)])
            for text, is_weak in (("cat", False), ("nolbwo", keep_text), ("train", keep_text)):
                assert {hit.weak for hit in c.search_items([{"text": text}], 3)[0]} == {is_weak}
                assert (c.evidence_items([{"text": text}])[0] < 0.5) == is_weak


def test_a_label_by_update_alone_is_named_in_a_text(tmp_path):
    extractor = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", model=OASIS(64, random_state=0), extractor=extractor) as c:
        items = [("grey", "animal"), ("wooden", "boat"), ("rusty", "vehicle")]
        c.ingest_items(
            [
                {"id": n, "text": f"{items[n % 3][0]} {n}", "labels": [items[n % 3][1]]}
                for n in range(60)
            ]
        )
        c.update(2, labels=["vehicle", "taxi"])
        (hits,) = c.search_items([{"text": "taxi"}], 20)
        assert hits[0].id == 2 and not hits[0].weak
        assert {hit.id % 3 for hit in hits} == {2}


def test_kept_postings_are_those_of_the_commit_and_have_a_bound(tmp_path, monkeypatch):
    extractor = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", model=OASIS(64, random_state=0), extractor=extractor) as c:
        c.ingest_items(list(items(80)))
        plain = [c.search_items([{"text": text}], 80) for text in QUERIES]
        assert c._vocabulary._kept.n_entries > 100
        # again from what is kept, and with next to nothing kept
        assert [c.search_items([{"text": text}], 80) for text in QUERIES] == plain
        monkeypatch.setattr(vocabulary, "MOST_ENTRIES", 50)
        assert [c.search_items([{"text": text}], 80) for text in QUERIES] == plain
        assert c._vocabulary._kept.n_entries < 50 + 80
        monkeypatch.undo()
        c.search_items([{"text": "a red bus"}])
        c.ingest_items([{"id": "new", "text": "a red bus", "labels": ["bus"]}])
        assert c.search_items([{"text": "a red bus"}], 1)[0][0].id == "new"
        c.update("new", labels=["dog"])
        c.delete([item.id for item in c.items() if "red" in (item.text or "") and item.id != "new"])
        ids = [hit.id for hit in c.search_items([{"text": "red"}], 3)[0]]
        assert ids[0] == "new" and not set(ids) - {item.id for item in c.items()}


def opened(path):
    extractor = Extractor.of(image="none", text="words")
    return Collection.open(path, model=OASIS(64, random_state=0), extractor=extractor)


LANGUAGES = ["C", "R", "Python", "Java", "Ada", "Perl"]


def test_single_letters_are_words_and_clipped_ones_are_not(tmp_path):
    with opened(tmp_path / "c") as c:
        made = [
            {"id": f"{kind} {name}", "text": f"A {kind} for {name}, the author's own", "labels": []}
            for name in LANGUAGES
            for kind in ("compiler", "tutorial", "linter")
        ]
        c.ingest_items([{**item, "labels": [item["id"].split()[0]]} for item in made])
        for name in LANGUAGES:
            for query in (
                f"compilers for {name}",
                f"{name} compiler",
                f"a {name.lower()} compiler",
            ):
                assert c.search_items([{"text": query}], 1)[0][0].id == f"compiler {name}", query
            (hits,) = c.search_items([{"text": name}], 3)
            assert {hit.id.split()[1] for hit in hits} == {name}
        for query in ("C compiler", "s", "i", "a compiler", "7 R"):
            found = [hit.id for hit in c.search_items([{"text": query}], 18)[0]]
            assert found == [each for each, _ in truth(c, query, 18)]
        c.ingest_items([{"id": "Bach", "text": "Johann Sebastian Bach", "labels": ["composer"]}])
        assert c.search_items([{"text": "Bach, J. S."}], 1)[0][0].id == "Bach"


def test_a_long_text_is_first_by_a_word_that_only_few_have(tmp_path):
    rng = np.random.default_rng(0)
    syllables = [consonant + vowel for consonant in "bdkl" for vowel in "aeiou"]
    words = ["".join(rng.choice(syllables, 4)) for _ in range(3000)]
    usual = np.reshape(words[:320], (4, 80))  # of each of four kinds
    texts = [
        " ".join([*rng.choice(usual[n % 4], 40), *rng.choice(words[320:], 20)]) for n in range(120)
    ]
    with opened(tmp_path / "c") as c:
        c.ingest_items(
            [{"id": n, "text": each, "labels": [f"kind {n % 4}"]} for n, each in enumerate(texts)]
        )
        having = {
            word: {n for n, each in enumerate(texts) if word in each.split()} for word in words
        }
        asked = [word for word in words if 1 <= len(having[word]) <= 3][:40]
        assert len(asked) == 40
        for word in asked:
            hits = c.search_items([{"text": word}], 4)[0]
            assert hits[0].id in having[word]
            assert [hit.id for hit in hits] == [each for each, _ in truth(c, word, 4)]


def test_a_query_is_weak_if_few_of_its_words_are_known_by_weight(filled):
    texts = ["xqzvk blorpw the red", "xqzvk blorpw zzgrf street", "red xqzvk old street", "red"]
    told = filled.evidence_items([{"text": text} for text in texts])
    assert [value < 0.5 for value in told] == [True, True, False, False]
    for text, evidence in zip(texts, told, strict=True):
        hits = filled.search_items([{"text": text}], 3)[0]
        assert {hit.weak for hit in hits} == {evidence < 0.5}


@pytest.mark.parametrize(
    ("n", "unknown", "is_weak"), [(1, 1, False), (1, 2, False), (1, 3, True), (20, 1, True)]
)
def test_the_weight_of_unknown_words_is_that_of_a_word_of_one_item(tmp_path, n, unknown, is_weak):
    with opened(tmp_path / "c") as c:
        texts = [("plover " if row < n else "") + f"filler{row}" for row in range(30)]
        c.ingest_items(
            [{"id": row, "text": each, "labels": ["alpha"]} for row, each in enumerate(texts)]
        )
        query = " ".join(["plover", *["xkqzjwvbp", "qzxjkwvbg", "zvwqkxjbf"][:unknown]])
        known, missing = np.log1p(30 / (n + 0.5)), unknown * np.log1p(30 / 1.5)
        assert (missing / (known + missing) > 0.7) == is_weak
        assert c.search_items([{"text": query}], 1)[0][0].weak == is_weak


def test_hits_and_their_evidence_are_of_one_commit(tmp_path, monkeypatch):
    """A commit between both is seen by neither."""
    with opened(tmp_path / "c") as c:
        c.ingest_items(
            [{"id": n, "text": f"grey {n + 100}", "labels": ["animal"]} for n in range(20)]
        )
        query = [{"text": "xkqzjwvbp"}]
        before = c.search_items(query, 3), c.evidence_items(query)
        search = type(c)._ask

        def commits_after(self, snapshot, question):
            hits = search(self, snapshot, question)
            monkeypatch.undo()
            c.ingest_items([{"id": "new", "text": "xkqzjwvbp", "labels": ["animal"]}])
            return hits

        monkeypatch.setattr(type(c), "_ask", commits_after)
        assert c.search_items_with_evidence(query, 3) == before
        hits, evidence = c.search_items_with_evidence(query, 3)
        assert hits[0][0].id == "new" and evidence[0] >= 0.5


def test_a_word_that_no_item_has_does_not_hide_a_rare_one(tmp_path):
    with opened(tmp_path / "c") as c:
        made = [f"grey {n + 100} thing" for n in range(40)] + [
            "base64\nData of any kind as letters"
        ]
        c.ingest_items(
            [{"id": n, "text": text, "labels": [f"kind {n % 3}"]} for n, text in enumerate(made)]
        )
        for query in ("base64 encodng", "xyzzy base64", "base64"):
            (hits,) = c.search_items([{"text": query}], 41)
            assert hits[0].id == 40 and hits[0].score > 0.8
            assert [hit.id for hit in hits] == [each for each, _ in truth(c, query, 41)]
        assert c.search_items([{"text": "base64 encodng"}], 1)[0][0].score < 1
