"""The stream of the demo: rounds into a collection, and how well icons are found after each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oasis.arrays import Rows
from oasis.codes import Codes
from oasis.collection import Collection
from oasis.datasets.dataset import Dataset
from oasis.items import Item
from oasis.metrics import asymmetric_average_precision, chance_map
from oasis.streams import rounds, runbook

N_BITS = 256
EVERY = 9
"""Of the stored icons, each ninth is searched for by its title and by its picture."""


@dataclass(frozen=True)
class Told:
    """One round: what arrived, and how well held-out icons are found in all that is stored.

    Figures are MAP by asymmetric scores, the ranking of searches, for queries of new, old and all
    categories; ``old`` is None in the first round. ``chance`` is the MAP of a random order.
    ``seconds`` is the time for features, learning and storing.
    """

    number: int
    n_stored: int
    new_classes: tuple[str, ...]
    new: float
    old: float | None
    all: float
    chance: float
    seconds: float


@dataclass(frozen=True)
class Found:
    """Share of icons found first, or among ten, by their own title, and first by their picture."""

    n: int
    first: float
    ten: float
    picture: float


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
            base, base_labels = np.vstack(codes), self.dataset.L[np.concatenate(stored)]
            rows = np.concatenate(asked)
            labels = self.dataset.L[rows]
            queries = [self.items[row] for row in each.queries]
            features.append(self.collection.extractor.extract(queries)[0])
            model = self.collection.model
            projections = np.vstack([model.project(part) for part in features])
            precision = asymmetric_average_precision(projections, base, labels, base_labels)
            first = len(rows) - len(each.queries)
            yield Told(
                number=each.number,
                n_stored=len(base),
                new_classes=each.new_classes,
                new=float(precision[first:].mean()),
                old=float(precision[:first].mean()) if first else None,
                all=float(precision.mean()),
                chance=chance_map(labels, base_labels),
                seconds=seconds,
            )

    def ingest(self, chunk: Sequence[Item]) -> None:
        """Store icons with their drawings."""
        pictures = [item.image if isinstance(item.image, bytes) else None for item in chunk]
        self.collection.ingest_items(chunk, thumbnails=pictures)

    def held_out(self) -> list[Item]:
        """Return three icons that were held out, of the first, the middle and the last round."""
        some = (self.rounds[0], self.rounds[len(self.rounds) // 2], self.rounds[-1])
        return [self.items[each.queries[0]] for each in some]

    def found(self) -> Found:
        """Search for some of the stored icons by their titles and by their pictures."""
        stored = [self.items[row] for each in self.rounds for row in each.train]
        find = self.collection.find
        ids = [
            (
                item.id,
                [hit.id for hit in find(item.payload["title"])],
                [hit.id for hit in find(image=item.image, k=1)],
            )
            for item in stored[::EVERY]
        ]
        return Found(
            len(ids),
            first=float(np.mean([key in by_title[:1] for key, by_title, _ in ids])),
            ten=float(np.mean([key in by_title for key, by_title, _ in ids])),
            picture=float(np.mean([key in by_picture for key, _, by_picture in ids])),
        )

    def add_unlabelled(self, items: Sequence[Item]) -> list[tuple[str, ...]]:
        """Ingest icons without their labels; return the labels that are predicted of each."""
        self.ingest([replace(item, labels=()) for item in items])
        return [self.collection.get(item.id).predicted for item in items]
