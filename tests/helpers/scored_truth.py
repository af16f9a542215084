"""The formula of `oasis.collection.ranking`, item by item."""

import math
from collections import Counter

import numpy as np

from oasis.arrays import unit_rows
from oasis.codes import unpack
from oasis.features.words import tokens_of
from oasis.wordllama import word_vectors


def bm25(documents, words):
    """Return BM25 as SQLite has it, of each document; words are their own stems."""
    n, length = len(documents), sum(map(len, documents)) / len(documents)
    scores = np.zeros(n)
    for word in words:
        having = sum(word in document for document in documents)
        idf = max(math.log((n - having + 0.5) / (having + 0.5)), 1e-6)
        for row, document in enumerate(documents):
            n_times = document.count(word)
            scale = 1.2 * (0.25 + 0.75 * len(document) / length)
            scores[row] += idf * n_times * 2.2 / (n_times + scale) if n_times else 0
    return scores


def meaning(texts):
    vectors = word_vectors().embed([text.lower() for text in texts])
    return np.asarray(unit_rows(vectors)) @ np.asarray(unit_rows(vectors))[0]


def scored_truth(c, text, projection, evidence, named):
    """Return ids and scores, best first; every item has a text of one line."""
    stored = list(c.items())
    documents = [tokens_of(item.text) for item in stored]
    words = list(dict.fromkeys(tokens_of(text)))
    counts = Counter(word for document in documents for word in set(document))
    n = len(stored)
    total = sum(
        max(math.log((n - counts[word] + 0.5) / (counts[word] + 0.5)), 1e-6) for word in words
    )
    shares = np.clip(bm25(documents, [word for word in words if counts[word]]) / total, 0, 1)
    meanings = np.maximum(meaning([text, *(item.text for item in stored)])[1:], 0)
    rows = []
    for age, item in enumerate(stored):
        signs = unpack(np.frombuffer(item.code, dtype=np.uint8)[None])[0].astype(np.float64)
        agreement = float(signs @ projection) / (np.abs(projection).sum() or 1)
        kind = 0.99 * evidence * math.sqrt(max(agreement, 0))
        share = max(shares[age], 0.9 * (set(named) <= set(item.labels))) if named else shares[age]
        said = min(share, 0.99) ** 4 if documents[age] != tokens_of(text) else 1
        score = 1 - (1 - kind) * (1 - said) * (1 - min(meanings[age], 0.99) ** 4)
        rows.append((-round(score, 6), age, item.id, score))
    return [(row[2], row[3]) for row in sorted(rows)]
