"""Batches of items: their pictures decoded ahead, and their features in one modality.

A picture is decoded once for all modalities that take it and for its thumbnail. A vector that an
item brings is used unchanged, and the field of that modality is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from oasis.errors import DataError, InputError
from oasis.features.embedders import Embedder, Features, Given, spread
from oasis.features.pictures import BATCH, PictureEmbedder, open_picture
from oasis.features.thumbnail import thumbnail

Sources: TypeAlias = Mapping[str, tuple[str, Embedder]]
"""Modality -> (field, embedder)."""


@dataclass(slots=True)
class Look:
    """Prepared pictures of an item by modality, or why there is none; and a thumbnail."""

    prepared: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    thumbnail: bytes | None = None


def looks_at(
    sources: Sources, items: Sequence[object], shown: str | None
) -> Iterator[tuple[Sequence[object], list[Look]]]:
    """Yield batches of items with the prepared pictures.

    Threads decode the pictures of the next batch while the caller uses this one.
    """
    batches = [items[start : start + BATCH] for start in range(0, max(len(items), 1), BATCH)]
    embedders = [found for _, each in sources.values() if (found := _of_pictures(each))]
    fields = {field for field, each in sources.values() if _of_pictures(each)}
    fields |= set() if shown is None else {shown}
    if not any(_optional(item, field) is not None for item in items for field in fields):
        yield from ((batch, [Look() for _ in batch]) for batch in batches)
        return
    most = min((each.n_threads for each in embedders if each.n_threads), default=os.cpu_count())
    with ThreadPoolExecutor(max(1, min(most or 1, len(items)))) as pool:

        def begun(batch: Sequence[object]) -> list[Future[Look]]:
            return [pool.submit(_look, sources, shown, item) for item in batch]

        waiting = begun(batches[0])
        for batch, following in zip(batches, [*batches[1:], []], strict=True):
            ready, waiting = waiting, begun(following)
            yield batch, [future.result() for future in ready]


def _look(sources: Sources, shown: str | None, item: object) -> Look:
    """Return the prepared pictures of an item; each picture is decoded once."""
    look = Look()
    needed: dict[str, dict[str, PictureEmbedder]] = {}
    given = vectors_of(item)
    for modality, (source, embedder) in sources.items():
        taker = _of_pictures(embedder)
        if taker is not None and modality not in given:
            needed.setdefault(source, {})[modality] = taker
    if shown is not None:
        needed.setdefault(shown, {})
    for source, takers in needed.items():
        raw = raw_of(item, source) if takers else _optional(item, source)
        if raw is None:
            continue
        try:
            picture = open_picture(raw)
            for modality, taker in takers.items():
                look.prepared[modality] = taker.prepare(picture)
            if source == shown:
                look.thumbnail = thumbnail(picture)
        except DataError as error:
            look.reasons |= dict.fromkeys(takers, str(error))
    return look


def features_of(
    modality: str,
    source: str,
    embedder: Embedder,
    batch: Sequence[object],
    looks: Sequence[Look],
    dense: bool,
) -> tuple[Features, dict[int, str]]:
    """Return the features of a batch in one modality, and by row the reason why it has none."""
    n = len(batch)
    brought = [vectors_of(item).get(modality) for item in batch]
    vectors = {row: vector for row, vector in enumerate(brought) if vector is not None}
    reasons: dict[int, str] = {}
    raws: dict[int, Any]
    if (taker := _of_pictures(embedder)) is not None:
        failing = {row: look.reasons.get(modality) for row, look in enumerate(looks)}
        reasons = {row: why for row, why in failing.items() if why is not None}
        found = {row: look.prepared.get(modality) for row, look in enumerate(looks)}
        raws = {row: raw for row, raw in found.items() if raw is not None}
        X, failed = taker.embed_prepared(list(raws.values()))
    else:
        found = {
            row: raw_of(batch[row], source, embedder) for row in range(n) if row not in vectors
        }
        raws = {row: raw for row, raw in found.items() if raw is not None}
        embed = getattr(embedder, "embed_dense", embedder.embed) if dense else embedder.embed
        X, failed = embed(list(raws.values()))
    rows = list(raws)
    reasons |= {rows[place]: reason for place, reason in failed.items()}
    X = spread(X, np.array(rows, dtype=np.intp), n)
    if vectors:
        taken, failed = Given(embedder.n_features).embed(list(vectors.values()))
        reasons |= {list(vectors)[place]: reason for place, reason in failed.items()}
        others = spread(taken, np.array(list(vectors), dtype=np.intp), n)
        # no row is in both, so the sum has the rows of both
        X = X + others if isinstance(X, np.ndarray) else X + type(X)(others)
    return X, reasons


def _of_pictures(embedder: Embedder) -> PictureEmbedder | None:
    # a `Named` embedder may take texts as well
    if embedder.takes == "picture" and isinstance(embedder, PictureEmbedder):
        return embedder
    return None


def vectors_of(item: object) -> Mapping[str, Any]:
    """Return the vectors that an item brings, by modality, without those that are None."""
    given = _optional(item, "vectors")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            f"the vectors of an item are {type(given).__name__}, expected a mapping of modality to "
            "vector"
        )
    return {modality: vector for modality, vector in given.items() if vector is not None}


def raw_of(item: object, name: str, embedder: Embedder | None = None) -> Any:
    """Return a field of an item; None if a mapping lacks it, or the item lacks a given vector."""
    if isinstance(item, str):
        shown = json.dumps([{"text": item[:40]}], ensure_ascii=False)
        raise InputError(f"an item is a mapping, got the text {item[:40]!r}; write {shown}")
    # most kinds of items have no field for a given vector
    if isinstance(item, Mapping) or isinstance(embedder, Given) or hasattr(item, name):
        return _optional(item, name)
    raise InputError(f"an item of type {type(item).__name__} has no field {name!r}")


def _optional(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
