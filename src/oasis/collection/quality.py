"""What a model says of a chunk: predicted labels, and precision before the chunk is learned."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix
from oasis.codes import Codes, pack
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.records import Quality
from oasis.collection.rows import label_numbers
from oasis.hashers.chunk import Chunk
from oasis.model import OASIS, AnyModel
from oasis.model.threads import one_thread

LIKELY = 0.5
"""A class is predicted from this value of `OASIS.predict_proba` on.

F1 of the labels predicted of samples that were not learned, beside that of `OASIS.predict`, whose
values are not calibrated: icons 0.64 and 0.50, 8,000 samples of coco79 0.64 and 0.64, of
synthetic-mirflickr 0.68 and 0.63.
"""

N_QUERIES = 200
"""Most samples of a chunk that are asked."""

N_HITS = 10
"""Hits that are judged: the best ones that have labels."""

_LOOKED_AT = 50
_SAMPLE = 1000
_STALE = 1.125


def predicted_labels(model: AnyModel, chunk: Chunk) -> list[tuple[str, ...]]:
    """Return the classes that are predicted of each sample without labels, the surest first.

    ``model`` has learned the chunk. Of a sample with labels nothing is predicted, and the published
    method predicts nothing at all.
    """
    predicted: list[tuple[str, ...]] = [()] * chunk.n_samples
    rows = [row for row, names in enumerate(chunk.labels) if not names]
    if not rows or not isinstance(model, OASIS) or not model.classes_:
        return predicted
    sure = model.predict_proba({name: matrix[rows] for name, matrix in chunk.X.items()})
    names = np.array(model.classes_, dtype=object)
    for row, values in zip(rows, sure, strict=True):
        likely = np.flatnonzero(values >= LIKELY)
        predicted[row] = tuple(names[likely[np.argsort(-values[likely], kind="stable")]])
    return predicted


class QualityMeter:
    """Asks samples of a chunk against the items stored.

    Chance is estimated from 1,000 items spread evenly over the collection, which are drawn anew
    whenever it has grown by an eighth.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._drawn_at = 0
        self._n_sampled = 0
        self._having: dict[int, npt.NDArray[np.bool_]] = {}  # by class, which of the sample have it

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
        with one_thread():  # more would spin for a while, beside the threads that write
            asked = {name: X[name][rows] for name in snapshot.model.state_.widths}
            codes = pack(snapshot.model.hash_function().project(asked))
        numbers = {name: number for number, name in enumerate(snapshot.classes)}
        wanted = [
            {numbers[name] for name in labels[row] if name in numbers} for row in rows.tolist()
        ]
        # most often the first hits all have labels, and no more of them are read
        for k in (N_HITS, _LOOKED_AT):
            found = self._label_sets(snapshot, codes, k, replaced)
            judged = [[names for names in hits if names][:N_HITS] for hits in found]
            if min(map(len, judged)) == N_HITS:
                break
        n_judged = sum(map(len, judged))
        if not n_judged or not self._n_sampled:
            return None
        right = 0
        for own, hits in zip(wanted, judged, strict=True):
            right += len(hits) - sum(map(own.isdisjoint, hits))
        sharing = sum(self._n_sharing(own) for own in wanted)
        return Quality(right / n_judged, sharing / (n * self._n_sampled))

    def _n_sharing(self, wanted: set[int]) -> int:
        """Return how many items of the sample have one of the classes."""
        having = [self._having[number] for number in wanted if number in self._having]
        return int(np.count_nonzero(np.logical_or.reduce(having))) if having else 0

    def _label_sets(
        self, snapshot: Committed, codes: Codes, k: int, replaced: Container[int]
    ) -> list[list[list[int]]]:
        """Return the class numbers of the k best hits of each query.

        Those of ``replaced`` keys count as unlabelled.
        """
        n_hits = min(k, snapshot.head.n_items)
        hits = snapshot.replica.search(codes, n_hits, None, snapshot.head.next_key).ids.tolist()
        sets: dict[int, list[int]] = {}
        with self._catalog.reading() as connection:
            distinct = sorted(set().union(*hits))
            for key, text in self._catalog.rows(connection, "key, labels", distinct):
                sets[key] = [] if key in replaced else label_numbers(text)
            self._draw(snapshot, connection)
        return [[sets.get(key, []) for key in row] for row in hits]

    def _draw(self, snapshot: Committed, connection: sqlite3.Connection) -> None:
        top = snapshot.head.next_key
        if self._drawn_at and top <= _STALE * self._drawn_at:
            return
        spread = np.linspace(1, top - 1, num=min(_SAMPLE, top - 1)).astype(np.int64)
        rows = self._catalog.rows(connection, "labels", sorted(set(spread.tolist())))
        sample = [numbers for (text,) in rows if (numbers := label_numbers(text))]
        self._having = {}
        for at, numbers in enumerate(sample):
            for number in numbers:
                self._having.setdefault(number, np.zeros(len(sample), dtype=np.bool_))[at] = True
        self._n_sampled = len(sample)
        self._drawn_at = top
