"""What a user feels of a model: the measures by which its parts are judged.

One sample of a data set, in five chunks. The code of a collection is searched by projections:

``A``, ``A picture``, ``A text``
    Label MAP of queries with all modalities, and with one.
``P@10``, ``success picture``
    Precision of the first ten by all modalities; share of queries by picture with anything right
    among ten.
``half``
    Label MAP where only the first chunk has labels.
``U``
    A quarter of the classes is never labelled, and items that have them come last: MAP of such
    items by those classes, as a share of float cosine's.
``item``, ``item content``
    Share of items found among the first ten by three of their words; the same by content alone.
``P@10 H``
    Precision of the first ten by Hamming distance in the code of a collection.
``H``
    Label MAP of the code of labels by Hamming distance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import samples
from benchmarks.samples import PLACES, Sample, X, chunked, chunks_of, learn, search_model
from oasis import OASIS
from oasis.arrays import Rows
from oasis.codes import pack

N_CHUNKS = 5
N_ITEMS = 400
"""Items that are asked for by three of their words."""


def measured(s: Sample, seed: int, n_bits: int) -> dict[str, float]:
    """Return every measure that the data set has: without words there are no items to ask for."""
    labels = OASIS(n_bits, content=0, owned=0, random_state=seed)
    codes = learn(labels, chunks_of(s.data, in_chunks(s.rows)))
    found = samples.hamming_map(labels.encode(s.data.take(s.queries)), codes, s.relevance(s.rows))
    return {**by_projections(s, seed, n_bits), **unlabelled(s, seed, n_bits), "H": found}


def in_chunks(rows: Rows) -> list[Rows]:
    return chunked(rows, -(-len(rows) // N_CHUNKS))


def by_projections(s: Sample, seed: int, n_bits: int) -> dict[str, float]:
    """Return what the code of a collection gives where everything is labelled."""
    model = search_model(seed, n_bits)
    codes = learn(model, chunks_of(s.data, in_chunks(s.rows)))
    queries, labels = s.data.take(s.queries), s.relevance(s.rows)

    def right(X: X) -> Any:
        return samples.right(samples.firsts(model.project(X), codes), labels)

    found = {"A": samples.label_map(model.project(queries), codes, labels)}
    for name, title in (("image", "picture"), ("text", "text")):
        if name in queries:
            projected = model.project({name: queries[name]})
            found[f"A {title}"] = samples.label_map(projected, codes, labels)
    found["P@10"] = float(right(queries).mean())
    asked = pack(model.for_hamming(model.project(queries)))
    found["P@10 H"] = float(samples.right(samples.nearest(asked, codes), labels).mean())
    if "image" in queries:
        found["success picture"] = float(right({"image": queries["image"]}).any(axis=1).mean())
    if hasattr(queries.get("text"), "nnz"):
        items = np.arange(min(N_ITEMS, len(s.rows)))
        rng = np.random.default_rng([seed, 34])
        words = {"text": samples.few_words(s.data.take(s.rows[items])["text"], rng)}
        for title, weight in (("item", None), ("item content", 1.0)):
            projected = model.project(words, content=weight)
            found[title] = samples.found_among(projected, codes, items, PLACES)
    return found


def unlabelled(s: Sample, seed: int, n_bits: int) -> dict[str, float]:
    """Return what is found of items without labels: of known classes, and of unknown ones."""
    told, *untold = in_chunks(s.rows)
    stream = chunks_of(s.data, [told]) + chunks_of(s.data, untold, labelled=False)
    model = search_model(seed, n_bits)
    codes = learn(model, stream)
    projected = model.project(s.data.take(s.queries))
    half = samples.label_map(projected, codes, s.relevance(s.rows))
    rows = np.concatenate([s.rows, s.queries])
    rng = np.random.default_rng([seed, 37])
    columns = rng.permutation(len(s.data.classes))[: max(1, len(s.data.classes) // 4)]
    has = s.data.L[rows][:, columns].any(axis=1)
    known, new = rows[~has], rng.permutation(rows[has])
    n = min(samples.N_QUERIES, len(new) // 5)
    queries, later = new[:n], new[n:]
    labels = s.data.L[queries][:, columns], s.data.L[later][:, columns]
    model = search_model(seed, n_bits)
    learn(model, chunks_of(s.data, in_chunks(known)))
    codes = learn(model, chunks_of(s.data, in_chunks(later), labelled=False))
    X = s.data.take(queries)
    share = samples.label_map(model.project(X), codes, labels)
    return {
        "half": half,
        "U": share / samples.score_map(samples.cosine(X, s.data.take(later)), labels),
    }
