"""A toy set for the tests of experiments."""

from __future__ import annotations

import numpy as np
import pytest

CLASSES = ("sky", "sea", "cat", "dog", "car", "bus")
N_SAMPLES = 150


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small file in the npz layout, with label vectors; image tells labels, text some."""
    rng = np.random.default_rng(0)
    labels = np.zeros((N_SAMPLES, len(CLASSES)), dtype=np.uint8)
    labels[np.arange(N_SAMPLES), rng.integers(0, len(CLASSES), N_SAMPLES)] = 1
    labels |= (rng.random(labels.shape) < 0.08).astype(np.uint8)
    image = labels @ rng.standard_normal((len(CLASSES), 12)) + rng.standard_normal((N_SAMPLES, 12))
    text = labels @ rng.standard_normal((len(CLASSES), 8)) + rng.standard_normal((N_SAMPLES, 8))
    path = tmp_path_factory.mktemp("data") / "toy.npz"
    np.savez(
        path,
        image=image.astype(np.float32),
        text=text.astype(np.float32),
        labels=labels,
        label_names=np.array(CLASSES),
        label_vectors=rng.standard_normal((len(CLASSES), 10)).astype(np.float32),
    )
    return str(path)
