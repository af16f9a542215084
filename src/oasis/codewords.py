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

from typing import TypeAlias

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

    Nothing is drawn where no class is new. Cost: `N_STEPS` products of `BATCH` x `BATCH` x r.

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
    start = rng.standard_normal((n_classes - n_known, n_bits))
    sets, weights = _label_sets(counts, L)
    if len(sets) <= BATCH:
        batches = [np.arange(len(sets))] * N_STEPS
    else:
        batches = list(rng.choice(len(sets), (N_STEPS, BATCH), p=weights / weights.sum()))
        weights = np.ones_like(weights)  # it is in the draw
    known = C.reshape(n_known, n_bits).astype(np.float32)
    new = _descend(known, start.astype(np.float32), sets, weights.astype(np.float32), batches)
    return np.vstack([C.reshape(n_known, n_bits), new.astype(np.float64)])


def sample_codes(L: sp.csr_array, C: Array) -> Array:
    """Return the codes B (n, r) as +1 and -1 of samples with labels L; zero counts as -1."""
    return np.where(L @ C > 0, 1.0, -1.0)


def pair_weights(sets: Single, weights: Single) -> Single:
    """Return w, symmetric (b, b): of each label set's pairs, similar ones weigh 1/2 in total.

    Parameters
    ----------
    sets : (b, c) label sets as 0 and 1
    weights : (b,) samples that have each; one of them is a partner of the others, not of itself
    """
    similar = (sets @ sets.T > 0).astype(np.float32)
    partners = np.broadcast_to(weights, similar.shape).copy()
    np.fill_diagonal(partners, np.maximum(weights - 1, 0))
    w = np.zeros_like(similar)
    for kind in (similar, 1 - similar):
        each = partners * kind
        total = each.sum(axis=1, keepdims=True)
        w += np.divide(each, 2 * total, out=np.zeros_like(each), where=total > 0)
    symmetric: Single = w + w.T
    return symmetric


def pair_loss(C: Single, sets: Single, w: Single) -> tuple[float, Single]:
    """Return the loss over the pairs of label sets (b, c), and its gradient in C (c, r)."""
    n_bits = C.shape[1]
    u = np.tanh(sets @ C)  # (b, r)
    residual = u @ u.T
    residual /= n_bits
    residual -= np.float32(SIMILAR) * (sets @ sets.T > 0)
    weighed = w * residual  # (b, b)
    slope = (weighed @ u) * (1 - u * u)  # (b, r)
    gradient = (4 / n_bits) * (sets.T @ slope)
    return float(np.vdot(weighed, residual)), gradient


def _label_sets(counts: Array, L: sp.csr_array) -> tuple[Single, Array]:
    """Return label sets (b, c) and their weights: those of the chunk, then every class alone.

    Known classes stand for their samples and weigh as much as the chunk in total. New ones keep
    apart even where a small chunk shows them together only.
    """
    n_known, n_classes = len(counts), L.shape[1]
    found, times = np.unique(L.toarray().astype(np.float32), axis=0, return_counts=True)
    labelled = found.any(axis=1)
    found, times = found[labelled], times[labelled].astype(np.float64)
    known = counts / max(counts.sum(), 1.0) * times.sum()
    new = ALONE * (times @ found)[n_known:]
    alone = np.eye(n_classes, dtype=np.float32)
    return np.vstack([found, alone]), np.concatenate([times, known, new])


def _descend(
    known: Single, new: Single, sets: Single, weights: Single, batches: list[npt.NDArray[np.int64]]
) -> Single:
    """Return the new codewords after as many steps as there are batches of label sets.

    Steps are Adam's, and shrink to nothing: the sizes of gradients differ by the frequency of
    classes.
    """
    first, second = np.zeros_like(new), np.zeros_like(new)
    for t, batch in enumerate(batches):
        if t == 0 or batch is not batches[0]:
            chosen, w = sets[batch], pair_weights(sets[batch], weights[batch])
        gradient = pair_loss(np.vstack([known, new]), chosen, w)[1][len(known) :]
        first = _KEEP[0] * first + (1 - _KEEP[0]) * gradient
        second = _KEEP[1] * second + (1 - _KEEP[1]) * gradient * gradient
        mean = first / (1 - _KEEP[0] ** (t + 1))
        size = np.sqrt(second / (1 - _KEEP[1] ** (t + 1)))
        new = new - np.float32(STEP * (1 - t / len(batches))) * (mean / (size + np.float32(1e-8)))
    return new
