"""The parts of `OASIS`, each with a context in which models lack it.

What takes a part's place is the plainest thing that still gives codes. A name that is no longer in
the model is an error, so that no part is taken out in name only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np

from oasis.model import calibration, codewords, content, query, readout, state
from oasis.model.ridge import Ridge

Part = Callable[[], AbstractContextManager[Any]]


def constant(module: Any, name: str, value: float) -> Part:
    """Return the part that a constant is, taken out by another value."""
    return lambda: patch.object(module, name, value)


def function(owner: Any, name: str, plain: Callable[..., Any]) -> Part:
    """Return the part that a function is, with a plainer one in its place."""
    return lambda: patch.object(owner, name, plain)


def random_codewords(C: Any, label_sets: Any, rng: np.random.Generator) -> Any:
    """Take the place of learned bits: random normal codewords of the new classes."""
    return rng.standard_normal((label_sets[0].shape[1] - len(C), C.shape[1]))


def random_rotation(V: Any, rng: np.random.Generator) -> Any:
    """Take the place of ITQ."""
    return np.linalg.qr(rng.standard_normal((V.shape[1], V.shape[1])))[0]


def mean_codewords(self: Any, everything: Any, C: Any) -> Any:
    """Take the place of the readout: a class is read in the direction of its codeword."""
    return readout.unit_directions(C)


def no_background(n_bits: int) -> Any:
    """Take the place of the codeword that stands for no class."""
    return np.zeros(n_bits)


def positive_part(labels: Any) -> Any:
    """Take the place of the sharpened weights of labels."""
    return np.maximum(labels, 0)


def nothing_left_out(self: Any, X: Any, L: Any) -> Any:
    """Take the place of leave-one-out: the first chunk says nothing about confidence."""
    return self


PARTS: dict[str, Part] = {
    "ridge: chosen strength": function(Ridge, "chosen", lambda self, n_others: self),
    "ridge: R² of each modality": constant(state, "MOST_EXPLAINED", 0.0),
    "code: learned codewords": function(codewords, "_learned", random_codewords),
    "code: earlier chunks in them": constant(codewords, "PAST", 0.0),
    "code: sets of one class": constant(codewords, "ALONE", 0.0),
    "code: 400 steps (100)": constant(codewords, "N_STEPS", 100),
    "code: a codeword for no class": function(codewords, "no_class", no_background),
    "code: owned bits": function(state, "n_owned_for", lambda n_label, n_classes: 0),
    "content: ITQ": function(content, "_rotation", random_rotation),
    "content: predicted for a missing modality": function(
        content.ContentMap,
        "joined_predictions",
        lambda self, name, predictions, n, guesses=None: np.zeros(
            (n, self.content.sizes[name]), np.float32
        ),
    ),
    "readout: a regression": function(readout.Codebook, "readout", mean_codewords),
    "readout: guesses in its sums": function(
        readout.Codebook, "stored", lambda self, guesses, n_guessed: self
    ),
    "query: a map for Hamming distance": function(
        query.QueryMap, "for_hamming", lambda self, projections: projections
    ),
    "query: ten likeliest classes": constant(query, "LIKELIEST", 10**9),
    "query: power 7/4 of labels": function(query, "likeliest_weights", positive_part),
    "query: part of the prior share": constant(query, "PRIOR_SHARE", 0.0),
    "confidence: all of it": function(
        query.QueryMap, "evidence", lambda self, parts: np.ones(len(parts.labels), np.float32)
    ),
    "confidence: number of samples": constant(calibration, "ENOUGH", 0.0),
    "confidence: unlike the samples": function(
        query, "_least", lambda strange, has: np.zeros(len(next(iter(has.values()))), np.float32)
    ),
    "confidence: a line for one modality": function(
        calibration.Sureness, "_single", lambda self, has: iter(())
    ),
    "confidence: leave-one-out at first": function(
        state.CodewordState, "with_left_out", nothing_left_out
    ),
}
"""What is taken out, by name."""
