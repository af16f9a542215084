"""The readout: a linear map from stored label bits to labels, kept as sums.

The label bits of a code are a function of its label set. The inverse is approximated by a ridge
regression of the labels L on the centred bits B,

    ``D = (B'B + ridge n I)^-1 (B'L + ridge n D0)``  (r, c)

shrunk towards the codewords, D0 with ``|D0_c|_1 = 1``, which decide where all codes are alike.
So ``b D_c`` is near 1 for codes of samples with class c and near 0 for others. A query with
predicted label weights ``w`` (c,) is projected to ``D w``. Its inner product with a stored code is
then the sum of the weights of that code's labels, by which a search ranks.

The ridge is small, so the readout is nearly exact and depends on few bits. **Hamming distance**
counts all bits alike, so it needs a direction that spreads over all that say the same. With S the
covariance of stored codes it is

    ``P S (S + I / 2)^-1``

for projections P: a readout with ridge 1/2 for what P reads. A code of labels alone has these
directions of D at unit length, since a large ridge shrinks rare classes.

**Items without labels** have the label bits of their predicted labels, some of them wrong. How such
bits relate to the true labels is learned from samples whose labels are known: some samples of a
chunk are predicted before they are learned (`oasis.model.calibration`), and the label bits that
they would have had without labels are added to sums of their own. D is then read from the sums over
given labels plus these, which count as many samples as are stored without labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Rows, Single

if TYPE_CHECKING:
    import scipy.sparse as sp

RIDGE = 0.001
"""Ridge of the readout, per stored code."""

HAMMING_RIDGE = 0.5
"""Ridge of what Hamming distance is measured from."""

LEAST_RESPONSE = 0.02
"""Least that counts as read of a class from its own code: below, it is noise."""

MOST_PAIRED = 64
"""Classes of a sample, at most, whose pairs are counted: 2,016 pairs."""


@dataclass(frozen=True)
class ClassPairs:
    """Sum of `class_pairs`, in the three arrays of a CSR matrix (c, c).

    SciPy makes the matrix when classes are learned; a search does without it.
    """

    data: Array
    columns: Rows
    ends: Rows

    @classmethod
    def none(cls) -> ClassPairs:
        """Return the pairs of no classes."""
        return cls(np.zeros(0), np.zeros(0, np.int64), np.zeros(1, np.int64))

    @classmethod
    def of(cls, matrix: sp.csr_array) -> ClassPairs:
        """Return the pairs of a matrix (c, c)."""
        columns, ends = (each.astype(np.int64) for each in (matrix.indices, matrix.indptr))
        return cls(matrix.data, columns, ends)

    @property
    def n_classes(self) -> int:
        return len(self.ends) - 1

    def matrix(self, n_classes: int | None = None) -> sp.csr_array:
        """Return them as a matrix, with rows and columns of zeros for more classes."""
        import scipy.sparse as sp

        c = self.n_classes if n_classes is None else n_classes
        ends = np.pad(self.ends, (0, c - self.n_classes), mode="edge")
        return sp.csr_array((self.data, self.columns, ends), shape=(c, c))

    def joined(self, other: ClassPairs) -> ClassPairs:
        """Return the sum of both; ``other`` knows all classes of this one."""
        return ClassPairs.of(self.matrix(other.n_classes) + other.matrix())

    def less(self, other: ClassPairs) -> ClassPairs:
        """Return these pairs without others that are among them."""
        rest = self.matrix() - other.matrix()
        rest.eliminate_zeros()
        return ClassPairs.of(rest)

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless the arrays are those of a matrix (n_classes, n_classes)."""
        steps = np.diff(self.ends)
        if (
            self.ends.shape != (n_classes + 1,)
            or self.data.shape != self.columns.shape
            or self.data.dtype != np.float64
            or self.columns.dtype != np.int64
            or self.ends[0] != 0
            or self.ends[-1] != len(self.data)
            or (steps < 0).any()
            or ((self.columns < 0) | (self.columns >= n_classes)).any()
        ):
            raise ValueError(f"the pairs are no matrix of {n_classes} x {n_classes}")


@dataclass(frozen=True)
class BitSums:
    """Sums over some bits of stored codes, as +1 and -1; exact in any order.

    Attributes
    ----------
    BB : (r, r), sum of B'B
    B1 : (r,), sum of B
    n : codes
    """

    BB: Array
    B1: Array
    n: int

    @classmethod
    def zero(cls, n_bits: int) -> BitSums:
        """Return the sums over no codes."""
        return cls(np.zeros((n_bits, n_bits)), np.zeros(n_bits), 0)

    @classmethod
    def of(cls, B: npt.NDArray[Any]) -> BitSums:
        """Return the sums over bits B (n, r), of any number type."""
        # whole numbers up to 2^24 are exact in single precision, which takes half the time
        kind: npt.DTypeLike = np.float32 if len(B) <= 1 << 24 else np.float64
        bits = B.astype(kind)
        BB, B1 = bits.T @ bits, bits.sum(axis=0, dtype=np.float64)
        return cls(BB.astype(np.float64), B1, len(B))

    def joined(self, other: BitSums) -> BitSums:
        """Return the sums over the codes of both."""
        return BitSums(self.BB + other.BB, self.B1 + other.B1, self.n + other.n)

    def less(self, other: BitSums) -> BitSums:
        """Return the sums without codes that are among them."""
        return BitSums(self.BB - other.BB, self.B1 - other.B1, self.n - other.n)

    def covariance(self, n_prior: int = 0) -> Array:
        """Return the covariance (r, r) of the bits, with codes of uncorrelated bits added.

        >>> BitSums.zero(2).covariance(), BitSums.zero(2).covariance(10)
        (array([[0., 0.],
               [0., 0.]]), array([[1., 0.],
               [0., 1.]]))
        """
        mean = self.B1 / max(self.n, 1)
        own: Array = self.BB / max(self.n, 1) - np.outer(mean, mean)
        share = self.n / max(self.n + n_prior, 1)
        return share * own + (1 - share) * np.eye(len(mean)) if n_prior else own

    def directions(self, LB: Array, counts: Array, ridge: float, D0: Array) -> Array:
        """Return D', (c, r): the direction in which each class is read from these bits.

        Parameters
        ----------
        LB : (c, r), sum of L'B
        counts : (c,), samples of each class
        D0 : (c, r), what D' is shrunk towards
        """
        if not len(counts) or not self.n:
            return D0
        mean = self.B1 / self.n
        joint = LB - np.outer(counts, mean) + self.n * ridge * D0
        A = self.n * (self.covariance() + ridge * np.eye(len(mean)))
        return np.ascontiguousarray(np.linalg.solve(A, joint.T).T)


@dataclass(frozen=True)
class CodeSums:
    """Sums over label bits and labels; the size depends on bits and classes alone.

    Attributes
    ----------
    bits : sums over the label bits, r of them
    LB : (c, r), sum of L'B
    counts : (c,), samples of each class
    """

    bits: BitSums
    LB: Array
    counts: Array

    @classmethod
    def zero(cls, n_bits: int) -> CodeSums:
        """Return the sums over no samples and no classes."""
        return CodeSums(BitSums.zero(n_bits), np.zeros((0, n_bits)), np.zeros(0))

    def plus(self, B: Array, L: sp.csr_array) -> CodeSums:
        """Return the sums with samples added: codes B (n, r), labels L (n, c) as 0 and 1."""
        counts = np.asarray(L.sum(axis=0), dtype=np.float64).ravel()
        return self._added(CodeSums(BitSums.of(B), L.T @ B, counts))

    def times(self, factor: float) -> CodeSums:
        """Return the sums of so many times the samples."""
        bits = BitSums(factor * self.bits.BB, factor * self.bits.B1, round(factor * self.bits.n))
        return CodeSums(bits, factor * self.LB, factor * self.counts)

    def _added(self, other: CodeSums) -> CodeSums:
        """Return the sums of the samples of both, whichever knows more classes."""
        few, many = sorted((self, other), key=lambda each: len(each.counts))
        more = len(many.counts) - len(few.counts)
        return CodeSums(
            self.bits.joined(other.bits),
            np.pad(few.LB, ((0, more), (0, 0))) + many.LB,
            np.pad(few.counts, (0, more)) + many.counts,
        )

    def directions(self, ridge: float, D0: Array) -> Array:
        """Return D', (c, r): the direction in which each class is read from a code."""
        return self.bits.directions(self.LB, self.counts, ridge, D0)


@dataclass(frozen=True)
class Codebook(CodeSums):
    """Sums over the codes of samples with given labels.

    Attributes
    ----------
    pairs : (c, c), sum of `class_pairs`
    """

    pairs: ClassPairs

    @classmethod
    def zero(cls, n_bits: int) -> Codebook:
        """Return the codebook of no samples and no classes."""
        none = CodeSums.zero(n_bits)
        return cls(none.bits, none.LB, none.counts, ClassPairs.none())

    def plus(self, B: Array, L: sp.csr_array) -> Codebook:
        """Return the codebook with a chunk added, as `CodeSums.plus`; L has all known classes."""
        sums = super().plus(B, L)
        pairs = self.pairs.joined(ClassPairs.of(class_pairs(L)))
        return Codebook(sums.bits, sums.LB, sums.counts, pairs)

    def less(self, B: Array, L: sp.csr_array) -> Codebook:
        """Return the codebook without samples that are in it: codes B (n, r), labels L (n, c)."""
        counts = self.counts - np.asarray(L.sum(axis=0), dtype=np.float64).ravel()
        pairs = self.pairs.less(ClassPairs.of(class_pairs(L)))
        return Codebook(self.bits.less(BitSums.of(B)), self.LB - L.T @ B, counts, pairs)

    def stored(self, guesses: CodeSums, n_guessed: int) -> CodeSums:
        """Return the sums over everything that is stored.

        Parameters
        ----------
        guesses : sums over label bits that samples would have had without their labels
        n_guessed : items that are stored without labels
        """
        if not (n_guessed and guesses.bits.n):
            return self
        return self._added(guesses.times(n_guessed / guesses.bits.n))

    def readout(self, everything: CodeSums, C: Array) -> Array:
        """Return the direction (c, r) in which each class is read from stored label bits.

        Parameters
        ----------
        C : (c, r), codewords
        everything : sums over items without labels too, see `stored`
        """
        D0 = C / np.maximum(np.abs(C).sum(axis=1, keepdims=True), 1e-12)
        return everything.directions(RIDGE, D0)

    def responses(self, C: Array) -> Single:
        """Return what is read of each class (c,) from its own code, beyond the mean code."""
        B = np.where(C > 0, 1.0, -1.0) - self.bits.B1 / max(self.bits.n, 1)
        read = np.vecdot(self.readout(self, C), B)
        responses: Single = np.clip(read, LEAST_RESPONSE, 1.0).astype(np.float32)
        return responses


def class_pairs(L: sp.csr_array) -> sp.csr_array:
    """Return how often two classes come together, (c, c), above and on the diagonal.

    Every sample counts 1, in equal parts for the pairs of its classes; the diagonal is for samples
    with one class alone. Parts are whole multiples of 2**-20: sums are then exact in any order. A
    sample with more than `MOST_PAIRED` classes is left out: its pairs would be many and light.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> L = sp.csr_array([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 0.0]])
    >>> class_pairs(L).toarray().round(3)
    array([[0.   , 0.333, 0.333],
           [0.   , 1.   , 1.333],
           [0.   , 0.   , 0.   ]])
    """
    import scipy.sparse as sp

    n_classes = L.shape[1]
    L = L[np.flatnonzero(np.diff(L.indptr) <= MOST_PAIRED)]
    sizes = np.diff(L.indptr)
    shares = np.round(2**20 / np.maximum(sizes * (sizes - 1) / 2, 1)) / 2**20
    weighed = sp.csr_array((np.repeat(shares, sizes), L.indices, L.indptr), shape=L.shape)
    several = (L.T @ weighed).tocoo()
    above = several.row < several.col
    alone = np.bincount(L.indices[np.repeat(sizes == 1, sizes)], minlength=n_classes)
    single = np.flatnonzero(alone)
    values = np.concatenate([several.data[above], alone[single]])
    places = [np.concatenate([each[above], single]) for each in several.coords]
    return sp.csr_array((values, tuple(places)), shape=(n_classes, n_classes))


def for_hamming(P: Array, S: Array) -> Array:
    """Return ``P S (S + I / 2)^-1`` (n, r): projections P whose signs serve Hamming distance.

    >>> for_hamming(np.array([[2.0, 3.0]]), np.diag([0.5, 0.0]))
    array([[1., 0.]])
    """
    spread = S + HAMMING_RIDGE * np.eye(len(S))
    return np.ascontiguousarray(np.linalg.solve(spread, S @ P.T).T)


def unit_directions(directions: Array) -> Array:
    """Return rows at unit length.

    Rows with norm below 1e-12 (a class that every sample has) become 0.
    """
    norms = np.linalg.norm(directions, axis=1, keepdims=True)
    unit: Array = np.divide(directions, norms, out=np.zeros_like(directions), where=norms > 1e-12)
    return unit
