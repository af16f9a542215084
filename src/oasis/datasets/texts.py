"""Texts of a data set's items, and features of other texts in the same columns.

A data set holds only features. To search for an item by words, or for a class by its name, one
needs a text that describes the item, and a function that maps a query to the same features.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Matrix, Single
from oasis.datasets import icons
from oasis.datasets.dataset import Dataset
from oasis.datasets.registry import path_of
from oasis.errors import DataError, InputError
from oasis.features.meaning import Meaning

_WORD = re.compile(r"[a-z][a-z]+")


CAPTIONS = "captions.txt"
"""The file beside ``coco40k.npz``: a line is an image's number, a tab, its caption."""


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of the items of a data set.

    Attributes
    ----------
    described : tuple of str
        The text that an item's words were taken from: a caption, or name and search terms.
    titles : tuple of str, or empty
        A short name of each item, if there is one.
    vocabulary : tuple of str, or empty
        The word of each column of modality ``text``, if a column is a word.
    words : callable
        Maps any texts to features of modality ``text``.
    """

    described: tuple[str, ...]
    titles: tuple[str, ...]
    vocabulary: tuple[str, ...]
    words: Callable[[Sequence[str]], Matrix]


def texts_of(dataset: Dataset, folder: str | Path | None = None) -> Texts | None:
    """Return the texts of a data set's items; None if they are not known.

    They are known for coco79 and coco40k (``captions.txt`` beside the file of features) and for the
    icons.

    Parameters
    ----------
    dataset : as loaded, all of its rows
    folder : the data folder that it was loaded from
    """
    if dataset.name in ("coco79", "coco40k"):
        path = path_of(dataset.name, folder)
        vocabulary = read_vocabulary(path)
        return Texts(
            read_captions(path.parent / CAPTIONS, dataset),
            (),
            vocabulary,
            lambda texts: bag_of_words(texts, vocabulary),
        )
    if dataset.name == "icons":
        n_words = int(dataset.X["text"].shape[1])
        names, terms = dataset.payload["name"].tolist(), dataset.payload["terms"].tolist()
        return Texts(
            tuple(f"{name} {each}" for name, each in zip(names, terms, strict=True)),
            tuple(dataset.payload["title"].tolist()),
            (),
            lambda texts: icons.hashed_words(texts, n_words),
        )
    return None


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


def bag_of_words(texts: Sequence[str], vocabulary: Sequence[str]) -> sp.csr_array:
    """Return which words of a vocabulary each text has, (n, n_words) float32: 1 if it has the word.

    A word is a run of two or more letters a to z, in lower case.

    >>> bag_of_words(["A dog, a DOG and a cat"], ["cat", "cow", "dog"]).toarray()
    array([[1., 0., 1.]], dtype=float32)
    """
    column = {word: number for number, word in enumerate(vocabulary)}
    found = [
        sorted({column[word] for word in _WORD.findall(text.lower()) if word in column})
        for text in texts
    ]
    indices = np.array([number for row in found for number in row], dtype=np.int32)
    indptr = np.cumsum([0, *map(len, found)]).astype(np.int32)
    ones = np.ones(len(indices), dtype=np.float32)
    return sp.csr_array((ones, indices, indptr), shape=(len(texts), len(column)))


def meaning(texts: Sequence[str]) -> Single:
    """Return the meaning of texts, (n, 256) float32 of unit length; see `oasis.features.meaning`.

    A text without a letter or digit is a row of zeros.

    >>> cat, kitten, invoice = meaning(["a cat", "a kitten", "an unpaid invoice"])
    >>> bool(cat @ kitten > cat @ invoice)
    True
    """
    vectors, _ = Meaning().embed(texts)
    return vectors


def with_meaning(dataset: Dataset, texts: Texts) -> Dataset:
    """Return the data set with one more modality, ``meaning``, of the items' texts."""
    if "meaning" in dataset.X:
        raise InputError(f"{dataset.name} has a modality 'meaning' already")
    return replace(dataset, X={**dataset.X, "meaning": meaning(texts.described)})
