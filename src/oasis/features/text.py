"""Text as a bag of hashed words: no vocabulary to keep, the same in every round and process.

A word is a run of two or more letters or digits, after Unicode normalisation (NFKC) and case
folding; anything else, the underscore and combining marks included, separates words. For h, the
MurmurHash3 of the word as a signed integer of 32 bits, the word counts in column
``|h| mod n_features`` with the sign of h. Two words that meet in one column add or cancel, and
inner products stay right on average. Scripts written without spaces are not segmented: a run of
letters is one word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from oasis.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse as sp

VERSION = 1
"""Changes whenever the same text would get other features; part of the embedder's name."""

_WORD = re.compile(r"[^\W_]{2,}")
_NAME = re.compile(r"hashed-text-(\d{1,10})-(tf|binary)(-english)?@1")
_MAX_FEATURES = 2**31 - 1  # the hash has 32 bits and a sign

# Function words by kind; the tails that an apostrophe leaves behind come last. The list is ours and
# not a library's, because the columns of a stored collection depend on it.
_STOP_WORDS = """
an the this that these those
he him his himself she her hers herself it its itself me my mine myself we us our ours ourselves
you your yours yourself yourselves they them their theirs themselves who whom whose which what
am is are was were be been being have has had having do does did doing done
can could may might must shall should will would
and or but nor so yet if because while although though unless until whether than as
about above across after against along among around at before behind below beneath beside
between beyond by down during for from in inside into near of off on onto out outside over
since through throughout to toward towards under up upon with within without
no not only own same such too very just also again then once here there when where why how
all any both each few more most other some every either neither
don doesn didn isn aren wasn weren hasn haven hadn won wouldn couldn shouldn mustn ll ve re
"""
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())


class HashedText:
    """Embeds text by counting hashed words.

    Parameters
    ----------
    n_features : int
        Columns of the result. The state of a model grows with the square of it.
    weighting : {"tf", "binary"}
        Count a word as often as it occurs, or once.
    stop_words : {None, "english"}
        Leave out `ENGLISH_STOP_WORDS`.

    Attributes
    ----------
    name : str
        Everything that the features depend on.

    Examples
    --------
    >>> embedder = HashedText()
    >>> embedder.name
    'hashed-text-2048-tf@1'
    >>> X, failures = embedder.embed(["A boat, a BOAT!", "42 boats", None])
    >>> X.shape, abs(X).sum(axis=1).tolist()
    ((3, 2048), [2.0, 2.0, 0.0])
    """

    def __init__(
        self, n_features: int = 2048, weighting: str = "tf", stop_words: str | None = None
    ) -> None:
        if (
            isinstance(n_features, bool)
            or not isinstance(n_features, int)
            or not 1 <= n_features <= _MAX_FEATURES
        ):
            raise InputError(f"n_features must be an int from 1 to 2**31 - 1, got {n_features!r}")
        if weighting not in ("tf", "binary"):
            raise InputError(f"weighting must be 'tf' or 'binary', got {weighting!r}")
        if stop_words not in (None, "english"):
            raise InputError(f"stop_words must be None or 'english', got {stop_words!r}")
        self.n_features = n_features
        self.weighting = weighting
        self.stop_words = stop_words
        self._stopped = ENGLISH_STOP_WORDS if stop_words else frozenset()

    @property
    def name(self) -> str:
        suffix = f"-{self.stop_words}" if self.stop_words else ""
        return f"hashed-text-{self.n_features}-{self.weighting}{suffix}@{VERSION}"

    @classmethod
    def from_name(cls, name: str) -> HashedText | None:
        """Return the embedder that has this name, or None when it is not one of these.

        >>> HashedText.from_name("hashed-text-512-binary-english@1").n_features
        512
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls(int(match[1]), match[2], "english" if match[3] else None)

    def words(self, text: str) -> list[str]:
        """Return the words of a text in order, repeats included.

        >>> HashedText(stop_words="english").words("The ﬁsh of Łódź, no. 7")
        ['fish', 'łódź']
        """
        found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
        return [word for word in found if word not in self._stopped] if self._stopped else found

    def embed(self, raws: Sequence[object]) -> tuple[sp.csr_array, dict[int, str]]:
        """Return the (n, n_features) float32 features, and why a row has none.

        None, and text without a word, give a row of zeros; that is no failure. Anything but text is
        one. Cost: linear in the length of the text, about a microsecond a word.
        """
        import scipy.sparse as sp

        rows, failures = self._counts(raws)
        indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        indices = np.array([column for row in rows for column in row], dtype=np.int32)
        values = np.array([row[column] for row in rows for column in row], dtype=np.float32)
        shape = (len(rows), self.n_features)
        return sp.csr_array((values, indices, indptr), shape=shape), failures

    def embed_dense(self, raws: Sequence[object]) -> tuple[npt.NDArray[np.float32], dict[int, str]]:
        """Return the same as `embed`, as a dense array: for a few queries, without SciPy."""
        rows, failures = self._counts(raws)
        X = np.zeros((len(rows), self.n_features), dtype=np.float32)
        for row, counts in enumerate(rows):
            X[row, list(counts)] = list(counts.values())
        return X, failures

    def _counts(self, raws: Sequence[object]) -> tuple[list[dict[int, int]], dict[int, str]]:
        """Return column -> signed count of each text, in the order of columns, without zeros."""
        rows: list[dict[int, int]] = []
        failures: dict[int, str] = {}
        for row, raw in enumerate(raws):
            counts: dict[int, int] = {}
            if isinstance(raw, str):
                words = self.words(raw)
                for word in dict.fromkeys(words) if self.weighting == "binary" else words:
                    h = murmurhash3(word)
                    column = abs(h) % self.n_features
                    counts[column] = counts.get(column, 0) + (1 if h >= 0 else -1)
            elif raw is not None:
                failures[row] = f"the text is of type {type(raw).__name__}, expected str"
            rows.append({column: counts[column] for column in sorted(counts) if counts[column]})
        return rows, failures


@lru_cache(maxsize=1 << 17)
def murmurhash3(word: str) -> int:
    """Return the MurmurHash3 (x86, 32 bits, seed 0) of a word in UTF-8, as a signed integer.

    >>> murmurhash3(""), murmurhash3("boat")
    (0, -1248930368)
    """
    data = word.encode()
    h, mask = 0, 0xFFFFFFFF
    whole = len(data) & ~3
    for at in range(0, len(data), 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0xCC9E2D51 & mask
        k = ((k << 15) | (k >> 17)) * 0x1B873593 & mask
        h ^= k
        if at < whole:  # the last 1 to 3 bytes are mixed in less
            h = ((h << 13) | (h >> 19)) & mask
            h = (h * 5 + 0xE6546B64) & mask
    h ^= len(data)
    h = (h ^ (h >> 16)) * 0x85EBCA6B & mask
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
