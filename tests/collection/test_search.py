"""Searches and filters of a collection answer as brute force does, also beside a writer."""

import threading
from dataclasses import replace

import collection_toy
import numpy as np
import pytest
from collection_toy import first, open_toy, payloads
from collection_truth import Truth, assert_hits, assert_same_model
from service_data import fill as fill_pictures
from toy import NAMES, chunk

from oasis.collection import Collection, ranking
from oasis.collection import writing as writer
from oasis.collection.filters import Filter
from oasis.errors import CollectionError, InputError, NotFittedError, TooLargeError
from oasis.labels import LabelSpace
from oasis.model import OASIS

filled = collection_toy.filled
unchanged = collection_toy.unchanged


@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
def test_search_equals_brute_force(unchanged, mode):
    c, truth = unchanged
    X, _ = chunk(9, seed=77)
    projections = truth.model.project(X)
    assert_hits(c.search(X, 10, mode, fuse=False), truth.search(projections, 10, mode))
    assert_hits(
        c.search(X, 5, mode, offset=7, fuse=False), truth.search(projections, 5, mode, offset=7)
    )
    assert_hits(c.search(X, 500, mode, fuse=False), truth.search(projections, 500, mode))
    assert_hits(c.search(X, 5, mode, offset=500), [[] for _ in range(9)])
    only = {"text": X["text"]}
    assert_hits(
        c.search(only, 3, mode, fuse=False), truth.search(truth.model.project(only), 3, mode)
    )


def test_hits_carry_payload_and_labels_as_given(unchanged):
    c, truth = unchanged
    X, _ = chunk(3, seed=5)
    stored = {item[0]: item for item in truth.items}
    for hits in c.search(X, 30):
        for hit in hits:
            assert hit.payload == stored[hit.id][3]
            assert hit.labels == stored[hit.id][2]
    for each, code, labels, payload in truth.items:
        item = c.get(each)
        assert (item.id, item.code, item.labels, item.payload) == (each, code, labels, payload)


def test_search_words_equals_brute_force(unchanged):
    c, truth = unchanged
    names = ["sky", "horse"]  # one that has been seen, and one that has not
    assert_hits(
        c.search_words(names, 8), truth.search(truth.model.project_words(names), 8, "asymmetric")
    )


def test_more_like_uses_the_stored_code_and_leaves_itself_out(unchanged):
    c, truth = unchanged
    each, code, _, _ = truth.items[17]
    signs = np.unpackbits(np.frombuffer(code, np.uint8), bitorder="little")[None] * 2.0 - 1
    for mode in ("asymmetric", "hamming"):
        expected = truth.search(signs, 200, mode)[0]
        expected = [row for row in expected if row[0] != each]
        assert_hits([c.more_like(each, 12, mode)], [expected[:12]])
        assert_hits([c.more_like(each, 5, mode, offset=4)], [expected[4:9]])


def told_ties(search, k, offset, **options):
    """Return ties of hits as told, and as the whole ranking has them."""
    ranking = search(k=500, **options)
    scores = [None, *(hit.score for hit in ranking), None]
    truth = [
        here in (before, after)
        for before, here, after in zip(scores, scores[1:], scores[2:], strict=False)
    ]
    hits = search(k=k, offset=offset, **options)
    assert [hit.id for hit in hits] == [hit.id for hit in ranking[offset : offset + k]]
    return [hit.tied for hit in hits], truth[offset : offset + k]


@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
@pytest.mark.parametrize("where", [None, {"year": {"gte": 2018}}, {"year": 2020}])
def test_ties_are_those_of_the_whole_ranking(unchanged, mode, where):
    c, _ = unchanged
    X, _ = chunk(6, seed=5)
    both = set()
    for row in range(6):
        one = {name: matrix[row : row + 1] for name, matrix in X.items()}

        def search(one=one, **options):
            return c.search(one, mode=mode, where=where, **options)[0]

        for k, offset in [(1, 0), (1, 3), (2, 1), (5, 0), (7, 9), (200, 0), (90, 11)]:
            told, truth = told_ties(search, k, offset)
            assert told == truth
            both |= set(told)
    assert both == {False, True}


@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
def test_an_item_is_no_neighbour_of_those_that_are_like_it(unchanged, mode):
    c, truth = unchanged

    for each, *_ in truth.items[::7]:

        def search(each=each, **options):
            return c.more_like(each, mode=mode, **options)

        for k, offset in [(1, 0), (2, 1), (106, 0), (500, 0)]:
            told, expected = told_ties(search, k, offset)
            assert told == expected


def test_a_tie_with_a_deleted_item_does_not_count(folder):
    with open_toy(folder / "c") as c:
        X, y = chunk(8, seed=0)
        same = {name: matrix[[0] * 8] for name, matrix in X.items()}
        c.ingest(same, [y[0]] * 8, range(8))
        one = {name: matrix[:1] for name, matrix in X.items()}
        assert [hit.tied for hit in c.search(one, 2)[0]] == [True, True]
        c.delete(range(1, 8))
        assert [hit.tied for hit in c.search(one, 1)[0]] == [False]


def test_weak_hits_are_those_of_queries_with_little_evidence(unchanged):
    c, truth = unchanged
    X, _ = chunk(40, seed=3)
    rng = np.random.default_rng(0)
    X = {name: np.vstack([m, rng.standard_normal((40, m.shape[1]))]) for name, m in X.items()}
    evidence = truth.model.evidence(X)
    assert (evidence < 0.5).any() and (evidence >= 0.5).any()
    for mode in ("asymmetric", "hamming"):
        for hits, sure in zip(c.search(X, 2, mode), evidence, strict=True):
            assert [hit.weak for hit in hits] == [bool(sure < 0.5)] * 2
    assert not any(hit.weak for hit in c.more_like(truth.items[0][0]))


def test_a_name_that_no_class_is_near_gives_weak_hits(folder):
    vectors = {"sky": [1.0, 0, 0], "sea": [0, 1.0, 0], "air": [0.4, 0, 0.9], "tax": [0.3, 0, 1.0]}
    model = OASIS(32, labels=LabelSpace(vectors, axes=0.9), random_state=0)
    with Collection.open(folder / "c", model=model) as c:
        X, _ = chunk(20, seed=0)
        c.ingest(X, [["sky"], ["sea"]] * 10)
        found = c.search_words(["sky", "air", "tax"], 2)
        assert [[hit.weak for hit in hits] for hits in found] == [[False] * 2] * 2 + [[True] * 2]


WHERES = [
    ({"year": 2020}, lambda p, _: p.get("year") == 2020),
    ({"year": 2020.0}, lambda p, _: p.get("year") == 2020),
    ({"year": {"gte": 2018, "lt": 2022}}, lambda p, _: 2018 <= p.get("year", 0) < 2022),
    ({"year": {"gt": 2018, "lte": 2022}}, lambda p, _: 2018 < p.get("year", 0) <= 2022),
    ({"kind": {"in": ["cat", 3]}}, lambda p, _: p.get("kind") in ("cat", 3)),
    ({"kind": None}, lambda p, _: "kind" in p and p["kind"] is None),
    ({"kind": True}, lambda p, _: p.get("kind") is True),
    ({"kind": 1}, lambda p, _: False),
    ({"kind": {"gte": "c", "lt": "d"}}, lambda p, _: p.get("kind") == "cat"),
    ({"kind": {"gte": 2}}, lambda p, _: p.get("kind") in (3, 2.5)),
    ({"kind": {"in": []}}, lambda p, _: False),
    ({"absent": {"exists": True}}, lambda p, _: False),
    ({"$labels": {"has": "sky"}}, lambda _, labels: "sky" in labels),
    ({"kind": {"not": "cat"}}, lambda p, _: p.get("kind", "") != "cat"),
    (
        {"$labels": {"has": "cat"}, "year": {"gte": 2020}, "kind": "dog"},
        lambda p, labels: "cat" in labels and p.get("year", 0) >= 2020 and p.get("kind") == "dog",
    ),
    ({}, lambda p, _: True),
]


@pytest.mark.parametrize(("where", "passes"), WHERES, ids=[str(where)[:40] for where, _ in WHERES])
def test_where_equals_brute_force(filled, where, passes):
    c, truth = filled
    X, _ = chunk(4, seed=9)
    projections = truth.model.project(X)
    for mode in ("hamming", "asymmetric"):
        expected = truth.search(projections, 6, mode, passes, offset=1)
        assert_hits(c.search(X, 6, mode, where, offset=1, fuse=False), expected)
        # from the list that is kept now, and after more items and fewer
        assert_hits(c.search(X, 6, mode, where, offset=1, fuse=False), expected)
    more, y = chunk(5, seed=50)
    facts = payloads(5, 9)
    c.ingest(more, y, range(5000, 5005), facts)
    truth.ingest(more, y, range(5000, 5005), facts)
    gone = [item[0] for item in truth.items[::4]]
    c.delete(gone)
    truth.delete(gone)
    projections = truth.model.project(X)
    assert_hits(
        c.search(X, 6, where=where, fuse=False), truth.search(projections, 6, "asymmetric", passes)
    )


@pytest.mark.parametrize("oversample", [16, 2])
def test_where_without_a_list_equals_brute_force(folder, monkeypatch, oversample):
    """A filter that lets most pass is answered from a larger search, in a collection of size."""
    monkeypatch.setattr(ranking, "OVERSAMPLE", oversample)
    monkeypatch.setattr(ranking, "SPARE", 4 * oversample)
    truth = Truth()
    with open_toy(folder / "c") as c:
        X, y = chunk(1500, seed=0)
        facts = [{"half": row % 2, "rare": row % 700} for row in range(1500)]
        c.ingest(X, y, range(1500), facts)
        truth.ingest(X, y, range(1500), facts)
        X, _ = chunk(3, seed=1)
        projections = truth.model.project(X)
        for field, value in (("half", 1), ("rare", 3)):
            expected = truth.search(
                projections, 4, "asymmetric", lambda p, _, f=field, v=value: p[f] == v
            )
            assert_hits(c.search(X, 4, where={field: value}, fuse=False), expected)
        assert not c._queries.allow_lists.has(Filter.of({"half": 1}))
        assert c._queries.allow_lists.has(Filter.of({"rare": 3}))


def test_where_finds_fields_with_odd_names_and_numbers_exactly(folder):
    odd = ['a "b"', "back\\slash", "new\nline", "ü.x", "", "$labels2", "a.b[0]"]
    close = [0.1 + 0.2, 0.3, 2**62 + 1, 2**62, 1e308, 5e-324, 123456789.12345679]
    with open_toy(folder / "c") as c:
        X, y = chunk(len(odd) + len(close), seed=0)
        facts = [{name: 1} for name in odd] + [{"v": value} for value in close]
        c.ingest(X, y, range(len(facts)), facts)
        for row, name in enumerate(odd):
            assert [hit.id for hit in c.search(X, 50, where={name: 1})[0]] == [row]
        for row, value in enumerate(close, start=len(odd)):
            assert [hit.id for hit in c.search(X, 50, where={"v": value})[0]] == [row]


@pytest.mark.parametrize("filtered", [None, {"big": "x" * 1000}])
def test_payloads_of_hits_are_bounded_or_left_out(folder, filtered):
    X, y = chunk(40)
    with open_toy(folder) as c:
        c.ingest(X, y, ids=range(40), payload=[{"big": "x" * 1000}] * 40)
        size = len('{"big":""}') + 1000
        (hits,) = c.search({"image": X["image"][:1]}, 10, where=filtered, max_bytes=10 * size)
        assert len(hits) == 10 and hits[0].payload == {"big": "x" * 1000}
        for k, n in ((11, 1), (6, 2)):  # a hit of two queries counts twice
            with pytest.raises(TooLargeError, match="fewer hits, or without their payload"):
                c.search({"image": X["image"][[0] * n]}, k, where=filtered, max_bytes=10 * size)
        bare = c.search({"image": X["image"][:1]}, 40, where=filtered, payload=False, max_bytes=1)
        assert len(bare[0]) == 40 and bare[0][0] == replace(hits[0], payload={})
        like = c.more_like(0, 5, payload=False)
        assert [hit.payload for hit in like] == [{}] * 5


@pytest.mark.parametrize(
    "where",
    [
        "year",
        {1: 2},
        {"year": [2020]},
        {"year": {}},
        {"year": {"near": 3}},
        {"year": {"in": "2020"}},
        {"year": {"in": [[1]]}},
        {"year": {"gte": None}},
        {"year": {"gte": True}},
        {"year": float("nan")},
        {"$labels": "sky"},
        {"$labels": {"has": ["sky"]}},
        {"$labels": {"has": "sky", "in": []}},
    ],
)
def test_where_refuses_what_it_does_not_know(unchanged, where):
    with pytest.raises(InputError, match="where"):
        unchanged[0].search(chunk(1)[0], where=where)


@pytest.mark.parametrize(
    "options", [{"k": 0}, {"k": 2.0}, {"k": True}, {"offset": -1}, {"mode": "cosine"}, {"k": 10**7}]
)
def test_search_refuses_bad_options(unchanged, options):
    with pytest.raises(InputError):
        unchanged[0].search(chunk(1)[0], **options)


def test_an_empty_collection_answers_in_words(folder):
    with open_toy(folder / "c") as c:
        assert len(c) == 0
        assert c.check() == []
        assert c.rounds() == c.classes() == []
        with pytest.raises(NotFittedError, match="learned nothing"):
            c.search(chunk(1)[0])
        with pytest.raises(NotFittedError):
            _ = c.model
        assert c.stats().modalities == {}
    with pytest.raises(CollectionError, match="closed"):
        c.search(chunk(1)[0])
    with pytest.raises(CollectionError, match="closed"):
        c.ingest(*chunk(3))
    c.close()


def test_readers_follow_the_writer(folder, monkeypatch):
    truth = Truth()
    with open_toy(folder / "c") as c:
        c.ingest(*first(truth, 40, 0))
        with Collection.open(folder / "c", readonly=True) as reader:
            assert reader.readonly
            assert not c.readonly
            for change in (
                lambda: reader.ingest(*chunk(2)),
                lambda: reader.ingest_items([]),
                lambda: reader.delete([1]),
                reader.checkpoint,
            ):
                with pytest.raises(CollectionError, match="readonly"):
                    change()
            X, _ = chunk(3, seed=60)
            for number in range(1, 8):
                c.ingest(*first(truth, 50 if number == 4 else 3, number))
                gone = [truth.items[number][0], truth.items[-1][0]]
                c.delete(gone)
                truth.delete(gone)
                if number == 6:
                    monkeypatch.setattr(writer, "INDEX_ROWS", 1)
                if number % 2:
                    assert len(reader) == len(c)
                    expected = truth.search(truth.model.project(X), 20, "asymmetric")
                    assert_hits(reader.search(X, 20, fuse=False), expected)
                    assert_same_model(reader.model, truth.model)
                    assert reader.check() == []
            assert reader.stats() == c.stats()
            assert reader.classes() == c.classes()
        assert c.check() == []


def test_searches_do_not_wait_for_learning(folder, monkeypatch):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        X, y = chunk(40, seed=1)
        before = c.search(X, 5)
        inside, go_on = threading.Event(), threading.Event()
        real = OASIS.learn

        def slow(self, *args):
            inside.set()
            assert go_on.wait(30)
            return real(self, *args)

        monkeypatch.setattr(OASIS, "learn", slow)
        thread = threading.Thread(target=c.ingest, args=(X, y))
        thread.start()
        assert inside.wait(30)
        assert c.search(X, 5) == before
        assert len(c) == 40
        go_on.set()
        thread.join()
        assert len(c) == 80


@pytest.mark.slow
def test_threads_search_while_others_write(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(60))
        X, _ = chunk(5, seed=99)
        stop, wrong = threading.Event(), []

        def look():
            while not stop.is_set():
                try:
                    for hits in c.search(X, 20, where={"$labels": {"has": "sky"}}):
                        assert all("sky" in hit.labels for hit in hits)
                    for hits in c.search(X, 20):
                        assert len(hits) == 20
                        assert len({hit.id for hit in hits}) == 20
                except BaseException as error:
                    wrong.append(error)
                    raise

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(1, 12):
            X2, y2 = chunk(
                40 if number % 3 else 4, seed=number, classes=NAMES[: min(10, 3 + number)]
            )
            ids = [f"{number}-{row}" for row in range(len(y2))]
            c.ingest(X2, y2, ids)
            c.delete(ids[::2])
        stop.set()
        for thread in threads:
            thread.join()
        assert not wrong
        assert c.check() == []


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ([{"text": " "}], "^the query has nothing to search with; give it image or text$"),
        ([{"text": "boat"}, {"text": " "}], "^query 1 has nothing to search with"),
        ([{"image": b"none"}], "^the query cannot be used: image: "),
        ([{"text": "boat"}, {"image": b"none"}], "^query 1 cannot be used: image: "),
    ],
)
def test_an_error_numbers_a_query_among_several_only(folder, queries, said):
    with (
        Collection.open(fill_pictures(folder / "c", 6), readonly=True) as c,
        pytest.raises(InputError, match=said),
    ):
        c.search_items(queries)
