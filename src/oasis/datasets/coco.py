"""Metadata of coco79 and coco40k besides features and labels: super-categories, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from oasis.datasets.dataset import Dataset
from oasis.errors import DataError, InputError

CAPTIONS = "captions.txt"
"""The file beside ``coco40k.npz``: a line is an image's number, a tab, its caption."""

SUPER_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "vehicle": ("bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"),
    "outdoor": ("traffic light", "fire hydrant", "stop sign", "parking meter", "bench"),
    "animal": (
        *("bird", "cat", "dog", "horse", "sheep"),
        *("cow", "elephant", "bear", "zebra", "giraffe"),
    ),
    "accessory": ("backpack", "umbrella", "handbag", "tie", "suitcase"),
    "sports": (
        *("frisbee", "skis", "snowboard", "sports ball", "kite", "baseball bat"),
        *("baseball glove", "skateboard", "surfboard", "tennis racket"),
    ),
    "kitchen": ("bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl"),
    "food": (
        *("banana", "apple", "sandwich", "orange", "broccoli"),
        *("carrot", "hot dog", "pizza", "donut", "cake"),
    ),
    "furniture": ("chair", "couch", "potted plant", "bed", "dining table", "toilet"),
    "electronic": ("tv", "laptop", "mouse", "remote", "keyboard", "cell phone"),
    "appliance": ("microwave", "oven", "toaster", "sink", "refrigerator"),
    "indoor": ("book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"),
}
"""The 11 super-categories of the 79 classes."""


def super_category_of(classes: Sequence[str]) -> tuple[str, ...]:
    """Return the super-category of each class.

    >>> super_category_of(["dog", "tv"])
    ('animal', 'electronic')
    """
    found = {name: key for key, names in SUPER_CATEGORIES.items() for name in names}
    for name in classes:
        if name not in found:
            raise InputError(f"{name!r} is in none of the super-categories of coco79")
    return tuple(found[name] for name in classes)


def read_captions(path: str | Path, dataset: Dataset) -> tuple[str, ...]:
    """Return the caption of every sample of coco40k or coco79.

    Parameters
    ----------
    path : the file, a line for each image: its number, a tab, its caption
    dataset : with the column ``coco_id``
    """
    if "coco_id" not in dataset.payload:
        raise InputError(f"{dataset.name} has no column 'coco_id'; captions are found by it")
    captions: dict[int, str] = {}
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            key, tab, caption = line.rstrip("\n").partition("\t")
            if not tab or not key.isdecimal():
                raise DataError(
                    f"{path}, line {number}: expected an image's number, a tab and its caption, "
                    f"got {line[:40]!r}"
                )
            captions[int(key)] = caption
    ids = dataset.payload["coco_id"].tolist()
    missing = [each for each in ids if each not in captions]
    if missing:
        raise DataError(f"{path} has no caption of image {missing[0]}, {len(missing)} missing")
    return tuple(captions[each] for each in ids)


def read_vocabulary(path: str | Path) -> tuple[str, ...]:
    """Return the word that each column of the bag of words counts, from ``coco40k.npz``."""
    with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        if "vocab" not in archive.files:
            raise DataError(f"{path}: no array 'vocab'; expected a word for each text column")
        return tuple(str(word) for word in archive["vocab"])
