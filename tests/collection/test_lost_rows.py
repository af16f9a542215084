"""Rows that the catalog has lost are told by searches; rows that were deleted are not."""

import sqlite3

import pytest
from collection_toy import open_toy, payloads
from toy import chunk

from oasis.collection import Collection
from oasis.errors import FormatError

N = 60


@pytest.fixture
def path(folder):
    """A collection whose codes are in an index file, with texts and payloads."""
    with open_toy(folder / "c") as c:
        X, y = chunk(N)
        words = [f"boat number{row}" for row in range(N)]
        c.ingest(X, y, [f"i{row}" for row in range(N)], payloads(N), texts=words)
        c.checkpoint()
    return folder / "c"


def lose(path, *ids):
    """Take rows out of the catalog, as a damaged page does."""
    connection = sqlite3.connect(path / "catalog.sqlite")
    with connection:
        for each in ids:
            assert connection.execute("DELETE FROM items WHERE id = ?", (each,)).rowcount == 1
    connection.close()


SEARCHES = {
    "asymmetric": lambda c: c.search(chunk(1)[0], N),
    "hamming": lambda c: c.search(chunk(1)[0], N, "hamming"),
    "without payloads": lambda c: c.search(chunk(1)[0], N, payload=False),
    "labels": lambda c: [
        c.search(chunk(1)[0], N, where={"$labels": {"has": each.name}}) for each in c.classes()
    ],
    "fields": lambda c: c.search(chunk(1)[0], 1, where={"row": {"gte": 0}}),
    "like another": lambda c: c.more_like("i1", N - 1),
}


@pytest.mark.parametrize("readonly", [False, True], ids=["writer", "reader"])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_that_meets_lost_rows_says_so(path, search, readonly):
    with Collection.open(path, readonly=readonly) as c:
        search(c)
    lose(path, "i0", "i7")
    with Collection.open(path, readonly=readonly) as c:
        with pytest.raises(FormatError, match=r"the catalog is damaged: .*'oasis check' lists all"):
            search(c)
        assert len(c) == N and any("items" in finding for finding in c.check())


def test_a_repair_of_lost_rows_is_refused_and_changes_nothing(path):
    lose(path, "i0", "i7")
    for _ in range(2):  # without the index file it could not be opened a second time
        with Collection.open(path) as c:
            found = c.check()
            with pytest.raises(FormatError, match="58 rows of items were found, 60 were written"):
                c.repair()
            assert c.check() == found
            assert len(c.search(chunk(1)[0], 1, where={"row": {"gt": 5}}, fuse=False)[0]) == 1


class Meanwhile:
    """Calls something between the answer of an index and whoever asked it."""

    def __init__(self, replica, call):
        self.replica, self.call = replica, call

    def __getattr__(self, name):
        found = getattr(self.replica, name)
        if not name.startswith("search"):
            return found

        def search(*arguments):
            answer = found(*arguments)
            call, self.call = self.call, lambda: None
            call()
            return answer

        return search


@pytest.mark.parametrize("readonly", [False, True], ids=["one process", "two"])
@pytest.mark.parametrize("mode", ["asymmetric", "hamming"])
def test_items_that_are_deleted_during_a_search_are_left_out(path, monkeypatch, readonly, mode):
    with Collection.open(path) as writer:
        c = Collection.open(path, readonly=True) if readonly else writer
        gone = Meanwhile(c._snapshot.replica, lambda: writer.delete(["i0", "i7"]))
        object.__setattr__(c._snapshot, "replica", gone)
        (hits,) = c.search(chunk(1)[0], N, mode)
        assert {hit.id for hit in hits} == {f"i{row}" for row in range(N)} - {"i0", "i7"}
        if readonly:
            c.close()
        assert writer.check() == []


def change(path, *statements):
    connection = sqlite3.connect(path / "catalog.sqlite")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM members WHERE class = 0",
        "DELETE FROM members WHERE class = 0 AND key < 4",
    ],
)
def test_a_filter_by_a_label_does_not_use_damaged_members(path, statement):
    change(path, statement)
    with Collection.open(path) as c:
        first = c.classes()[0].name
        with pytest.raises(FormatError, match="the members of a class are damaged; 'oasis check"):
            c.search(chunk(1)[0], 5, where={"$labels": {"has": first}})
        assert c.check()
        c.repair()
        assert c.check() == []
        assert len(c.search(chunk(1)[0], 5, where={"$labels": {"has": first}})[0]) == 5


def test_a_filter_by_a_label_whose_row_is_lost_says_so(path):
    with Collection.open(path) as c:
        last = c.classes()[-1].name
    change(path, "DELETE FROM classes WHERE number = (SELECT max(number) FROM classes)")
    with Collection.open(path) as c, pytest.raises(FormatError, match="classes"):
        c.search(chunk(1)[0], 5, where={"$labels": {"has": last}})


@pytest.mark.parametrize("readonly", [False, True], ids=["writer", "reader"])
def test_a_schema_that_is_no_text_is_damage(path, readonly):
    change(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET name = CAST(x'ff8b' AS TEXT), sql = 'CREATE TABLE' "
        "WHERE name = 'rounds'",
    )
    with pytest.raises(FormatError, match="is damaged, or no catalog"):
        Collection.open(path, readonly=readonly)
