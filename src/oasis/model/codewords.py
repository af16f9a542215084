"""Codewords: what a class adds to the codes of its samples, fixed when the class arrives.

A bit of a sample is set if the sum of its classes' codewords is positive there, ``B = sign(L C)``.
So a code depends only on the classes of its sample. There are two kinds of bits.

**Learned bits** serve plain Hamming search. The codewords of new classes minimise a logistic
pairwise loss over label sets:

    ``sum_ij w_ij log(1 + exp(-y_ij a (u_i u_j' / r - t)))``  with  ``u_i = tanh(l_i C)``

- ``y_ij`` is 1 if two samples share a class, which is the relevance that a search is measured by,
  and -1 if they do not. A dissimilar pair with a negative similarity counts as one with
  similarity 0, so that no two classes are driven to opposite codes.
- ``t`` is the threshold `NEAR`. A pair on the right side of it contributes almost no gradient. (The
  published loss is the squared difference to the cosine of the label vectors, for every pair.)
- The slope is ``a = 2 sqrt(r)``: the similarity of unrelated codes has standard deviation
  ``1 / sqrt(r)``.
- Among the pairs of one sample, the similar ones have the total weight `SIMILAR` and the dissimilar
  ones the rest, however rare a class is.

The unknowns are codewords, not the codes of the chunk's samples, so they also define the codes of
later samples. Earlier chunks enter as counts of pairs of classes that occurred together, which is a
sum: see `oasis.model.readout`.

**Owned bits** serve asymmetric search. Each bit states whether a sample has one of the classes that
own it: it is 1 in the codewords of its owners and 0 in all others. A new class takes the owned bit
with the fewest samples. In a sample with many classes, learned bits carry little information about
each single class; owned bits do. Plain Hamming distances gain little from owned bits, because each
bit counts the same.

Codewords never change. Two samples with the same labels have the same code, in whichever rounds
they arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, cycle, islice, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, FloatArray, Rows, Single, random_signs
from oasis.model.threads import one_thread

if TYPE_CHECKING:
    import scipy.sparse as sp

LabelSets: TypeAlias = "tuple[sp.csr_array, Array]"
"""Label sets (b, c) as 0 and 1, and how many samples (b,) have each."""

NEAR = 0.3
"""Similarity, per bit, above which two samples count as near each other."""

SIMILAR = 0.3
"""Weight of the similar pairs among the pairs of a sample."""

N_STEPS = 400
STEP = 0.1
BATCH = 256
"""Label sets per step, counting repetitions; all pairs among them are compared."""

KEPT_BATCHES = 64
"""Maximum number of batches that are kept and reused; 0.8 MB each."""

DENSE_CLASSES = 128
"""Up to this number of classes, the label sets of a batch are a dense matrix."""

ALONE = 0.1
"""Weight of the label set that consists of one class alone, per sample with this class."""

PAST = 3.0
"""Maximum weight of all earlier chunks together, as a multiple of the present chunk."""

FEW = (8, 32)
"""Numbers of learned bits up to which a class shares three and two owned bits, see `n_shared`."""

LIKELY = 0.2
"""A predicted class gives its bits to an item without labels if it is at least this sure,"""

CLEAR = 0.3
"""and has at least this share of the largest weight: half of the largest prediction."""

_KEEP = (0.9, 0.99)


def no_class(n_bits: int) -> Array:
    """Return the learned bits (n_bits,) of the codeword that stands for no class: fixed signs."""
    (signs,) = random_signs(np.random.default_rng(0), (1, n_bits))
    return np.asarray(signs)


def grown_codewords(
    C: Array,
    counts: Array,
    pairs: sp.csr_array,
    L: sp.csr_array,
    n_owned: int,
    rng: np.random.Generator,
) -> Array:
    """Return the codewords (c, r) of all classes of a chunk's labels; known ones are unchanged.

    Without a new class, no random number is drawn. Cost: `N_STEPS` products of
    `BATCH` x `BATCH` x r, `N_STEPS` passes over the new codewords, and one pass over the labels of
    the chunk and the pairs of known classes.

    Parameters
    ----------
    C : (c_known, r) codewords of the classes known before
    counts : (c_known,) samples that they had
    pairs : (c_known, c_known) how often two of them came together, see `oasis.model.readout`
    L : (n, c) labels of the chunk as 0 and 1, known classes first
    n_owned : so many bits are owned; those before them are learned

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> rng = np.random.default_rng(0)
    >>> L = sp.csr_array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> C = grown_codewords(np.empty((0, 8)), np.empty(0), sp.csr_array((0, 0)), L, 2, rng)
    >>> again = grown_codewords(C, np.array([2.0, 2.0]), sp.csr_array((2, 2)), L, 2, rng)
    >>> C.shape, C[:, 6:].tolist(), bool((again == C).all())
    ((2, 8), [[1.0, 0.0], [0.0, 1.0]], True)
    """
    n_known, n_bits = C.shape
    if L.shape[1] == n_known:
        return C
    n_learned = n_bits - n_owned
    sets = _label_sets(pairs, L)
    with one_thread():  # many small products; and the codes do not depend on the number of cores
        learned = _learned(C[:, :n_learned], sets, rng)
    owned = _owned(C[:, n_learned:], counts, L, n_shared(n_learned))
    return np.vstack([C, np.hstack([learned, owned])])


def n_shared(n_learned: int) -> int:
    """Return how many owned bits a class shares with other owners, if no bit is free.

    Two classes that share one bit are told apart by learned bits, and by a further shared bit where
    learned bits are few.

    >>> n_shared(8), n_shared(23), n_shared(55)
    (3, 2, 1)
    """
    return 1 + sum(n_learned <= few for few in FEW)


def sample_codes(L: sp.csr_array, C: Array) -> Array:
    """Return the codes B (n, r) as +1 and -1 of samples with labels L; zero counts as -1."""
    return np.where(L @ C > 0, 1.0, -1.0)


def likely_codes(
    w: npt.NDArray[Any], sure: npt.NDArray[Any], C: Array, n_owned: int
) -> npt.NDArray[np.float32]:
    """Return values (n, r) whose signs are the codes of samples with uncertain labels.

    Learned bits are those of all weights together, owned ones those of likely classes. What the
    weights lack of 1 is the weight of a codeword that no class has, which stands for no class: the
    less likely all classes are, the fewer bits agree with theirs.

    Parameters
    ----------
    w : (n, c) weights of labels, at least 0
    sure : (n, c), how sure each is, from 0 to 1
    C : (c, r) codewords, of which the last ``n_owned`` bits are owned
    """
    likely = (sure >= LIKELY) & (w > 0) & (w >= CLEAR * w.max(axis=1, keepdims=True, initial=0.0))
    first = C.shape[1] - n_owned
    owned = likely.astype(np.float32) @ C[:, first:] - 0.5
    learned = C[:, :first]
    nothing = np.sqrt(np.square(learned).sum() / max(learned.size, 1)) * no_class(first)
    rest = np.maximum(1 - w.sum(axis=1, keepdims=True), 0)
    return np.hstack([w @ learned + rest * nothing, owned]).astype(np.float32)


class Batch(NamedTuple):
    """Label sets, all pairs of which are compared.

    With ``s_ij = u_i u_j' / r`` a pair adds ``w_ij log(1 + exp(x_ij))`` to the loss, where
    ``x_ij = a (s_ij - t)`` if the two share no class and ``x_ij = a (t - s_ij)`` if they do.

    Attributes
    ----------
    new : (b, c_new) the new classes of each as 0 and 1; dense where there are few classes
    pull : (b, r) sum of the codewords of its known classes
    turn : (b, b) ``-x_ij / (s_ij - t)``: -a or a
    rest : (b, b) value of ``-x_ij`` from which on a pair contributes no gradient: its value at
        s = 0 if the two share no class, infinity if they do
    force : (b, b) ``2 w_ij dx_ij / d(u_i u_j')``
    """

    new: Single | sp.csr_array
    pull: Single
    turn: Single
    rest: Single
    force: Single

    @classmethod
    def of(
        cls, sets: sp.csr_array, pull: Single, n_known: int, weights: FloatArray, times: FloatArray
    ) -> Batch:
        """Return the batch of label sets (b, c), known classes first.

        Parameters
        ----------
        pull : (b, r) sum of the codewords of the known classes of each
        weights, times : (b,), see `pair_weights`
        """
        dense = sets.toarray() if sets.shape[1] <= DENSE_CLASSES else None
        common = (sets @ sets.T).toarray() if dense is None else dense @ dense.T
        apart = common == 0
        w = pair_weights(apart, weights.astype(np.float32), times.astype(np.float32))
        n_bits = pull.shape[1]
        slope = np.float32(2 * n_bits**0.5)
        turn = np.where(apart, -slope, slope)
        rest = np.where(apart, slope * np.float32(NEAR), np.float32(np.inf))
        new = sets[:, n_known:] if dense is None else dense[:, n_known:]
        return cls(new, pull, turn, rest, w * turn * np.float32(-2 / n_bits))


def pair_weights(apart: npt.NDArray[np.bool_], weights: Single, times: Single) -> Single:
    """Return w, symmetric (b, b): the similar pairs of each label set weigh `SIMILAR` in total.

    Parameters
    ----------
    apart : (b, b) whether two label sets share no class
    weights : (b,) number of samples with each label set; a sample is not paired with itself
    times : (b,) how many samples with each are compared with their partners
    """
    themselves = np.maximum(weights - 1, 0)
    dissimilar = apart @ weights
    similar = weights.sum() - dissimilar - weights + themselves
    near, far = (
        np.divide(share * times, total, out=np.zeros_like(total), where=total > 0)
        for share, total in ((SIMILAR, similar), (1 - SIMILAR, dissimilar))
    )
    w: Single = np.where(apart, far[:, None], near[:, None])
    w *= weights
    w += w.T.copy()
    np.fill_diagonal(w, 2 * near * themselves)
    return w


def pair_gradient(C: Single, batch: Batch) -> Single:
    """Return the gradient of the loss over the pairs of a batch in the new codewords C."""
    n_bits = C.shape[1]
    u = np.tanh(batch.pull + batch.new @ C)  # (b, r)
    x = (u * np.float32(1 / n_bits)) @ u.T
    x -= np.float32(NEAR)
    x *= batch.turn
    acts = x < batch.rest
    # x is -x_ij here, and the derivative of log(1 + exp(x_ij)) is 1 / (1 + exp(-x_ij))
    with np.errstate(over="ignore"):  # infinity makes the derivative 0
        np.exp(x, out=x)
    x += 1
    np.divide(batch.force, x, out=x)
    x *= acts  # four times as fast as to set some values of x
    gradient: Single = batch.new.T @ ((x @ u) * (1 - u * u))
    return gradient


def _learned(C: Array, label_sets: LabelSets, rng: np.random.Generator) -> Array:
    """Return the learned bits of the new classes, (c_new, r), given those of known classes."""
    n_known, n_bits = C.shape
    sets, weights = label_sets
    new = rng.standard_normal((sets.shape[1] - n_known, n_bits)).astype(np.float32)
    if not n_bits:
        return new.astype(np.float64)
    pull = np.asarray(sets[:, :n_known] @ C.astype(np.float32))
    if sets.shape[0] <= BATCH:
        whole = Batch.of(sets, pull, n_known, weights, np.ones(len(weights)))
        return _descend(new, repeat(whole, N_STEPS)).astype(np.float64)

    def batch(drawn: Rows) -> Batch:
        # equal label sets are one row, weighted by the number of draws
        rows, counts = np.unique(drawn, return_counts=True)
        times = counts.astype(np.float32)
        return Batch.of(sets[rows], pull[rows], n_known, times, times)

    # with few samples, this many batches include even a class of one sample, and are reused
    few = weights.sum() <= KEPT_BATCHES * BATCH
    drawn = _drawn(weights, KEPT_BATCHES if few else N_STEPS, rng)
    batches = cycle([batch(each) for each in drawn]) if few else map(batch, drawn)
    return _descend(new, islice(batches, N_STEPS)).astype(np.float64)


def _drawn(weights: Array, n_batches: int, rng: np.random.Generator) -> Rows:
    """Return label sets for each batch, (n_batches, `BATCH`), drawn in proportion to weights.

    The draw is stratified: a label set whose share of the weights is p is drawn ``p n BATCH`` times
    in all n batches, rounded up or down, evenly spread over the batches.
    """
    order = rng.permutation(len(weights))
    ends = np.cumsum(weights[order])
    n = n_batches * BATCH
    places = (np.arange(n) + rng.random()) * (ends[-1] / n)
    found = order[np.minimum(np.searchsorted(ends, places, side="right"), len(order) - 1)]
    return rng.permuted(found.reshape(BATCH, n_batches), axis=1).T


def _owned(C: Array, counts: Array, L: sp.csr_array, n_joined: int) -> Array:
    """Return the owned bits of the new classes, (c_new, r), as 0 and 1.

    Frequent classes come first. A class gets one bit if there is one without an owner; otherwise it
    joins the owners of the ``n_joined`` bits with the fewest samples.
    """
    n_known, n_bits = C.shape
    samples = np.asarray(L.sum(axis=0), dtype=np.float64).ravel()
    samples[:n_known] += counts
    load = samples[:n_known] @ C  # (r,)
    new = np.zeros((len(samples) - n_known, n_bits))
    for number in np.argsort(-samples[n_known:], kind="stable"):
        lightest = np.argsort(load, kind="stable")[:n_joined]
        bits = lightest[:1] if n_bits and load[lightest[0]] == 0 else lightest
        new[number, bits] = 1
        load[bits] += samples[n_known + number]
    return new


def _label_sets(pairs: sp.csr_array, L: sp.csr_array) -> LabelSets:
    """Return label sets (b, c) and weights: of the chunk, of earlier chunks, of single classes.

    Earlier chunks weigh one per sample, but at most `PAST` times the chunk in total. The sets of
    one class each separate classes that occur almost only together.
    """
    import scipy.sparse as sp

    sets, weights = _distinct(L)
    before = pairs.sum()
    scale = min(1.0, PAST * weights.sum() / max(before, 1.0))
    past, times = _pair_sets(pairs, L.shape[1])
    sets = sp.vstack([sets, past], format="csr")
    weights = np.concatenate([weights, scale * times])
    single = sp.eye_array(L.shape[1], dtype=np.float32, format="csr")
    return (
        sp.vstack([sets, single], format="csr"),
        np.concatenate([weights, ALONE * (weights @ sets)]),
    )


def _distinct(L: sp.csr_array) -> LabelSets:
    """Return the label sets of a chunk, each once, and how many samples have it."""
    import scipy.sparse as sp

    rows = [tuple(sorted(names)) for names in np.split(L.indices, L.indptr[1:-1])]
    times = Counter(row for row in rows if row)
    # in the order of dense rows of 0 and 1, which does not depend on the order of the chunk
    found = sorted(times, key=lambda row: tuple(-number for number in row))
    ends = np.cumsum([0, *map(len, found)])
    numbers = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=ends[-1])
    ones = np.ones(len(numbers), dtype=np.float32)
    sets = sp.csr_array((ones, numbers, ends), shape=(len(found), L.shape[1]))
    return sets, np.array([times[row] for row in found], dtype=np.float64)


def _pair_sets(pairs: sp.csr_array, n_classes: int) -> LabelSets:
    """Return pairs of classes as label sets, and their counts; the diagonal is single classes."""
    import scipy.sparse as sp

    found = pairs.tocoo()
    rows, (one, other) = np.arange(found.nnz), found.coords
    apart = one != other
    places = np.concatenate([rows, rows[apart]]), np.concatenate([one, other[apart]])
    ones = np.ones(len(places[0]), dtype=np.float32)
    return sp.csr_array((ones, places), shape=(found.nnz, n_classes)), found.data


def _descend(C: Single, batches: Iterable[Batch]) -> Single:
    """Return the new codewords C after one step for each of `N_STEPS` batches.

    Adam with a step size that decays to 0: gradients of rare and frequent classes differ in size.
    """
    first, second = np.zeros_like(C), np.zeros_like(C)
    for t, batch in enumerate(batches):
        gradient = pair_gradient(C, batch)
        first += np.float32(1 - _KEEP[0]) * (gradient - first)
        np.square(gradient, out=gradient)
        gradient -= second
        gradient *= np.float32(1 - _KEEP[1])
        second += gradient
        size = np.sqrt(second / np.float32(1 - _KEEP[1] ** (t + 1)), out=gradient)
        size += np.float32(1e-8)
        np.divide(first, size, out=size)
        size *= np.float32(STEP * (1 - t / N_STEPS) / (1 - _KEEP[0] ** (t + 1)))
        C = C - size
    return C
