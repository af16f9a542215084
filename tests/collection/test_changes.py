"""Items that are changed in place or replaced, and labels that are predicted."""

import threading

import collection_toy
import numpy as np
import pytest
from collection_toy import open_toy
from collection_truth import Truth, assert_hits, assert_labels, assert_same_model, contents
from toy import NAMES, chunk

from oasis.codes import unpack
from oasis.collection import Collection, filters
from oasis.collection.filters import Filter
from oasis.collection.intake import MAX_PAYLOAD_LEVELS
from oasis.errors import (
    CollectionError,
    InputError,
    SimilarNamesWarning,
    UnknownIdError,
    UnknownWordError,
)
from oasis.features.extractor import Extractor
from oasis.model import OASIS

filled = collection_toy.filled


def assert_is(c, truth):
    assert c.check() == []
    assert contents(c) == truth.items
    assert_labels(c, truth)
    assert_same_model(c.model, truth.model)


def commits(c):
    return c.stats().commits


# -- update ----------------------------------------------------------------------------------------


def test_an_update_changes_labels_and_payload_and_nothing_else(filled):
    c, truth = filled
    ids = [item[0] for item in truth.items]
    for number, facts in enumerate(
        (
            {"labels": ["horse"]},
            {"payload": {"year": 1999}},
            {"labels": ["sky", "never learned"], "payload": {"deep": {"list": [1, None]}}},
            {"labels": []},
            {"labels": None, "payload": None},
            {"payload": {}},
        )
    ):
        before = c.get(ids[number])
        c.update(ids[number], **facts)
        truth.update(ids[number], **facts)
        after = c.get(ids[number])
        assert (after.code, after.round, after.text) == (before.code, before.round, before.text)
        assert_is(c, truth)
    X, _ = chunk(2, seed=5)
    projections = truth.model.project(X)
    assert_hits(c.search(X, 200, fuse=False), truth.search(projections, 200, "asymmetric"))


def test_searches_beside_updates_show_labels_that_were_given(filled):
    c, truth = filled
    X, _ = chunk(1, seed=4)
    seen, stop, failures = set(), threading.Event(), []
    c.update(truth.items[-1][0], labels=["new 3"])

    def look():
        try:
            while not stop.is_set():
                for hit in c.search(X, 200)[0]:
                    seen.update(hit.labels)
                for hit in c.search(X, 5, where={"$labels": {"has": "new 3"}})[0]:
                    assert "new 3" in hit.labels
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        c.update(truth.items[number][0], labels=[f"new {number % 20}", "sky"])
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert seen <= {*NAMES, *(f"new {number}" for number in range(20))}
    assert c.check() == []


@pytest.mark.parametrize("where", [{"$labels": {"has": "wanted"}}, {"kind": "wanted"}])
@pytest.mark.parametrize("fuses", [False, True])
def test_an_item_that_an_update_took_out_of_a_list_in_use_is_no_hit(
    folder, monkeypatch, fuses, where
):
    rows = [
        {"id": row, "text": f"a red boat {row}", "labels": ["boat"], "payload": {"row": row}}
        for row in range(40)
    ]
    extractor = Extractor.of(image="none", text="words")
    made = filters.AllowLists.of
    with Collection.open(folder / "c", n_bits=32, extractor=extractor) as c:
        c.ingest_items(rows)
        for row in range(0, 40, 2):
            c.update(row, labels=["wanted"], payload={"kind": "wanted"})

        def then_changed(lists, asked):
            allow = made(lists, asked)
            c.update(4, labels=["other"], payload={"kind": "other"})
            c.update(6, labels=["wanted", "other"], payload={"kind": "wanted", "n": 1})
            return allow

        monkeypatch.setattr(filters.AllowLists, "of", then_changed)
        for k in (20, 2):  # all that there are, and those that come after the lost one
            (hits,) = c.search_items([{"text": "boat 4 6"}], k, where=where, fuse=fuses)
            # the new version of item 6 came after the list
            assert {hit.id for hit in hits} <= {*range(0, 40, 2)} - {4}
            assert len(hits) == min(k, 18)
            monkeypatch.setattr(filters.AllowLists, "of", made)
            (again,) = c.search_items([{"text": "boat 4 6"}], 20, where=where, fuse=fuses)
            assert {hit.id for hit in again} == {*range(0, 40, 2)} - {4}
            c.update(4, labels=["wanted"], payload={"kind": "wanted"})
            monkeypatch.setattr(filters.AllowLists, "of", then_changed)


def test_what_cannot_be_is_refused_and_changes_nothing(filled):
    c, truth = filled
    each, before = truth.items[0][0], commits(c)
    for facts in (
        {},
        {"labels": "sky"},
        {"labels": [""]},
        {"labels": [7]},
        {"labels": ["\ud800"]},
        {"payload": ["list"]},
        {"payload": {"a": float("nan")}},
        {"payload": {1: 2}},
        {"payload": {"long": "x" * (1 << 20)}},
        {"labels": ["sky"], "payload": {"a": {1, 2}}},
    ):
        with pytest.raises(InputError):
            c.update(each, **facts)
    for missing in ("nobody", 10**6):
        with pytest.raises(UnknownIdError, match="nothing was changed"):
            c.update(missing, payload={})
    with pytest.raises(InputError):
        c.update(True, payload={})
    with Collection.open(c.path, readonly=True) as reader, pytest.raises(CollectionError):
        reader.update(each, payload={})
    assert commits(c) == before
    assert_is(c, truth)


def test_the_deepest_payload_is_read_deep_inside_a_program_and_deeper_ones_are_refused(filled):
    c, truth = filled
    each, X = truth.items[4][0], chunk(1)[0]

    def inside(n, call):
        return call() if n == 0 else inside(n - 1, call)

    n = MAX_PAYLOAD_LEVELS
    deepest = {"a": [[]], "b": {"c": 1}}
    for _ in range(n - 3):
        deepest = {"a": deepest}
    c.update(each, payload=deepest)
    assert inside(500, lambda: c.get(each)).payload == deepest
    hits = inside(500, lambda: c.search(X, 200, where={"a": {"exists": True}}))[0]
    assert [hit.payload for hit in hits] == [deepest]
    inside(500, lambda: c.search(X, 200, where={"a": {"not": 1}}))
    for deeper in ({"a": deepest}, {"a": [{}, [deepest]]}):
        with pytest.raises(InputError, match=f"more than {n} levels"):
            c.update(each, payload=deeper)


def test_an_update_to_what_is_there_already_is_no_commit(filled):
    c, truth = filled
    before = commits(c)
    each, _, labels, payload = next(item for item in truth.items if item[2])
    c.update(each, labels=labels, payload=payload)
    assert commits(c) == before


def test_a_class_that_differs_by_case_alone_is_warned_of(filled):
    c, truth = filled
    with pytest.warns(SimilarNamesWarning, match="'sky' and 'SKY'"):
        c.update(truth.items[0][0], labels=["SKY"])


def test_a_class_that_came_by_an_update_is_learned_when_a_chunk_brings_it(folder):
    with open_toy(folder / "c") as c:
        truth = Truth()
        X, y = chunk(40, classes=NAMES[:4])
        for target in (c, truth):
            target.ingest(X, y, list(range(40)))
            target.update(3, labels=["horse"])
        assert NAMES.index("horse") >= 4
        (info,) = [each for each in c.classes() if each.name == "horse"]
        assert (info.n, info.round) == (1, 0)
        assert "horse" not in c.model.classes_
        assert c.stats().n_classes == 5
        X, y = chunk(10, seed=1, classes=NAMES[:4])
        y[0] = ["horse"]
        for target in (c, truth):
            target.ingest(X, y, list(range(40, 50)))
        (info,) = [each for each in c.classes() if each.name == "horse"]
        assert (info.n, info.round) == (2, 2)
        assert "horse" in c.rounds()[1].new_classes
        assert "horse" in c.model.classes_
        assert_is(c, truth)
    with Collection.open(c.path) as c:
        assert_is(c, truth)


def test_a_class_that_came_by_an_update_is_searched_by_the_codes_of_its_items(filled):
    c, truth = filled
    chosen = [item[0] for item in truth.items if "cat" in item[2]][:3]
    for each in chosen:
        for target in (c, truth):
            target.update(each, labels=["tabby"])
    codes = np.stack([np.frombuffer(c.get(each).code, np.uint8) for each in chosen])
    mean = unpack(codes).mean(axis=0)[None].astype(np.float32)
    names = ["cat", "tabby", "sky", "tabby"]
    found = c.search_words(names, 20)
    assert_hits([found[1]], truth.search(mean, 20, "asymmetric"))
    assert found[1] == found[3]
    assert [found[0], found[2]] == c.search_words(["cat", "sky"], 20)
    assert not any(hit.weak for hit in found[1])
    assert c.search_words(["tabby"], 2, where={"$labels": {"has": "tabby"}})[0]
    for each in chosen:
        c.update(each, labels=[])
    with pytest.raises(UnknownWordError):
        c.search_words(["tabby"])


def test_allow_lists_follow_changes(filled):
    c, truth = filled
    asked = [
        {"year": 2020},
        {"year": {"gte": 2018}, "$labels": {"has": "sky"}},
        {"$labels": {"has": "cat", "predicted": True}},
        {'a "b"': 1},
    ]
    rng = np.random.default_rng(0)
    kept = [Filter.of(where) for where in asked]
    for step in range(12):
        for where in kept:
            fresh = filters.AllowLists(c._catalog).of(where).keys
            with c._catalog.reading() as connection:
                there = c._catalog.all_keys(connection)
            kept = np.intersect1d(c._queries.allow_lists.of(where).keys, there)
            np.testing.assert_array_equal(kept, fresh)
        for row in rng.integers(0, len(truth.items), size=1 + 20 * (step == 6)).tolist():
            each = truth.items[row][0]
            payload = {"year": 2015 + int(rng.integers(10)), 'a "b"': int(rng.integers(2))}
            c.update(each, labels=[NAMES[int(rng.integers(5))]], payload=payload)


# -- replace ---------------------------------------------------------------------------------------


def test_a_replacement_is_refused_whole(filled):
    c, truth = filled
    ids, before = [truth.items[0][0], "nobody"], commits(c)
    X, y = chunk(2, seed=3)
    with pytest.raises(UnknownIdError, match="'nobody'; nothing was replaced"):
        c.replace(X, y, ids)
    with pytest.raises(InputError, match="more than once"):
        c.replace(X, y, [truth.items[0][0]] * 2)
    with pytest.raises(InputError, match="got None"):
        c.replace(X, y, None)
    assert commits(c) == before
    assert_is(c, truth)


def test_pictures_and_texts_of_replaced_items_are_gone(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(3), ["a", "b", "c"], None, [b"1", b"2", b"3"], ["one", "two", "three"])
        c.replace(*chunk(2, seed=1), ["b", "a"], None, [None, b"4"], ["four", None])
        assert [c.thumbnail(each) for each in "abc"] == [b"4", None, b"3"]
        assert [c.get(each).text for each in "abc"] == [None, "four", "three"]
        assert c.check() == []


def test_a_replaced_item_is_no_hit_of_its_own_quality(folder):
    with open_toy(folder / "c") as c:
        X, y = chunk(40, classes=NAMES[:4])
        c.ingest(X, y, list(range(40)))
        c.replace(X, y, list(range(40)))
        assert c.rounds()[1].precision is None


def test_raw_items_are_replaced_by_their_ids(folder):
    words = ["a red boat", "the blue sea", "a cat", "a dog"]
    items = [{"id": n, "text": text, "labels": [text[-3:]]} for n, text in enumerate(words)]
    with Collection.open(folder / "c", extractor=Extractor.of(text="words")) as c:
        assert c.ingest_items(items) == []
        rejected = c.replace_items(
            [
                {"id": 0, "text": "a green hill", "labels": ["hill"], "payload": {"n": 1}},
                {"id": 9, "text": "nobody"},
                {"id": 1},
            ]
        )
        assert [(each.row, each.id) for each in rejected] == [(1, 9), (2, 1)]
        assert "no item has the id 9" in rejected[0].reason
        assert (c.get(0).text, c.get(0).labels) == ("a green hill", ("hill",))
        assert c.get(1).text == "the blue sea"
        with pytest.raises(InputError, match="no item has the id 9"):
            c.replace_items([{"id": 9, "text": "nobody"}], strict=True)
        assert c.check() == []
        assert len(c) == 4


# -- predicted labels ------------------------------------------------------------------------------


def test_labels_of_unlabelled_items_are_predicted_and_found(filled):
    c, truth = filled
    assert any(truth.predicted.values())
    assert_is(c, truth)
    X, _ = chunk(1)
    for hit in c.search(X, 200)[0]:
        assert hit.predicted == truth.predicted.get(hit.id, ())
        assert not (hit.predicted and hit.labels)
    each, names = next((each, names) for each, names in truth.predicted.items() if names)
    found = {
        also: c.search(X, 200, where={"$labels": {"has": names[0], "predicted": also}})[0]
        for also in (False, True)
    }
    assert each not in [hit.id for hit in found[False]]
    assert each in [hit.id for hit in found[True]]


def test_labels_that_are_given_take_the_place_of_predictions(filled):
    c, truth = filled
    guessed = [each for each, names in truth.predicted.items() if names][:3]
    for each, labels in zip(guessed, (["dog"], [], None), strict=True):
        for target in (c, truth):
            target.update(each, labels=labels)
        assert c.get(each).predicted == ()
        assert_is(c, truth)


def test_a_payload_leaves_predictions_alone(filled):
    c, truth = filled
    each = next(each for each, names in truth.predicted.items() if names)
    for target in (c, truth):
        target.update(each, payload={"a": 1})
    assert c.get(each).predicted == truth.predicted[each]
    assert_is(c, truth)


def test_the_published_method_predicts_nothing(folder):
    model = OASIS.paper(16, {name: np.eye(10)[row] for row, name in enumerate(NAMES[:10])})
    with Collection.open(folder / "c", model=model) as c:
        c.ingest(*chunk(30, bare=0.5))
        assert not any(item.predicted for item in c.items())
        assert all(each.n_predicted == 0 for each in c.classes())
        assert c.check() == []


def test_a_class_that_a_model_learned_elsewhere_can_be_predicted(folder):
    model = collection_toy.toy_model().partial_fit(*chunk(60, seed=1, classes=NAMES[:3]))
    with Collection.open(folder / "c", model=model) as c:
        X, _ = chunk(20, seed=2, classes=NAMES[:3])
        c.ingest(X, [None] * 20)
        assert any(item.predicted for item in c.items())
        for each in c.classes():
            assert each.n == each.round == 0
            assert each.n_predicted > 0
        assert c.check() == []
        c.delete([item.id for item in c.items()])
        assert [each.n_predicted for each in c.classes()] == [0] * len(c.classes())
        assert c.check() == []


def test_items_without_ids_avoid_the_numbers_that_are_ids(folder):
    X, y = chunk(4)
    with open_toy(folder) as c:
        c.ingest({name: x[:2] for name, x in X.items()}, y[:2], ids=[3, 9])
        c.ingest({name: x[2:] for name, x in X.items()}, y[2:])
        assert [each.id for each in c.items()] == [3, 9, 10, 11]
        c.ingest({name: x[:1] for name, x in X.items()}, y[:1])
        assert c.latest(1)[0].id == 5  # the number that counts it, which is free
        c.ingest({name: x[:1] for name, x in X.items()}, y[:1], ids=[2**63 - 1])
        c.ingest({name: x[:1] for name, x in X.items()}, y[:1], ids=[8])
        with pytest.raises(InputError, match="beyond 64 bits"):
            c.ingest(X, y)
        assert len(c) == 7


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda c: c.known("abc"), "known takes a list of ids, got 'abc'"),
        (lambda c: c.known(5), "known takes a list of ids, got 5"),
        (lambda c: c.snippets("abc"), "snippets takes a list of ids"),
        (lambda c: c.delete("abc"), "delete takes a list of ids"),
        (lambda c: c.latest(0), "k must be a whole number of at least 1, got 0"),
        (lambda c: c.latest(2.0), "k must be a whole number"),
        (lambda c: c.latest(max_bytes=-1), "max_bytes must be a whole number of at least 0"),
        (lambda c: c.search(chunk(1)[0], max_bytes="x"), "max_bytes must be a whole number"),
        (lambda c: c.search(chunk(1)[0], True), "k must be a whole number"),
        (lambda c: c.ingest_table("no.parquet", {"image": "a"}, batch="x"), "batch must be"),
    ],
)
def test_arguments_of_another_type_are_refused_in_one_line(folder, call, told):
    with open_toy(folder) as c:
        c.ingest(*chunk(3), ids=["a", "b", "c"])
        with pytest.raises(InputError, match=told) as error:
            call(c)
        assert "\n" not in str(error.value)
        assert c.known(np.array(["a", "x"])) == {"a"}
        assert len(c.latest(np.int64(2))) == 2 and len(c.latest(10**30)) == 3
