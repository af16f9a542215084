"""A collection learns as the plain model does, keeps what it is given and refuses the rest."""

import json
import sqlite3
from dataclasses import replace

import collection_toy
import numpy as np
import pytest
import scipy.sparse as sp
from collection_toy import open_toy
from collection_truth import Truth, assert_hits, assert_same_model
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.collection.intake import (
    MAX_PAYLOAD_BYTES,
    MAX_THUMBNAIL_BYTES,
)
from oasis.collection.records import check_id, check_ids
from oasis.errors import (
    CollectionError,
    DuplicateIdError,
    InputError,
    StorageError,
    UnknownIdError,
    UnknownWordError,
)
from oasis.features.extractor import Extractor, Function
from oasis.features.text import HashedText
from oasis.features.thumbnail import MAX_PREVIEW_BYTES, Thumbnail
from oasis.items import Item

filled = collection_toy.filled
unchanged = collection_toy.unchanged


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


def test_labels_without_limit_are_refused_before_anything_changes(filled):
    c, _ = filled
    before = c.stats()
    X, _ = chunk(3, seed=4)
    with pytest.raises(InputError, match="sample 1 has 1001 labels, at most 1000"):
        c.ingest(X, [["sky"], [f"l{n}" for n in range(1001)], []])
    with pytest.raises(InputError, match="2100 classes that are new, at most 2000"):
        c.ingest(X, [[f"{row}/{n}" for n in range(700)] for row in range(3)])
    assert c.stats() == before


def test_a_collection_of_label_codes_may_begin_without_labels(folder):
    with open_toy(folder / "c") as c:
        c.ingest(chunk(3)[0], [[], None, ()], ids=["x", "y", "z"])
        assert c.get("x").code == c.get("z").code
        c.ingest(*chunk(3, seed=1))
        assert len(c) == 6


def test_without_y_no_sample_has_labels(folder):
    X, _ = chunk(3, seed=2)
    with open_toy(folder / "c") as c, open_toy(folder / "d") as d:
        c.ingest(*chunk(9))
        d.ingest(*chunk(9))
        c.ingest(X)
        d.ingest(X, [None] * 3)
        assert list(c.items()) == list(d.items())
        assert c.rounds()[-1].n_labelled == 0


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
    hits = c.search(X, 300, fuse=False)
    assert_hits(hits, truth.search(truth.model.project(X), 300, "asymmetric"))
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
    return dump, names, c._snapshot, len(c._snapshot.index), list(c._snapshot.classes)


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
def test_a_refused_chunk_leaves_everything_as_it_was(unchanged, change, error):
    c, _ = unchanged
    before = directory_state(c)
    X, y = chunk(4, seed=30)
    options = {"ids": ["a", "b", "c", "d"]}
    change(X, y, options)
    with pytest.raises(error):
        c.ingest(X, y, **options)
    assert directory_state(c) == before


def test_refused_deletes_leave_everything_as_it_was(unchanged):
    c, _ = unchanged
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


def test_previews_go_with_their_thumbnails(folder):
    both, alone = Thumbnail(b"small"), Thumbnail(b"only")
    both.preview = bytes(MAX_PREVIEW_BYTES)
    with open_toy(folder / "c") as c:
        X, y = chunk(4)
        c.ingest(X, y, ["a", "b", "c", "d"], thumbnails=[both, alone, b"plain", None])
        assert c.thumbnail("a") == b"small" and c.preview("a") == both.preview
        assert [c.preview(each) for each in "bcd"] == [b"only", b"plain", None]
        before = directory_state(c)
        both.preview = bytes(MAX_PREVIEW_BYTES + 1)
        with pytest.raises(InputError, match="preview of sample 0 has 65537 bytes"):
            c.ingest(*chunk(1, seed=2), ["e"], thumbnails=[both])
        assert directory_state(c) == before
        c.delete(["a"])
        with pytest.raises(UnknownIdError):
            c.preview("a")
        assert c.check() == []
    with sqlite3.connect(folder / "c" / "catalog.sqlite") as database:
        assert database.execute("SELECT count(*) FROM previews").fetchone() == (0,)
    database.close()


@pytest.mark.parametrize("unlabelled", [0.0, 0.2])
def test_rounds_keep_the_quality_before_learning(folder, unlabelled):
    truth = Truth()
    with open_toy(folder / "c") as c:
        for number, n in enumerate([40, 260, 3]):
            X, y = chunk(n, seed=number, classes=NAMES[: 4 + number], bare=unlabelled)
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


_texts = st.text(max_size=6) | st.sampled_from(["\0", ",", '","', '"', "\\", "null", "{}"])
_values = _texts | st.integers() | st.floats() | st.booleans() | st.none() | st.just([1, "a"])
_payloads = st.none() | st.dictionaries(_texts, _values, max_size=3)


def outcome(call):
    try:
        return call()
    except InputError as error:
        return str(error)


_ids = (
    st.text(max_size=3) | st.text("a\ud800", max_size=2) | st.just("é" * 513) | st.just("a" * 1024)
)
_numbers = st.integers(-(2**63) - 1, 2**63)


@settings(max_examples=200, deadline=None)
@given(st.lists(_ids) | st.lists(_numbers) | st.lists(_ids | _numbers | st.booleans()))
def test_ids_are_checked_together_as_one_by_one(ids):
    expected = outcome(lambda: [check_id(each) for each in ids])
    found = outcome(lambda: check_ids(ids))
    assert found == expected
    assert isinstance(found, str) or [type(each) for each in found] == [type(e) for e in expected]


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
        by_codes = c.search_items(items[:2], 5, fuse=False)
        # a word that stands here is evidence, whoever ranks the hits
        plain = c.search(X, 5, fuse=False)
        for found, expected in zip(by_codes, plain, strict=True):
            assert [replace(hit, weak=True) for hit in found] == [
                replace(hit, weak=True) for hit in expected
            ]
            assert all(
                not hit.weak or other.weak for hit, other in zip(found, expected, strict=True)
            )
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


def test_stats_count(unchanged):
    c, truth = unchanged
    stats = c.stats()
    assert stats.n_items == stats.n_seen == len(truth.items) == len(c)
    assert (stats.n_rounds, stats.n_bits, stats.commits) == (3, 16, 4)
    assert stats.modalities == {"image": 20, "text": 14}
    assert stats.n_classes == len(c.classes()) == len(truth.model.classes_)
    assert all(stats.bytes[kind] > 0 for kind in ("catalog", "model"))
    assert json.dumps(stats.bytes)
    assert "107 items" in repr(c)
