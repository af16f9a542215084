"""Small seeded streams for the tests."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

NAMES = ("sky", "sea", "cat", "dog", "tree", "car", "bread", "lamp", "river", "horse")


def generator(*seeds):
    """A generator seeded by numbers and sequences of numbers, taken as one flat sequence."""
    return np.random.default_rng([int(each) for seed in seeds for each in np.atleast_1d(seed)])


def class_vectors(n_classes=6, width=12, seed=0):
    rng = generator(7, seed)
    return {name: rng.standard_normal(width) for name in NAMES[:n_classes]}


def chunk(n, seed=0, *, classes=NAMES[:6], widths=None, dtype=np.float64, sparse=(), bare=0.0):
    """A chunk whose features depend on its labels; ``bare`` is the share without labels."""
    widths = widths or {"image": 20, "text": 14}
    rng = generator(3, seed)
    label_sets = [
        []
        if rng.random() < bare
        else list(rng.choice(classes, size=min(len(classes), rng.integers(1, 4)), replace=False))
        for _ in range(n)
    ]
    label_sets = [[str(name) for name in names] for names in label_sets]
    X = {}
    for number, (name, width) in enumerate(widths.items()):
        means = generator(5, number).standard_normal((len(NAMES), width))
        values = 0.5 * rng.standard_normal((n, width))
        for row, names in enumerate(label_sets):
            for label in names:
                values[row] += means[NAMES.index(label)]
        values = np.maximum(values, 0).astype(dtype)
        X[name] = sp.csr_array(values) if name in sparse else values
    return X, label_sets
