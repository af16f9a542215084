"""Which items to label next: those of whose classes the model is least sure, and unlike each other.

Of up to `MOST` items without labels, evenly spaced by age, each has an uncertainty u: 1 less the
difference of its two likeliest classes. Their features, or codes where no features are kept, are
divided into k clusters by k-means with the weights u, and of each cluster the item nearest to the
centre is taken: an item of which there are many like it, not an odd one (Zhdanov, Diverse
mini-batch active learning, 2019). Clusters of the largest weight come first.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np

from oasis.arrays import Array, Matrix, unit_rows
from oasis.codes import unpack
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.kept_features import read_features, unpacked_features
from oasis.collection.records import ToLabel, check_whole
from oasis.collection.rows import ITEM_COLUMNS, ItemRow
from oasis.collection.words import texts_of
from oasis.model import OASIS

MOST = 4000
"""Items without labels that are looked at."""

SHOWN = 5
"""Classes that are told of an item."""

_VALUES = 64
"""Directions into which features are projected before they are divided into clusters."""


class _Candidates(NamedTuple):
    """Items without labels: their keys, how likely they have each class, and what they are like."""

    keys: list[int]
    chances: Array
    values: Array


def next_to_label(snapshot: Committed, catalog: Catalog, k: int) -> list[ToLabel]:
    """Return the k items whose labels would teach most, at most `MOST`; see this module."""
    k = check_whole("k", k, 1)
    model = snapshot.model
    if model is None:
        return []
    with catalog.reading() as connection:
        found = _candidates(snapshot, catalog, connection)
        if not found.keys:
            return []
        chosen = chosen_rows(found.values, uncertainty(found.chances), min(k, len(found.keys)))
        keys = [found.keys[row] for row in chosen]
        rows = {
            row.key: row.check()
            for row in (ItemRow(*each) for each in catalog.rows(connection, ITEM_COLUMNS, keys))
        }
        texts = texts_of(connection, keys)
    names = model.classes_
    told = []
    for row, key in zip(chosen, keys, strict=True):
        likely = np.argsort(-found.chances[row], kind="stable")[:SHOWN].tolist()
        chances = tuple(float(each) for each in found.chances[row][likely])
        item = rows[key]
        classes = tuple(names[number] for number in likely)
        told.append(ToLabel(item.id, classes, chances, item.decoded_payload(), texts.get(key)))
    return told


def uncertainty(chances: Array) -> Array:
    """Return 1 less the difference of the two likeliest classes of each item, (n,).

    >>> uncertainty(np.array([[0.9, 0.1, 0.0], [0.5, 0.5, 0.0]])).round(2).tolist()
    [0.2, 1.0]
    """
    if chances.shape[1] < 2:
        return np.ones(len(chances))
    first_two = -np.partition(-chances, 1, axis=1)[:, :2]
    unsure: Array = 1 - (first_two[:, 0] - first_two[:, 1])
    return unsure


def chosen_rows(values: Array, weights: Array, k: int) -> list[int]:
    """Return k rows: the one nearest to the centre of each of k clusters, the heaviest first."""
    from sklearn.cluster import KMeans

    weights = np.maximum(weights, 1e-3)
    n_clusters = min(k, len(np.unique(values, axis=0)))
    means = KMeans(n_clusters, n_init=1, max_iter=30, random_state=0)
    clusters = means.fit_predict(values, sample_weight=weights)
    apart = np.linalg.norm(values - means.cluster_centers_[clusters], axis=1)
    order = np.lexsort((apart, clusters))
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    nearest = order[starts]
    heavy = np.bincount(clusters, weights, k)[clusters[nearest]]
    chosen: list[int] = nearest[np.argsort(-heavy, kind="stable")].tolist()
    # where items are equal there are fewer clusters
    rest = [row for row in np.argsort(-weights, kind="stable").tolist() if row not in chosen]
    return [*chosen, *rest][:k]


def _candidates(
    snapshot: Committed, catalog: Catalog, connection: sqlite3.Connection
) -> _Candidates:
    model = snapshot.model
    rows = connection.execute(
        "SELECT key, born FROM items WHERE labels IS NULL AND key < ? ORDER BY key",
        (snapshot.head.next_key,),
    ).fetchall()
    if len(rows) > MOST:
        rows = [rows[at] for at in np.linspace(0, len(rows) - 1, MOST).astype(int).tolist()]
    keys, born = [key for key, _ in rows], [each for _, each in rows]
    if model is None or not rows:
        return _Candidates([], np.empty((0, 0)), np.empty((0, 0)))
    data = read_features(connection, born)
    if len(data) == len(rows) and isinstance(model, OASIS):
        X = unpacked_features([data[each] for each in born], model.state_.widths)
        return _Candidates(keys, model.predict_proba(X).astype(np.float64), _reduced(X))
    keys_there, codes = snapshot.replica.codes_of(catalog, connection, np.array(keys))
    signs = unpack(codes).astype(np.float64)
    chances = np.zeros((len(signs), len(model.classes_)))
    if isinstance(model, OASIS) and model.classes_:
        of_class = model.project_nearness(np.eye(len(model.classes_)))
        chances = np.clip(signs @ unit_rows(of_class).T / signs.shape[1] ** 0.5, 0, 1)
    return _Candidates(keys_there.tolist(), chances, signs)


def _reduced(X: dict[str, Matrix]) -> Array:
    """Return rows of unit length in each modality, projected at random into few values."""
    rng = np.random.default_rng(0)
    total: Array = np.zeros((1, _VALUES))
    for matrix in X.values():
        directions = rng.standard_normal((matrix.shape[1], _VALUES)) / _VALUES**0.5
        rows = unit_rows(matrix)
        total = total + np.asarray(rows @ directions)
    return total
