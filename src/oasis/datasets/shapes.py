"""Shapes of synthetic data: sizes, class names and target label statistics.

The statistics are those of coco79, 39,798 MS-COCO images with 79 labels: how many samples carry
1, 2, 3 ... labels, and how many carry each class. Shapes with fewer classes keep the label counts
and the skew of the class frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis.datasets.coco import N_SAMPLES, SUPER_CATEGORIES
from oasis.datasets.mat import MIRFLICKR, NUSWIDE, MatLayout
from oasis.errors import InputError

_THEMES = (
    ("animal",),
    ("vehicle", "outdoor"),
    ("sports", "accessory"),
    ("kitchen", "food", "furniture", "electronic", "appliance", "indoor"),
)
"""Super-categories whose classes tend to occur together."""


@dataclass(frozen=True)
class Shape:
    """Sizes and statistics of a synthetic data set.

    Attributes
    ----------
    name : str
    n_samples, image_features, text_features : int
    text_nonzeros : float
        Mean number of words per sample; the number varies by 28 %, as in captions.
    classes : tuple of str
    frequencies : (c,) tuple
        The share of samples that carry each class; sums to the mean number of labels.
    themes : (c,) tuple of int
        Classes of one theme tend to occur together.
    taste, leak : float
        How much scenes of one theme differ in their classes (standard deviation of the log
        weight), and the weight of a class outside its theme. They determine the number of distinct
        label sets.
    clutter : float
        Standard deviation of the noise in an image, relative to a label's signal of length 1.
    mention : float
        Share of a text's words that name one of its labels.
    """

    name: str
    n_samples: int
    image_features: int
    text_features: int
    text_nonzeros: float
    classes: tuple[str, ...]
    frequencies: tuple[float, ...]
    themes: tuple[int, ...]
    taste: float
    leak: float
    clutter: float
    mention: float

    def __post_init__(self) -> None:
        c = len(self.classes)
        if c < 2 or len(self.frequencies) != c or len(self.themes) != c:
            raise InputError(
                f"shape {self.name!r}: {c} classes, {len(self.frequencies)} frequencies and "
                f"{len(self.themes)} themes; expected at least 2 and as many of each"
            )
        if min(self.n_samples, self.image_features, self.text_features) < 1:
            raise InputError(f"shape {self.name!r}: sizes must be positive")
        if not 1 <= self.text_nonzeros <= self.text_features / 4:
            raise InputError(
                f"shape {self.name!r}: text_nonzeros is {self.text_nonzeros}, expected 1 to a "
                f"quarter of the {self.text_features} text features"
            )


def _coco79() -> Shape:
    themes = [
        {k: n for key in theme for k, n in SUPER_CATEGORIES[key].items()} for theme in _THEMES
    ]
    return Shape(
        name="coco79",
        n_samples=N_SAMPLES,
        image_features=1280,
        text_features=1025,
        text_nonzeros=4.78,
        classes=tuple(name for theme in themes for name in theme),
        frequencies=tuple(n / N_SAMPLES for theme in themes for n in theme.values()),
        themes=tuple(i for i, theme in enumerate(themes) for _ in theme),
        taste=3.0,
        leak=0.04,
        clutter=0.3,
        mention=0.34,
    )


def _skew(n_classes: int) -> npt.NDArray[np.float64]:
    """The falling frequency curve of coco79, resampled to other numbers of classes."""
    curve = np.sort(COCO79.frequencies)[::-1]
    at = (np.arange(n_classes) + 0.5) / n_classes * len(curve) - 0.5
    sampled = np.interp(at, np.arange(len(curve)), curve)
    return np.asarray(sampled * (curve.sum() / sampled.sum()))


def _paper(layout: MatLayout, frequencies: npt.NDArray[np.float64], **more: float) -> Shape:
    """Return the shape of one of the paper's data sets, with classes in four themes."""
    return Shape(
        name=layout.name,
        n_samples=layout.n_samples,
        image_features=layout.image_features,
        text_features=layout.text_features,
        classes=layout.classes,
        frequencies=tuple(frequencies.tolist()),
        themes=tuple(i % 4 for i in range(len(layout.classes))),
        taste=1.0,
        leak=0.3,
        **more,
    )


COCO79 = _coco79()
# MIRFlickr's names are in alphabetical order; 7 is coprime to 24, so this scatters frequent ones
_MIRFLICKR = _paper(
    MIRFLICKR, _skew(24)[7 * np.arange(24) % 24], text_nonzeros=16.0, clutter=0.45, mention=0.09
)
_NUSWIDE = _paper(NUSWIDE, _skew(21), text_nonzeros=8.0, clutter=0.6, mention=0.15)
SHAPES = {shape.name: shape for shape in (_MIRFLICKR, _NUSWIDE, COCO79)}
