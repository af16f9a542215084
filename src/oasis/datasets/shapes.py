"""Shapes of synthetic data: sizes, class names and target label statistics.

The statistics are those of coco79, 39,798 MS-COCO images with 79 labels: how many samples carry
1, 2, 3 ... labels, and how many carry each class. Shapes with fewer classes keep the label counts
and the skew of the class frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from oasis.datasets.mat import MIRFLICKR, NUSWIDE
from oasis.errors import InputError

LABEL_COUNTS = (15104, 11409, 5951, 3309, 1786, 1033, 543, 325, 165, 95, 44, 18, 10, 4)
"""Number of samples of coco79 with 1, 2, ... 14 labels."""

_COCO = {
    "animal": {
        "bird": 1492, "cat": 1889, "dog": 2069, "horse": 1373, "sheep": 275, "cow": 405,
        "elephant": 450, "bear": 61, "zebra": 120, "giraffe": 293,
    },
    "vehicle, outdoor": {
        "bicycle": 1536, "car": 5791, "motorcycle": 1682, "airplane": 1498, "bus": 1866,
        "train": 1633, "truck": 2930, "boat": 1389, "traffic light": 1958, "fire hydrant": 803,
        "stop sign": 821, "parking meter": 325, "bench": 2577,
    },
    "sports, accessory": {
        "frisbee": 1032, "skis": 1441, "snowboard": 761, "sports ball": 1953, "kite": 1057,
        "baseball bat": 1191, "baseball glove": 1231, "skateboard": 1631, "surfboard": 1574,
        "tennis racket": 1598, "backpack": 2544, "umbrella": 1695, "handbag": 3069, "tie": 1725,
        "suitcase": 879,
    },
    "indoor": {
        "bottle": 2340, "wine glass": 773, "cup": 2498, "fork": 882, "knife": 1209, "spoon": 841,
        "bowl": 1547, "banana": 501, "apple": 310, "sandwich": 471, "orange": 269,
        "broccoli": 134, "carrot": 170, "hot dog": 319, "pizza": 762, "donut": 410, "cake": 826,
        "chair": 4367, "couch": 1400, "potted plant": 1225, "bed": 939, "dining table": 3015,
        "toilet": 287, "tv": 1133, "laptop": 1038, "mouse": 330, "remote": 1113, "keyboard": 423,
        "cell phone": 1840, "microwave": 263, "oven": 513, "toaster": 30, "sink": 599,
        "refrigerator": 481, "book": 1392, "clock": 1067, "vase": 503, "scissors": 208,
        "teddy bear": 525, "hair drier": 41, "toothbrush": 283,
    },
}  # fmt: skip


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
    n_samples = sum(LABEL_COUNTS) + 2  # two samples have more than 14 labels
    return Shape(
        name="coco79",
        n_samples=n_samples,
        image_features=1280,
        text_features=1025,
        text_nonzeros=4.78,
        classes=tuple(name for theme in _COCO.values() for name in theme),
        frequencies=tuple(n / n_samples for theme in _COCO.values() for n in theme.values()),
        themes=tuple(i for i, theme in enumerate(_COCO.values()) for _ in theme),
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


def _mirflickr() -> Shape:
    n = len(MIRFLICKR.classes)
    # names are in alphabetical order; 7 is coprime to 24, so this scatters the frequent ones
    rank = [7 * i % n for i in range(n)]
    return Shape(
        name="mirflickr",
        n_samples=MIRFLICKR.n_samples,
        image_features=MIRFLICKR.image_features,
        text_features=MIRFLICKR.text_features,
        text_nonzeros=16.0,
        classes=MIRFLICKR.classes,
        frequencies=tuple(_skew(n)[rank].tolist()),
        themes=tuple(i % 4 for i in range(n)),
        taste=1.0,
        leak=0.3,
        clutter=0.45,
        mention=0.09,
    )


def _nuswide() -> Shape:
    n = len(NUSWIDE.classes)
    return Shape(
        name="nuswide",
        n_samples=NUSWIDE.n_samples,
        image_features=NUSWIDE.image_features,
        text_features=NUSWIDE.text_features,
        text_nonzeros=8.0,
        classes=NUSWIDE.classes,
        frequencies=tuple(_skew(n).tolist()),
        themes=tuple(i % 4 for i in range(n)),
        taste=1.0,
        leak=0.3,
        clutter=0.6,
        mention=0.15,
    )


COCO79 = _coco79()
SHAPES = {shape.name: shape for shape in (_mirflickr(), _nuswide(), COCO79)}
