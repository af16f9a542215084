"""Every data set by name, and where its files are searched.

Files are in a data folder: the argument, else the environment variable ``OASIS_DATA``, else
``./data``. A file may be in the folder itself or in a subfolder with its name
(``coco40k/coco40k.npz``). Nothing is downloaded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oasis.datasets import icons, mat, npz, own, synthetic
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.datasets.synthetic import SHAPES
from oasis.errors import DataError, InputError

_COCO = (
    "coco40k.npz",
    "It is not published as a file: compute EfficientNet-Lite0 features (1280-d) and caption words "
    "of MS-COCO train2017 images and store them in the layout of oasis.datasets.npz",
)
_WIKI = (
    "wiki.npz",
    "Take the Wikipedia image-text benchmark (Rasiwasia et al. 2010; 128-d SIFT, 10-d LDA) and "
    "store it in the layout of oasis.datasets.npz",
)
_FILES = {"coco40k": _COCO, "coco79": _COCO, "wiki": _WIKI}
"""Data sets that are one file in the layout of npz: its name, and how to get it."""

_LAYOUTS = {layout.name: layout for layout in (mat.MIRFLICKR, mat.NUSWIDE)}
_NAMES = {
    "mirflickr": "20,015 Flickr images and tags, 24 classes",
    "nuswide": "195,834 Flickr images and tags, 21 classes",
    "mirflickr-text": "labels and texts of mirflickr, no pictures",
    "coco40k": "39,954 MS-COCO images and captions, 80 classes",
    "coco79": "coco40k without the class person",
    "wiki": "2,866 Wikipedia image-text pairs, 10 classes",
    "icons": "1,446 icons and their search terms, 68 classes",
    **{f"synthetic-{shape}": f"generated data in the shape of {shape}" for shape in SHAPES},
}


def names() -> dict[str, str]:
    """Return the name of every known data set with one line about it.

    >>> list(names())
    ['mirflickr', 'nuswide', 'mirflickr-text', 'coco40k', 'coco79', 'wiki', 'icons',
     'synthetic-mirflickr', 'synthetic-nuswide', 'synthetic-coco79']
    """
    return dict(_NAMES)


def load(name: str, folder: str | Path | None = None, **options: Any) -> Dataset:
    """Load a data set by name, or from a path; see `oasis.datasets.own`.

    Parameters
    ----------
    name : one of `names`, or a path: ``data.npz``, ``data.mat?image=I&labels=L``, ``pictures/``
    folder : the data folder; ``$OASIS_DATA`` or ``./data`` by default
    **options : passed on, such as ``n_samples`` and ``seed`` of the synthetic sets

    Examples
    --------
    >>> load("synthetic-coco79", n_samples=20, seed=1).n_samples
    20
    """
    if name.endswith(".npz"):
        return npz.read(name, **options)
    if own.is_own(name):
        return own.read(name)
    if name not in _NAMES:
        raise InputError(
            f"unknown data set {name!r}; known are {', '.join(_NAMES)}, or the path of an .npz, "
            ".mat or .parquet file, or of a folder of pictures that ends in /"
        )
    if name in _LAYOUTS:
        return mat.read(_mat_path(name, folder), _LAYOUTS[name])
    if name in _FILES:
        drop = ["person"] if name == "coco79" else []
        return npz.read(path_of(name, folder), name=name, drop=drop)
    if name == "mirflickr-text":
        base = data_folder(folder)
        inner = base / "mirflickr_text"
        return mat.mirflickr_text(inner if inner.is_dir() else base)
    if name == "icons":
        return icons.load(**options)
    shape = name.removeprefix("synthetic-")
    # all of NUS-WIDE would take 3.3 GB, so its rows are generated on demand
    return synthetic.generate(shape, **{"lazy": shape == "nuswide", **options})


def path_of(name: str, folder: str | Path | None = None) -> Path:
    """Return the file of a data set that is one ``.npz`` file in the data folder."""
    if name not in _FILES:
        raise InputError(f"{name!r} is not read from one file of the data folder")
    (file, how), base = _FILES[name], data_folder(folder)
    places = (base / file, base / Path(file).stem / file)
    for place in places:
        if place.is_file():
            return place
    raise DataError(
        f"{file} is neither at {places[0]} nor at {places[1]}. {how}. Another data folder can be "
        "given as an argument or in OASIS_DATA"
    )


def check(name: str, folder: str | Path | None = None) -> list[str]:
    """Return how the files of ``mirflickr`` or ``nuswide`` differ from those published."""
    if name not in _LAYOUTS:
        raise InputError(f"no check for {name!r}; there is one for {', '.join(_LAYOUTS)}")
    return mat.check(_mat_path(name, folder), _LAYOUTS[name])


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the folder in which data files are searched."""
    return Path(folder if folder is not None else os.environ.get("OASIS_DATA", "data"))


def _mat_path(name: str, folder: str | Path | None) -> Path:
    base, layout = data_folder(folder), _LAYOUTS[name]
    inner = base / name / layout.file
    return inner if inner.is_file() else base / layout.file
