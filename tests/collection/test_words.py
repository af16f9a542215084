"""Words beside codes: against the formula over all items, and what people type."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scored_truth import scored_truth

from oasis.collection import Collection
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.features.words import tokens_of
from oasis.model import OASIS

NOUNS = ["dog", "cat", "bus", "boat", "bird", "train", "clock", "tree"]
REST = ["red", "old", "and", "two", "in", "london", "park", "big"]


def captions(n, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        words = [*rng.choice(NOUNS, rng.integers(1, 3)), *rng.choice(REST, rng.integers(0, 4))]
        made.append(" ".join(rng.permutation(words)))
    return made


def items(n, seed=0):
    for row, text in enumerate(captions(n, seed)):
        kinds = [word for word in NOUNS if word in text.split()]
        labels = kinds[:1] if row % 3 else []
        yield {"id": row, "text": text, "labels": labels, "payload": {"row": row}}


def opened(path, texts="words", n_bits=64, **options):
    extractor = Extractor.of(image="none", text=texts)
    return Collection.open(
        path, model=OASIS(n_bits, random_state=0), extractor=extractor, **options
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("words") / "c") as c:
        c.ingest_items(list(items(300)))
        c.ingest_items([{"id": "bare", "text": "zzz", "labels": ["traffic light"]}])
        c.delete([7, 8, 299])
        yield c


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A collection whose items are all scored."""
    with opened(tmp_path_factory.mktemp("few") / "c") as c:
        c.ingest_items(list(items(90)))
        yield c


QUERIES = ["dog", "red bus in london", "cat boat", "two old dog", "big tree park", "bird"]


@pytest.mark.parametrize("text", QUERIES)
def test_scores_equal_the_formula_over_all_items(few, text):
    (hits,) = few.search_items([{"text": text}], 90)
    X, _ = few.extractor.extract([{"text": text}], dense=True)
    model = few.model
    projection, sure = model.project(X)[0], float(model.evidence(X)[0])
    names = [name for name in model.classes_ if name in text.split()]
    classes = model.project_words(names).sum(axis=0)
    both = [each / np.linalg.norm(each) for each in (projection, classes)]
    expected = scored_truth(few, text, sure * both[0] + both[1], max(sure, 0.9), names)
    found = {hit.id: hit.score for hit in hits}
    assert list(found) == sorted(found, key=lambda each: -found[each])
    for each, score in expected:
        assert found[each] == pytest.approx(score, abs=1e-5)


def test_pages_are_parts_of_one_ranking(filled):
    for text in ("dog", "red bus", "unheard of", "猫"):
        whole = [hit.id for hit in filled.search_items([{"text": text}], 400)[0]]
        assert sorted(whole, key=str) == sorted((item.id for item in filled.items()), key=str)
        for k, offset in ((10, 0), (25, 30), (100, 90), (90, 250)):
            (hits,) = filled.search_items([{"text": text}], k, offset=offset)
            assert [hit.id for hit in hits] == whole[offset : offset + k]
            assert all(0 <= hit.score <= 1 for hit in hits)


def test_filters_hold(filled):
    where = {"row": {"gte": 100, "lt": 120}}
    (hits,) = filled.search_items([{"text": "red dog"}], 100, where=where)
    assert {hit.id for hit in hits} == set(range(100, 120))
    having = [hit.id for hit in hits if "dog" in filled.get(hit.id).text]
    assert [hit.id for hit in hits][: len(having)] == having or "red" in filled.get(hits[0].id).text


def test_queries_of_one_call_are_answered_as_one_by_one(filled):
    asked = [{"text": text} for text in QUERIES]
    together = filled.search_items(asked, 6)
    for hits, each in zip(together, asked, strict=True):
        (alone,) = filled.search_items([each], 6)
        assert [hit.id for hit in hits] == [hit.id for hit in alone]


def test_every_caption_finds_its_item_or_one_with_the_same_words_first(filled):
    for item in filled.items():
        (hits,) = filled.search_items([{"text": item.text}], 1)
        assert tokens_of(filled.get(hits[0].id).text) == tokens_of(item.text)
        assert hits[0].score == 1.0
        assert not hits[0].weak


def test_a_label_that_stands_in_no_text_is_found_and_plurals_too(filled):
    for text in ("traffic light", "Traffic Lights"):
        assert filled.search_items([{"text": text}], 1)[0][0].id == "bare"
    for text in ("dogs", "dog", "DOGS!"):
        (hits,) = filled.search_items([{"text": text}], 20)
        assert all("dog" in [*filled.get(h.id).text.split(), *h.labels] for h in hits)


def test_it_can_be_switched_off(filled):
    plain = filled.search_items([{"text": "red bus"}], 20, fuse=False)
    X, _ = filled.extractor.extract([{"text": "red bus"}], dense=True)
    assert [hit.id for hit in plain[0]] == [hit.id for hit in filled.search(X, 20, fuse=False)[0]]
    for options in ({"mode": "hamming"}, {"content": 0.0}):
        if options == {"content": 0.0} and not filled.model.n_content_bits:
            continue
        assert filled.search_items([{"text": "red bus"}], 20, **options)[0][0].score < 1


def test_a_label_space_without_words_is_no_hindrance(tmp_path):
    model = OASIS(64, labels="orthogonal", random_state=0)
    extractor = Extractor.of(image="none", text="words")
    with Collection.open(tmp_path / "c", model=model, extractor=extractor) as c:
        c.ingest_items(list(items(60)))
        text = c.get(3).text
        assert c.get(c.search_items([{"text": text}], 1)[0][0].id).text == text


@settings(deadline=None, max_examples=50)
@given(st.text(min_size=1, max_size=30).filter(tokens_of))
def test_any_text_is_data(filled, text):
    (hits,) = filled.search_items([{"text": text}], 3)
    assert len(hits) == 3


@pytest.mark.parametrize("text", ['"dog', "dog OR", "NEAR(dog cat)", "text:dog", "dog*", "-dog"])
def test_operators_are_words_or_nothing(filled, text):
    (hits,) = filled.search_items([{"text": text}], 3)
    assert any("dog" in filled.get(hit.id).text for hit in hits)


@pytest.mark.parametrize(
    ("text", "line"),
    [("...", "has nothing to search with"), ("\ud800", "half a surrogate"), ("", "nothing")],
)
def test_a_query_that_cannot_be_used_gets_one_line(filled, text, line):
    with pytest.raises(InputError, match=line):
        filled.search_items([{"text": text}])


def test_noise_is_weak_and_its_score_is_near_0(tmp_path):
    rng = np.random.default_rng(0)
    letters = list("bcdfghjklmnpqrstvwxz")
    strings = ["".join(rng.choice(letters, 9)) for _ in range(20)]
    for labelled in (True, False):
        with opened(tmp_path / str(labelled), texts="words+meaning", n_bits=256) as c:
            c.ingest_items([item | {"labels": item["labels"] * labelled} for item in items(200)])
            for text in strings:
                (hits,) = c.search_items([{"text": text}], 5)
                assert all(hit.weak and hit.score < 0.3 for hit in hits)
            assert not c.search_items([{"text": "an old dog"}], 1)[0][0].weak


def test_a_word_of_no_class_and_no_text_is_found_by_its_meaning(tmp_path):
    things = ["television", "black grouse", "parallel bars", "studio couch", "tiger cat", "bittern"]
    with opened(tmp_path / "c", texts="words+meaning", n_bits=256) as c:
        c.ingest_items(
            [{"id": f"{name} {n}", "text": name, "labels": []} for n in range(9) for name in things]
        )
        for text, thing in (("tv", things[0]), ("sofa", things[3]), ("kitten", things[4])):
            (hits,) = c.search_items([{"text": text}], 9)
            assert [hit.id.rsplit(" ", 1)[0] for hit in hits] == [thing] * 9
            assert c.suggest(text) is None


def test_a_text_of_the_payload_is_found_and_follows_the_payload(tmp_path):
    with opened(tmp_path / "c") as c:
        c.ingest_items(list(items(60)))
        title = {"title": "A goldfish in a bowl", "year": 2024, "tags": ["aquarium", "pet"]}
        c.ingest_items([{"id": "fish", "text": "two old", "labels": [], "payload": title}])
        for text in ("goldfish in a bowl", "goldfish", "aquarium", "goldfsh"):
            assert c.search_items([{"text": text}], 1)[0][0].id == "fish"
        assert c.search_items([{"text": "a goldfish in a bowl"}], 1)[0][0].score == 1.0
        c.update("fish", payload={"title": "A heron"})
        assert c.search_items([{"text": "heron"}], 1)[0][0].id == "fish"
        assert c.search_items([{"text": "aquarium"}], 1)[0][0].score < 0.5
        assert c.check() == []


def test_characters_of_scripts_without_spaces_are_words(tmp_path):
    with opened(tmp_path / "c") as c:
        c.ingest_items(list(items(60)))
        c.ingest_items([{"id": "cat", "text": "黒い猫です", "labels": []}])
        assert c.search_items([{"text": "猫"}], 1)[0][0].id == "cat"


def test_nothing_of_a_deleted_item_is_in_any_file(tmp_path):
    secret = {"title": "zugzwang", "list": ["vexillologist"]}
    with opened(tmp_path / "c") as c:
        c.ingest_items(list(items(60)))
        for how in ("delete", "replace", "update"):
            item = {"id": how, "text": "xylophonist quixotry", "labels": [], "payload": secret}
            c.ingest_items([item])
            assert how in [hit.id for hit in c.search_items([{"text": "zugzwang"}], 3)[0]]
        c.delete(["delete"])
        c.replace_items([{"id": "replace", "text": "a red dog", "labels": []}])
        c.update("update", payload={})
        c.replace_items([{"id": "update", "text": "a red cat", "labels": []}])
        assert c.check() == []
        for path in (tmp_path / "c").iterdir():  # the write-ahead log is one of them
            content = path.read_bytes()
            for word in (b"zugzwang", b"vexillologist", b"xylophonist", b"quixotr"):
                assert word not in content, (path, word)


def test_a_picture_orders_what_the_words_find(tmp_path):
    rng = np.random.default_rng(0)
    kinds = rng.standard_normal((4, 30))
    extractor = Extractor.of(image="gradients", text="words")
    width = extractor.n_features["image"]
    with Collection.open(tmp_path / "c", 256, extractor=extractor) as c:
        made = []
        for row in range(200):
            breed = row % 4
            picture = np.resize(kinds[breed] + 0.2 * rng.standard_normal(30), width)
            text = f"a photo of a {'dog' if row % 2 else 'cat'}"
            made.append(
                {"id": row, "text": text, "labels": [], "vectors": {"image": np.abs(picture)}}
            )
        c.ingest_items(made)
        query = {"text": "dog", "vectors": {"image": np.abs(np.resize(kinds[3], width))}}
        (hits,) = c.search_items([query], 20)
        assert all(hit.id % 4 == 3 for hit in hits)  # dogs, of the breed that is shown


def test_a_class_that_comes_while_another_reads_is_found_later(tmp_path):
    with opened(tmp_path / "c") as c:
        c.ingest_items(list(items(60)))
        with Collection.open(tmp_path / "c", readonly=True) as reader:
            assert not reader.search_items([{"text": "dog"}], 1)[0][0].weak
            c.update(1, labels=["zeppelin"])
            assert reader.search_items([{"text": "zeppelin"}], 1)[0][0].id == 1
            assert reader.suggest("zepplin") == "zeppelin"


def test_a_person_asks_with_words_a_picture_or_both(filled):
    (first, *_) = filled.find("red bus", k=5)
    assert first.text == filled.get(first.id).text
    assert "bus" in first.text
    assert filled.find("dog", where={"row": 20})[0].id == 20
    for wrong in (7, ["dog"]):
        with pytest.raises(InputError, match="find takes a text"):
            filled.find(wrong)
    with pytest.raises(InputError, match="nothing to search with"):
        filled.find()
