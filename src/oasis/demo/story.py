"""What happens in the demo: a stream of rounds into a collection, then searches in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oasis.arrays import Rows
from oasis.codes import Codes
from oasis.collection import Collection, Hit
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.datasets.icons import Icon
from oasis.features.embedders import Features
from oasis.items import Item
from oasis.metrics import average_precision, chance_map, mean_average_precision
from oasis.streams import Round, rounds, runbook

N_BITS = 64
N_HITS = 8

OWN_WORDS = ("rain cloud", "soccer ball", "guitar music")
"""Searches by text, chosen by hand among those that work; the page says so."""

STRANGE_WORDS = ("physician", "cinema", "winter")
"""Words that are no category: nothing was ever labelled with them. Chosen in the same way."""

_QUARTILES = {"easy": 0.75, "typical": 0.5, "hard": 0.25}


@dataclass(frozen=True)
class Told:
    """One round: what came, and how well held-out icons are found in all that is stored.

    ``old`` is None in the first round. ``chance`` is the MAP of a random order, for all queries.
    ``seconds`` are those of features, learning and storing. ``samples`` are ids of new icons, one
    of each new category as far as there is one.
    """

    number: int
    n: int
    n_stored: int
    new_classes: tuple[str, ...]
    new: float
    old: float | None
    all: float
    chance: float
    seconds: float
    samples: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The hits of one way to ask."""

    way: str
    hits: list[Hit]


@dataclass(frozen=True)
class Asked:
    """One question, asked in one way or in several; ``icon`` is the held-out icon that asks."""

    title: str
    icon: Item | None
    note: str
    answers: tuple[Answer, ...]


class Stream:
    """The rounds of the icon stream: the next one is ingested when it is asked for.

    Parameters
    ----------
    collection : Collection, new, with the demo's extractor
    dataset, icons, items : the icons, three times in the same order
    seed : deals out the held-out icons
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
            first = len(labels) - len(each.queries)
            yield Told(
                number=each.number,
                n=len(each.train),
                n_stored=len(base[1]),
                new_classes=each.new_classes,
                new=mean_average_precision(found[first:], base[0], labels[first:], base[1]),
                old=mean_average_precision(found[:first], base[0], labels[:first], base[1])
                if first
                else None,
                all=mean_average_precision(found, base[0], labels, base[1]),
                chance=chance_map(labels, base[1]),
                seconds=seconds,
                samples=self._samples(each),
            )

    def held_out(self) -> dict[str, Item]:
        """Return three held-out icons: at the quartiles of average precision, of all of them."""
        rows = np.concatenate([each.queries for each in self.rounds])
        stored = np.concatenate([each.train for each in self.rounds])
        X, _ = self.collection.extractor.extract([self.items[row] for row in rows])
        precision = average_precision(
            self.collection.model.encode(X),
            self._codes([self.items[row] for row in stored]),
            self.dataset.L[rows],
            self.dataset.L[stored],
        )
        order = rows[np.argsort(precision, kind="stable")]
        return {
            name: self.items[order[int(share * (len(order) - 1))]]
            for name, share in _QUARTILES.items()
        }

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


def searches(stream: Stream) -> list[Asked]:
    """Ask by words, by picture and by both, then with words alone.

    The icons that ask in three ways were held out, and are not picked by hand: an easy one, a
    typical one and a hard one, by average precision.
    """
    collection = stream.collection
    found = []
    for name, item in stream.held_out().items():
        ways: dict[str, dict[str, Any]] = {
            "by words": {"text": item.text},
            "by picture": {"image": item.image},
            "by both": {"text": item.text, "image": item.image},
        }
        answers = tuple(
            Answer(way, collection.search_items([query], k=N_HITS)[0])
            for way, query in ways.items()
        )
        found.append(Asked(item.payload["title"], item, name, answers))
    for text in OWN_WORDS:
        (hits,) = collection.search_items([{"text": text}], k=N_HITS)
        found.append(Asked(text, None, "words", (Answer("by words", hits),)))
    lists = collection.search_words(STRANGE_WORDS, k=N_HITS)
    for word, hits in zip(STRANGE_WORDS, lists, strict=True):
        found.append(Asked(word, None, "no category", (Answer("by meaning", hits),)))
    return found


def _picture(item: Item) -> bytes:
    if not isinstance(item.image, bytes):
        raise TypeError(f"icon {item.id!r} has no picture")
    return item.image
