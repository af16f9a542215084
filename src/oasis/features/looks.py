"""What pictures without a text look like: a predicted meaning, and the names of which we are sure.

Two sources, both made from EfficientNet-Lite0 features x (1280 values):

- a ridge regression B from captions of MS-COCO, which knows scenes and everyday things;
- the net's own classifier, whose 1,000 classes have a name, and many a kind ("Saluki": "dog").

With z the square root of x at unit length, less the mean of the training pictures, p the
classifier's probabilities for x at length 16, and N the vectors of the class names and their kinds,
a picture has the direction ``d = unit(unit(z B) + 0.6 unit(p N))``; the meaning is
``unit(m + d / 2)``, m being the mean meaning of captions. `benchmarks.picture_meaning` learns B and
measures it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.errors import InputError
from oasis.features.meaning import Meaning
from oasis.features.weights import efficientnet_weights

MAP_FILE = "picture_meaning.safetensors"
NAMES_FILE = "picture_names.txt"
N_FEATURES = 1280
NAMES_SHARE = 0.6
"""Weight of the classifier's names beside the captions' ridge."""

USUAL_LENGTH = 16.0
"""Length that features have before they are classified here, so that a meaning does not depend on
it; that of photographs is 15 to 20."""

LENGTH = 0.5
"""Length of the predicted direction; that of a text from the mean of all texts is 0.95."""

SURE = 0.9
"""Least probability of a name that is a tag.

On 39,954 COCO pictures 4,245 tags are the name of a COCO class, and 95 % of these are right.
"""


def picture_meaning(features: npt.ArrayLike) -> Single:
    """Return the meaning that a caption of each picture would have, predicted from its features.

    The vectors are in the space of `oasis.features.meaning.Meaning`: compare them with those of
    texts. Nothing is downloaded.

    Parameters
    ----------
    features : (n, 1280) array
        Features of `oasis.features.image.EfficientNetLite0`. A row of zeros is a missing picture.

    Returns
    -------
    (n, 256) float32
        Rows of unit length; a missing picture has zeros. About 10 microseconds a picture, after the
        net's weights were read once (0.3 s).

    Examples
    --------
    >>> picture_meaning(np.zeros((2, 1280))).shape
    (2, 256)
    """
    X = _checked(features)
    captions, head = _captions(), _head()
    z = square_roots(X) - captions.mean
    p = _probabilities(USUAL_LENGTH * _unit(X))
    direction = _unit(z @ captions.B) + NAMES_SHARE * _unit(p @ head.directions)
    meaning = _unit(captions.offset + LENGTH * _unit(direction))
    meaning[~X.any(axis=1)] = 0
    return meaning


def picture_tags(features: npt.ArrayLike) -> list[tuple[str, ...]]:
    """Return the names and kinds of things of which the classifier is sure, by picture.

    Few, and none rather than a wrong one: the probability of a tag is at least `SURE`. The
    probability of a kind is the sum over its classes, so a picture may be surely a dog, of no sure
    breed. The surest comes first.

    >>> picture_tags(np.zeros((1, 1280)))
    [()]
    """
    X = _checked(features)
    names, members = _tags()
    found = _probabilities(X) @ members  # (n, tags)
    found[~X.any(axis=1)] = 0
    return [
        tuple(names[column] for column in np.argsort(-row, kind="stable") if row[column] >= SURE)
        for row in found
    ]


def square_roots(features: Single) -> Single:
    """Return the square roots of features, scaled to unit length."""
    return _unit(np.sqrt(features))


class _Captions(NamedTuple):
    B: Single  # (1280, 256)
    mean: Single  # (1280,), of the square roots of features, unit length
    offset: Single  # (256,), mean meaning of captions


class _Head(NamedTuple):
    weight: Single  # (1280, 1000)
    bias: Single  # (1000,)
    directions: Single  # (1000, 256), unit length


def looks_folder() -> Path:
    """Return the folder of the package's data: the map, and the names of classes."""
    return Path(__file__).parent


def class_names() -> list[list[str]]:
    """Return the name of each of the net's 1,000 classes, followed by the kinds it belongs to."""
    text = (looks_folder() / NAMES_FILE).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


@cache
def _captions() -> _Captions:
    from safetensors.numpy import load

    stored = load((looks_folder() / MAP_FILE).read_bytes())
    return _Captions(**{name: values.astype(np.float32) for name, values in stored.items()})


@cache
def _head() -> _Head:
    weights = efficientnet_weights()
    N, _ = Meaning().embed([" ".join(names) for names in class_names()])
    return _Head(
        np.ascontiguousarray(weights["_fc.weight"].T, dtype=np.float32),
        weights["_fc.bias"].astype(np.float32),
        _unit(N - _captions().offset),
    )


@cache
def _tags() -> tuple[list[str], Single]:
    """Return all names and kinds, and which class belongs to which: (1000, tags) of 0 and 1."""
    of_classes = class_names()
    names = list(dict.fromkeys(name for each in of_classes for name in each))
    column = {name: number for number, name in enumerate(names)}
    members = np.zeros((len(of_classes), len(names)), dtype=np.float32)
    for row, each in enumerate(of_classes):
        members[row, [column[name] for name in each]] = 1
    return names, members


def _probabilities(X: Single) -> Single:
    head = _head()
    logits = X @ head.weight + head.bias
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities: Single = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


def _checked(features: npt.ArrayLike) -> Single:
    X = np.asarray(features, dtype=np.float32)
    if X.ndim != 2 or X.shape[1] != N_FEATURES:
        raise InputError(
            f"the features have shape {X.shape}, expected (n, {N_FEATURES}) of EfficientNetLite0"
        )
    if not np.isfinite(X).all() or (X < 0).any():
        raise InputError("the features of EfficientNetLite0 are finite and not negative")
    return X


def _unit(X: npt.NDArray[np.floating[Any]]) -> Single:
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    scaled: Single = (X / np.where(norms > 0, norms, 1)).astype(np.float32, copy=False)
    return scaled
