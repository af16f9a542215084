"""A collection answers as brute force does, and is after reopening what it was before."""

import json
import sqlite3
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from collection_truth import Truth, assert_hits, assert_same_model, toy_model
from toy import NAMES, chunk, class_vectors

from oasis.collection import Collection, search, writer
from oasis.collection.checks import findings
from oasis.collection.filters import Filter
from oasis.collection.intake import MAX_PAYLOAD_BYTES, MAX_THUMBNAIL_BYTES
from oasis.errors import (
    CollectionError,
    DuplicateIdError,
    FormatError,
    InputError,
    LockedError,
    NewerVersionError,
    NotFittedError,
    StorageError,
    UnknownIdError,
    UnknownWordError,
)
from oasis.features.extractor import Extractor, Function
from oasis.features.text import HashedText
from oasis.items import Item
from oasis.model import OASIS


def open_toy(path, **options):
    return Collection.open(path, model=toy_model(), **options)


def payloads(n, seed=0):
    rng = np.random.default_rng(seed)
    kinds = ["cat", "dog", None, 3, True, 2.5]
    return [
        {"year": int(rng.integers(2015, 2026)), "kind": kinds[int(rng.integers(6))], "row": row}
        for row in range(n)
    ]


@pytest.fixture
def filled(folder):
    """A collection of three chunks, small and large, beside the truth."""
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number, (n, bare) in enumerate([(60, 0.1), (7, 0.0), (40, 0.5)]):
            X, y = chunk(n, seed=number, bare=bare, classes=NAMES[: 4 + number])
            ids = [f"{number}-{row}" if row % 3 else 1000 * number + row for row in range(n)]
            facts = payloads(n, number)
            c.ingest(X, y, ids, facts)
            truth.ingest(X, y, ids, facts)
        yield c, truth


@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
def test_search_equals_brute_force(filled, mode):
    c, truth = filled
    X, _ = chunk(9, seed=77)
    projections = truth.model.project(X)
    assert_hits(c.search(X, 10, mode), truth.search(projections, 10, mode))
    assert_hits(c.search(X, 5, mode, offset=7), truth.search(projections, 5, mode, offset=7))
    assert_hits(c.search(X, 500, mode), truth.search(projections, 500, mode))
    assert_hits(c.search(X, 5, mode, offset=500), [[] for _ in range(9)])
    only = {"text": X["text"]}
    assert_hits(c.search(only, 3, mode), truth.search(truth.model.project(only), 3, mode))


def test_hits_carry_payload_and_labels_as_given(filled):
    c, truth = filled
    X, _ = chunk(3, seed=5)
    stored = {item[0]: item for item in truth.items}
    for hits in c.search(X, 30):
        for hit in hits:
            assert hit.payload == stored[hit.id][3]
            assert hit.labels == stored[hit.id][2]
    for each, code, labels, payload in truth.items:
        item = c.get(each)
        assert (item.id, item.code, item.labels, item.payload) == (each, code, labels, payload)


def test_search_words_equals_brute_force(filled):
    c, truth = filled
    names = ["sky", "horse"]  # one that has been seen, and one that has not
    assert_hits(
        c.search_words(names, 8), truth.search(truth.model.project_words(names), 8, "asymmetric")
    )


def test_more_like_uses_the_stored_code_and_leaves_itself_out(filled):
    c, truth = filled
    each, code, _, _ = truth.items[17]
    signs = np.unpackbits(np.frombuffer(code, np.uint8), bitorder="little")[None] * 2.0 - 1
    for mode in ("asymmetric", "hamming"):
        expected = truth.search(signs, 200, mode)[0]
        expected = [row for row in expected if row[0] != each]
        assert_hits([c.more_like(each, 12, mode)], [expected[:12]])
        assert_hits([c.more_like(each, 5, mode, offset=4)], [expected[4:9]])


WHERES = [
    ({"year": 2020}, lambda p, _: p.get("year") == 2020),
    ({"year": 2020.0}, lambda p, _: p.get("year") == 2020),
    ({"year": "2020"}, lambda p, _: False),
    ({"year": {"gte": 2018, "lt": 2022}}, lambda p, _: 2018 <= p.get("year", 0) < 2022),
    ({"year": {"gt": 2018, "lte": 2022}}, lambda p, _: 2018 < p.get("year", 0) <= 2022),
    ({"kind": {"in": ["cat", 3]}}, lambda p, _: p.get("kind") in ("cat", 3)),
    ({"kind": None}, lambda p, _: "kind" in p and p["kind"] is None),
    ({"kind": True}, lambda p, _: p.get("kind") is True),
    ({"kind": 1}, lambda p, _: False),
    ({"kind": {"gte": "c", "lt": "d"}}, lambda p, _: p.get("kind") == "cat"),
    ({"kind": {"gte": 2}}, lambda p, _: p.get("kind") in (3, 2.5)),
    ({"kind": {"in": []}}, lambda p, _: False),
    ({"absent": {"gte": 0}}, lambda p, _: False),
    ({"$labels": {"has": "sky"}}, lambda _, labels: "sky" in labels),
    ({"$labels": {"has": "no such"}}, lambda _, labels: False),
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
        assert_hits(c.search(X, 6, mode, where, offset=1), expected)
        # from the list that is kept now, and after more items and fewer
        assert_hits(c.search(X, 6, mode, where, offset=1), expected)
    more, y = chunk(5, seed=50)
    facts = payloads(5, 9)
    c.ingest(more, y, range(5000, 5005), facts)
    truth.ingest(more, y, range(5000, 5005), facts)
    gone = [item[0] for item in truth.items[::4]]
    c.delete(gone)
    truth.delete(gone)
    projections = truth.model.project(X)
    assert_hits(c.search(X, 6, where=where), truth.search(projections, 6, "asymmetric", passes))


@pytest.mark.parametrize("oversample", [16, 2])
def test_where_without_a_list_equals_brute_force(folder, monkeypatch, oversample):
    """A filter that lets most pass is answered from a larger search, in a collection of size."""
    monkeypatch.setattr(search, "_OVERSAMPLE", oversample)
    monkeypatch.setattr(search, "_SPARE", 4 * oversample)
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
            assert_hits(c.search(X, 4, where={field: value}), expected)
        assert not c._allow_lists.is_kept(Filter.of({"half": 1}))
        assert c._allow_lists.is_kept(Filter.of({"rare": 3}))


def test_where_finds_fields_with_odd_names_and_numbers_exactly(folder):
    odd = ['a "b"', "back\\slash", "new\nline", "ü.x", "", "$labels2", "a.b[0]"]
    close = [0.1 + 0.2, 0.3, 2**63 + 1, 2**63, 1e308, 5e-324, 123456789.12345679]
    with open_toy(folder / "c") as c:
        X, y = chunk(len(odd) + len(close), seed=0)
        facts = [{name: 1} for name in odd] + [{"v": value} for value in close]
        c.ingest(X, y, range(len(facts)), facts)
        for row, name in enumerate(odd):
            assert [hit.id for hit in c.search(X, 50, where={name: 1})[0]] == [row]
        for row, value in enumerate(close, start=len(odd)):
            assert [hit.id for hit in c.search(X, 50, where={"v": value})[0]] == [row]


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
def test_where_refuses_what_it_does_not_know(filled, where):
    with pytest.raises(InputError, match="where"):
        filled[0].search(chunk(1)[0], where=where)


@pytest.mark.parametrize(
    "options", [{"k": 0}, {"k": 2.0}, {"k": True}, {"offset": -1}, {"mode": "cosine"}, {"k": 10**7}]
)
def test_search_refuses_bad_options(filled, options):
    with pytest.raises(InputError):
        filled[0].search(chunk(1)[0], **options)


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


def stream():
    """Chunks of every kind: large, small, one sample, unlabelled, sparse, new classes."""
    plan = [(50, 0.0), (5, 0.4), (1, 0.0), (3, 1.0), (40, 0.2), (2, 0.0), (31, 0.1), (64, 1.0)]
    for number, (n, bare) in enumerate(plan):
        classes = NAMES[: min(10, 3 + number)]
        yield chunk(n, seed=number, bare=bare, classes=classes, sparse=("text",), dtype=np.float32)


@pytest.mark.parametrize("reopen", ["never", "always", "without closing"])
def test_model_and_codes_are_those_of_the_plain_model_bit_for_bit(folder, reopen):
    truth = Truth()
    c = open_toy(folder / "c")
    entries = 0
    for number, (X, y) in enumerate(stream()):
        ids = [f"{number}/{row}" for row in range(len(y))]
        c.ingest(X, y, ids)
        truth.ingest(X, y, ids)
        entries = max(entries, c.stats().journal_entries)
        if reopen == "always":
            c.close()
            c = Collection.open(folder / "c")
            assert c.stats().journal_entries == 0
        elif reopen == "without closing":
            c._catalog.close()
            c._lock.release()
            c = Collection.open(folder / "c")
        assert_same_model(c.model, truth.model)
        assert c.check() == []
    assert entries == (1 if reopen == "always" else 2)
    for each, code, labels, _ in truth.items:
        assert c.get(each).code == code
        assert c.get(each).labels == labels
    c.close()


def all_bytes(directory):
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def test_features_do_not_outlive_the_checkpoint(folder):
    rng = np.random.default_rng(4)
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40, seed=0))
        X, y = chunk(3, seed=1)
        X["image"] = rng.random((3, 20))
        y[2] = []
        seen, unlabelled = X["image"][0, :4].tobytes(), X["image"][2, :4].tobytes()
        c.ingest(X, y)
        assert seen in all_bytes(c.path)
        assert unlabelled not in all_bytes(c.path)
        c.checkpoint()
        assert seen not in all_bytes(c.path)
        c.ingest(X, y, ids=["a", "b", "c"])
        assert seen in all_bytes(c.path)
    assert seen not in all_bytes(c.path)
    assert not list(c.path.glob("journal*"))


@pytest.mark.parametrize("limit", ["JOURNAL_ENTRIES", "JOURNAL_BYTES"])
def test_the_journal_is_bounded(folder, monkeypatch, limit):
    monkeypatch.setattr(writer, limit, {"JOURNAL_ENTRIES": 3, "JOURNAL_BYTES": 3000}[limit])
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number in range(12):
            X, y = chunk(2, seed=number)
            c.ingest(X, y, [2 * number, 2 * number + 1])
            truth.ingest(X, y, [2 * number, 2 * number + 1])
            assert c.stats().journal_entries <= 4
        assert c.stats().journal_entries < 11
        assert_same_model(c.model, truth.model)


def test_an_unlabelled_beginning_is_refused(folder):
    with open_toy(folder / "c") as c:
        with pytest.raises(InputError, match="learned nothing yet"):
            c.ingest(chunk(3)[0], [[], None, ()])
        assert len(c) == 0
        c.ingest(*chunk(3, seed=1))


def test_a_large_unlabelled_chunk_writes_no_model_and_is_coded_as_by_the_model(filled):
    c, truth = filled
    X, _ = chunk(100, seed=8)
    before = c.stats()
    c.ingest(X, [()] * 100, ids=[f"u{row}" for row in range(100)])
    codes = truth.model.partial_fit(X, [()] * 100).codes_
    assert [c.get(f"u{row}").code for row in range(100)] == [code.tobytes() for code in codes]
    after = c.stats()
    assert after.bytes["model"] == before.bytes["model"]
    assert after.n_seen == before.n_seen + 100
    assert c.rounds()[-1].precision is None
    assert c.rounds()[-1].bytes == 0


def test_ids_are_kept_as_given(folder):
    ids = [1, "1", -(2**63), 2**63 - 1, "ü/ \x00 '\"", np.int32(7), "x" * 1024]
    with open_toy(folder / "c") as c:
        X, y = chunk(len(ids), seed=0)
        c.ingest(X, y, ids)
    with Collection.open(folder / "c") as c:
        hits = c.search(X, len(ids))[0]
        assert {(type(hit.id), hit.id) for hit in hits} == {
            (str if isinstance(each, str) else int, each) for each in ids
        }
        for each in ids:
            assert each in c
            assert c.get(each).id == each
        assert 2 not in c
        assert c.known(["1", 2, 7]) == {"1", 7}
        assert c.check() == []


def test_items_without_ids_are_counted(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(3, seed=0))
        c.delete([2])
        c.ingest(*chunk(2, seed=1))
        assert c.known(range(1, 9)) == {1, 3, 4, 5}


def test_a_deleted_id_may_come_again_and_other_codes_stay(filled):
    c, truth = filled
    codes = {item[0]: item[1] for item in truth.items}
    gone = [item[0] for item in truth.items[5:30]]
    assert c.delete(gone) == 25
    truth.delete(gone)
    assert len(c) == len(truth.items)
    with pytest.raises(UnknownIdError):
        c.get(gone[0])
    X, y = chunk(1, seed=3)
    c.ingest(X, y, [gone[0]], [{"again": True}])
    truth.ingest(X, y, [gone[0]], [{"again": True}])
    assert c.get(gone[0]).payload == {"again": True}
    for item in truth.items[:-1]:
        assert c.get(item[0]).code == codes[item[0]]
    assert_hits(c.search(X, 300), truth.search(truth.model.project(X), 300, "asymmetric"))
    counts = {each.name: each.n for each in c.classes()}
    assert counts == {
        name: sum(name in item[2] for item in truth.items) for name in c.model.classes_
    }
    assert c.delete([]) == 0
    assert c.check() == []


def directory_state(c):
    with c._catalog.reading() as connection:
        dump = list(connection.iterdump())
    names = {
        path.name: path.stat().st_size for path in c.path.iterdir() if "sqlite" not in path.name
    }
    return dump, names, c._view, len(c._view.index), list(c._view.classes)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda X, y, o: X.pop("text"), InputError),
        (lambda X, y, o: X.update(image=X["image"][:, :5]), InputError),
        (lambda X, y, o: X["image"].__setitem__((1, 1), np.nan), InputError),
        (lambda X, y, o: y.pop(), InputError),
        (lambda X, y, o: y.__setitem__(0, "sky"), InputError),
        (lambda X, y, o: y.__setitem__(0, ["no such word"]), UnknownWordError),
        (lambda X, y, o: o.update(ids=["new", "0-1", "n2", "n3"]), DuplicateIdError),
        (lambda X, y, o: o.update(ids=["n", "m", "n", "o"]), DuplicateIdError),
        (lambda X, y, o: o.update(ids=[1.5, "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids=[True, "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids=["", "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids=[2**63, "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids=["x" * 1025, "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids=["\ud800", "b", "c", "d"]), InputError),
        (lambda X, y, o: o.update(ids="abcd"), InputError),
        (lambda X, y, o: o.update(ids=["a"]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, [1]]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, {"a": float("nan")}]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, {"a": object()}]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, {"a": {1: 2}}]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, {1: 2}]), InputError),
        (lambda X, y, o: o.update(payload=[{}, {}, {}, {"a": "\udc00"}]), InputError),
        (
            lambda X, y, o: o.update(payload=[{}, {}, {}, {"a": "x" * MAX_PAYLOAD_BYTES}]),
            InputError,
        ),
        (lambda X, y, o: o.update(payload={"a": 1}), InputError),
        (lambda X, y, o: o.update(thumbnails=[None] * 3 + [b""]), InputError),
        (lambda X, y, o: o.update(thumbnails=[None] * 3 + ["x"]), InputError),
        (
            lambda X, y, o: o.update(thumbnails=[None] * 3 + [bytes(MAX_THUMBNAIL_BYTES + 1)]),
            InputError,
        ),
    ],
)
def test_a_refused_chunk_leaves_everything_as_it_was(filled, change, error):
    c, _ = filled
    before = directory_state(c)
    X, y = chunk(4, seed=30)
    options = {"ids": ["a", "b", "c", "d"]}
    change(X, y, options)
    with pytest.raises(error):
        c.ingest(X, y, **options)
    assert directory_state(c) == before


def test_refused_deletes_leave_everything_as_it_was(filled):
    c, _ = filled
    before = directory_state(c)
    for ids in (["0-1", "nobody"], [0.5]):
        with pytest.raises(InputError):
            c.delete(ids)
    with pytest.raises(InputError, match="list of ids"):
        c.delete("0-1")
    assert directory_state(c) == before


def test_thumbnails_go_with_their_items(folder):
    pictures = [b"\x89PNG...", None, bytes(MAX_THUMBNAIL_BYTES)]
    with open_toy(folder / "c") as c:
        X, y = chunk(3)
        c.ingest(X, y, ["a", "b", "c"], thumbnails=pictures)
        assert [c.thumbnail(each) for each in "abc"] == pictures
        c.delete(["a"])
        with pytest.raises(UnknownIdError):
            c.thumbnail("a")
        c.ingest(*chunk(1, seed=2), ["a"])
        assert c.thumbnail("a") is None


def test_rounds_keep_the_quality_before_learning(folder):
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number, n in enumerate([40, 260, 3]):
            X, y = chunk(n, seed=number, classes=NAMES[: 4 + number], bare=0.2)
            expected = expected_quality(truth, X, y)
            ids = [f"{number}-{row}" for row in range(n)]
            c.ingest(X, y, ids)
            truth.ingest(X, y, ids)
            kept = c.rounds()[-1]
            assert kept.number == number + 1
            assert (kept.n, kept.n_labelled) == (n, sum(bool(names) for names in y))
            if expected is None:
                assert (kept.precision, kept.chance) == (None, None)
            else:
                assert (kept.precision, kept.chance) == pytest.approx(expected)
                assert kept.precision > kept.chance
    with Collection.open(folder / "c", readonly=True) as c:
        arrived = [(name, each.number) for each in c.rounds() for name in each.new_classes]
        assert arrived == [(each.name, each.round) for each in c.classes()]


def expected_quality(truth, X, y):
    if not truth.items:
        return None
    labelled = [row for row, names in enumerate(y) if names]
    n = min(200, len(labelled))
    rows = [labelled[i * len(labelled) // n] for i in range(n)]
    projections = truth.model.project({name: values[rows] for name, values in X.items()})
    labels = {item[0]: set(item[2]) for item in truth.items}
    found = truth.search(projections, 50, "hamming")
    right = []
    for r, hits in zip(rows, found, strict=True):
        judged = [labels[hit[0]] for hit in hits if labels[hit[0]]][:10]
        right += [bool(each & set(y[r])) for each in judged]
    chance = np.mean([[bool(each & set(y[r])) for each in labels.values() if each] for r in rows])
    return np.mean(right), chance


def test_two_writers_exclude_each_other(folder):
    with open_toy(folder / "c") as c:
        with pytest.raises(LockedError, match="another writer"):
            Collection.open(folder / "c")
        with pytest.raises(LockedError):
            Collection.open(folder / "c", timeout=0.05)
        c.ingest(*chunk(3))
        waiting = threading.Timer(0.1, c.close)
        waiting.start()
        with Collection.open(folder / "c", timeout=30) as second:
            assert len(second) == 3
        waiting.join()


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
                    assert_hits(reader.search(X, 20), expected)
                    assert_same_model(reader.model, truth.model)
                    assert reader.check() == []
            assert reader.stats() == c.stats()
            assert reader.classes() == c.classes()
        assert c.check() == []


def first(truth, n, number):
    X, y = chunk(n, seed=number, classes=NAMES[: min(10, 4 + number)])
    ids = [f"{number}-{row}" for row in range(n)]
    truth.ingest(X, y, ids)
    return X, y, ids


def test_searches_do_not_wait_for_learning(folder, monkeypatch):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        X, y = chunk(40, seed=1)
        before = c.search(X, 5)
        inside, go_on = threading.Event(), threading.Event()
        real = OASIS.partial_fit

        def slow(self, *args):
            inside.set()
            assert go_on.wait(30)
            return real(self, *args)

        monkeypatch.setattr(OASIS, "partial_fit", slow)
        thread = threading.Thread(target=c.ingest, args=(X, y))
        thread.start()
        assert inside.wait(30)
        assert c.search(X, 5) == before
        assert len(c) == 40
        go_on.set()
        thread.join()
        assert len(c) == 80


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


def test_what_is_no_collection_is_refused(folder):
    (folder / "file").write_text("x")
    with pytest.raises(CollectionError, match="is a file"):
        Collection.open(folder / "file")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "notes.txt").write_text("x")
    with pytest.raises(CollectionError, match="no collection"):
        Collection.open(folder / "foreign")
    assert [path.name for path in (folder / "foreign").iterdir()] == ["notes.txt"]
    with pytest.raises(CollectionError, match="no collection"):
        Collection.open(folder / "foreign", readonly=True)
    with pytest.raises(CollectionError, match="no collection"):
        Collection.open(folder / "absent", readonly=True)
    assert not (folder / "absent").exists()
    for name, content in (("garbage", b"garbage" * 500), ("other", None)):
        (folder / name).mkdir()
        if content:
            (folder / name / "catalog.sqlite").write_bytes(content)
        else:
            with sqlite3.connect(folder / name / "catalog.sqlite") as other:
                other.execute("CREATE TABLE t (x)")
            other.close()
        for readonly in (False, True):
            with pytest.raises(FormatError):
                Collection.open(folder / name, readonly=readonly)


def test_a_newer_format_is_refused(folder):
    open_toy(folder / "c").close()
    database = sqlite3.connect(folder / "c" / "catalog.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    for readonly in (False, True):
        with pytest.raises(NewerVersionError, match="99"):
            Collection.open(folder / "c", readonly=readonly)


def test_what_a_collection_was_made_with_is_kept(folder):
    open_toy(folder / "c").close()
    with pytest.raises(InputError, match="16 bits"):
        Collection.open(folder / "c", 64)
    with pytest.raises(InputError, match="alpha"):
        Collection.open(folder / "c", model=toy_model(alpha=3.0))
    with pytest.raises(InputError, match="label space"):
        Collection.open(folder / "c", model=toy_model(n_classes=9))
    with pytest.raises(CollectionError, match="new collection only"):
        Collection.open(folder / "c", model=toy_model().partial_fit(*chunk(3)))
    with pytest.raises(InputError, match="n_bits"):
        Collection.open(folder / "d", 64, model=toy_model())
    with pytest.raises(InputError, match="multiple of 8"):
        Collection.open(folder / "e", 7)
    with open_toy(
        folder / "c",
    ) as c:
        c.ingest(*chunk(40))
        plain = toy_model().partial_fit(*chunk(40))
        assert_same_model(c.model, plain)


def test_a_model_that_has_learned_can_start_a_collection(folder):
    model = toy_model().partial_fit(*chunk(50, seed=5))
    truth = Truth(model)
    with Collection.open(folder / "c", model=model) as c:
        X, y = chunk(4, seed=6)
        c.ingest(X, y, range(4))
        truth.ingest(X, y, range(4))
        assert_same_model(c.model, truth.model)
    with Collection.open(folder / "c") as c:
        assert_same_model(c.model, truth.model)
        assert c.stats().n_seen == 54


def test_words_can_be_added_and_last(folder):
    vectors = class_vectors(10)
    model = OASIS(16, labels={name: vectors[name] for name in NAMES[:6]}, random_state=0)
    with Collection.open(folder / "c", model=model) as c:
        with pytest.raises(NotFittedError):
            c.add_words({"lamp": vectors["lamp"]})
        c.ingest(*chunk(40))
        X, _ = chunk(1, seed=4)
        with pytest.raises(UnknownWordError):
            c.ingest(X, [["lamp"]])
        c.add_words({"lamp": vectors["lamp"]})
        c.ingest(X, [["lamp"]])
        c._catalog.close()
        c._lock.release()
        c._closed = True
    with Collection.open(folder / "c") as c:
        assert c.get(41).labels == ("lamp",)
        assert c.search_words(["lamp"], 1)[0][0].id is not None


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_check_finds_damage(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(60, seed=0), payload=payloads(60))
        c.checkpoint()
        c.ingest(*chunk(3, seed=1))
        assert c.check() == []
        for kind, at in (("model", -3), ("journal", 40), ("index", 520)):
            (path,) = c.path.glob(f"{kind}-*")
            whole = path.read_bytes()
            flip(path, at)
            assert [found for found in c.check() if kind in found], kind
            path.write_bytes(whole[:-20])
            assert [found for found in c.check() if kind in found], kind
            path.unlink()
            assert [found for found in c.check() if kind in found], kind
            path.write_bytes(whole)
            assert c.check() == []
        (c.path / "model-99.safetensors").write_bytes(b"x")
        assert c.check() == ["model-99.safetensors: no commit names it"]
        (c.path / "model-99.safetensors").unlink()
        for statement, word in (
            ("UPDATE items SET payload = '{}' WHERE key = 3", "checksums"),
            ("UPDATE items SET code = x'0102' WHERE key = 3", "checksums"),
            ("UPDATE items SET id = 'other' WHERE key = 3", "checksums"),
            ("DELETE FROM items WHERE key = 3", "head says"),
            ("UPDATE classes SET n = n + 1 WHERE number = 1", "count says"),
            ("UPDATE head SET journal_entries = 7", "entries"),
        ):
            c._catalog._writer.execute("BEGIN")
            c._catalog._writer.execute(statement)
            # seen by a connection of its own transaction alone, and undone after
            found = findings(c._view, c._catalog, c._catalog._writer, c.path, writes=True)
            assert any(word in each for each in found), (statement, found)
            c._catalog._writer.execute("ROLLBACK")
        assert c.check() == []


def test_damage_is_noticed_on_opening(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(60, seed=0))
    (model,) = c.path.glob("model-*")
    whole = model.read_bytes()
    flip(model, -3)
    with pytest.raises(FormatError, match="damaged"):
        Collection.open(c.path)
    model.unlink()
    with pytest.raises(FormatError, match="missing"):
        Collection.open(c.path)
    model.write_bytes(whole)
    catalog = c.path / "catalog.sqlite"
    content = bytearray(catalog.read_bytes())
    content[4096:20000] = bytes(len(content[4096:20000]))
    catalog.write_bytes(content)
    with pytest.raises(FormatError):
        Collection.open(c.path)


@pytest.mark.parametrize("damage", ["lost", "truncated", "flipped", "none"])
def test_the_index_file_is_used_and_can_be_done_without(folder, monkeypatch, damage, caplog):
    monkeypatch.setattr(writer, "INDEX_ROWS", 30)
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number in range(4):
            c.ingest(*first(truth, 40, number))
            gone = [truth.items[0][0], truth.items[-1][0]]
            c.delete(gone)
            truth.delete(gone)
        assert c._view.head.index
        # as after a crash, so that the file is behind the catalog
        c._catalog.close()
        c._lock.release()
        c._closed = True
    (path,) = c.path.glob("index-*")
    if damage == "lost":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "flipped":
        flip(path, 520)
    with Collection.open(c.path) as c:
        X, _ = chunk(4, seed=70)
        expected = truth.search(truth.model.project(X), 200, "hamming")
        assert_hits(c.search(X, 200, "hamming"), expected)
        assert bool(caplog.records) == (damage != "none")
        c.checkpoint()
        assert c.check() == []


def test_an_entry_that_a_crash_left_half_written_is_cut_off(folder):
    c = open_toy(folder / "c")
    c.ingest(*chunk(40))
    c.ingest(*chunk(2, seed=1))
    c._catalog.close()
    c._lock.release()
    (journal,) = c.path.glob("journal-*")
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"features of a chunk that was never committed")
    with Collection.open(c.path) as c:
        assert journal.read_bytes() == whole
        assert c.check() == []


def test_what_a_crash_left_behind_is_swept(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    for name in ("model-77.safetensors", "journal-78.bin", "index-79.hamming", ".model-5.x.1.tmp"):
        (c.path / name).write_bytes(b"x")
    (c.path / "notes.txt").write_text("not ours")
    with Collection.open(c.path) as c:
        assert c.check() == []
        c.ingest(*chunk(40, seed=1))
        assert (c.path / "notes.txt").exists()
        assert {path.name.split("-")[0] for path in c.path.glob("*-*")} <= {
            "model",
            "index",
            "catalog.sqlite",
        }


def length_extractor():
    letters = Function(
        "letters@1", lambda texts: [[text.count(c) for c in "abcdefgh"] for text in texts], 8
    )
    return Extractor({"text": ("text", HashedText(64)), "letters": ("text", letters)})


def raw_items(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Item(
            id=f"{seed}-{row}",
            text=" ".join(rng.choice(["red", "boat", "sea", "dog", "cafe"], size=4)),
            labels=("sky", "sea")[: int(rng.integers(3))],
            payload={"row": row},
        )
        for row in range(n)
    ]


def test_raw_items_go_through_the_recorded_extractor(folder):
    extractor = length_extractor()
    items = raw_items(40)
    with open_toy(folder / "c", extractor=extractor) as c:
        counted = []
        assert c.ingest_items(items, progress=counted.append) == []
        assert sum(counted) == 40
        broken = [items[3], Item("new", text="a dog"), Item("new", text="b"), Item("bad", text=5)]
        rejected = c.ingest_items(broken, thumbnails=[None, b"png", None, None])
        assert [(each.row, each.id) for each in rejected] == [(0, "0-3"), (2, "new"), (3, "bad")]
        assert "already" in rejected[0].reason
        empty = [Item("none"), Item("blank", text=" "), {"id": "mapped", "labels": ["sky"]}]
        assert [each.reason for each in c.ingest_items(empty)] == [
            "it has nothing to learn from; expected one of ['text']"
        ] * 3
        assert c.thumbnail("new") == b"png"
        with pytest.raises(InputError, match="item 0"):
            c.ingest_items(broken, strict=True)
        assert len(c) == 41
        X, _ = extractor.extract(items[:2])
        assert c.search_items(items[:2], 5) == c.search(X, 5)
        assert c.search_items([{"text": "red boat"}], 3)[0]
        assert c.stats().extractor == extractor.describe()
        for queries in ([{"text": None}], [{}], [{"text": 5}], {"text": "x"}, "text"):
            with pytest.raises(InputError):
                c.search_items(queries)
    with pytest.raises(InputError, match="recorded"):
        Collection.open(
            c.path,
            extractor=Extractor(
                {"text": ("text", HashedText(64)), "letters": ("text", HashedText(8))}
            ),
        )
    with Collection.open(c.path) as c, pytest.raises(InputError, match="letters@1"):
        c.search_items(items[:1])


def test_a_collection_of_ready_features_takes_an_extractor_that_fits(folder):
    with open_toy(folder / "c") as c:
        c.ingest({"text": sp.csr_array(np.eye(5, 64))}, [["sky"]] * 5)
        with pytest.raises(InputError, match="ready features"):
            c.search_items([{"text": "boat"}])
        with pytest.raises(InputError, match="ready features"):
            c.ingest_items(raw_items(3))
    with pytest.raises(InputError, match="this extractor makes"):
        Collection.open(c.path, extractor=length_extractor())
    with Collection.open(c.path, extractor=Extractor({"text": ("text", HashedText(64))})) as c:
        assert c.ingest_items(raw_items(3)) == []
    with Collection.open(c.path) as c:
        assert len(c.search_items([{"text": "boat"}])[0]) == 8


def test_a_full_disk_under_sqlite_is_one_clear_error(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        before = directory_state(c)
        pages = c._catalog._writer.execute("PRAGMA page_count").fetchone()[0]
        c._catalog._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        X, y = chunk(60, seed=1)
        with pytest.raises(StorageError, match="full"):
            c.ingest(X, y, range(1000, 1060), [{"text": "x" * 5000}] * 60)
        assert directory_state(c) == before
        c._catalog._writer.execute("PRAGMA max_page_count = 1000000")
        c.ingest(X, y, range(1000, 1060))
        assert c.check() == []


def test_items_are_yielded_oldest_first_as_of_one_commit(filled):
    c, truth = filled
    assert [(each.id, each.code, each.labels, each.payload) for each in c.items()] == truth.items
    assert [c.get(each.id) for each in c.items()] == list(c.items())
    ids = [each[0] for each in truth.items]
    begun = c.items()
    assert next(begun).id == ids[0]
    c.delete([ids[0], ids[-1]])
    assert [each.id for each in begun] == ids[1:]
    assert [each.id for each in c.items()] == ids[1:-1]
    given_up = c.items()
    next(given_up)
    given_up.close()
    assert c.check() == []
    c.close()
    with pytest.raises(CollectionError, match="closed"):
        next(c.items())


def test_stats_count(filled):
    c, truth = filled
    stats = c.stats()
    assert stats.n_items == stats.n_seen == len(truth.items) == len(c)
    assert (stats.n_rounds, stats.n_bits, stats.commits) == (3, 16, 3)
    assert stats.modalities == {"image": 20, "text": 14}
    assert stats.n_classes == len(c.classes()) == len(truth.model.classes_)
    assert all(stats.bytes[kind] > 0 for kind in ("catalog", "model"))
    assert json.dumps(stats.bytes)
    assert "107 items" in repr(c)
