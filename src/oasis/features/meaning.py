"""The meaning of a text: the mean of the word vectors of its subwords, 256 values.

Texts of similar meaning have similar vectors: "a feline asleep" and "the cat sleeps" share no word,
and the cosine of their vectors is 0.68. Word order does not matter. The vectors come with the
package wordllama and were trained for English; other languages in Latin script are covered in part,
other scripts hardly at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oasis.arrays import Single
from oasis.errors import DataError
from oasis.wordllama import N_FEATURES, word_vectors

CHECKSUM = "4d243a4b2daee65802d68699e288b9347fd45097303dc232205a660a82b5171e"
"""SHA-256 of the vectors and subwords that the embedder's name refers to."""

MAX_CHARACTERS = 8192
"""The rest of a longer text is ignored."""


class Meaning:
    """Embeds text by the mean vector of its subwords, in lower case, scaled to unit length.

    Examples
    --------
    >>> embedder = Meaning()
    >>> embedder.name, embedder.n_features
    ('wordllama-256@1', 256)
    >>> X, failures = embedder.embed(["a cat", "kittens", "economics", None])
    >>> bool(X[0] @ X[1] > X[0] @ X[2])
    True
    """

    name = f"wordllama-{N_FEATURES}@1"
    n_features = N_FEATURES
    takes = "text"

    def embed(self, raws: Sequence[object]) -> tuple[Single, dict[int, str]]:
        """Return the (n, 256) float32 features, and by row the reason why it has none.

        None, and text without a letter, give a row of zeros and no failure; anything but text is a
        failure. Cost: about 0.1 ms per caption; the first call loads the vectors (0.2 s).
        """
        words = word_vectors()
        if words.checksum != CHECKSUM:
            raise DataError(
                f"wordllama {words.version} has other vectors than {self.name!r} stands for; "
                "install wordllama 0.4.0.post1"
            )
        texts: list[str] = []
        failures: dict[int, str] = {}
        for row, raw in enumerate(raws):
            text = ""
            if isinstance(raw, str):
                text = raw[:MAX_CHARACTERS].lower().strip()
            elif raw is not None:
                failures[row] = f"the text is of type {type(raw).__name__}, expected str"
            texts.append(text if any(map(str.isalnum, text)) else "")
        X = words.embed(texts)
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        X /= np.where(lengths > 0, lengths, 1)
        return X, failures
