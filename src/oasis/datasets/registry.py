"""Every data set by name, and where its files are searched.

Files are in a data folder: the argument, else the environment variable ``OASIS_DATA``, else
``./data``. A file may be in the folder itself or in a subfolder with its name
(``coco40k/coco40k.npz``). Nothing is downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasis.datasets import icons, mat, npz, own, synthetic
from oasis.datasets.dataset import (
    Dataset,
)
from oasis.datasets.shapes import SHAPES
from oasis.errors import DataError, InputError


@dataclass(frozen=True)
class _Entry:
    about: str
    make: Callable[..., Dataset]
    file: str | None = None
    how: str = ""


_COCO_HOW = (
    "It is not published as a file: compute EfficientNet-Lite0 features (1280-d) and caption words "
    "of MS-COCO train2017 images and store them in the layout of oasis.datasets.npz"
)
_WIKI_HOW = (
    "Take the Wikipedia image-text benchmark (Rasiwasia et al. 2010; 128-d SIFT, 10-d LDA) and "
    "store it in the layout of oasis.datasets.npz"
)


def _synthetic(shape: str) -> Callable[..., Dataset]:
    # all of NUS-WIDE would take 3.3 GB, so its rows are generated on demand
    def make(**options: Any) -> Dataset:
        return synthetic.generate(shape, **{"lazy": shape == "nuswide", **options})

    return make


_KNOWN: dict[str, _Entry] = {
    "mirflickr": _Entry("20,015 Flickr images and tags, 24 classes", mat.mirflickr),
    "nuswide": _Entry("195,834 Flickr images and tags, 21 classes", mat.nuswide),
    "mirflickr-text": _Entry("labels and texts of mirflickr, no pictures", mat.mirflickr_text),
    "coco40k": _Entry(
        "39,954 MS-COCO images and captions, 80 classes",
        lambda path: npz.read(path, name="coco40k"),
        "coco40k.npz",
        _COCO_HOW,
    ),
    "coco79": _Entry(
        "coco40k without the class person",
        lambda path: npz.read(path, name="coco79", drop=["person"]),
        "coco40k.npz",
        _COCO_HOW,
    ),
    "wiki": _Entry(
        "2,866 Wikipedia image-text pairs, 10 classes",
        lambda path: npz.read(path, name="wiki"),
        "wiki.npz",
        _WIKI_HOW,
    ),
    "icons": _Entry("1,446 icons and their search terms, 68 classes", icons.load),
    **{
        f"synthetic-{shape}": _Entry(f"generated data in the shape of {shape}", _synthetic(shape))
        for shape in SHAPES
    },
}
_LAYOUTS = {layout.name: layout for layout in (mat.MIRFLICKR, mat.NUSWIDE)}


def names() -> dict[str, str]:
    """Return the name of every known data set with one line about it.

    >>> list(names())
    ['mirflickr', 'nuswide', 'mirflickr-text', 'coco40k', 'coco79', 'wiki', 'icons',
     'synthetic-mirflickr', 'synthetic-nuswide', 'synthetic-coco79']
    """
    return {name: entry.about for name, entry in _KNOWN.items()}


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
    if name not in _KNOWN:
        raise InputError(
            f"unknown data set {name!r}; known are {', '.join(_KNOWN)}, or the path of an .npz, "
            ".mat or .parquet file, or of a folder of pictures that ends in /"
        )
    entry = _KNOWN[name]
    if name in _LAYOUTS:
        return entry.make(_mat_path(name, folder), **options)
    if name == "mirflickr-text":
        base = data_folder(folder)
        inner = base / "mirflickr_text"
        return entry.make(inner if inner.is_dir() else base)
    if entry.file is not None:
        return entry.make(_find(entry.file, data_folder(folder), entry.how), **options)
    return entry.make(**options)


def path_of(name: str, folder: str | Path | None = None) -> Path:
    """Return the file of a data set that is one ``.npz`` file in the data folder."""
    entry = _KNOWN.get(name)
    if entry is None or entry.file is None:
        raise InputError(f"{name!r} is not read from one file of the data folder")
    return _find(entry.file, data_folder(folder), entry.how)


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


def _find(file: str, folder: Path, how: str) -> Path:
    places = (folder / file, folder / Path(file).stem / file)
    for place in places:
        if place.is_file():
            return place
    raise DataError(
        f"{file} is neither at {places[0]} nor at {places[1]}. {how}. Another data folder can be "
        "given as an argument or in OASIS_DATA"
    )
