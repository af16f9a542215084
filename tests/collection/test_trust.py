"""What a process, a file or a signal may do to a collection without losing what it holds."""

import multiprocessing
import os
import pickle
import shutil
import sqlite3

import numpy as np
import pytest
from collection_toy import open_toy, payloads
from collection_truth import Truth, assert_same_model, contents, toy_model
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.collection.replica import Replica
from oasis.errors import CollectionError, FormatError, InputError
from oasis.store import Disk


def kill(c):
    """Let go of a collection as the death of its process would."""
    c._catalog._writer.close()
    c._catalog._writer = None
    for connection in c._catalog._idle:
        connection.close()
    c._lock.release()
    c._follower.closed = True


def copy_without_wal(source, target):
    """Copy a directory as somebody does who takes -wal for a temporary file, under a writer."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*-wal", "*-shm"))


def files(path):
    return {each.name: each.read_bytes() for each in path.iterdir() if "sqlite" not in each.name}


# -- fork ------------------------------------------------------------------------------------------


def in_child(function):
    """Run a function in a forked child and return what it returns, as text."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str(function()).encode())
        except BaseException as error:  # noqa: BLE001 - a child must not go on as its parent
            os.write(write, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as end:
        text = end.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_can_neither_write_nor_close(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        c.ingest(*chunk(3, seed=1))  # a checkpoint would fold it into a new model file
        before = files(c.path)
        assert "before it forked this one; open it again" in in_child(
            lambda: c.ingest(*chunk(3, seed=2))
        )
        assert "before it forked" in in_child(lambda: c.delete([1]))
        assert "before it forked" in in_child(c.checkpoint)
        assert "before it forked" in in_child(lambda: c.search(chunk(1)[0]))
        assert in_child(c.close) == "None"
        assert files(c.path) == before
        c.ingest(*chunk(3, seed=2))
        c.ingest(*chunk(40, seed=3))
        assert c.check() == []
    with Collection.open(folder / "c") as c:
        assert len(c) == 86
        assert c.check() == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("what", ["ingest", "check", "close"])
def test_a_child_forked_while_another_thread_writes_is_told_so(folder, what):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        calls = {"ingest": lambda: c.ingest(*chunk(3)), "check": c.check, "close": c.close}
        with c._follower.changing:  # as by a thread that the child does not have
            told = in_child(calls[what])
        assert "before it forked" in told or (what == "close" and told == "None")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_hold_the_lock(folder):
    c = open_toy(folder / "c")
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    c.close()
    try:
        Collection.open(folder / "c").close()
    finally:
        os.write(done[1], b".")
        os.waitpid(child, 0)
        for end in (*ready, *done):
            os.close(end)


HELD = []


def use_inherited(_):
    """In a worker: use the collection that its parent had open, or that it was sent."""
    try:
        HELD[0].ingest(*chunk(3, seed=9))
    except CollectionError as error:
        HELD[0].close()
        return str(error)


def open_and_count(path):
    with Collection.open(path, readonly=True) as c:
        return len(c)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_multiprocessing(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        HELD[:] = [c]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            texts = pool.map(use_inherited, range(4))
            assert all("before it forked" in text or "is closed" in text for text in texts)
            assert pool.map(open_and_count, [c.path] * 4) == [40] * 4
        with pytest.raises(CollectionError, match="open it there"):
            pickle.dumps(c)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(len, [[1]]) == [1]
        c.ingest(*chunk(40, seed=1))
        assert c.check() == []


# -- the lock and the head -------------------------------------------------------------------------


def test_a_lock_that_is_removed_under_a_writer_is_noticed(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        (c.path / "writer.lock").unlink()
        with pytest.raises(CollectionError, match="was removed or replaced under the writer"):
            c.ingest(*chunk(40, seed=1))
        other = Collection.open(c.path)
        with pytest.raises(CollectionError, match="was removed or replaced under the writer"):
            c.ingest(*chunk(40, seed=1))
        other.ingest(*chunk(40, seed=2))
        other.close()
        # nor does the first writer touch anything when it closes
        with pytest.raises(CollectionError, match="removed or replaced"):
            c.checkpoint()
        c._follower.closed = True
        c._catalog.close()
    with Collection.open(folder / "c") as c:
        assert len(c) == 80
        assert c.check() == []


def test_the_head_is_compared_before_it_is_replaced(folder, monkeypatch):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        monkeypatch.setattr(c._lock, "check", lambda: None)
        (c.path / "writer.lock").unlink()
        with Collection.open(c.path) as other:
            other.ingest(*chunk(40, seed=2))
        with pytest.raises(CollectionError, match="changed by another writer"):
            c.ingest(*chunk(40, seed=1), ids=range(100, 140))
    with Collection.open(folder / "c") as c:
        assert len(c) == 80
        assert c.check() == []


# -- a catalog that is not the one of the files beside it ------------------------------------------


@pytest.mark.parametrize("emptied", ["no bytes", "no tables"])
def test_a_blank_catalog_beside_files_is_damage_and_nothing_is_removed(folder, emptied):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    catalog = c.path / "catalog.sqlite"
    catalog.unlink()
    if emptied == "no bytes":
        catalog.touch()
    else:
        sqlite3.connect(catalog).close()
    before = files(c.path)
    with pytest.raises(FormatError, match="its catalog shows commit 0"):
        Collection.open(c.path)
    (c.path / "writer.lock").unlink()
    with pytest.raises(FormatError, match="Nothing was removed"):
        Collection.open(c.path)
    after = files(c.path)
    assert {name: after[name] for name in before if name != "writer.lock"} == {
        name: before[name] for name in before if name != "writer.lock"
    }


@pytest.mark.parametrize("n_more", [0, 1, 4])
def test_a_copy_without_its_wal_is_damage_and_nothing_is_removed(folder, n_more):
    c = open_toy(folder / "c")
    c.ingest(*chunk(40))
    with sqlite3.connect(c.path / "catalog.sqlite") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    for number in range(n_more):
        c.ingest(*chunk(40 if number % 2 else 3, seed=1 + number))
    copy_without_wal(c.path, folder / "copy")
    kill(c)
    if not n_more:
        with Collection.open(folder / "copy") as copied:
            assert len(copied) == 40
            assert copied.check() == []
        return
    before = files(folder / "copy")
    for readonly in (False, True):
        with pytest.raises(FormatError, match=r"was copied without its -wal|, or copied without"):
            Collection.open(folder / "copy", readonly=readonly)
    after = files(folder / "copy")
    assert before.keys() == after.keys()
    assert all(after[name] == before[name] for name in after if name != "writer.lock")


@pytest.mark.parametrize("n", [3, 40])  # an entry of the journal, a new model file
def test_an_older_copy_of_the_catalog_is_damage_and_nothing_is_removed(folder, n):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    catalog = c.path / "catalog.sqlite"
    older = catalog.read_bytes()
    for number in range(2):
        with Collection.open(c.path) as c:
            c.ingest(*chunk(n, seed=1 + number))
    newer = catalog.read_bytes()
    catalog.write_bytes(older)
    before = files(c.path)
    for readonly in (False, True):
        with pytest.raises(FormatError, match="its catalog shows commit"):
            Collection.open(c.path, readonly=readonly)
    assert files(c.path) == before
    catalog.write_bytes(newer)
    with Collection.open(c.path) as c:
        assert len(c) == 40 + 2 * n and c.check() == []


def test_a_first_commit_in_the_wal_alone_is_not_taken_for_a_new_collection(folder):
    c = open_toy(folder / "c")
    c.ingest(*chunk(40))
    copy_without_wal(c.path, folder / "copy")
    with pytest.raises(FormatError, match="its catalog shows commit 0"):
        Collection.open(folder / "copy", model=toy_model())
    c.close()


# -- creation --------------------------------------------------------------------------------------


class Gone(BaseException):
    """The process is killed."""


@pytest.mark.parametrize("fails_at", range(1, 30))
def test_a_kill_while_a_collection_with_a_trained_model_is_made(folder, monkeypatch, fails_at):
    class Killed(Disk):
        left = fails_at

        def _count(self):
            self.left -= 1
            if self.left <= 0:
                raise Gone

        def write(self, *arguments):
            self._count()
            super().write(*arguments)

        def fill(self, *arguments):
            self._count()
            super().fill(*arguments)

        def sync(self, *arguments):
            self._count()
            super().sync(*arguments)

        def replace(self, *arguments):
            self._count()
            super().replace(*arguments)

    trained = toy_model().partial_fit(*chunk(50, seed=5))
    with monkeypatch.context() as patch:
        patch.setattr("oasis.store.disk", Killed())
        try:
            Collection.open(folder / "c", model=trained).close()
        except Gone:
            pass
        else:
            assert fails_at > 5
    # the same call again makes it, or finds it made
    with Collection.open(folder / "c", model=trained) as c:
        assert c.stats().n_seen == 50
        assert_same_model(c.model, trained)
        c.ingest(*chunk(4, seed=6))
        assert c.check() == []


def test_another_trained_model_is_refused(folder):
    Collection.open(folder / "c", model=toy_model().partial_fit(*chunk(50))).close()
    with pytest.raises(CollectionError, match="new collection only"):
        Collection.open(folder / "c", model=toy_model().partial_fit(*chunk(50, seed=1)))


# -- words -----------------------------------------------------------------------------------------


# -- readers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_a_reader_that_is_interrupted_goes_on(folder, monkeypatch, moment):
    truth = Truth()

    def ingest(n, seed):
        X, y = chunk(n, seed=seed)
        ids = [f"{seed}/{row}" for row in range(n)]
        c.ingest(X, y, ids)
        truth.ingest(X, y, ids)

    def interrupted(replica, catalog, connection, seen, head):
        if moment == "half":
            for keys, codes in catalog.codes(connection, seen.next_key - 1, replica.n_bits):
                replica.index.add(codes, keys)
        if moment == "after":
            follow(replica, catalog, connection, seen, head)
        raise KeyboardInterrupt

    follow = Replica.follow
    with open_toy(folder / "c") as c:
        ingest(40, 0)
        with Collection.open(c.path, readonly=True) as reader:
            X, _ = chunk(2, seed=7)
            ingest(40, 1)
            with monkeypatch.context() as patch:
                patch.setattr(Replica, "follow", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    reader.search(X)
            for seed in (2, 3):
                expected = truth.search(truth.model.project(X), 7, "hamming")
                found = reader.search(X, 7, "hamming")
                assert [[h.id for h in hits] for hits in found] == [
                    [e[0] for e in row] for row in expected
                ]
                assert contents(reader) == truth.items
                assert reader.check() == []
                ingest(30, seed)


# -- damaged rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        "payload = '{'",
        "payload = '[1]'",
        "payload = x'ff'",
        "payload = cast(x'ff' AS TEXT)",
        "labels = '0,x'",
        "labels = '77'",
        "labels = 3",
        "code = 'text'",
        "code = 7",
        "code = x'00'",
        "round = 'one'",
    ],
)
def test_a_damaged_row_is_one_clear_error(folder, damage):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40), payload=payloads(40))
    with sqlite3.connect(c.path / "catalog.sqlite") as database:
        database.execute(f"UPDATE items SET {damage} WHERE key = 3")
    database.close()
    with Collection.open(c.path, readonly=True) as c:
        with pytest.raises(FormatError):
            c.get(3)
        with pytest.raises(FormatError):
            list(c.items())
        with pytest.raises(FormatError):
            c.search(chunk(1)[0], 40)
        with pytest.raises(FormatError):
            c.search(chunk(1)[0], 40, where={"year": {"gte": 0}})
            c.search(chunk(1)[0], 40)
        assert any("keys 3" in each for each in c.check()) or "UTF-8" in c.check()[0]


@pytest.mark.parametrize("table", ["items", "texts"])
def test_items_notices_rows_that_are_not_found(folder, table):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40), texts=[f"text {row}" if row % 2 else None for row in range(40)])
        assert len(list(c.items())) == 40
    with sqlite3.connect(c.path / "catalog.sqlite") as database:
        database.execute(f"UPDATE {table} SET key = 4000 WHERE key = 40")  # the last one
        database.execute(f"DELETE FROM {table} WHERE key = 4000")
    database.close()
    with Collection.open(c.path, readonly=True) as c:
        with pytest.raises(FormatError, match=f"rows of {table} were found"):
            list(c.items())
        assert c.check() != []


def test_half_a_surrogate_pair_is_refused_everywhere(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        X, _ = chunk(1)
        half = "\ud800"
        for call in (
            lambda: c.ingest(X, [[half]]),
            lambda: c.ingest(X, [["sky"]], [half]),
            lambda: c.ingest(X, [["sky"]], payload=[{"a": half}]),
            lambda: c.ingest(X, [["sky"]], payload=[{half: 1}]),
            lambda: c.get(half),
            lambda: c.search(X, where={"$labels": {"has": half}}),
            lambda: c.search(X, where={half: 1}),
            lambda: c.search_words([half]),
        ):
            with pytest.raises(InputError):
                call()
        assert c.search(X, where={"$not": {"a": half}}) == c.search(X)
        assert half not in c
        assert c.check() == []


# -- repair ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("DELETE FROM members WHERE class = 1", "classes lack"),
        ("UPDATE members SET key = key + 1000 WHERE class = 1", "that no item tells"),
        ("UPDATE classes SET n = n + 1 WHERE number = 1", "counts say"),
        ("UPDATE classes SET n_predicted = 9 WHERE number = 1", "counts say"),
        ("DELETE FROM deleted", "list of deleted"),
    ],
)
def test_copies_are_made_anew(folder, statement, word):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        c.ingest(*chunk(40, seed=1))
        c.checkpoint()
        c.delete([3, 50])
        expected = [c.search(chunk(1)[0], 90, where={"$labels": {"has": x}}) for x in NAMES[:6]]
        kill(c)
    with sqlite3.connect(c.path / "catalog.sqlite") as database:
        database.execute(statement)
    database.close()
    if word == "list of deleted":
        check_lost_deletions(c.path)
        return
    with Collection.open(c.path) as c:
        assert any(word in each for each in c.check())
        assert c.repair() == []
        assert c.repair() == []
        answers = [c.search(chunk(1)[0], 90, where={"$labels": {"has": x}}) for x in NAMES[:6]]
        assert answers == expected
        c.ingest(*chunk(10, seed=2))
        c.delete([7])
        assert c.check() == []
    with Collection.open(c.path) as c:
        assert c.check() == []


def check_lost_deletions(path):
    """An index that lists items which are deleted is not used, so the collection opens."""
    with Collection.open(path) as c:
        assert any("list of deleted" in each for each in c.check())
        assert c.repair() == []
        assert len(c) == len(c.index) == 78


def test_an_index_in_memory_that_differs_is_made_anew(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        c.checkpoint()
        (path,) = c.path.glob("index-*")
        path.write_bytes(path.read_bytes()[:-4])
        c.index.remove(np.array([3]))
        assert len(c.check()) == 2
        assert c.repair() == []
        assert len(c.search(chunk(1)[0], 50)[0]) == 40


def test_what_came_from_outside_is_not_made_up(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40), thumbnails=[b"picture"] * 40)
    with sqlite3.connect(c.path / "catalog.sqlite") as database:
        database.execute("UPDATE thumbnails SET picture = x'00' WHERE key = 3")
        database.execute("UPDATE rounds SET n = 7")
    database.close()
    with Collection.open(c.path) as c:
        with pytest.raises(FormatError, match="thumbnail"):
            c.thumbnail(3)
        before = c.check()
        assert len(before) == 2
        assert c.repair() == before


def test_class_names_that_were_changed_are_noticed_on_opening(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    with sqlite3.connect(c.path / "catalog.sqlite") as database:
        database.execute("UPDATE classes SET name = 'other' WHERE number = 1")
    database.close()
    with pytest.raises(FormatError, match="class with number 1"):
        Collection.open(c.path)
