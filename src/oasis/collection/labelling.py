"""Which items to label next: those of whose classes the model is least sure, and unlike each other.

Of up to `MOST` items without labels, evenly spaced by age, each has the gradient that its likeliest
labels would have: ``g = (p - y) x'``, with p how likely it has each class, y the likeliest one and
those of at least 0.5, and x its features (its code where none are kept), centred. A sure item has a
small one, items that are alike have the same. One after another is drawn with a
probability that grows with the square of the distance of its gradient from the nearest one that was
drawn (k-means++; Ash et al., Deep batch active learning by diverse, uncertain gradient lower
bounds, 2020). Before there are classes, the items nearest to the centres of k clusters are taken.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

import numpy as np

from oasis.arrays import Array, Matrix, is_sparse, unit_rows
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
"""Values into which features are projected before they are divided into clusters."""


class _Candidates(NamedTuple):
    """Items without labels: their keys, how likely they have each class, and their features."""

    keys: list[int]
    chances: Array
    X: list[Matrix]


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
        chosen = drawn(found.X, found.chances, min(k, len(found.keys)))
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


def drawn(X: list[Matrix], chances: Array, k: int) -> list[int]:
    """Return k rows by k-means++ on gradients; always the same ones.

    ``|g_i - g_j|^2 = |q_i|^2 |x_i|^2 + |q_j|^2 |x_j|^2 - 2 (q_i q_j') (x_i x_j')`` with q = p - y.
    """
    rng, n = np.random.default_rng(0), len(chances)
    rows = [unit_rows(matrix) for matrix in X]
    if not chances.shape[1]:
        return _central(rows, k)
    sure = chances >= 0.5
    sure[np.arange(n), chances.argmax(axis=1)] = True
    wrong = chances - sure
    means = [np.asarray(matrix.mean(axis=0)).ravel() for matrix in rows]
    offsets = [np.asarray(m @ mean) - mean @ mean / 2 for m, mean in zip(rows, means, strict=True)]

    def alike(row: int) -> Array:
        """Return the inner products of all gradients with that of a row."""
        found: Array = np.zeros(n)
        for matrix, offset in zip(rows, offsets, strict=True):
            one = matrix[[row]]
            product = matrix @ (one.toarray() if is_sparse(one) else one).ravel()
            found += product - offset - offset[row]
        found *= wrong @ wrong[row]
        return found

    sizes = sum(
        np.asarray(np.vecdot(m, m) if not is_sparse(m) else m.multiply(m).sum(axis=1)) - 2 * offset
        for m, offset in zip(rows, offsets, strict=True)
    ) * np.vecdot(wrong, wrong)
    chosen = [int(sizes.argmax())]
    apart = np.full(n, np.inf)
    while len(chosen) < k:
        last = chosen[-1]
        apart = np.minimum(apart, np.maximum(sizes + sizes[last] - 2 * alike(last), 0))
        apart[last] = 0
        weights = apart if apart.sum() > 0 else ~np.isin(np.arange(n), chosen)
        chosen.append(int(rng.choice(n, p=weights / weights.sum())))
    return chosen


def _central(rows: list[Matrix], k: int) -> list[int]:
    """Return the row nearest to the centre of each of k clusters; more where these are fewer."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(0)
    # at random into few values, which keeps distances
    values: Array = np.zeros((1, _VALUES))
    for matrix in rows:
        directions = rng.standard_normal((matrix.shape[1], _VALUES)) / _VALUES**0.5
        values = values + np.asarray(matrix @ directions)
    found = KMeans(min(k, len(np.unique(values, axis=0))), n_init=1, random_state=0).fit(values)
    apart = np.linalg.norm(values - found.cluster_centers_[found.labels_], axis=1)
    order = np.lexsort((apart, found.labels_))
    chosen: list[int] = order[np.flatnonzero(np.diff(found.labels_[order], prepend=-1))].tolist()
    rest = set(range(len(values))).difference(chosen)
    return [*chosen, *sorted(rest)][:k]


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
        return _Candidates([], np.empty((0, 0)), [])
    data = read_features(connection, born)
    if len(data) == len(rows) and isinstance(model, OASIS):
        X = unpacked_features([data[each] for each in born], model.state_.widths)
        return _Candidates(keys, model.predict_proba(X).astype(np.float64), list(X.values()))
    keys_there, codes = snapshot.replica.codes_of(catalog, connection, np.array(keys))
    signs = unpack(codes).astype(np.float64)
    chances = np.zeros((len(signs), len(model.classes_)))
    if isinstance(model, OASIS) and model.classes_:
        of_class = model.project_nearness(np.eye(len(model.classes_)))
        chances = np.clip(signs @ unit_rows(of_class).T / signs.shape[1] ** 0.5, 0, 1)
    return _Candidates(keys_there.tolist(), chances, [signs])
