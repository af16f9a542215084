"""Learn the map from pictures to meanings that the package ships, and measure it.

``OASIS_DATA=folder python -m benchmarks.picture_meaning [--write]``

Data: ``coco40k.npz``, EfficientNet-Lite0 features of 39,954 MS-COCO train2017 images, and beside it
``captions.txt``, a caption of each (CC BY 4.0, COCO consortium). Without these files, or with
others than `PINNED` says, it stops with an error that names them. 1,000 images are kept aside; the
ridge is learned from the others. Printed is how often a caption finds its own picture among those
kept aside, which have no text, and how often a tag that is the name of a COCO class is right. With
``--write`` the map goes into the package: equal on every machine up to rounding to half precision.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from oasis.arrays import Single
from oasis.datasets import load
from oasis.datasets.dataset import Source
from oasis.datasets.registry import path_of
from oasis.datasets.texts import CAPTIONS, read_captions
from oasis.errors import DataError
from oasis.features import looks
from oasis.features.meaning import Meaning

PINNED = {
    "coco40k.npz": "9417a1a2befd2b93b2a1925900b4f4081f3e5578e58083f42d69aa97db6cb1b7",
    CAPTIONS: "c9e64f422982cb8b679e94e8be0235e2832b5db1d7a276279ffdf0ce5edb9de0",
}
"""SHA-256 of the files that the shipped map was learned from."""

RIDGE = 10.0
N_ASIDE = 1000
SEED = 20263
RANKS = (1, 5, 10)


def learned(features: Single, captions: Sequence[str]) -> dict[str, npt.NDArray[np.float16]]:
    """Return the arrays of the map from features (n, 1280) and a caption of each picture."""
    Z, (M, _) = looks.square_roots(features), Meaning().embed(captions)
    mean, offset = Z.mean(axis=0), M.mean(axis=0)
    Z, M = Z - mean, M - offset
    ZZ, ZM = (Z.T @ Z).astype(np.float64), (Z.T @ M).astype(np.float64)
    ZZ[np.diag_indices_from(ZZ)] += RIDGE
    arrays = {"B": np.linalg.solve(ZZ, ZM), "mean": mean, "offset": offset}
    return {name: array.astype(np.float16) for name, array in arrays.items()}


def places(meanings: Single, captions: Sequence[str]) -> npt.NDArray[np.intp]:
    """Return the place of each caption's own picture among all of them, from 0, by cosine."""
    scores = Meaning().embed(captions)[0] @ meanings.T  # (n, n)
    found: npt.NDArray[np.intp] = (scores > np.diag(scores)[:, None]).sum(axis=1)
    return found


def tag_precision(
    features: Single, L: npt.NDArray[np.uint8], classes: Sequence[str]
) -> tuple[int, int]:
    """Return how many tags are names of classes, and how many of those the picture has."""
    column = {name: number for number, name in enumerate(classes)}
    pairs = [
        (row, column[tag])
        for row, tags in enumerate(looks.picture_tags(features))
        for tag in tags
        if tag in column
    ]
    return len(pairs), sum(int(L[pair]) for pair in pairs)


def split(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the rows to learn from and those kept aside."""
    order = np.random.default_rng(SEED).permutation(n)
    return np.sort(order[N_ASIDE:]), np.sort(order[:N_ASIDE])


def main(arguments: Sequence[str]) -> None:
    path = path_of("coco40k")
    for each in (path, path.with_name(CAPTIONS)):
        if (checksum := Source.of(each).sha256) != PINNED[each.name]:
            raise DataError(f"{each} has SHA-256 {checksum}, expected {PINNED[each.name]}")
    data = load("coco40k")
    features = np.asarray(data.X["image"], dtype=np.float32)
    captions = read_captions(path.with_name(CAPTIONS), data)
    rows, aside = split(len(features))
    if "--write" in arguments:
        target = looks.looks_folder() / looks.MAP_FILE
        save_file(learned(features[rows], [captions[row] for row in rows]), target)
        print(f"written: {target}, SHA-256 {Source.of(target).sha256}")
    found = places(looks.picture_meaning(features[aside]), [captions[row] for row in aside])
    shares = ", ".join(f"{np.mean(found < rank):.3f} among {rank}" for rank in RANKS)
    print(f"a caption finds its picture among {N_ASIDE} kept aside: {shares}")
    n_tags, n_right = tag_precision(features, data.L, data.classes)
    print(f"tags that are COCO classes: {n_tags}, right {n_right / n_tags:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
