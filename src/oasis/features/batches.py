"""Batches of items: their pictures decoded ahead, and their features in one modality.

A picture is decoded once for all modalities that take it and for its thumbnail. A vector that an
item brings is used unchanged, and the field of that modality is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from oasis.errors import DataError, InputError
from oasis.features.embedders import (
    Embedder,
    Features,
    Given,
    spread,
    stacked,
)
from oasis.features.pictures import (
    BATCH,
    MAX_PIXELS,
    PictureEmbedder,
    ahead,
    n_workers,
    open_picture,
)
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
    starts = range(0, max(len(items), 1), BATCH)
    batches = [items[start : start + BATCH] for start in starts]
    embedders = [found for _, each in sources.values() if (found := of_pictures(each))]
    if shown is None and not embedders:
        yield from ((batch, [Look() for _ in batch]) for batch in batches)
        return
    n_threads = [each.n_threads for each in embedders if each.n_threads]
    n = n_workers(min(n_threads, default=0), len(items))
    with ThreadPoolExecutor(n) as pool:
        yield from zip(
            batches, ahead(pool, lambda item: _look(sources, item, shown), batches), strict=True
        )


def _look(sources: Sources, item: object, shown: str | None) -> Look:
    """Return the prepared pictures of an item; each picture is decoded once."""
    look = Look()
    needed: dict[str, dict[str, PictureEmbedder]] = {}
    given = vectors_of(item)
    for modality, (source, embedder) in sources.items():
        taker = of_pictures(embedder)
        if taker is not None and modality not in given:
            needed.setdefault(source, {})[modality] = taker
    if shown is not None:
        needed.setdefault(shown, {})
    for source, takers in needed.items():
        raw = _optional(item, source) if not takers else raw_of(item, source)
        if raw is None:
            continue
        limits = [each.max_pixels for each in takers.values()]
        try:
            picture = open_picture(raw, min(limits, default=MAX_PIXELS))
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
    vectors = {
        row: given[modality]
        for row, given in enumerate(map(vectors_of, batch))
        if modality in given
    }
    reasons: dict[int, str] = {}
    if (taker := of_pictures(embedder)) is not None:
        rows = [row for row, look in enumerate(looks) if modality in look.prepared]
        reasons = {
            row: look.reasons[modality]
            for row, look in enumerate(looks)
            if modality in look.reasons
        }
        X, failed = taker.embed_prepared([looks[row].prepared[modality] for row in rows])
    else:
        raws = [
            None if row in vectors else raw_of(item, source, embedder)
            for row, item in enumerate(batch)
        ]
        rows = [row for row, raw in enumerate(raws) if raw is not None]
        present = [raws[row] for row in rows]
        embed = getattr(embedder, "embed_dense", embedder.embed) if dense else embedder.embed
        X, failed = embed(present)
    reasons |= {rows[row]: reason for row, reason in failed.items()}
    if not vectors:
        return spread(X, np.array(rows, dtype=np.intp), len(batch)), reasons
    taken, failed = Given(embedder.n_features).embed(list(vectors.values()))
    reasons |= {list(vectors)[row]: reason for row, reason in failed.items()}
    # stack the rows of both, then restore the order of the items
    order = np.array([*rows, *vectors], dtype=np.intp)
    both = stacked([X, taken]) if rows else taken
    sorting = np.argsort(order)
    return spread(both[sorting], order[sorting], len(batch)), reasons


def of_pictures(embedder: Embedder) -> PictureEmbedder | None:
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


def _optional(item: object, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def raw_of(item: object, name: str, embedder: Embedder | None = None) -> Any:
    if isinstance(item, str):
        shown = json.dumps([{"text": item[:40]}], ensure_ascii=False)
        raise InputError(f"an item is a mapping, got the text {item[:40]!r}; write {shown}")
    # most kinds of items have no field for a given vector
    if isinstance(item, Mapping) or isinstance(embedder, Given):
        return _optional(item, name)
    try:
        return getattr(item, name)
    except AttributeError:
        raise InputError(f"an item of type {type(item).__name__} has no field {name!r}") from None
