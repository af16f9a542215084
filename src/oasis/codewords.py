"""Codewords: what a class adds to the codes of its samples, learned when the class arrives.

A sample's code is the sign of the sum of its classes' codewords, ``B = sign(L C)``, so a code says
which classes its sample has. The codewords of new classes minimise the similarity loss of the
method over pairs of label sets,

    ``sum_ij w_ij (u_i u_j' / r - s_ij)^2``  with  ``u_i = tanh(l_i C)``,

with three differences from the published one. The similarity ``s_ij`` says what a search is judged
by: `SIMILAR` where two samples share a class, 0 where they do not, instead of the cosine of label
vectors. Of the pairs of one sample, similar and dissimilar ones weigh the same in total, however
rare a class is. And it is solved for codewords instead of for the chunk's samples, so that it also
tells the codes of samples to come. Classes seen before take part, each with the weight of its
samples, but keep their codewords: nothing drifts, and two samples with the same labels have the
same code, however far apart they arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.updates import Array

Single: TypeAlias = npt.NDArray[np.float32]

SIMILAR = 0.6
"""Similarity, per bit, that samples with a common class are to have."""

N_STEPS = 200
STEP = 0.1
BATCH = 192
"""Label sets that are compared with each other in one step."""

ALONE = 0.1
"""Weight of a new class alone, as a label set of its own, per sample that has it."""

_KEEP = (0.9, 0.99)


def grown_codewords(
    C: Array, counts: Array, L: sp.csr_array, n_bits: int, rng: np.random.Generator
) -> Array:
    """Return the codewords (c, r) of all classes of a chunk's labels; known ones are unchanged.

    Nothing is drawn where no class is new. Cost: `N_STEPS` products of `BATCH` x `BATCH` x r, and
    one pass over the chunk's labels; classes known before cost nothing but their labels.

    Parameters
    ----------
    C : (c_known, r) codewords of the classes known before
    counts : (c_known,) samples that they had
    L : (n, c) labels of the chunk as 0 and 1, known classes first

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> L = sp.csr_array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> C = grown_codewords(np.empty((0, 8)), np.empty(0), L, 8, rng)
    >>> again = grown_codewords(C, np.array([2.0, 2.0]), L, 8, rng)
    >>> C.shape, bool((again == C).all())
    ((2, 8), True)
    """
    n_known, n_classes = len(C), L.shape[1]
    if n_classes == n_known:
        return C
    new = rng.standard_normal((n_classes - n_known, n_bits)).astype(np.float32)
    sets, weights = _label_sets(counts, L)
    known = C.astype(np.float32)
    batches: Iterable[Batch]
    if sets.shape[0] <= BATCH:
        batches = repeat(Batch.of(sets, weights, known), N_STEPS)
    else:
        drawn = rng.choice(sets.shape[0], (N_STEPS, BATCH), p=weights / weights.sum())
        # how often a label set occurs is in the draw
        batches = (Batch.of(sets[rows], np.ones(BATCH), known) for rows in drawn)
    return np.vstack([C, _descend(new, batches).astype(np.float64)])


def sample_codes(L: sp.csr_array, C: Array) -> Array:
    """Return the codes B (n, r) as +1 and -1 of samples with labels L; zero counts as -1."""
    return np.where(L @ C > 0, 1.0, -1.0)


class Batch(NamedTuple):
    """Label sets that are compared with each other.

    Attributes
    ----------
    new : (b, c_new) the new classes of each as 0 and 1
    pull : (b, r) sum of the codewords of its known classes
    similar : (b, b) 1 where two of them share a class
    w : (b, b) weights of pairs
    """

    new: sp.csr_array
    pull: Single
    similar: Single
    w: Single

    @classmethod
    def of(cls, sets: sp.csr_array, weights: Array, known: Single) -> Batch:
        """Return the batch of label sets (b, c), which so many samples (b,) have."""
        n_known = len(known)
        similar = ((sets @ sets.T).toarray() > 0).astype(np.float32)
        w = pair_weights(similar, weights.astype(np.float32))
        return cls(sets[:, n_known:], np.asarray(sets[:, :n_known] @ known), similar, w)


def pair_weights(similar: Single, weights: Single) -> Single:
    """Return w, symmetric (b, b): of each label set's pairs, similar ones weigh 1/2 in total.

    Parameters
    ----------
    similar : (b, b) 1 where two label sets share a class, 0 elsewhere
    weights : (b,) samples that have each; one of them is a partner of the others, not of itself
    """
    partners = np.broadcast_to(weights, similar.shape).copy()
    np.fill_diagonal(partners, np.maximum(weights - 1, 0))
    w = np.zeros_like(similar)
    for kind in (similar, 1 - similar):
        each = partners * kind
        total = each.sum(axis=1, keepdims=True)
        w += np.divide(each, 2 * total, out=np.zeros_like(each), where=total > 0)
    symmetric: Single = w + w.T
    return symmetric


def pair_loss(C: Single, batch: Batch) -> tuple[float, Single]:
    """Return the loss over the pairs of a batch, and its gradient in the new codewords C."""
    n_bits = C.shape[1]
    u = np.tanh(batch.pull + batch.new @ C)  # (b, r)
    residual = u @ u.T
    residual /= n_bits
    residual -= np.float32(SIMILAR) * batch.similar
    weighed = batch.w * residual  # (b, b)
    slope = (weighed @ u) * (1 - u * u)  # (b, r)
    gradient: Single = (4 / n_bits) * (batch.new.T @ slope)
    return float(np.vdot(weighed, residual)), gradient


def _label_sets(counts: Array, L: sp.csr_array) -> tuple[sp.csr_array, Array]:
    """Return label sets (b, c) and their weights: those of the chunk, then every class alone.

    Known classes stand for their samples and weigh as much as the chunk in total. New ones keep
    apart even where a small chunk shows them together only.
    """
    n_known, n_classes = len(counts), L.shape[1]
    rows = [tuple(sorted(names)) for names in np.split(L.indices, L.indptr[1:-1])]
    times = Counter(row for row in rows if row)
    # in the order of dense rows of 0 and 1, whatever the order of the chunk
    found = sorted(times, key=lambda row: tuple(-number for number in row))
    weights = np.array([times[row] for row in found], dtype=np.float64)
    ends = np.cumsum([0, *map(len, found)])
    numbers = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=ends[-1])
    ones = np.ones(len(numbers), dtype=np.float32)
    sets = sp.csr_array((ones, numbers, ends), shape=(len(found), n_classes))
    alone = sp.eye_array(n_classes, dtype=np.float32, format="csr")
    known = counts / max(counts.sum(), 1.0) * weights.sum()
    new = ALONE * (weights @ sets)[n_known:]
    return sp.vstack([sets, alone], format="csr"), np.concatenate([weights, known, new])


def _descend(C: Single, batches: Iterable[Batch]) -> Single:
    """Return the new codewords C after one step for each of `N_STEPS` batches.

    Steps are Adam's, and shrink to nothing: the sizes of gradients differ by the frequency of
    classes.
    """
    first, second = np.zeros_like(C), np.zeros_like(C)
    for t, batch in enumerate(batches):
        _, gradient = pair_loss(C, batch)
        first = _KEEP[0] * first + (1 - _KEEP[0]) * gradient
        second = _KEEP[1] * second + (1 - _KEEP[1]) * gradient * gradient
        mean = first / (1 - _KEEP[0] ** (t + 1))
        size = np.sqrt(second / (1 - _KEEP[1] ** (t + 1)))
        C = C - np.float32(STEP * (1 - t / N_STEPS)) * (mean / (size + np.float32(1e-8)))
    return C
