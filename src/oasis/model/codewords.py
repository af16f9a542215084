"""Codewords: what a class adds to the codes of its samples, fixed when the class arrives.

A bit of a sample is set where the sum of its classes' codewords is positive, ``B = sign(L C)``, so
a code says which classes its sample has. There are two kinds of bits.

**Learned bits** serve plain Hamming search. The codewords of new classes minimise the similarity
loss of the method over pairs of label sets, as a question of near or far:

    ``sum_ij w_ij log(1 + exp(-y_ij a (u_i u_j' / r - t)))``  with  ``u_i = tanh(l_i C)``

and ``y_ij`` 1 where two samples share a class, which is what a search is judged by, and -1 where
they do not; a dissimilar pair counts as if at right angles, 0, where it is even farther apart. The
published loss asks for the cosine of label vectors as similarity, pair by pair, squared. Here a
pair that is on the right side of the threshold ``t``, `NEAR`, is at peace, and the bits are left to
the others; and no two classes are driven to opposite ends, where a third one would find no place
far from both. The slope is ``a = 2 sqrt(r)``: the similarity of unrelated codes varies by
``1 / sqrt(r)``. Of the pairs of one sample, similar ones weigh `SIMILAR` in total and dissimilar
ones the rest, however rare a class is. And it is solved for codewords instead of for the chunk's
samples, so that it also tells the codes of samples to come. What was seen before takes part, as the
pairs of classes that came together and how often: a sum tells, see `oasis.model.readout`.

**Owned bits** serve asymmetric search. Each says whether a sample has one of the classes that own
it: 1 in the codewords of its owners, 0 in all others. A class that arrives takes the owned bit with
the fewest samples. What many classes of one sample blur in learned bits stays clear in these, but
plain Hamming distances, in which each bit counts the same, gain little from them.

Codewords never change: nothing drifts, and two samples with the same labels have the same code,
however far apart they arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single

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
"""Label sets that are compared with each other in one step."""

ALONE = 0.1
"""Weight of a class alone, as a label set of its own, per sample that has it."""

PAST = 3.0
"""Weight, at most, of all that was seen before, in chunks like the one that brings classes."""

SHARED = 3
"""Bits a class owns together with others where no learned bits tell the owners apart."""

CLEAR = 0.4
"""Weight, of a sample's strongest label, from which a predicted label sets its owned bits."""

_KEEP = (0.9, 0.99)


def usual_owned(n_bits: int) -> int:
    """Return how many bits of a code without content bits are owned, unless asked otherwise.

    ``max(0, 3 (n_bits - 48) // 5)``, which costs little Hamming MAP.

    >>> [usual_owned(n_bits) for n_bits in (16, 32, 64, 128)]
    [0, 0, 9, 48]
    """
    return max(0, 3 * (n_bits - 48) // 5)


def grown_codewords(
    C: Array,
    counts: Array,
    pairs: sp.csr_array,
    L: sp.csr_array,
    n_owned: int,
    rng: np.random.Generator,
) -> Array:
    """Return the codewords (c, r) of all classes of a chunk's labels; known ones are unchanged.

    Nothing is drawn where no class is new. Cost: `N_STEPS` products of `BATCH` x `BATCH` x r, and
    one pass over the labels of the chunk and the pairs of known classes.

    Parameters
    ----------
    C : (c_known, r) codewords of the classes known before
    counts : (c_known,) samples that they had
    pairs : (c_known, c_known) how often two of them came together, see `oasis.model.readout`
    L : (n, c) labels of the chunk as 0 and 1, known classes first
    n_owned : the last so many bits are owned, those before are learned

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
    sets = _label_sets(counts, pairs, L)
    learned = _learned(C[:, :n_learned], sets, rng)
    owned = _owned(C[:, n_learned:], counts, L, SHARED if n_owned == n_bits else 1)
    return np.vstack([C, np.hstack([learned, owned])])


def sample_codes(L: sp.csr_array, C: Array) -> Array:
    """Return the codes B (n, r) as +1 and -1 of samples with labels L; zero counts as -1."""
    return np.where(L @ C > 0, 1.0, -1.0)


def likely_codes(w: npt.NDArray[Any], C: Array, n_owned: int) -> npt.NDArray[np.float32]:
    """Return values (n, r) whose signs are the codes of samples with uncertain labels.

    Parameters
    ----------
    w : (n, c) weights of labels, at least 0
    C : (c, r) codewords, the last ``n_owned`` bits owned

    Examples
    --------
    >>> C = np.array([[2.0, -1.0, 1.0, 0.0], [-1.0, 3.0, 0.0, 1.0]])
    >>> likely_codes(np.array([[1.0, 0.5], [1.0, 0.1]]), C, n_owned=2) > 0
    array([[ True,  True,  True,  True],
           [ True, False,  True, False]])
    """
    n_learned = C.shape[1] - n_owned
    clear = (w > 0) & (w >= CLEAR * w.max(axis=1, keepdims=True, initial=0))
    owned = clear.astype(np.float32) @ C[:, n_learned:] - 0.5
    return np.hstack([w @ C[:, :n_learned], owned]).astype(np.float32)


class Batch(NamedTuple):
    """Label sets that are compared with each other.

    Attributes
    ----------
    new : (b, c_new) the new classes of each as 0 and 1
    pull : (b, r) sum of the codewords of its known classes
    apart : (b, b) 1 where two of them share no class, 0 elsewhere
    w : (b, b) weights of pairs
    """

    new: sp.csr_array
    pull: Single
    apart: Single
    w: Single

    @classmethod
    def of(cls, sets: sp.csr_array, new: sp.csr_array, pull: Single, weights: Array) -> Batch:
        """Return the batch of label sets (b, c), which so many samples (b,) have."""
        dense = sets.toarray()
        apart = (dense @ dense.T == 0).astype(np.float32)
        return cls(new, pull, apart, pair_weights(apart, weights.astype(np.float32)))


def pair_weights(apart: Single, weights: Single) -> Single:
    """Return w, symmetric (b, b): of each label set's pairs, similar ones weigh `SIMILAR` in all.

    Parameters
    ----------
    apart : (b, b) 1 where two label sets share no class, 0 elsewhere
    weights : (b,) samples that have each; one of them is a partner of the others, not of itself
    """
    themselves = np.maximum(weights - 1, 0)
    dissimilar = apart @ weights
    similar = weights.sum() - dissimilar - weights + themselves
    kinds = []
    for share, total in ((SIMILAR, similar), (1 - SIMILAR, dissimilar)):
        each = np.divide(share, total, out=np.zeros_like(total), where=total > 0)
        kinds.append((each, np.stack([each, weights]).T @ np.stack([weights, each])))
    (each, near), (_, far) = kinds
    w: Single = np.where(apart > 0, far, near)
    np.fill_diagonal(w, 2 * each * themselves)
    return w


def pair_gradient(C: Single, batch: Batch) -> Single:
    """Return the gradient of the loss over the pairs of a batch in the new codewords C."""
    n_bits = C.shape[1]
    slope = np.float32(2 * n_bits**0.5)
    u = np.tanh(batch.pull + batch.new @ C)  # (b, r)
    nearness = (slope / n_bits * u) @ u.T
    moves = (nearness > 0) | (batch.apart == 0)
    nearness -= slope * np.float32(NEAR)
    # the slope of log(1 + exp(-x)) is -1 / (1 + exp(x)), and that of log(1 + exp(x)) is 1 more
    with np.errstate(over="ignore"):  # then it is infinite, and the slope 0
        pulls = np.exp(nearness, out=nearness)
    pulls += 1
    np.divide(-1, pulls, out=pulls)
    pulls += batch.apart
    pulls *= batch.w
    pulls *= moves
    gradient: Single = (2 * slope / n_bits) * (batch.new.T @ ((pulls @ u) * (1 - u * u)))
    return gradient


def _learned(C: Array, label_sets: LabelSets, rng: np.random.Generator) -> Array:
    """Return the learned bits of the new classes, (c_new, r), beside those known before."""
    n_known, n_bits = C.shape
    sets, weights = label_sets
    new = rng.standard_normal((sets.shape[1] - n_known, n_bits)).astype(np.float32)
    if not n_bits:
        return new.astype(np.float64)
    drawn = None
    if sets.shape[0] > BATCH:
        drawn = rng.choice(sets.shape[0], (N_STEPS, BATCH), p=weights / weights.sum())
        used, drawn = np.unique(drawn, return_inverse=True)
        sets = sets[used]
    later, pull = sets[:, n_known:], np.asarray(sets[:, :n_known] @ C.astype(np.float32))
    batches: Iterable[Batch]
    if drawn is None:
        batches = repeat(Batch.of(sets, later, pull, weights), N_STEPS)
    else:
        # how often a label set occurs is in the draw
        one = np.ones(BATCH)
        rounds = drawn.reshape(N_STEPS, BATCH)
        batches = (Batch.of(sets[rows], later[rows], pull[rows], one) for rows in rounds)
    return _descend(new, batches).astype(np.float64)


def _owned(C: Array, counts: Array, L: sp.csr_array, n_shared: int) -> Array:
    """Return the owned bits of the new classes, (c_new, r), as 0 and 1.

    Frequent classes choose first. A bit that nobody owns is enough; otherwise a class joins the
    owners of the ``n_shared`` bits with the fewest samples.
    """
    n_known, n_bits = C.shape
    samples = np.asarray(L.sum(axis=0), dtype=np.float64).ravel()
    samples[:n_known] += counts
    load = samples[:n_known] @ C  # (r,)
    new = np.zeros((len(samples) - n_known, n_bits))
    for number in np.argsort(-samples[n_known:], kind="stable"):
        lightest = np.argsort(load, kind="stable")[:n_shared]
        bits = lightest[:1] if n_bits and load[lightest[0]] == 0 else lightest
        new[number, bits] = 1
        load[bits] += samples[n_known + number]
    return new


def _label_sets(counts: Array, pairs: sp.csr_array, L: sp.csr_array) -> LabelSets:
    """Return label sets (b, c) and their weights: the chunk's, those before, every class alone.

    What came before weighs as many samples as it had, but `PAST` times the chunk at most. Classes
    alone keep apart even where they are hardly seen but together.
    """
    import scipy.sparse as sp

    sets, weights = _distinct(L)
    before = pairs.sum()
    scale = min(1.0, PAST * weights.sum() / max(before, 1.0))
    past, times = _pair_sets(pairs, L.shape[1])
    alone = sp.eye_array(L.shape[1], dtype=np.float32, format="csr")
    samples = np.concatenate([scale * counts, (weights @ sets)[len(counts) :]])
    return (
        sp.vstack([sets, past, alone], format="csr"),
        np.concatenate([weights, scale * times, ALONE * samples]),
    )


def _distinct(L: sp.csr_array) -> LabelSets:
    """Return the label sets of a chunk, each once, and how many samples have it."""
    import scipy.sparse as sp

    rows = [tuple(sorted(names)) for names in np.split(L.indices, L.indptr[1:-1])]
    times = Counter(row for row in rows if row)
    # in the order of dense rows of 0 and 1, whatever the order of the chunk
    found = sorted(times, key=lambda row: tuple(-number for number in row))
    ends = np.cumsum([0, *map(len, found)])
    numbers = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=ends[-1])
    ones = np.ones(len(numbers), dtype=np.float32)
    sets = sp.csr_array((ones, numbers, ends), shape=(len(found), L.shape[1]))
    return sets, np.array([times[row] for row in found], dtype=np.float64)


def _pair_sets(pairs: sp.csr_array, n_classes: int) -> LabelSets:
    """Return the pairs of classes as label sets, and how often each came; the diagonal is one."""
    import scipy.sparse as sp

    found = pairs.tocoo()
    rows, (one, other) = np.arange(found.nnz), found.coords
    apart = one != other
    places = np.concatenate([rows, rows[apart]]), np.concatenate([one, other[apart]])
    ones = np.ones(len(places[0]), dtype=np.float32)
    return sp.csr_array((ones, places), shape=(found.nnz, n_classes)), found.data


def _descend(C: Single, batches: Iterable[Batch]) -> Single:
    """Return the new codewords C after one step for each of `N_STEPS` batches.

    Steps are Adam's, and shrink to nothing: the sizes of gradients differ by the frequency of
    classes.
    """
    first, second = np.zeros_like(C), np.zeros_like(C)
    for t, batch in enumerate(batches):
        gradient = pair_gradient(C, batch)
        first = _KEEP[0] * first + (1 - _KEEP[0]) * gradient
        second = _KEEP[1] * second + (1 - _KEEP[1]) * gradient * gradient
        mean = first / (1 - _KEEP[0] ** (t + 1))
        size = np.sqrt(second / (1 - _KEEP[1] ** (t + 1)))
        C = C - np.float32(STEP * (1 - t / N_STEPS)) * (mean / (size + np.float32(1e-8)))
    return C
