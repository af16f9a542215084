"""What happens in the demo: a stream of rounds into a collection, then searches in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from oasis.arrays import Rows, has_row
from oasis.codes import Codes
from oasis.collection import Collection, Hit
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.datasets.icons import Icon
from oasis.features.embedders import Features
from oasis.items import Item
from oasis.metrics import asymmetric_average_precision, chance_map, mean_average_precision
from oasis.model import OASIS
from oasis.streams import Round, rounds, runbook

N_BITS = 256
N_HITS = 8

OWN_WORDS = ("rain cloud", "soccer ball", "guitar music")
"""Searches by kind and by content, chosen by hand among those that work; the page says so."""

STRANGE_WORDS = ("physician", "cinema", "winter")
"""Words that are not categories: nothing was ever labelled with them. Chosen in the same way."""

CONTENT = 0.8
"""Weight of content in the searches by content; 1 would ignore the categories."""

_QUARTILES = {"easy": 0.75, "typical": 0.5, "hard": 0.25}
_BATCH = 256


@dataclass(frozen=True)
class Told:
    """One round: what arrived, and how well held-out icons are found in all that is stored.

    Figures are MAP by asymmetric scores, the ranking of searches. ``old`` is None in the first
    round. ``hamming`` is the MAP of all queries by Hamming distance, in which content bits weigh as
    much as label bits. ``chance`` is the MAP of a random order, for all queries. ``seconds`` is the
    time for features, learning and storing. ``samples`` are ids of new icons, one of each new
    category if there is one.
    """

    number: int
    n: int
    n_stored: int
    new_classes: tuple[str, ...]
    new: float
    old: float | None
    all: float
    hamming: float
    chance: float
    seconds: float
    samples: tuple[str, ...]


@dataclass(frozen=True)
class Titles:
    """Share of stored icons that their own title, as a query, finds first, and among ten.

    ``code_first`` and ``code_ten`` are the same by codes alone, without the kept texts;
    ``picture`` and ``code_picture`` are the shares that their own picture finds first, with
    fingerprints and by codes alone.
    """

    n: int
    first: float
    ten: float
    code_first: float
    code_ten: float
    picture: float
    code_picture: float


@dataclass(frozen=True)
class Answer:
    """The hits of one way to ask."""

    way: str
    hits: list[Hit]


@dataclass(frozen=True)
class Asked:
    """One question, asked in one way or in several.

    ``kind`` says which part of the story it belongs to: "title" (a stored icon by its own title),
    "content" (the same words by kind and by content), "held out" (a held-out icon in three ways)
    or "strange" (a word that is no category). ``icon`` is the icon that asks or is sought.
    """

    kind: str
    title: str
    icon: Item | None
    note: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Unlabelled:
    """An icon that came without labels, its predicted labels, and its rank in a search by title.

    ``place`` counts from 1; None if it is not among the first ten.
    """

    icon: Item
    predicted: tuple[str, ...]
    place: int | None


class Stream:
    """The rounds of the icon stream; each round is ingested when it is iterated.

    Parameters
    ----------
    collection : Collection, new, with the demo's extractor
    dataset, icons, items : the icons in three forms, in the same order
    seed : decides which icons are held out
    """

    def __init__(
        self,
        collection: Collection,
        dataset: Dataset,
        icons: Sequence[Icon],
        items: Sequence[Item],
        seed: int,
    ) -> None:
        self.collection = collection
        self.dataset = dataset
        self.icons = icons
        self.items = items
        self.rounds = rounds(dataset, runbook("icons"), seed)

    def __iter__(self) -> Iterator[Told]:
        codes: list[Codes] = []
        stored: list[Rows] = []
        asked: list[Rows] = []
        features: list[dict[str, Features]] = []
        for each in self.rounds:
            start = time.perf_counter()
            chunk = [self.items[row] for row in each.train]
            self.collection.ingest_items(chunk, thumbnails=[_picture(item) for item in chunk])
            seconds = time.perf_counter() - start
            # a stored code never changes, so it is fetched once
            codes.append(self._codes(chunk))
            stored.append(each.train)
            asked.append(each.queries)
            queries = [self.items[row] for row in each.queries]
            features.append(self.collection.extractor.extract(queries)[0])
            base = np.vstack(codes), self.dataset.L[np.concatenate(stored)]
            labels = self.dataset.L[np.concatenate(asked)]
            model = self.collection.model
            found = np.vstack([model.encode(part) for part in features])
            precision = asymmetric_average_precision(
                np.vstack([model.project(part) for part in features]), base[0], labels, base[1]
            )
            first = len(labels) - len(each.queries)
            yield Told(
                number=each.number,
                n=len(each.train),
                n_stored=len(base[1]),
                new_classes=each.new_classes,
                new=float(precision[first:].mean()),
                old=float(precision[:first].mean()) if first else None,
                all=float(precision.mean()),
                hamming=mean_average_precision(found, base[0], labels, base[1]),
                chance=chance_map(labels, base[1]),
                seconds=seconds,
                samples=self._samples(each),
            )

    def held_out(self) -> dict[str, Item]:
        """Return three held-out icons: at the quartiles of average precision."""
        rows = np.concatenate([each.queries for each in self.rounds])
        stored = np.concatenate([each.train for each in self.rounds])
        X, _ = self.collection.extractor.extract([self.items[row] for row in rows])
        precision = asymmetric_average_precision(
            self.collection.model.project(X),
            self._codes([self.items[row] for row in stored]),
            self.dataset.L[rows],
            self.dataset.L[stored],
        )
        order = rows[np.argsort(precision, kind="stable")]
        return {
            name: self.items[order[int(share * (len(order) - 1))]]
            for name, share in _QUARTILES.items()
        }

    @property
    def stored(self) -> list[Item]:
        """The icons that were ingested with their labels, in order."""
        return [self.items[row] for each in self.rounds for row in each.train]

    def titles(self) -> Titles:
        """Search with title and picture of every stored icon; a title without words finds none."""
        items = self.stored
        found = {True: [0, 0], False: [0, 0]}
        pictures = {True: 0, False: 0}
        for start in range(0, len(items), _BATCH):
            block = items[start : start + _BATCH]
            queries = [{"text": item.payload["title"]} for item in block]
            X, _ = self.collection.extractor.extract(queries)
            able = np.logical_or.reduce([has_row(matrix) for matrix in X.values()])
            rows = np.flatnonzero(able)
            for fuse, counts in found.items():
                lists = self.collection.search_items([queries[row] for row in rows], fuse=fuse)
                for row, hits in zip(rows, lists, strict=True):
                    ids = [hit.id for hit in hits]
                    counts[0] += ids[:1] == [block[row].id]
                    counts[1] += block[row].id in ids
            for fuse in pictures:
                asked = [{"image": item.image} for item in block]
                lists = self.collection.search_items(asked, 1, fuse=fuse)
                pictures[fuse] += sum(
                    hits[0].id == item.id for item, hits in zip(block, lists, strict=True)
                )
        counted = [*found[True], *found[False], *pictures.values()]
        return Titles(len(items), *(count / len(items) for count in counted))

    def add_unlabelled(self, items: Sequence[Item]) -> list[Unlabelled]:
        """Ingest icons without their labels, and search them by their titles."""
        plain = [replace(item, labels=()) for item in items]
        X, _ = self.collection.extractor.extract(plain)
        model = cast(OASIS, self.collection.model)  # the default of a new collection
        predicted = model.predict(X)
        self.collection.ingest_items(plain, thumbnails=[_picture(item) for item in plain])
        lists = self.collection.search_items([{"text": item.payload["title"]} for item in plain])
        found = []
        for item, names, hits in zip(items, predicted, lists, strict=True):
            ids = [hit.id for hit in hits]
            found.append(
                Unlabelled(item, names, ids.index(item.id) + 1 if item.id in ids else None)
            )
        return found

    def _codes(self, chunk: Sequence[Item]) -> Codes:
        return np.vstack(
            [np.frombuffer(self.collection.get(item.id).code, dtype=np.uint8) for item in chunk]
        )

    def _samples(self, each: Round) -> tuple[str, ...]:
        chosen: dict[str, None] = {}
        for name in each.new_classes:
            column = self.dataset.classes.index(name)
            rows = each.train[self.dataset.L[each.train, column] > 0]
            chosen.update(dict.fromkeys(self.icons[row].name for row in rows[:2]))
        return tuple(chosen)[:12]


def searches(stream: Stream, held_out: Mapping[str, Item]) -> list[Asked]:
    """Run the searches in their order: by title, kind and content, in three ways, by other words.

    Icons are not picked by hand. Those searched by title are at the quarters of the stream. Those
    used as queries in three ways were held out: an easy, a typical and a hard one by average
    precision.
    """
    collection = stream.collection
    found = []
    stored = stream.stored
    for quarter in (1, 2, 3):
        item = stored[quarter * len(stored) // 4]
        title = item.payload["title"]
        (hits,) = collection.search_items([{"text": title}], k=N_HITS)
        found.append(Asked("title", title, item, "", (Answer("by its title", hits),)))
    for text in OWN_WORDS:
        answers = tuple(
            Answer(way, collection.search_items([{"text": text}], k=N_HITS, content=content)[0])
            for way, content in (("the kind", 0.0), ("nearly exactly this", CONTENT))
        )
        found.append(Asked("content", text, None, "", answers))
    for name, item in held_out.items():
        ways: dict[str, dict[str, Any]] = {
            "by words": {"text": item.text},
            "by picture": {"image": item.image},
            "by both": {"text": item.text, "image": item.image},
        }
        answers = tuple(
            Answer(way, collection.search_items([query], k=N_HITS)[0])
            for way, query in ways.items()
        )
        found.append(Asked("held out", item.payload["title"], item, name, answers))
    lists = collection.search_items([{"text": word} for word in STRANGE_WORDS], k=N_HITS)
    for word, hits in zip(STRANGE_WORDS, lists, strict=True):
        found.append(Asked("strange", word, None, "", (Answer("as a text", hits),)))
    return found


def _picture(item: Item) -> bytes:
    if not isinstance(item.image, bytes):
        raise TypeError(f"icon {item.id!r} has no picture")
    return item.image
