"""Predicted labels of items without labels, stored separately from given ones."""

from __future__ import annotations

import numpy as np

from oasis.hashers.chunk import Chunk
from oasis.model import OASIS, AnyModel

LIKELY = 0.5
"""A class is predicted from this value of `OASIS.predict_proba` on.

F1 of the labels predicted of samples that were not learned, beside that of `OASIS.predict`, whose
values are not calibrated: icons 0.64 and 0.50, 8,000 samples of coco79 0.64 and 0.64, of
synthetic-mirflickr 0.68 and 0.63.
"""


def predicted_labels(model: AnyModel, chunk: Chunk) -> list[tuple[str, ...]]:
    """Return the classes that are predicted of each sample without labels, the surest first.

    ``model`` has learned the chunk. Of a sample with labels nothing is predicted, and the published
    method predicts nothing at all.
    """
    predicted: list[tuple[str, ...]] = [()] * chunk.n_samples
    rows = [row for row, names in enumerate(chunk.labels) if not names]
    if not rows or not isinstance(model, OASIS) or not model.classes_:
        return predicted
    sure = model.predict_proba({name: matrix[rows] for name, matrix in chunk.X.items()})
    names = np.array(model.classes_, dtype=object)
    for row, values in zip(rows, sure, strict=True):
        likely = np.flatnonzero(values >= LIKELY)
        predicted[row] = tuple(names[likely[np.argsort(-values[likely], kind="stable")]])
    return predicted
