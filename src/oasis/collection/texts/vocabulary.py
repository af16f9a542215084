"""What searches read or compute again and again, kept for the newest committed state."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.collection.catalog.class_postings import class_postings
from oasis.collection.catalog.commits import Keys
from oasis.collection.texts.fusion import ClassWords
from oasis.collection.texts.postings import Having, having

MOST_ENTRIES = 1 << 22
"""Items in all lists that are kept, at most: 38 MB."""

_List = TypeVar("_List")


class Vocabulary:
    """Which items have a word or a class, and projections of classes; any thread may ask.

    The lists of frequent words are long, and most queries have one: decoding them takes longer than
    anything else in a search by words. Lists are dropped with the next commit, and all together
    when they have more than `MOST_ENTRIES` items.

    Attributes
    ----------
    classes : which classes have a word in their names
    """

    def __init__(self) -> None:
        self.classes = ClassWords()
        self._kept = _Kept(-1)

    def having(self, connection: sqlite3.Connection, commits: int, word: str) -> Having:
        """Return the items whose text has a word, or a line (see `line_key`), as `having` does.

        ``commits`` is the number of the commit that is searched; the connection may be newer.
        """
        return self.kept(commits, word, lambda: having(connection, word), lambda x: len(x.keys))

    def labelled(self, connection: sqlite3.Connection, commits: int, number: int) -> Keys:
        """Return the items that have a class, as `class_postings` does."""
        return self.kept(commits, number, lambda: class_postings(connection, number), len)

    def text_sizes(self, commits: int, next_key: int) -> npt.NDArray[np.uint8]:
        """Return the number of words of texts by key, to be filled by who reads a word."""
        return self.kept(commits, "", lambda: np.zeros(next_key, dtype=np.uint8), lambda _: 0)

    def projection(self, commits: int, name: str, project: Callable[[list[str]], Single]) -> Single:
        """Return the projection (n_bits,) of the name of a class, by ``project`` of names."""
        return self.kept(commits, ("projection", name), lambda: project([name])[0], len)

    def kept(
        self,
        commits: int,
        name: Hashable,
        read: Callable[[], _List],
        length: Callable[[_List], int],
    ) -> _List:
        """Return what has a name in a commit; read where no query of that commit had it."""
        kept = self._kept
        if kept.commits != commits or kept.n_entries > MOST_ENTRIES:
            # replaced, not emptied: other threads may be reading it
            kept = self._kept = _Kept(commits)
        found: _List | None = kept.lists.get(name)
        if found is None:
            read_now = read()
            found = kept.lists.setdefault(name, read_now)  # another thread may have been faster
            kept.n_entries += length(found)
        return found


class _Kept:
    """Lists of one commit by name, and how many items they have together."""

    def __init__(self, commits: int) -> None:
        self.commits = commits
        self.lists: dict[Hashable, Any] = {}
        self.n_entries = 0
