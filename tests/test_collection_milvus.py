"""A collection whose codes are in Milvus: the same items on both sides, whatever fails."""

import itertools
import json
import os
import signal
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from collection_truth import Truth, assert_hits, assert_same_model, contents, toy_model
from collection_victim import Victim
from collection_writer import KILL_POINTS, apply, step
from serving import serving
from toy import chunk

from oasis.cli import main
from oasis.client import Client, transport
from oasis.collection import Collection, milvus, settling, writer
from oasis.errors import CollectionError, EngineError, InputError
from oasis.scale.milvus import MilvusIndex
from oasis.scale.milvus import lite as engine_lite
from oasis.scale.milvus.engine import protocol

pytestmark = pytest.mark.scale
on_the_server = pytest.mark.xdist_group("milvus")

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Checkpoints and whole models come often."""
    monkeypatch.setattr(writer, "INDEX_ROWS", 20)
    monkeypatch.setattr(writer, "JOURNAL_ENTRIES", 4)


@pytest.fixture
def lite(folder):
    """A function that returns paths of milvus-lite files that are not there yet."""
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    return lambda: str(folder / f"codes{next(NUMBERS)}.db")


@pytest.fixture
def remote(milvus_server):
    """A function that returns addresses of Milvus collections that are not there yet."""
    return lambda: f"{milvus_server.uri}/collection_{os.getpid()}_{next(NUMBERS)}"


@pytest.fixture(params=["lite", pytest.param("remote", marks=on_the_server)])
def address(request):
    """A function that returns unused addresses, of each engine."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def victim():
    started = Victim()
    yield started
    started.close()


ODD = [
    {"n": 2**70, "m": -(2**63), "x": 1e-320, "y": 0.1 + 0.2},
    {"": None, 'a "b"\\': "\x00\u2028\U0001f408", "$meta": {"labels": [1]}, "id": "id"},
    {"deep": json.loads("[" * 60 + "]" * 60), "true": True},
    {"long": "\u00e9" * 200_000},
    {},
]
"""Payloads that a collection takes, one of which Milvus would not."""


def make(folder, address, steps=10):
    """Return a collection in Milvus beside the truth, after some steps."""
    truth = Truth()
    c = Collection.open(folder / f"c{next(NUMBERS)}", model=toy_model(), index=address)
    for number in range(steps):
        apply(c, number)
        apply(truth, number)
    return c, truth


def held(c):
    """Return what Milvus has: code by key."""
    codes, keys = c.index.items()
    found = dict(zip(keys.tolist(), (code.tobytes() for code in codes), strict=True))
    assert len(found) == len(keys) == len(c.index)
    return found


def stored(c):
    with c._catalog.reading() as connection:
        return dict(connection.execute("SELECT key, code FROM items"))


def assert_is(c, truth):
    """Both sides hold exactly what the truth does, and a search finds it."""
    assert contents(c) == truth.items
    assert held(c) == stored(c)
    assert c.check() == []
    assert_same_model(c.model, truth.model)
    assert_found(c, truth)


def assert_found(c, truth):
    """Every item is found, once, where it belongs."""
    X, _ = chunk(2, seed=1234)
    projections = truth.model.project(X)
    for mode in ("hamming", "asymmetric"):
        everything = truth.search(projections, len(truth.items) + 5, mode)
        assert_hits(c.search(X, len(truth.items) + 5, mode), everything)
    for hits, expected in zip(c.search(X, 7, mode), everything, strict=True):
        assert_best(hits, expected, 7)


def assert_best(hits, expected, k):
    """The k best of (id, score, distance); any of those that are tied at the end."""
    scores = {each[0]: each[1] for each in expected}
    assert len({hit.id for hit in hits}) == len(hits) == min(k, len(expected))
    np.testing.assert_allclose(
        [hit.score for hit in hits], [each[1] for each in expected[:k]], atol=1e-6
    )
    np.testing.assert_allclose(
        [hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-6
    )


def abandon(c):
    """Let go of a collection as the death of its process would."""
    c._view.home.close()
    c._catalog.close()
    c._lock.release()


# -- as any collection -----------------------------------------------------------------------------


def test_a_stream_is_stored_and_found_as_ever(folder, address):
    where = address()
    c, truth = make(folder, where)
    assert c.stats().index == where
    assert_is(c, truth)
    X, _ = chunk(3, seed=77)
    projections = truth.model.project(X)
    for mode, where_to_look, passes in (
        ("hamming", {"step": 3}, lambda payload, _: payload["step"] == 3),
        ("asymmetric", {"row": {"gte": 30}}, lambda payload, _: payload["row"] >= 30),
        ("asymmetric", {"$labels": {"has": "cat"}}, lambda _, labels: "cat" in labels),
        (
            "hamming",
            {"row": {"lt": 4}, "$labels": {"has": "sky"}},
            lambda payload, labels: payload["row"] < 4 and "sky" in labels,
        ),
    ):
        expected = truth.search(projections, 200, mode, passes)
        assert_hits(c.search(X, 200, mode, where_to_look), expected)
        for hits, wanted in zip(c.search(X, 3, mode, where_to_look), expected, strict=True):
            assert_best(hits, wanted, 3)
    like = truth.items[5][0]
    assert like not in [hit.id for hit in c.more_like(like, 10)]
    c.close()
    # it is recorded, and a reader beside sees what is committed
    with (
        Collection.open(c.path, readonly=True) as reader,
        Collection.open(c.path, model=toy_model()) as c,
    ):
        assert_is(c, truth)
        assert reader.stats().index == where
        X, y = chunk(len(ODD), seed=99)
        ids = [f"odd {n}" for n in range(len(ODD))]
        for target in (c, truth):
            target.ingest(X, y, ids, ODD)
            target.delete(["odd 1"])
        assert_is(reader, truth)


@pytest.mark.parametrize(
    "index", ["Local", "", "milvus://", "milvus://host:19530", "http://host:1/a", "codes", 7]
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(folder, index):
    with pytest.raises(InputError, match=r"milvus://HOST:PORT/NAME"):
        Collection.open(folder / "c", index=index)
    assert not (folder / "c").exists()


def test_credentials_in_an_address_are_refused_and_not_shown(folder):
    for index in ("milvus://me:secret@host/x", "http://me:secret@host/x"):
        with pytest.raises(InputError) as caught:
            Collection.open(folder / "c", index=index)
        assert "secret" not in str(caught.value)


@on_the_server
def test_the_timeout_is_recorded_and_another_one_is_no_move(folder, remote, monkeypatch):
    where = remote()
    c, truth = make(folder, f"{where}?timeout=20", steps=3)
    assert c.stats().index == f"{where}?timeout=20"
    assert c.index._connection.timeout == 20
    c.close()
    monkeypatch.setattr(settling, "_fill", None)
    with Collection.open(c.path, index=f"{where}?timeout=30") as c:
        assert c.index._connection.timeout == 30
        assert_is(c, truth)
    with Collection.open(c.path, index=where) as c:
        assert c.index._connection.timeout == 10
    with Collection.open(c.path) as c:
        assert c.stats().index == where


def test_more_hits_than_milvus_gives_are_refused_with_the_limit(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=6)
    monkeypatch.setattr("oasis.scale.milvus.index.MOST", 60)
    X, _ = chunk(1, seed=6)
    assert len(truth.items) > 61
    for mode in ("hamming", "asymmetric"):
        assert len(c.search(X, 60, mode)[0]) == 60
        with pytest.raises(InputError, match="k must be at most 60 on Milvus, got 61"):
            c.search(X, 31, mode, offset=30)
    c.close()


# -- moving ----------------------------------------------------------------------------------------


def test_codes_move_between_memory_and_milvus(folder, lite):
    first, second = lite(), lite()
    truth = Truth()
    with Collection.open(folder / "c", model=toy_model()) as c:
        for number in range(8):
            apply(c, number)
            apply(truth, number)
    assert list(c.path.glob("index-*"))
    reader = Collection.open(c.path, readonly=True)
    number = 8
    for where in (first, second, "local", first, first):
        with Collection.open(c.path, index=where) as c:
            assert c.stats().index == where
            assert_is(c, truth)
            apply(c, number)
            apply(truth, number)
            assert_is(c, truth)
            assert_is(reader, truth)
            assert reader.stats().index == where
            number += 1
        assert bool(list(c.path.glob("index-*"))) == (where == "local")
    with pytest.raises(InputError, match="a reader cannot move"):
        Collection.open(c.path, readonly=True, index="local")
    with Collection.open(c.path, readonly=True, index=first) as again:
        assert_is(again, truth)
    reader.close()


def test_items_of_another_collection_are_left_alone(folder, lite):
    where = lite()
    c, truth = make(folder, where, steps=3)
    with pytest.raises(CollectionError, match="is not of this collection: it says"):
        Collection.open(folder / "new", model=toy_model(), index=where)
    with pytest.raises(InputError, match="holds codes of 16 bits"):
        Collection.open(folder / "new", 64, index=where)
    with Collection.open(folder / "other", model=toy_model()) as other:
        apply(other, 0)
    with pytest.raises(CollectionError, match="not of this collection"):
        Collection.open(folder / "other", index=where)
    with Collection.open(folder / "other") as other:
        assert other.stats().index == "local"
        assert other.check() == []
    assert_is(c, truth)
    c.close()
    # one that says nothing of its owner is judged by what it holds
    by_hand = lite()
    with MilvusIndex(by_hand, 16) as ix:
        ix.add(np.zeros((2, 2), np.uint8), [1, 2])
    with pytest.raises(CollectionError, match=r"holds 2 items that are not of this collection"):
        Collection.open(folder / "other", index=by_hand)
    with MilvusIndex(by_hand, 16) as ix:
        ix.remove([1, 2])
    with Collection.open(folder / "other", index=by_hand) as other:
        assert other.check() == []


def test_an_address_is_known_again_by_its_owner(folder, address):
    where, other = address(), address()
    c, truth = make(folder, where, steps=3)
    c.close()
    # it leaves, the place is dropped, and another one settles there
    with Collection.open(c.path, index=other) as c:
        pass
    drop(where)
    second, other_truth = make(folder, where, steps=2)
    second.close()
    with pytest.raises(CollectionError, match="is not of this collection"):
        Collection.open(c.path, index=where)
    with Collection.open(c.path, readonly=True) as reader:
        assert_is(reader, truth)
    drop(other)
    third, _ = make(folder, other, steps=2)
    third.close()
    for readonly in (False, True):
        with (
            pytest.raises(CollectionError, match="is not of this collection"),
            Collection.open(c.path, readonly=readonly) as again,
        ):
            again.search(chunk(1)[0], 3)
    with Collection.open(second.path) as second:
        assert_is(second, other_truth)


def drop(where):
    """Drop the Milvus collection at an address."""
    with MilvusIndex(where, 16) as ix:
        request = protocol().milvus.DropCollectionRequest(collection_name=ix.name)
        ix._connection.call("DropCollection", request)


def test_a_move_that_failed_is_taken_up_again(folder, lite, monkeypatch):
    where = lite()
    truth = Truth()
    with Collection.open(folder / "c", model=toy_model()) as c:
        for number in range(5):
            apply(c, number)
            apply(truth, number)
    with monkeypatch.context() as patch:
        patch.setattr(milvus, "_BLOCK", 20)
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, after=2, sends=0.5))
        with pytest.raises(EngineError):
            Collection.open(c.path, index=where)
    with Collection.open(c.path) as c:
        assert c.stats().index == "local"
        apply(c, 6)
        apply(truth, 6)
    with Collection.open(c.path, index=where) as c:
        assert_is(c, truth)


def test_codes_of_a_chunk_that_was_never_committed_do_not_stay(folder, lite, monkeypatch):
    where = lite()
    c, truth = make(folder, where, steps=4)
    X, y = chunk(40, seed=70)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, sends=1.0))
        with pytest.raises(EngineError):
            c.ingest(X, y, [f"x{n}" for n in range(40)])
    abandon(c)
    # other items get the keys that Milvus has seen, while nobody tells it
    X, y = chunk(40, seed=71)
    with Collection.open(c.path, index="local") as c:
        for target in (c, truth):
            target.ingest(X, y, [f"y{n}" for n in range(40)])
    with Collection.open(c.path, index=where) as c:
        assert_is(c, truth)


# -- Milvus fails ----------------------------------------------------------------------------------


def failing(method, *, after=0, sends=0.0):
    """Return a method that raises after so many calls, when it has sent a part of its items."""
    calls = itertools.count()

    def fails(index, first, *arguments):
        if next(calls) < after:
            return method(index, first, *arguments)
        if sends:
            n = max(1, int(sends * len(first)))
            method(index, first[:n], *(each[:n] for each in arguments))
        raise EngineError("Milvus is away")

    return fails


@pytest.mark.parametrize(
    ("sends", "reopen"), [(0.0, False), (0.5, False), (0.5, True), (1.0, False)]
)
def test_a_chunk_that_milvus_does_not_acknowledge_did_not_happen(
    folder, lite, monkeypatch, sends, reopen
):
    c, truth = make(folder, lite(), steps=4)
    names = sorted(path.name for path in c.path.iterdir())
    X, y = chunk(40, seed=70)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, sends=sends))
        for _ in range(2):
            with pytest.raises(EngineError, match="Milvus is away"):
                c.ingest(X, y, [f"x{n}" for n in range(40)])
    assert sorted(path.name for path in c.path.iterdir()) == names
    assert contents(c) == truth.items
    assert c.check() == []
    assert_found(c, truth)
    if reopen:
        c.close()
        c = Collection.open(c.path)
        assert_is(c, truth)
    # another chunk, whose items get some of the same keys
    X, y = chunk(3, seed=71)
    for target in (c, truth):
        target.ingest(X, y, list("abc"))
    assert_is(c, truth)
    X, y = chunk(40, seed=70)
    for target in (c, truth):
        target.ingest(X, y, [f"x{n}" for n in range(40)])
    assert_is(c, truth)
    c.close()


def few_at_once(patch):
    """Let Milvus answer with 60 items at the most."""
    patch.setattr("oasis.scale.milvus.index.MOST", 60)
    patch.setattr(milvus.MilvusHome, "most", 60)


def repeated(X, n):
    return {name: np.repeat(matrix[:1], n, axis=0) for name, matrix in X.items()}


def test_many_items_that_are_not_committed_do_not_stand_before_others(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=4)
    X, y = chunk(1, seed=6)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, sends=1.0))
        with pytest.raises(EngineError):
            c.ingest(repeated(X, 200), y * 200, [f"x{n}" for n in range(200)])
    few_at_once(monkeypatch)
    with Collection.open(c.path, readonly=True) as reader:
        for target in (c, reader):
            for mode in ("hamming", "asymmetric"):
                expected = truth.search(truth.model.project(X), 200, mode)
                assert_best(target.search(X, 10, mode)[0], expected[0], 10)
    c.close()


def test_many_deleted_items_that_milvus_still_has_are_named(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=4)
    X, y = chunk(1, seed=6)
    gone = [f"x{n}" for n in range(200)]
    c.ingest(repeated(X, 200), y * 200, gone)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "discard", failing(None))
        c.delete(gone)
        few_at_once(patch)
        with pytest.raises(
            CollectionError, match=r"\d\d that are deleted; opening .* removes them"
        ):
            c.search(X, 10)
        abandon(c)
    with Collection.open(c.path) as c:
        few_at_once(monkeypatch)
        assert len(c.search(X, 10)[0]) == 10
        assert contents(c) == truth.items


@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_that_fails_after_the_codes_were_sent(folder, lite, committed):
    c, truth = make(folder, lite(), steps=4)
    real = c._catalog._writer

    class Failing:
        def __getattr__(self, name):
            return getattr(real, name)

        def execute(self, statement, *arguments):
            if statement != "COMMIT":
                return real.execute(statement, *arguments)
            if committed:
                real.execute(statement)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    c._catalog._writer = Failing()
    with pytest.raises(CollectionError):
        apply(c, 4)
    c._catalog._writer = real
    assert_found(c, truth)
    c.close()
    if committed:
        apply(truth, 4)
    with Collection.open(c.path) as c:
        assert_is(c, truth)
        if not committed:
            apply(c, 4)
            apply(truth, 4)
        assert_is(c, truth)


@pytest.mark.parametrize("then", ["ingest", "delete", "checkpoint", "reopen"])
def test_a_deletion_that_milvus_misses_is_sent_later(folder, lite, monkeypatch, then):
    c, truth = make(folder, lite(), steps=4)
    gone = [item[0] for item in truth.items[3:30]]
    with monkeypatch.context() as patch:
        for name in ("remove", "discard", "discard_from"):
            patch.setattr(MilvusIndex, name, failing(None))
        assert c.delete(gone) == len(gone)
        truth.delete(gone)
        assert len(c.index) > len(c)
        assert_found(c, truth)
        assert c.check() == []
        c.checkpoint()  # they stay listed
        with pytest.raises(EngineError):
            apply(c, 7)
    if then == "ingest":
        apply(c, 7)
        apply(truth, 7)
    elif then == "delete":
        c.delete([truth.items[0][0]])
        truth.delete([truth.items[0][0]])
        c.close()
        c = Collection.open(c.path)
    elif then == "checkpoint":
        c.checkpoint()
        with c._catalog.reading() as connection:
            assert not len(c._catalog.deleted(connection, 0, 1000))
    else:
        abandon(c)
        c = Collection.open(c.path)
    assert_is(c, truth)
    c.close()


def test_what_milvus_has_lost_is_seen_and_sent_again(folder, lite, caplog):
    where = lite()
    c, truth = make(folder, where, steps=6)
    keys = sorted(stored(c))
    c.index.remove(keys[10:20])
    assert any("lacks 10 items" in each for each in c.check())
    c.close()
    X, _ = chunk(1)
    with Collection.open(c.path, readonly=True) as reader:
        with pytest.raises(CollectionError, match="lacks 10 items"):
            reader.search(X, len(keys))
        assert len(reader.search(X, 3)[0]) == 3
    with Collection.open(c.path) as c:
        assert "holds" in caplog.text
        assert_is(c, truth)
        # the same number, but not the same items
        code = c.index.codes_of(keys[:1])
        c.index.remove(keys[:1])
        c.index.add(np.bitwise_not(code), keys[5:6], [()], [{}])
        found = c.check()
        assert len(found) == 2
        assert "lacks 1 items" in found[0]
        assert "other codes of 1 items" in found[1]
        assert all("index='local' and then with this address" in each for each in found)
    for there in ("local", where):
        with Collection.open(c.path, index=there) as c:
            assert_is(c, truth)
    Path(where).unlink()
    with Collection.open(c.path) as c:
        assert_is(c, truth)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_a_server_a_writer_says_so_and_a_reader_reads_the_catalog(
    folder, lite, monkeypatch
):
    nowhere = f"milvus://127.0.0.1:{free_port()}/photos"
    with Collection.open(folder / "c", model=toy_model()) as c:
        apply(c, 0)
    with monkeypatch.context() as patch:
        patch.setattr(milvus, "MilvusIndex", partial(MilvusIndex, timeout=0.3))
        for path in (c.path, folder / "new"):
            with pytest.raises(EngineError, match=r"127\.0\.0\.1"):
                Collection.open(path, index=nowhere)
        with pytest.raises(CollectionError):
            Collection.open(folder / "new", readonly=True)
        with Collection.open(c.path) as c:
            assert c.stats().index == "local"
        # as if it had been filled, and the server has gone
        patch.setattr(settling, "_fill", lambda *_: None)
        with pytest.raises(EngineError):
            Collection.open(c.path, index=nowhere)
        with Collection.open(c.path, readonly=True) as reader:
            assert reader.stats().index == nowhere
            assert len(reader) == 34
            assert reader.get(0).round == 1
            assert ["127.0.0.1" in each for each in reader.check()] == [True]
            with pytest.raises(EngineError):
                reader.search(chunk(1)[0])
    # there is a way back
    with Collection.open(c.path, index="local") as c:
        assert c.check() == []
        assert len(c.search(chunk(1)[0], 3)[0]) == 3


def test_a_failure_to_connect_is_that_of_all_who_waited_for_it(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=3)
    c.close()
    X, _ = chunk(1)
    now, attempts, waiting = [100.0], [], threading.Barrier(6)

    def away(*_, **__):
        attempts.append(now[0])
        if len(attempts) == 1:
            waiting.wait(60)
            time.sleep(0.2)  # for the others to come as far as the lock
        raise EngineError("Milvus is away")

    def search():
        if threading.current_thread() is not threads[0]:
            waiting.wait(60)
        try:
            reader.search(X, 3)
        except EngineError as error:
            failed.append(str(error))

    with Collection.open(c.path, readonly=True) as reader, monkeypatch.context() as patch:
        patch.setattr(milvus, "MilvusIndex", away)
        patch.setattr(milvus, "time", SimpleNamespace(monotonic=lambda: now[0]))
        failed = []
        threads = [threading.Thread(target=search) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == ["Milvus is away"] * 6
        assert attempts == [100.0]
        now[0] += 1
        with pytest.raises(EngineError):
            reader.search(X, 3)
        assert attempts == [100.0, 101.0]
        now[0] += 1
        patch.setattr(milvus, "MilvusIndex", MilvusIndex)
        assert_found(reader, truth)


def test_a_thread_that_has_a_view_does_not_connect_again_after_close(folder, lite):
    where = lite()
    c, _ = make(folder, where, steps=3)
    view = c._view
    c.close()
    with pytest.raises(CollectionError, match="is closed"):
        len(view.index)
    assert where not in engine_lite._users


def test_a_reader_lets_go_of_the_place_that_codes_have_left(folder, lite):
    where = lite()
    c, truth = make(folder, where, steps=3)
    X, _ = chunk(2, seed=5)
    with Collection.open(c.path, readonly=True) as reader:
        assert not reader.codes_are_here
        reader.search(X, 3)
        before = reader._view
        c.close()
        with Collection.open(c.path, index="local") as c:
            assert c.codes_are_here
            assert_is(reader, truth)
            assert reader.codes_are_here
            assert where not in engine_lite._users
            # a search that was under way is answered from where they are now
            hits = reader._answer(before, truth.model.project(X), "hamming", 3, 0, None)
            assert hits == c.search(X, 3, "hamming")


def test_codes_that_are_elsewhere_are_known_without_connecting(folder, lite, monkeypatch):
    c, _ = make(folder, lite(), steps=3)
    c.close()
    monkeypatch.setattr(milvus, "MilvusIndex", None)
    with Collection.open(c.path, readonly=True) as reader:
        assert not reader.codes_are_here


# -- kills -----------------------------------------------------------------------------------------


@on_the_server
def test_a_process_killed_between_milvus_and_the_catalog_is_repaired(folder, remote, victim):
    c, truth = make(folder, remote(), steps=5)
    c.close()
    number = 5
    for point in KILL_POINTS:
        while (step(number)[0] == "delete") != (point == "deletion committed"):
            with Collection.open(c.path) as c:
                apply(c, number)
            apply(truth, number)
            number += 1
        assert victim.run(f"die {point}", c.path, number) == -signal.SIGKILL
        if "committed" in point:
            apply(truth, number)
            number += 1
        with Collection.open(c.path) as c:
            assert_is(c, truth)


def kill_the_server_often(folder, server, address, n_kills, seed):
    """Ingest while the server is killed and comes back; what fails is given again."""
    rng = np.random.default_rng(seed)
    c, truth = make(folder, address, steps=2)
    number = 2
    for _ in range(n_kills):
        moment = rng.uniform(0, 0.5)

        def cut(moment=moment):
            time.sleep(moment)
            server.kill()
            server.start()

        with ThreadPoolExecutor(1) as pool:
            cutting = pool.submit(cut)
            done = failures = 0
            while not cutting.done() or done < 2:
                try:
                    apply(c, number)
                except EngineError:
                    failures += 1
                    if cutting.done():
                        cutting.result()  # a server that did not come up is what failed
                        assert failures < 100
                    continue
                apply(truth, number)
                number += 1
                done += 1
            cutting.result()
        assert_is(c, truth)
    c.close()
    with Collection.open(c.path) as c:
        assert_is(c, truth)


@on_the_server
def test_a_server_killed_during_ingests_loses_nothing(folder, milvus_server, remote):
    kill_the_server_often(folder, milvus_server, remote(), 3, seed=1)


@pytest.mark.soak
@on_the_server
def test_a_server_killed_20_times_during_ingests_loses_nothing(folder, milvus_server, remote):
    kill_the_server_often(folder, milvus_server, remote(), 20, seed=2)


@on_the_server
def test_searches_beside_a_writer_show_committed_items_only(folder, remote):
    c, truth = make(folder, remote(), steps=2)
    reader = Collection.open(c.path, readonly=True)
    X, _ = chunk(2, seed=3)
    stop, wrong, looks = threading.Event(), [], itertools.count()

    def look(target):
        while not stop.is_set():
            next(looks)
            for hits in target.search(X, 20, "hamming"):
                if len({hit.id for hit in hits}) < 20:
                    wrong.append(hits)
                # the score is of the code in Milvus, the distance of that in the catalog
                wrong.extend(hit for hit in hits if hit.score != 1 - 2 * hit.distance / 16)

    threads = [threading.Thread(target=look, args=(each,)) for each in (c, reader)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2, 14):
            apply(c, number)
            apply(truth, number)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert next(looks) > 4
    assert_is(reader, truth)
    reader.close()
    c.close()


# -- the command line ------------------------------------------------------------------------------


def test_the_command_line_names_an_index(folder, lite, capsys, monkeypatch):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["oasis", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    where, path, data = lite(), folder / "c", folder / "items.jsonl"
    words = ["boat", "cat"] * 4
    rows = [{"id": n, "text": f"a {word}", "labels": [word]} for n, word in enumerate(words)]
    data.write_text("\n".join(map(json.dumps, rows)))
    fill = ("ingest", path, data, "--image-extractor", "none", "--json")
    assert run(*fill, "--index", where)[0] == 0
    code, out, _ = run("info", path, "--json")
    assert (code, json.loads(out)["index"]) == (0, where)
    code, out, _ = run("search", path, "--text", "boat", "--json", "-k", 3)
    assert code == 0
    code, _, error = run(*fill, "--index", "nonsense")
    assert code == 1
    assert "milvus://HOST:PORT/NAME" in error


# -- the service -----------------------------------------------------------------------------------


def test_a_server_over_milvus_answers_as_the_collection_does(folder, lite):
    pytest.importorskip("fastapi", reason="needs the extra service")
    c, truth = make(folder, lite(), steps=3)
    c.close()
    with serving(c.path) as server, Client(server.url) as client:
        assert_found(client, truth)
        for number in range(3, 7):
            apply(client, number)
            apply(truth, number)
        assert_found(client, truth)
        X, _ = chunk(2, seed=8)
        found = client.search(X, 200, "hamming", {"step": 3})
        passes = truth.search(
            truth.model.project(X), 200, "hamming", lambda payload, _: payload["step"] == 3
        )
        assert_hits(found, passes)
    with Collection.open(c.path) as c:
        assert_is(c, truth)


def test_a_client_is_told_that_milvus_is_away():
    problems = pytest.importorskip("oasis.service.problems", reason="needs the extra service")
    told = problems.Problem.of(EngineError("Milvus is away"))
    assert (told.status, told.kind) == (503, "engine")
    assert transport._KINDS[told.kind] is EngineError
