"""Whatever fails, and whenever: a change is there whole, or it did not happen."""

import errno
import os
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from collection_truth import (
    Truth,
    assert_labels,
    assert_nothing_lost,
    assert_same_model,
    assert_texts,
    contents,
    toy_model,
)
from collection_victim import Victim
from collection_writer import SIZES, apply, step
from toy import chunk

from oasis import store
from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.collection.catalog import Catalog
from oasis.errors import CollectionError, StorageError
from oasis.index import HammingIndex
from oasis.store import Disk

pytestmark = pytest.mark.slow


def assert_is(c, truth):
    """The collection is sound, and holds exactly what the truth does."""
    assert c.check() == []
    assert contents(c) == truth.items
    assert_texts(c, truth)
    assert_labels(c, truth)
    assert_same_model(c.model, truth.model)
    X, _ = chunk(2, seed=1234)
    expected = truth.search(truth.model.project(X), 7, "hamming")
    assert [[h.id for h in hits] for hits in c.search(X, 7, "hamming")] == [
        [e[0] for e in row] for row in expected
    ]


def file_sizes(c):
    return {
        p.name: p.stat().st_size
        for p in c.path.iterdir()
        if "sqlite" not in p.name and p.name != "writer.lock"
    }


def abandon(c):
    """Let go of a collection as the death of its process would."""
    c._catalog.close()
    c._lock.release()


# -- a writer that is killed -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def victim():
    started = Victim()
    yield started
    started.close()


def kill_often(
    victim,
    folder,
    n_kills,
    seed,
    per_directory=9,
    pace=1.0,
    count=lambda _: None,
    what="change",
):
    """Kill a writer at random moments, open what it leaves, and let the next one go on there.

    ``pace`` is larger on a slow machine. ``count`` is called after each kill with the number of
    changes acknowledged since the last one.
    """
    rng = np.random.default_rng(seed)
    for kill in range(n_kills):
        if kill % per_directory == 0:
            directory, done = folder / f"c{kill}", 0
            truth = Truth(keeps=what == "change and keep")
        # at first mostly while it is being made, then anywhere
        seconds = rng.uniform(0, 0.03 if kill % per_directory == 0 else 0.2)
        status = victim.run(what, directory, done, pace * seconds)
        assert status == -signal.SIGKILL, "the writer ended by itself"
        log = Path(f"{directory}.log")
        lines = log.read_text().splitlines() if log.exists() else []
        acknowledged = int(lines[-1]) + 1 if lines else 0
        count(acknowledged - done)
        done = check_what_is_left(directory, truth, done, acknowledged)
        if done:
            log.write_text(f"{done - 1}\n")


def check_what_is_left(directory, truth, done, acknowledged):
    """Compare a collection with the truth after ``done`` steps, of which more were acknowledged.

    Returns the number of steps that are there: those acknowledged and perhaps the one in flight.
    """
    while done < acknowledged:
        apply(truth, done)
        done += 1
    if done == 0 and not (directory / "catalog.sqlite").exists():
        return 0
    keeps = None if truth.kept is None else True
    with Collection.open(directory, model=toy_model(), keep_features=keeps) as c:
        assert c.check() == []
        if contents(c) != truth.items:
            # the step in flight was committed, but there was no time to say so
            before = [item[0] for item in truth.items]
            apply(truth, done)
            there = {item[0] for item in truth.items}
            assert_nothing_lost(there.intersection(before), [item[0] for item in contents(c)])
            done += 1
        if truth.items:
            assert_is(c, truth)
    return done


@pytest.mark.parametrize("what", ["change", "change and keep"])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(folder, victim, what):
    kill_often(victim, folder, 18, seed=1, what=what)


def test_a_reader_beside_a_writing_process_sees_sound_states_only(folder, victim):
    child = victim.start("change", folder / "c")
    try:
        while True:
            try:
                reader = Collection.open(folder / "c", readonly=True)
                break
            except CollectionError:
                continue  # it is only just being made
        with reader:
            X, seen, look = chunk(2, seed=3)[0], 0, 0
            while seen < 40:
                look += 1
                assert look < 20_000, "the writer makes no progress"
                rounds = reader.stats().n_rounds
                assert rounds >= seen
                seen = rounds
                if rounds:
                    for hits in reader.search(X, 10):
                        assert len({hit.id for hit in hits}) == len(hits) == min(10, len(hits))
                if look % 5 == 0:
                    assert reader.check() == []
    finally:
        os.kill(child, signal.SIGKILL)
        assert victim.status() == -signal.SIGKILL


# -- single operations that fail -------------------------------------------------------------------


class Cut(BaseException):
    """The power is gone."""


class FaultyDisk(Disk):
    """Counts operations, and lets one of them fail: with an error, or by a cut of the power.

    After a cut only that is left of the directory which had been flushed: the content of files at
    their last sync, under the names at the last sync of the directory. SQLite's files are left to
    SQLite.
    """

    def __init__(self, root, fails_at, error):
        self.root, self.left, self.error = Path(root), fails_at, error
        self.dead = self.after_commit = False
        self.synced = {}
        self.names = {}
        if self.root.is_dir():
            for path in self._files():
                self.synced[path.stat().st_ino] = path.read_bytes()
            self._note_names()

    def _files(self):
        return [path for path in self.root.iterdir() if "sqlite" not in path.name]

    def _note_names(self):
        self.names = {path.name: path.stat().st_ino for path in self._files()}

    def operation(self, half=lambda: None, *, after_commit=False):
        if self.dead:
            return False
        self.left -= 1
        if self.left == 0:
            self.after_commit = after_commit
            half()
            if self.error is Cut:
                self.dead = True
            raise self.error
        return True

    def write(self, path, offset, data):
        # the note that a commit is there comes after it
        note = data.split() if path.name == "writer.lock" else [0, 0, 1]
        if self.operation(
            lambda: super(FaultyDisk, self).write(path, offset, data[: len(data) // 2]),
            after_commit=note[1] == note[2],
        ):
            super().write(path, offset, data)

    def fill(self, path, parts):
        if self.operation(lambda: path.write_bytes(b"half a model")):
            super().fill(path, parts)

    def sync(self, path):
        if self.operation():
            super().sync(path)
            if path == self.root:
                self._note_names()
            elif path.is_file():
                self.synced[path.stat().st_ino] = path.read_bytes()

    def replace(self, source, target):
        if self.operation():
            super().replace(source, target)

    def remove(self, path):
        if self.operation(after_commit=True):
            super().remove(path)

    def power_on(self):
        """Leave what a medium would hold after the cut."""
        for path in self._files():
            path.unlink()
        for name, inode in self.names.items():
            (self.root / name).write_bytes(self.synced.get(inode, b""))


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(writer, "INDEX_ROWS", 20)
    monkeypatch.setattr(writer, "JOURNAL_ENTRIES", 4)


def with_faults(monkeypatch, disk):
    """Let every change of a file go through ``disk``, those of other libraries too."""
    monkeypatch.setattr(store, "disk", disk)
    save_index = HammingIndex.save

    def faulty_save_index(self, path):
        if disk.operation(lambda: path.write_bytes(b"half an index")):
            save_index(self, path)
            disk.synced[path.stat().st_ino] = path.read_bytes()
            disk._note_names()

    monkeypatch.setattr(HammingIndex, "save", faulty_save_index)


PREFIX = 16
CHANGES = {
    "large chunk": lambda t: t.ingest(*chunk(40, seed=500), [f"x{i}" for i in range(40)]),
    "small chunk": lambda t: t.ingest(*chunk(3, seed=501), ["x", "y", "z"]),
    "delete": lambda t: t.delete(["3/1", "3/3"]),
    "update": lambda t: t.update("3/1", labels=["never learned", "sky"], payload={"a": 1}),
    "replace": lambda t: t.replace(*chunk(3, seed=502), ["3/1", "3/3", 3002], [{"b": 2}] * 3),
    "words": lambda t: t.add_words({"tundra": np.arange(12.0)}),
    "checkpoint": lambda t: t.checkpoint() if hasattr(t, "checkpoint") else None,
    "close": lambda t: t.close() if hasattr(t, "close") else None,
}


def prepare(folder, entries):
    """Return a collection with so many journal entries, beside the truth."""
    truth = Truth()
    c = Collection.open(folder / "c", model=toy_model())
    for number in range(PREFIX):
        apply(c, number)
        apply(truth, number)
    c.checkpoint()
    for number in range(entries):
        X, y = chunk(2, seed=900 + number)
        ids = [f"e{number}", f"f{number}"]
        c.ingest(X, y, ids)
        truth.ingest(X, y, ids)
    c._writer._changed = 15
    return c, truth


@pytest.mark.parametrize(
    ("what", "entries"),
    [
        ("large chunk", 0),
        ("large chunk", 2),
        ("small chunk", 0),
        ("small chunk", 1),
        ("small chunk", 4),
        ("delete", 1),
        ("update", 1),
        ("replace", 1),
        ("words", 1),
        ("checkpoint", 1),
        ("close", 1),
    ],
)
@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), Cut])
def test_every_single_operation_may_fail(folder, monkeypatch, small_limits, what, entries, fault):
    change = CHANGES[what]
    c, before = prepare(folder, entries)
    after = before.copied()
    change(after)
    abandon(c)
    template = {path.name: path.read_bytes() for path in c.path.iterdir()}
    for fails_at in range(1, 40):
        for path in c.path.iterdir():
            path.unlink()
        for name, content in template.items():
            (c.path / name).write_bytes(content)
        c = Collection.open(c.path)
        disk = FaultyDisk(c.path, fails_at, fault)
        sizes = file_sizes(c)
        failed = None
        with monkeypatch.context() as patch:
            with_faults(patch, disk)
            try:
                change(c)
            except (StorageError, Cut) as error:
                failed = error
        if disk.left > 0:
            break  # it was done before anything could fail
        stands = after if disk.after_commit else before
        if fault is Cut or what == "close":
            abandon(c)
            if fault is Cut:
                disk.power_on()
            c = Collection.open(c.path)
            assert_is(c, stands)
        elif disk.after_commit:
            assert failed is None
            assert [each for each in c.check() if "no commit names it" not in each] == []
            c.ingest(*chunk(1, seed=8), ["swept by the next commit"])
            c.delete(["swept by the next commit"])
            assert c.check() == []
            assert contents(c) == after.items
        else:
            # it can go on as if nothing had happened
            assert failed is not None
            assert file_sizes(c) == sizes
            assert_is(c, before)
            change(c)
            assert_is(c, after)
        abandon(c)
    else:
        pytest.fail("there were more operations than were tried")
    assert failed is None
    c = Collection.open(c.path) if what == "close" else c
    assert_is(c, after)
    c.close()


def test_a_collection_that_was_not_finished_being_made_is_made_anew(folder, monkeypatch):
    for fails_at in (1, 2):
        path = folder / f"c{fails_at}" / "c"
        disk = FaultyDisk(path, fails_at, OSError(errno.EIO, "Input/output error"))
        with monkeypatch.context() as patch:
            patch.setattr(store, "disk", disk)
            with pytest.raises(StorageError):
                Collection.open(path, model=toy_model())
        with Collection.open(path, model=toy_model()) as c:
            c.ingest(*chunk(5))
            assert c.check() == []
    # only the tables, and not yet what it is made with
    (folder / "d").mkdir()
    Catalog(folder / "d", writable=True).close()
    with pytest.raises(CollectionError, match="only just being made"):
        Collection.open(folder / "d", readonly=True)
    with Collection.open(folder / "d", model=toy_model()) as c:
        assert len(c) == 0


# -- SQLite fails --------------------------------------------------------------------------------


class FailingConnection:
    """Passes everything on, but fails at the commit: before it, or when it is done."""

    def __init__(self, connection, *, committed, code=sqlite3.SQLITE_IOERR):
        self.connection, self.committed, self.code = connection, committed, code

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *arguments):
        if statement != "COMMIT":
            return self.connection.execute(statement, *arguments)
        if self.committed:
            self.connection.execute(statement)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self.code
        raise error


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("what", [*CHANGES][:-1])
def test_a_commit_of_unknown_fate_ends_writing_and_opening_settles_it(folder, what, committed):
    change = CHANGES[what]
    c, before = prepare(folder, 1)
    after = before.copied()
    change(after)
    real = c._catalog._writer
    c._catalog._writer = FailingConnection(real, committed=committed)
    with pytest.raises(StorageError):
        change(c)
    c._catalog._writer = real
    with pytest.raises(CollectionError, match="open it again"):
        c.ingest(*chunk(1, seed=7))
    c.search(chunk(1)[0])
    c.close()
    with Collection.open(c.path) as c:
        assert_is(c, after if committed else before)
        if not committed:
            change(c)
        assert_is(c, after)


def test_memory_that_cannot_follow_a_commit_ends_writing(folder, monkeypatch):
    c, truth = prepare(folder, 0)
    with monkeypatch.context() as patch:
        patch.setattr(HammingIndex, "add", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            CHANGES["small chunk"](c)
    CHANGES["small chunk"](truth)
    with pytest.raises(CollectionError, match="open it again"):
        c.delete(["x"])
    c.close()
    with Collection.open(c.path) as c:
        assert_is(c, truth)


def test_steps_are_of_every_kind():
    kinds = [step(number)[0] for number in range(40)]
    assert {"ingest", "delete", "update", "replace", "checkpoint"} == set(kinds)
    assert min(SIZES) < writer.SMALL_CHUNK < max(SIZES)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_that_cannot_be_written_can_be_read(folder, victim):
    with Collection.open(folder / "c", model=toy_model()) as c:
        c.ingest(*chunk(40))
    folder.chmod(0o755)
    assert victim.run("read", c.path) == 0
    refused, found = Path(f"{c.path}.log").read_text().splitlines()
    assert refused.startswith("refused: ")
    assert found == "found 3 []"


def test_an_interrupt_after_the_first_commit_asks_to_open_again(folder, monkeypatch):
    X, y = chunk(10)
    c = Collection.open(folder / "c", model=toy_model())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "_publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            c.ingest(X, y)
    for ask in (lambda: c.search(X), lambda: len(c), lambda: c.ingest(X, y)):
        with pytest.raises(CollectionError, match="open it again"):
            ask()
    c.close()
    with Collection.open(folder / "c") as c:
        assert len(c) == 10 and len(c.search(X, 3)) == 10
        assert c.check() == []


def test_a_transaction_that_an_interrupt_left_open_is_rolled_back(folder):
    X, y = chunk(10)
    with Collection.open(folder / "c", model=toy_model()) as c:
        c.ingest(X, y)
        connection = c._catalog.connection_to_write()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM items")
        c.ingest(X, y)
        assert len(c) == 20 and c.check() == []
