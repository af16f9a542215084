"""Facts about coco79, 39,798 images of MS-COCO with 79 labels: super-categories and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oasis.errors import InputError

SUPER_CATEGORIES: Mapping[str, Mapping[str, int]] = {
    "vehicle": {
        "bicycle": 1536, "car": 5791, "motorcycle": 1682, "airplane": 1498, "bus": 1866,
        "train": 1633, "truck": 2930, "boat": 1389,
    },
    "outdoor": {
        "traffic light": 1958, "fire hydrant": 803, "stop sign": 821, "parking meter": 325,
        "bench": 2577,
    },
    "animal": {
        "bird": 1492, "cat": 1889, "dog": 2069, "horse": 1373, "sheep": 275, "cow": 405,
        "elephant": 450, "bear": 61, "zebra": 120, "giraffe": 293,
    },
    "accessory": {
        "backpack": 2544, "umbrella": 1695, "handbag": 3069, "tie": 1725, "suitcase": 879,
    },
    "sports": {
        "frisbee": 1032, "skis": 1441, "snowboard": 761, "sports ball": 1953, "kite": 1057,
        "baseball bat": 1191, "baseball glove": 1231, "skateboard": 1631, "surfboard": 1574,
        "tennis racket": 1598,
    },
    "kitchen": {
        "bottle": 2340, "wine glass": 773, "cup": 2498, "fork": 882, "knife": 1209, "spoon": 841,
        "bowl": 1547,
    },
    "food": {
        "banana": 501, "apple": 310, "sandwich": 471, "orange": 269, "broccoli": 134,
        "carrot": 170, "hot dog": 319, "pizza": 762, "donut": 410, "cake": 826,
    },
    "furniture": {
        "chair": 4367, "couch": 1400, "potted plant": 1225, "bed": 939, "dining table": 3015,
        "toilet": 287,
    },
    "electronic": {
        "tv": 1133, "laptop": 1038, "mouse": 330, "remote": 1113, "keyboard": 423,
        "cell phone": 1840,
    },
    "appliance": {
        "microwave": 263, "oven": 513, "toaster": 30, "sink": 599, "refrigerator": 481,
    },
    "indoor": {
        "book": 1392, "clock": 1067, "vase": 503, "scissors": 208, "teddy bear": 525,
        "hair drier": 41, "toothbrush": 283,
    },
}  # fmt: skip
"""The 11 super-categories of the 79 classes, and the number of samples of each class."""

LABEL_COUNTS = (15104, 11409, 5951, 3309, 1786, 1033, 543, 325, 165, 95, 44, 18, 10, 4)
"""Number of samples with 1, 2, ... 14 labels."""

N_SAMPLES = sum(LABEL_COUNTS) + 2
"""Two samples have more than 14 labels."""


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
