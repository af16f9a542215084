"""A collection whose codes are in milvus-lite: the same items on both sides, whatever fails."""

import socket
import sqlite3
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import collection_in_milvus
import numpy as np
import pytest
from collection_in_milvus import (
    abandon,
    assert_best,
    assert_found,
    assert_is,
    failing,
    make,
    stored,
)
from collection_truth import contents, toy_model
from collection_writer import apply
from toy import chunk

from oasis.codes import pack
from oasis.collection import Collection, milvus, replica, writing
from oasis.collection.ranking import Query
from oasis.collection.records import Question
from oasis.errors import CollectionError, EngineError
from oasis.scale.milvus import MilvusIndex, connection

pytestmark = pytest.mark.scale
small_limits = collection_in_milvus.small_limits
lite = collection_in_milvus.lite


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
    patch.setattr(milvus.MilvusReplica, "most", 60)


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
                assert_best(target.search(X, 10, mode, fuse=False)[0], expected[0], 10)
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
            c.search(X, 10, fuse=False)
        abandon(c)
    with Collection.open(c.path) as c:
        few_at_once(monkeypatch)
        assert len(c.search(X, 10, fuse=False)[0]) == 10
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


def test_all_blocks_of_a_large_update_are_sent(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=4)
    with monkeypatch.context() as patch:
        patch.setattr(writing, "BLOCK", 3)
        ids = [item[0] for item in truth.items]
        c.update(ids, labels=["tree"])
    for each in ids:
        truth.update(each, labels=["tree"])
    assert_is(c, truth)
    c.close()


def test_a_change_is_sent_to_a_place_that_codes_come_back_to(folder, lite):
    where = lite()
    c, truth = make(folder, where, steps=3)
    c.close()
    changed = truth.items[5][0]
    with Collection.open(c.path, index="local") as c:
        for target in (c, truth):
            target.update(changed, payload={"row": -1}, labels=["sky"])
    with Collection.open(c.path, index=where) as c:
        assert_is(c, truth)


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
            reader.search(X, len(keys), fuse=False)
        assert len(reader.search(X, 3, fuse=False)[0]) == 3
    with Collection.open(c.path) as c:
        assert "holds" in caplog.text
        assert_is(c, truth)
        # the same number, but not the same items
        code = c.index.codes_of(keys[:1])
        c.index.remove(keys[:1])
        c.index.add(np.bitwise_not(code), keys[5:6])
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
        # a new one is there, empty and local: the same call again moves it
        with Collection.open(folder / "new", readonly=True) as made:
            assert (len(made), made.stats().index, made.check()) == (0, "local", [])
        with Collection.open(c.path) as c:
            assert c.stats().index == "local"
        # as if it had been filled, and the server has gone
        patch.setattr(replica, "_fill", lambda *_: None)
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
            reader.search(X, 3, fuse=False)
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
            reader.search(X, 3, fuse=False)
        assert attempts == [100.0, 101.0]
        now[0] += 1
        patch.setattr(milvus, "MilvusIndex", MilvusIndex)
        assert_found(reader, truth)


def test_a_thread_that_has_a_view_does_not_connect_again_after_close(folder, lite):
    where = lite()
    c, _ = make(folder, where, steps=3)
    view = c._snapshot
    c.close()
    with pytest.raises(CollectionError, match="is closed"):
        len(view.index)
    assert where not in connection._users


def test_a_reader_lets_go_of_the_place_that_codes_have_left(folder, lite):
    where = lite()
    c, truth = make(folder, where, steps=3)
    X, _ = chunk(2, seed=5)
    with Collection.open(c.path, readonly=True) as reader:
        assert not reader.codes_are_here
        reader.search(X, 3, fuse=False)
        before = reader._snapshot
        c.close()
        with Collection.open(c.path, index="local") as c:
            assert c.codes_are_here
            assert_is(reader, truth)
            assert reader.codes_are_here
            assert where not in connection._users
            # a search that was under way is answered from where they are now
            queries = [Query(each, pack(each[None])[0]) for each in truth.model.project(X)]
            answers = reader._queries._answered(before, queries, Question(3, "hamming"))
            found, expected = [each.hits for each in answers], c.search(X, 3, "hamming")
            assert [[hit.id for hit in hits] for hits in found] == [
                [hit.id for hit in hits] for hits in expected
            ]


def test_codes_that_are_elsewhere_are_known_without_connecting(folder, lite, monkeypatch):
    c, _ = make(folder, lite(), steps=3)
    c.close()
    monkeypatch.setattr(milvus, "MilvusIndex", None)
    with Collection.open(c.path, readonly=True) as reader:
        assert not reader.codes_are_here
