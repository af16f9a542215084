"""The quality curve: precision of a chunk's samples as queries before the chunk is learned."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix, indicator
from oasis.codes import Codes, pack
from oasis.collection.catalog.catalog import Catalog
from oasis.collection.catalog.commits import label_numbers
from oasis.collection.committed import Committed
from oasis.collection.records import Quality

if TYPE_CHECKING:
    import scipy.sparse as sp

N_QUERIES = 200
"""Most samples of a chunk that are asked."""

N_HITS = 10
"""Hits that are judged: the best ones that have labels."""

_LOOKED_AT = 50
_SAMPLE = 1000
_STALE = 1.125


class QualityMeter:
    """Asks samples of a chunk against the items stored.

    Chance is estimated from 1,000 items spread evenly over the collection, which are drawn anew
    whenever it has grown by an eighth.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._drawn_at = 0
        self._sample: list[list[int]] = []
        self._sample_labels: sp.csr_array | None = None

    def measure(
        self,
        snapshot: Committed,
        X: dict[str, Matrix],
        labels: Sequence[tuple[str, ...]],
        replaced: Container[int] = (),
    ) -> Quality | None:
        """Return the quality of the snapshot for up to 200 of the samples that have labels.

        Evenly spread over the chunk; by Hamming distance. A hit is right when it shares a label;
        one without labels cannot be judged and is passed over (of 50 hits at most), in chance too.
        So are those of ``replaced`` keys, whose items these samples are.
        None where no sample has labels or no stored item can be judged.
        """
        labelled = np.flatnonzero([bool(names) for names in labels])
        if snapshot.model is None or not len(labelled) or not snapshot.head.n_items:
            return None
        n = min(N_QUERIES, len(labelled))
        rows = labelled[np.arange(n) * len(labelled) // n]
        codes = pack(snapshot.model.project({name: matrix[rows] for name, matrix in X.items()}))
        numbers = {name: number for number, name in enumerate(snapshot.classes)}
        wanted = [
            [numbers[name] for name in labels[row] if name in numbers] for row in rows.tolist()
        ]
        c = len(snapshot.classes)
        asked = indicator(wanted, c)
        # most often the first hits all have labels, and no more of them are read
        for k in (N_HITS, _LOOKED_AT):
            sets, place = self._label_sets(snapshot, codes, k, replaced)
            judged = np.array([bool(each) for each in sets])[place]  # (n, k)
            judged &= np.cumsum(judged, axis=1) <= N_HITS
            if judged.sum(axis=1).min() == N_HITS:
                break
        if not judged.any() or not self._sample:
            return None
        right = np.take_along_axis(_sharing(asked, indicator(sets, c)), place, axis=1)
        precision = right[judged].mean()
        if self._sample_labels is None or self._sample_labels.shape[1] != c:
            self._sample_labels = indicator(self._sample, c)
        chance = _sharing(asked, self._sample_labels).mean()
        return Quality(float(precision), float(chance))

    def _label_sets(
        self, snapshot: Committed, codes: Codes, k: int, replaced: Container[int]
    ) -> tuple[list[list[int]], npt.NDArray[np.intp]]:
        """Return class numbers of the distinct k best hits, and which of these each hit is, (n, k).

        Those of ``replaced`` keys count as unlabelled.
        """
        n_hits = min(k, snapshot.head.n_items)
        keys = snapshot.replica.search(codes, n_hits, None, snapshot.head.next_key).ids
        found, place = np.unique(keys, return_inverse=True)
        sets: dict[int, list[int]] = {}
        with self._catalog.reading() as connection:
            for key, text in self._catalog.rows(connection, "key, labels", found.tolist()):
                sets[key] = [] if key in replaced else label_numbers(text)
            self._draw(snapshot, connection)
        return [sets.get(key, []) for key in found.tolist()], place.reshape(keys.shape)

    def _draw(self, snapshot: Committed, connection: sqlite3.Connection) -> None:
        top = snapshot.head.next_key
        if self._drawn_at and top <= _STALE * self._drawn_at:
            return
        spread = np.unique(np.linspace(1, top - 1, num=min(_SAMPLE, top - 1)).astype(np.int64))
        rows = self._catalog.rows(connection, "labels", spread.tolist())
        self._sample = [numbers for (text,) in rows if (numbers := label_numbers(text))]
        self._sample_labels = None
        self._drawn_at = top


def _sharing(a: sp.csr_array, b: sp.csr_array) -> npt.NDArray[np.bool_]:
    """Return which rows of a share a class with which rows of b."""
    shared: npt.NDArray[np.bool_] = (a @ b.T).toarray() > 0
    return shared
