"""Searches by kind and by content: weights pass through, extremes and stored codes included."""

import numpy as np
import pytest
from collection_truth import Truth, assert_hits, toy_model
from toy import NAMES, chunk

from oasis.codes import pack, unpack
from oasis.collection import Collection
from oasis.errors import InputError
from oasis.features.extractor import Extractor
from oasis.model import OASIS

N_LABEL = 16


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Items of several classes, some without labels, beside the truth."""
    truth = Truth(toy_model(64, content=64 - N_LABEL))
    path = tmp_path_factory.mktemp("several") / "c"
    with Collection.open(path, model=toy_model(64, content=64 - N_LABEL)) as c:
        for number in range(3):
            X, y = chunk(40, seed=number, bare=0.2, classes=NAMES[:5])
            ids = [40 * number + row for row in range(40)]
            c.ingest(X, y, ids)
            truth.ingest(X, y, ids)
        yield c, truth


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """A collection whose items have one label, and their features."""
    rng = np.random.default_rng(3)
    X = {"image": rng.standard_normal((60, 40)), "text": rng.random((60, 30))}
    with Collection.open(tmp_path_factory.mktemp("alike") / "c", model=toy_model(128)) as c:
        c.ingest(X, [["sky"]] * 60, ids=list(range(60)))
        yield c, X


@pytest.mark.parametrize("content", [None, 0, 0.3, 0.5, np.float32(0.75), 1])
def test_search_with_a_weight_equals_brute_force(several, content):
    c, truth = several
    X, _ = chunk(9, seed=77)
    expected = truth.search(truth.model.project(X, content), 12, "asymmetric")
    # distances count all bits, also those that the weight leaves out of the scores
    own = unpack(pack(truth.model.project(X))).astype(int)
    stored = {item[0]: unpack(np.frombuffer(item[1], np.uint8)[None])[0] for item in truth.items}
    expected = [
        [(each, score, int((stored[each] != code).sum())) for each, score, _ in hits]
        for hits, code in zip(expected, own, strict=True)
    ]
    assert_hits(c.search(X, 12, content=content, fuse=False), expected)


@pytest.mark.parametrize("content", [None, 0.0, 0.2, 1.0])
def test_more_like_weighs_the_two_parts_of_the_stored_code(several, content):
    c, truth = several
    each, code, _, _ = truth.items[17]
    signs = unpack(np.frombuffer(code, np.uint8)[None])[0].astype(np.float64)
    S = truth.model.state_.query_map.covariance
    kind, thing = signs[:N_LABEL].copy(), signs[N_LABEL:]
    sizes = [np.sqrt(kind @ S[:N_LABEL, :N_LABEL] @ kind)]
    sizes.append(np.sqrt(thing @ S[N_LABEL:, N_LABEL:] @ thing))
    w = 0.5 if content is None else content
    projection = np.concatenate([(1 - w) * kind / sizes[0], w * thing / sizes[1]])
    expected = {}
    for other, stored, _, _ in truth.items:
        bits = unpack(np.frombuffer(stored, np.uint8)[None])[0].astype(np.float64)
        agreement = max(bits @ projection / np.abs(projection).sum(), 0)
        expected[other] = 0.99 * agreement**1.5, int((bits != signs).sum())
    hits = c.more_like(each, 200, content=content)
    assert sorted(hit.id for hit in hits) == sorted(set(expected) - {each})
    found = [hit.score for hit in hits]
    np.testing.assert_allclose(found, [expected[hit.id][0] for hit in hits], atol=1e-5)
    assert found == sorted(found, reverse=True)
    assert [hit.distance for hit in hits] == [expected[hit.id][1] for hit in hits]
    # nothing is nearer to an item than itself
    assert max(score for score, _ in expected.values()) == expected[each][0]


def test_content_finds_the_thing_where_all_items_are_of_one_kind(alike):
    c, X = alike
    by_content = c.search(X, 1, content=1)
    assert [hits[0].id for hits in by_content] == list(range(60))
    by_kind = c.search(X, 1, content=0)  # all are alike, and the oldest comes first
    assert [hits[0].id for hits in by_kind] == [0] * 60
    assert [hits[0].id for hits in c.search(X, 1)] == list(range(60))


def test_more_like_gives_near_duplicates_first(alike, tmp_path):
    _, X = alike
    rng = np.random.default_rng(5)
    again = {name: x + 0.01 * rng.standard_normal(x.shape) for name, x in X.items()}
    y = [[NAMES[row % 3]] for row in range(60)]
    with Collection.open(tmp_path / "c", model=toy_model(128)) as c:
        c.ingest(X, y, ids=list(range(60)))
        c.ingest(again, y, ids=list(range(60, 120)))
        found = [c.more_like(each, 1)[0].id for each in range(60)]
        by_kind = [c.more_like(each, 1, content=0)[0].id for each in range(60)]
    assert np.mean(np.array(found) == np.arange(60, 120)) > 0.9
    assert np.mean(np.array(by_kind) == np.arange(60, 120)) < 0.3


@pytest.mark.parametrize("model", [toy_model(16), OASIS.paper(16)], ids=["labels", "paper"])
def test_content_is_refused_where_codes_have_none(tmp_path, model):
    X, y = chunk(30, seed=1)
    with Collection.open(tmp_path / "c", model=model) as c:
        c.ingest(X, y, ids=list(range(30)))
        for ask in (lambda w: c.search(X, content=w), lambda w: c.more_like(3, content=w)):
            assert ask(None)
            for weight in (0, 0.5, 1.0):
                with pytest.raises(InputError, match="have no content bits; leave it out"):
                    ask(weight)


@pytest.mark.parametrize("content", [-0.1, 1.5, float("nan"), "1", True])
def test_a_weight_is_a_number_from_0_to_1(alike, content):
    c, X = alike
    for ask in (lambda w: c.search(X, content=w), lambda w: c.more_like(3, content=w)):
        with pytest.raises(InputError, match="content must be None or a number from 0 to 1"):
            ask(content)


def test_a_name_counts_as_a_text_too_where_content_is_weighed(folder):
    subjects = ["a grey cat", "a black dog", "a wooden boat", "a striped zebra"]
    items = [
        {"id": row, "text": f"{subjects[row % 4]} number {row}", "labels": labels}
        for row in range(80)
        for labels in [[["cat"], ["dog"], ["boat"], []][row % 4]]
    ]
    with Collection.open(
        folder / "c",
        model=OASIS.for_search(128, random_state=0),
        extractor=Extractor.of(image="none"),
    ) as c:
        c.ingest_items(items)
        X, _ = c.extractor.extract([{"text": "zebra"}, {"text": "cat"}])
        for content in (0, 0.4, 1):
            labels, texts = c.model.project_words(["zebra", "cat"]), c.model.project(X, 1)
            projections = (1 - content) * labels + content * texts
            expected = c.index.search_asymmetric(projections.astype(np.float32), 20)
            found = c.search_words(["zebra", "cat"], 20, content=content)
            ids = [[hit.id + 1 for hit in hits] for hits in found]
            assert ids == expected.ids.tolist()
        # a class that was never a label is found by what its name says as a text
        shares = [
            np.mean([hit.id % 4 == 3 for hit in c.search_words(["zebra"], 20, content=w)[0]])
            for w in (0, 1)
        ]
        assert shares[1] == 1 > shares[0]
        assert c.search_words(["cat"], 5) == c.search_words(["cat"], 5, content=0)
        with pytest.raises(InputError, match="mode='hamming' counts all bits alike"):
            c.search_words(["cat"], mode="hamming", content=0.5)


def test_names_have_no_content_where_no_features_are_made_of_texts(folder):
    with Collection.open(
        folder / "c",
        model=OASIS.for_search(128, random_state=0),
        extractor=Extractor.of(text="none"),
    ) as c:
        c.ingest({"image": np.random.default_rng(0).random((9, 1280))}, [["cat"]] * 9)
        with pytest.raises(InputError, match="makes no features of texts; leave it out"):
            c.search_words(["cat"], content=0.5)
        assert len(c.search_words(["cat"], content=0)[0]) == 9
