"""The stream of the demo: rounds into a collection, and how well icons are found after each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from oasis.arrays import Rows, has_row
from oasis.codes import Codes
from oasis.collection import Collection
from oasis.datasets.dataset import Dataset
from oasis.items import Item
from oasis.metrics import asymmetric_average_precision, chance_map, mean_average_precision
from oasis.model import OASIS
from oasis.streams import rounds, runbook

N_BITS = 256
_BATCH = 256


@dataclass(frozen=True)
class Told:
    """One round: what arrived, and how well held-out icons are found in all that is stored.

    Figures are MAP by asymmetric scores, the ranking of searches, for queries of new, old and all
    categories. ``old`` is None in the first round. ``hamming`` is the MAP of all queries by Hamming
    distance, in which content bits weigh as much as label bits, ``chance`` that of a random order.
    ``seconds`` is the time for features, learning and storing.
    """

    number: int
    n_stored: int
    new_classes: tuple[str, ...]
    new: float
    old: float | None
    all: float
    hamming: float
    chance: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """Share of icons found first, or among ten, by their own title or picture; each third is tried.

    ``code_...`` are the same by codes alone, without kept texts and fingerprints.
    """

    n: int
    first: float
    ten: float
    code_first: float
    code_ten: float
    picture: float
    code_picture: float


class Stream:
    """The rounds of the icon stream; each round is ingested when it is iterated.

    Parameters
    ----------
    collection : Collection, new, with the demo's extractor
    dataset, items : the icons in two forms, in the same order
    seed : decides which icons are held out
    """

    def __init__(
        self, collection: Collection, dataset: Dataset, items: Sequence[Item], seed: int
    ) -> None:
        self.collection = collection
        self.dataset = dataset
        self.items = items
        self.rounds = rounds(dataset, runbook("icons"), seed)

    def __iter__(self) -> Iterator[Told]:
        codes: list[Codes] = []
        stored: list[Rows] = []
        asked: list[Rows] = []
        features = []
        for each in self.rounds:
            start = time.perf_counter()
            chunk = [self.items[row] for row in each.train]
            self.ingest(chunk)
            seconds = time.perf_counter() - start
            codes += [
                np.frombuffer(self.collection.get(item.id).code, dtype=np.uint8)[None]
                for item in chunk  # a stored code never changes, so it is fetched once
            ]
            stored.append(each.train)
            asked.append(each.queries)
            base = np.vstack(codes), self.dataset.L[np.concatenate(stored)]
            rows = np.concatenate(asked)
            labels = self.dataset.L[rows]
            queries = [self.items[row] for row in each.queries]
            features.append(self.collection.extractor.extract(queries)[0])
            model = self.collection.model
            projections = np.vstack([model.project(part) for part in features])
            precision = asymmetric_average_precision(projections, base[0], labels, base[1])
            found = np.vstack([model.encode(part) for part in features])
            first = len(rows) - len(each.queries)
            yield Told(
                number=each.number,
                n_stored=len(base[1]),
                new_classes=each.new_classes,
                new=float(precision[first:].mean()),
                old=float(precision[:first].mean()) if first else None,
                all=float(precision.mean()),
                hamming=mean_average_precision(found, base[0], labels, base[1]),
                chance=chance_map(labels, base[1]),
                seconds=seconds,
            )

    def ingest(self, chunk: Sequence[Item]) -> None:
        """Store icons with their drawings."""
        pictures = [item.image if isinstance(item.image, bytes) else None for item in chunk]
        self.collection.ingest_items(chunk, thumbnails=pictures)

    @property
    def stored(self) -> list[Item]:
        """The icons that were ingested with their labels, in order."""
        return [self.items[row] for each in self.rounds for row in each.train]

    def held_out(self) -> list[Item]:
        """Return three icons that were held out, of the first, the middle and the last round."""
        some = (self.rounds[0], self.rounds[len(self.rounds) // 2], self.rounds[-1])
        return [self.items[each.queries[0]] for each in some]

    def found(self) -> Found:
        """Search with title and picture of every third icon; a title without words finds none."""
        items = self.stored[::3]
        counts = []
        for fuse in (True, False):
            titles = self._places(items, [{"text": each.payload["title"]} for each in items], fuse)
            pictures = self._places(items, [{"image": each.image} for each in items], fuse)
            counts += [(titles == 0).mean(), (titles < 10).mean(), (pictures == 0).mean()]
        first, ten, picture, code_first, code_ten, code_picture = map(float, counts)
        return Found(len(items), first, ten, code_first, code_ten, picture, code_picture)

    def _places(
        self, items: Sequence[Item], queries: Sequence[dict[str, object]], fuse: bool
    ) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the rank of each item in the answer to its query, 10 if it is not among ten."""
        places = np.full(len(items), 10)
        for start in range(0, len(items), _BATCH):
            block = slice(start, start + _BATCH)
            X, _ = self.collection.extractor.extract(queries[block])
            able = np.logical_or.reduce([has_row(matrix) for matrix in X.values()])
            rows = (np.flatnonzero(able) + start).tolist()
            lists = self.collection.search_items([queries[row] for row in rows], fuse=fuse)
            for row, hits in zip(rows, lists, strict=True):
                ids = [hit.id for hit in hits]
                places[row] = ids.index(items[row].id) if items[row].id in ids else 10
        return places

    def add_unlabelled(self, items: Sequence[Item]) -> list[tuple[str, ...]]:
        """Ingest icons without their labels; return the labels that are predicted of each."""
        plain = [replace(item, labels=()) for item in items]
        X, _ = self.collection.extractor.extract(plain)
        predicted = cast(OASIS, self.collection.model).predict(X)  # the default of a new collection
        self.ingest(plain)
        return predicted
