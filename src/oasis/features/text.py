"""Text as a bag of hashed words: without a vocabulary, the same in every round and process.

`oasis.features.words` defines a word. Its column and sign come from its 64-bit BLAKE2b hash h: the
column is ``(h >> 1) % n_features``, and the sign is + if the lowest bit of h is 1. Two words in one
column add or cancel, so inner products are unbiased.

SciPy is imported when a CSR matrix is made; `HashedText.embed_dense` does not need it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from oasis.arrays import Single
from oasis.errors import InputError
from oasis.features.words import words_of

if TYPE_CHECKING:
    import scipy.sparse as sp

VERSION = 3
"""Increased whenever the features of a text change; part of the embedder's name."""

_NAME = re.compile(rf"hashed-text-(\d{{1,10}})-tf(-all)?@{VERSION}")
_MAX_FEATURES = 2**31 - 1  # columns of a CSR matrix are 32-bit numbers


class HashedText:
    """Embeds text by counting hashed words.

    Parameters
    ----------
    n_features : int
        Columns of the result. The state of a model grows with its square.
    stop_words : bool
        Leave out the function words of the common languages.

    Attributes
    ----------
    name : str
        Everything that the features depend on.

    Examples
    --------
    >>> embedder = HashedText()
    >>> embedder.name
    'hashed-text-2048-tf@3'
    >>> X, failures = embedder.embed(["A boat, a BOAT!", "42 boats", None])
    >>> X.shape, abs(X).sum(axis=1).tolist()
    ((3, 2048), [2.0, 2.0, 0.0])
    """

    takes = "text"

    def __init__(self, n_features: int = 2048, *, stop_words: bool = True) -> None:
        if (
            isinstance(n_features, bool)
            or not isinstance(n_features, int)
            or not 1 <= n_features <= _MAX_FEATURES
        ):
            raise InputError(f"n_features must be an int from 1 to 2**31 - 1, got {n_features!r}")
        if not isinstance(stop_words, bool):
            raise InputError(f"stop_words must be True or False, got {stop_words!r}")
        self.n_features = n_features
        self.stop_words = stop_words

    @property
    def name(self) -> str:
        return f"hashed-text-{self.n_features}-tf{'' if self.stop_words else '-all'}@{VERSION}"

    @classmethod
    def from_name(cls, name: str) -> HashedText | None:
        """Return the embedder that has this name, or None when it is not one of these.

        >>> HashedText.from_name("hashed-text-512-tf-all@3").n_features
        512
        """
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), stop_words=not match[2])

    def embed(self, raws: Sequence[object]) -> tuple[sp.csr_array, dict[int, str]]:
        """Return the (n, n_features) float32 features as CSR, and by row why it has none.

        None, and text without a word, give a row of zeros and no failure; anything but text is a
        failure. Cost: linear in the length of the text, about two microseconds per word.
        """
        import scipy.sparse as sp

        counts, failures = self._counts(raws)
        columns = [column for row in counts for column in sorted(row)]
        values = [row[column] for row in counts for column in sorted(row)]
        ends = np.cumsum([0, *map(len, counts)], dtype=np.int32)
        X = sp.csr_array(
            (np.array(values, dtype=np.float32), np.array(columns, dtype=np.int32), ends),
            shape=(len(raws), self.n_features),
        )
        return X, failures

    def embed_dense(self, raws: Sequence[object]) -> tuple[Single, dict[int, str]]:
        """Return the result of `embed` as a dense array: for a few queries, without SciPy."""
        counts, failures = self._counts(raws)
        X = np.zeros((len(raws), self.n_features), dtype=np.float32)
        for row, count in enumerate(counts):
            X[row, list(count)] = list(count.values())
        return X, failures

    def _counts(self, raws: Sequence[object]) -> tuple[list[dict[int, int]], dict[int, str]]:
        """Return the values by column of each text, none of them zero."""
        counts: list[dict[int, int]] = []
        failures: dict[int, str] = {}
        for row, raw in enumerate(raws):
            count: dict[int, int] = {}
            if isinstance(raw, str):
                for word in words_of(raw, stop_words=self.stop_words):
                    number = _hash(word)
                    column = (number >> 1) % self.n_features
                    count[column] = count.get(column, 0) + (1 if number & 1 else -1)
            elif raw is not None:
                failures[row] = f"the text is of type {type(raw).__name__}, expected str"
            # two words of opposite sign in one column may leave a zero
            counts.append({column: value for column, value in count.items() if value})
        return counts, failures


@lru_cache(maxsize=1 << 15)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
