"""A collection is after reopening what it was before; damage and what crashes left are noticed."""

import sqlite3
import threading

import pytest
from collection_toy import first, open_toy, payloads
from collection_truth import Truth, assert_hits, assert_same_model, toy_model
from toy import NAMES, chunk, class_vectors

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.collection.checks import findings
from oasis.errors import (
    CollectionError,
    FormatError,
    InputError,
    LockedError,
    NewerVersionError,
    NotFittedError,
    StorageError,
    UnknownWordError,
)
from oasis.model import OASIS


def test_two_writers_exclude_each_other(folder):
    with open_toy(folder / "c") as c:
        with pytest.raises(LockedError, match=r"another writer .* try again when it has ended"):
            Collection.open(folder / "c")
        with pytest.raises(LockedError):
            Collection.open(folder / "c", timeout=0.05)
        c.ingest(*chunk(3))
        waiting = threading.Timer(0.1, c.close)
        waiting.start()
        with Collection.open(folder / "c", timeout=30) as second:
            assert len(second) == 3
        waiting.join()


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
    with pytest.raises(InputError, match="delta"):
        Collection.open(folder / "c", model=toy_model(delta=3.0))
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
        c._follower.closed = True
    with Collection.open(folder / "c") as c:
        assert c.get(41).labels == ("lamp",)
        assert c.search_words(["lamp"], 1)[0][0].id is not None


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_check_finds_damage(folder):
    with open_toy(folder / "c") as c:
        pictures = [b"picture"] + [None] * 59
        c.ingest(*chunk(60, seed=0), payload=payloads(60), thumbnails=pictures)
        c.checkpoint()
        c.ingest(*chunk(3, seed=1))
        c.delete([7])
        assert c.check() == []
        for kind, at in (("model", -3), ("index", 520)):
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
            ("UPDATE classes SET n = n + 1 WHERE number = 1", "counts say"),
            ("UPDATE head SET journal_entries = 7", "its head does not match"),
            ("UPDATE head SET n_seen = n_seen + 1", "its head does not match"),
            ("UPDATE items SET code = 7 WHERE key = 3", "checksums"),
            ("UPDATE items SET code = 'text' WHERE key = 3", "checksums"),
            ("UPDATE items SET payload = '{' WHERE key = 3", "checksums"),
            ("UPDATE items SET labels = '0,x' WHERE key = 3", "checksums"),
            ("UPDATE classes SET name = 'other' WHERE number = 1", "in classes"),
            ("UPDATE classes SET round = 7 WHERE number = 1", "in classes"),
            (
                "UPDATE classes SET name = CASE number WHEN 0 THEN (SELECT name || '!' FROM "
                "classes WHERE number = 1) ELSE (SELECT name || '?' FROM classes WHERE number = 0) "
                "END WHERE number < 2",
                "in classes",
            ),
            ("DELETE FROM classes WHERE number = 1", "classes has"),
            ("UPDATE members SET key = key + 1000 WHERE class = 1", "that no item tells"),
            ("DELETE FROM members WHERE class = 1", "classes lack"),
            ("UPDATE rounds SET n = n + 1", "in rounds"),
            ("DELETE FROM rounds WHERE number = 1", "1 rounds"),
            ("UPDATE thumbnails SET picture = x'00' WHERE key = 1", "in thumbnails"),
            ("DELETE FROM thumbnails WHERE key = 1", "thumbnails has 0 rows"),
            ("UPDATE deleted SET key = key + 1", "list of deleted"),
            ("UPDATE meta SET value = 'x' WHERE name = 'labels'", "in meta"),
            ("DELETE FROM meta WHERE name = 'labels'", "meta has"),
            ("UPDATE tallies SET n = n + 1 WHERE name = 'items'", "items has"),
        ):
            c._catalog._writer.execute("BEGIN")
            c._catalog._writer.execute(statement)
            # seen by a connection of its own transaction alone, and undone after
            found = [
                each.text
                for each in findings(
                    c._snapshot, c._catalog, c._catalog._writer, c.path, writes=True
                )
            ]
            assert any(word in each for each in found), (statement, found)
            c._catalog._writer.execute("ROLLBACK")
        assert c.check() == []


def test_a_fact_under_a_damaged_name_is_damage(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(60, seed=0))
        writer = c._catalog._writer
        assert c._catalog.meta(writer, "fingerprints") is not None
        assert c._catalog.meta(writer, "nothing of that name") is None
        writer.execute("UPDATE meta SET name = 'fingerprintt' WHERE name = 'fingerprints'")
    with pytest.raises(FormatError, match="its facts do not match"):
        Collection.open(c.path)


def test_sqlite_without_memory_is_an_error_of_the_file(folder, monkeypatch):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(20, seed=0))

    class Exhausted(sqlite3.Connection):
        def execute(self, *_):
            raise MemoryError

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Exhausted))
    with pytest.raises(StorageError, match=r"catalog\.sqlite is damaged, or there is no memory"):
        Collection.open(c.path)


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
        assert c._snapshot.head.index
        # as after a crash, so that the file is behind the catalog
        c._catalog.close()
        c._lock.release()
        c._follower.closed = True
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


def begin_a_commit(c):
    """Leave the lock file as a writer does that has begun a commit and died."""
    begun = c._snapshot.head.commits + 1
    (c.path / "writer.lock").write_text(f"{1:<20}\n{begun:<20}\n{begun - 1:<20}\n")


def test_what_a_crash_left_behind_is_swept(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    for name in ("model-77.safetensors", "index-79.hamming", ".model-5.x.1.tmp"):
        (c.path / name).write_bytes(b"x")
    (c.path / "notes.txt").write_text("not ours")
    begin_a_commit(c)
    with Collection.open(c.path) as c:
        assert c.check() == []
        c.ingest(*chunk(40, seed=1))
        assert (c.path / "notes.txt").exists()
        assert {path.name.split("-")[0] for path in c.path.glob("*-*")} <= {
            "model",
            "index",
            "catalog.sqlite",
        }


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_bits": 7},
        {"model": OASIS(16, owned=17)},
        {"model": OASIS(16, delta=-1.0)},
        {"model": OASIS(16), "n_bits": 32},
    ],
)
def test_what_cannot_learn_leaves_nothing_behind(tmp_path, arguments):
    with pytest.raises(InputError):
        Collection.open(tmp_path / "c", **arguments)
    assert not (tmp_path / "c").exists()
