"""A backup shows one commit of a collection, whatever its writer does meanwhile."""

import fcntl
import os
import shutil
import threading

import pytest
from collection_toy import open_toy, payloads
from collection_truth import Truth, assert_same_model, contents
from toy import chunk

from oasis.collection import Collection
from oasis.collection.backup import backup, restore
from oasis.collection.files import Files
from oasis.errors import CollectionError, FormatError


def test_a_backup_is_a_collection_with_the_same_items(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40), payload=payloads(40), thumbnails=[b"picture"] * 40)
        c.checkpoint()
        c.ingest(*chunk(3, seed=1))
        c.delete([7])
        assert backup(c.path, folder / "copy") == 42
        c.ingest(*chunk(5, seed=2))
        with Collection.open(folder / "copy") as copied:
            assert copied.check() == []
            assert contents(copied) == [item for item in contents(c) if item[0] <= 43]
            assert copied.thumbnail(3) == b"picture"
            copied.ingest(*chunk(5, seed=2))
            assert contents(copied) == contents(c)
            assert_same_model(copied.model, c.model)
    assert sorted(path.name for path in folder.iterdir()) == ["c", "copy"]


def test_what_a_killed_backup_left_is_removed_by_the_next(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    for name in (".copy.tmp", ".other.tmp"):
        (folder / name).mkdir()
        (folder / name / "catalog.sqlite").write_bytes(b"x")
    held = os.open(folder / ".copy.tmp", os.O_RDONLY)  # as by a backup under way
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(CollectionError, match="another copy"):
            backup(c.path, folder / "copy")
    finally:
        os.close(held)
    assert backup(c.path, folder / "copy") == 40
    assert sorted(path.name for path in folder.iterdir()) == [".other.tmp", "c", "copy"]


@pytest.mark.slow
def test_backups_beside_a_busy_writer_are_sound(folder):
    truth, states, done = Truth(), [[]], threading.Event()
    with open_toy(folder / "c") as c:

        def write():
            for number in range(40):
                n = 40 if number % 3 == 0 else 3
                X, y = chunk(n, seed=number)
                ids = [f"{number}/{row}" for row in range(n)]
                truth.ingest(X, y, ids)
                states.append(list(truth.items))
                c.ingest(X, y, ids)
                if number % 5 == 4:
                    c.checkpoint()
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        number = 0
        while not done.is_set() or not number:
            number += 1
            backup(c.path, folder / f"copy{number}")
            with Collection.open(folder / f"copy{number}", readonly=True) as copied:
                assert copied.check() == []
                assert contents(copied) in states
            shutil.rmtree(folder / f"copy{number}")
        writer.join()


def test_what_is_there_is_not_overwritten(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    (folder / "there").mkdir()
    (folder / "there" / "notes.txt").write_text("x")
    (folder / "file").write_text("x")
    (folder / "link").symlink_to(folder / "elsewhere")
    for name in ("there", "file", "link", "c"):
        with pytest.raises(CollectionError, match=r"not empty|a file or a link"):
            backup(c.path, folder / name)
    with pytest.raises(CollectionError, match="no collection"):
        backup(folder / "absent", folder / "copy")
    assert not (folder / "copy").exists()
    (folder / "empty").mkdir()
    assert backup(c.path, folder / "empty") == 40


def test_a_backup_that_fails_leaves_nothing(folder, monkeypatch):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
    (model,) = c.path.glob("model-*")
    model.unlink()
    with pytest.raises(FormatError, match="missing"):
        backup(c.path, folder / "copy")
    assert [path.name for path in folder.iterdir()] == ["c"]


def test_a_damaged_backup_is_not_restored(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(40))
        backup(c.path, folder / "copy")
    assert restore(folder / "copy", folder / "back") == 40
    with Collection.open(folder / "back") as back:
        assert back.check() == []
    (model,) = (folder / "copy").glob("model-*")
    content = bytearray(model.read_bytes())
    content[-3] ^= 1
    model.write_bytes(content)
    with pytest.raises(FormatError, match="damaged"):
        restore(folder / "copy", folder / "again")
    assert not (folder / "again").exists()


def test_a_backup_of_codes_in_milvus_searches_in_memory(folder):
    pytest.importorskip("pymilvus", reason="pymilvus is not installed")
    pytest.importorskip("milvus_lite", reason="milvus-lite is not installed")
    with open_toy(folder / "c", index=folder / "codes.db") as c:
        c.ingest(*chunk(40))
        assert backup(c.path, folder / "copy") == 40
        expected = [[hit.distance for hit in hits] for hits in c.search(chunk(2)[0], 40, "hamming")]
    with Collection.open(folder / "copy") as copied:
        assert copied.stats().index == "local"
        found = copied.search(chunk(2)[0], 40, "hamming")
        assert [[hit.distance for hit in hits] for hits in found] == expected
        assert copied.check() == []
        assert Files(copied.path).left_over(copied._snapshot.head) == []
