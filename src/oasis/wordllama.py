"""The static word vectors of the package wordllama, read from its files: 256 values, no network.

The vector of a text is the mean of the vectors of its subwords, as ``WordLlama.embed`` computes it.
The package itself is not imported: that would take 0.4 s of CPU time and set up logging for the
process. Loading takes about 0.2 s of CPU time and 16 MB of memory, once per process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import Single
from oasis.errors import DataError

N_FEATURES = 256
"""Values of a vector."""

_NAME = "l2_supercat"


class WordVectors(NamedTuple):
    """Loaded vectors; made by `word_vectors`.

    Attributes
    ----------
    table : (n_subwords, 256) float16
    tokenizer : tokenizers.Tokenizer
    version : str
        Of the package.
    checksum : str
        SHA-256 of the files of vectors and subwords, as hexadecimal digits.
    """

    table: Any
    tokenizer: Any
    version: str
    checksum: str

    def embed(self, texts: Sequence[str]) -> Single:
        """Return the mean vector of each text's subwords, (n, 256) float32; zeros for an empty one.

        A row depends on its text alone. Cost: about 0.1 ms a caption.
        """
        X = np.zeros((len(texts), N_FEATURES), dtype=np.float32)
        # one at a time, because a batch is tokenized by threads of its own
        listed = [self.subwords(text) for text in texts]
        sizes = np.array([len(numbers) for numbers in listed])
        if sizes.any():
            rows, starts = sizes > 0, np.cumsum(sizes) - sizes
            vectors = self.table[np.concatenate(listed).astype(np.intp)].astype(np.float32)
            X[rows] = np.add.reduceat(vectors, starts[rows]) / sizes[rows, None]
        return X

    def subwords(self, text: str) -> list[int]:
        """Return the numbers of a text's subwords, in order."""
        whole = text.encode("utf-8", "ignore").decode()  # without halves of surrogate pairs
        words = whole.split(" ")
        if not all(words) or "<" in whole:  # runs of spaces, and "<s>", have numbers of their own
            return list(_numbers(self.tokenizer, whole))
        # no subword reaches over a space
        return list(chain.from_iterable(map(_numbers, repeat(self.tokenizer), words)))

    def knows(self, word: str) -> bool:
        """Return whether a word is one of the subwords itself, as 48 % of those in captions are.

        Of words with a typing error 2 % are.

        >>> [word_vectors().knows(word) for word in ("television", "skateboarding", "televsion")]
        [True, False, False]
        """
        return len(self.subwords(word)) == 1


@lru_cache(1 << 15)
def _numbers(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


@cache
def word_vectors() -> WordVectors:
    """Return the vectors, loaded at the first call.

    Raises `DataError` where the package is missing or lacks its files.
    """
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise DataError("word vectors need wordllama; install it with: pip install wordllama")
    folder = Path(spec.origin).parent
    files = (
        folder / "weights" / f"{_NAME}_{N_FEATURES}.safetensors",
        folder / "tokenizers" / f"{_NAME}_tokenizer_config.json",
    )
    try:
        weights, subwords = (file.read_bytes() for file in files)
    except OSError as error:
        raise DataError(
            f"the word vectors of the package wordllama are missing ({error}); install it anew "
            "with: pip install --force-reinstall wordllama"
        ) from error

    from safetensors.numpy import load
    from tokenizers import Tokenizer

    return WordVectors(
        load(weights)["embedding.weight"],
        Tokenizer.from_str(subwords.decode()),
        version("wordllama"),
        hashlib.sha256(weights + subwords).hexdigest(),
    )
