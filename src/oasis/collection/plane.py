"""A map: the items of a collection as points in the plane, those of a class near each other.

From the signs of the codes: the two directions along which the means of classes differ most beside
the differences within classes (Fisher's discriminant, shrunk), or the two principal components
where fewer than three classes have items.
"""

from __future__ import annotations

import numpy as np

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.collection.catalog import Catalog
from oasis.collection.committed import Committed
from oasis.collection.records import Plane, Point, check_whole
from oasis.collection.rows import label_numbers

SHRINKAGE = 0.1
"""Share of the mean variance that is added to the variances within classes."""


def plane(snapshot: Committed, catalog: Catalog, most: int, random_state: int) -> Plane:
    """Return the items, or a sample of at most so many, as points."""
    most = check_whole("most", most, 1)
    rng = np.random.default_rng(random_state)
    with catalog.reading() as connection:
        keys = catalog.all_keys(connection)
        n_items = len(keys)
        if n_items > most:
            keys = np.sort(rng.choice(keys, most, replace=False))
        names = catalog.names_from(connection, snapshot.classes)
        columns = "key, id, code, labels, predicted"
        rows = sorted(catalog.rows(connection, columns, keys.tolist()))
    if not rows:
        return Plane((), 0)
    codes = np.frombuffer(b"".join(row[2] for row in rows), dtype=np.uint8).reshape(len(rows), -1)
    firsts = [(label_numbers(given or guess) or [-1])[0] for _, _, _, given, guess in rows]
    points = (
        Point(row[1], x, y, names[first] if first >= 0 else None, first >= 0 and not row[3])
        for row, (x, y), first in zip(
            rows, places(codes, np.array(firsts)).tolist(), firsts, strict=True
        )
    )
    return Plane(tuple(points), n_items)


def places(codes: Codes, classes: Array) -> Array:
    """Return x and y of items, from 0 to 1, (n, 2); class -1 stands for none."""
    signs = unpack(codes).astype(np.float64)
    signs -= signs.mean(axis=0)
    known = [signs[classes == each] for each in np.unique(classes[classes >= 0])]
    within = np.eye(signs.shape[1])
    if len(known) < 3:
        spread = signs.T @ signs
    else:
        means = [rows.mean(axis=0) for rows in known]
        apart = [rows - mean for rows, mean in zip(known, means, strict=True)]
        within = sum((rows.T @ rows for rows in apart), np.zeros_like(within)) / len(signs)
        within += np.eye(len(within)) * (SHRINKAGE * np.trace(within) / len(within) + 1e-6)
        # each class counts alike: a large one would take both directions for itself
        centred = np.array(means) - np.mean(means, axis=0)
        spread = centred.T @ centred
    # the directions that maximise w' spread w / w' within w, by the Cholesky factor of within
    L = np.linalg.cholesky(within)
    half = np.linalg.solve(L, np.linalg.solve(L, spread).T)
    directions = np.linalg.solve(L.T, np.linalg.eigh(half)[1][:, :-3:-1])
    found = signs @ directions
    low, high = found.min(axis=0), found.max(axis=0)
    return np.asarray((found - low) / np.where(high > low, high - low, 1))
