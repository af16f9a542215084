"""DOCH: discrete online cross-modal hashing (Pattern Recognition 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from oasis.arrays import Array, random_signs
from oasis.baselines.shared.linear import ClassSums, GramSums, LinearHasher, LinearState
from oasis.baselines.shared.parameters import check_count, check_weight
from oasis.baselines.shared.signs import signs
from oasis.baselines.shared.solvers import pinv_solve
from oasis.codes import Codes, pack, unpack
from oasis.model.hash_functions import LinearMap

PUBLISHED_ALPHAS = {8: 0.45, 16: 0.35, 32: 0.25, 64: 0.15, 128: 0.1}
"""The authors' alpha for each length of a code."""

_OUTER = 7
_CELLS = 1 << 16  # of a block of samples by anchors, so that it stays in the cache


def published_alpha(n_bits: int) -> float:
    """Return the authors' alpha; between two of their lengths, that of the longer one.

    >>> published_alpha(64), published_alpha(48), published_alpha(256)
    (0.15, 0.15, 0.1)
    """
    return next((alpha for length, alpha in PUBLISHED_ALPHAS.items() if length >= n_bits), 0.1)


@dataclass(frozen=True)
class DOCHKept:
    """Sums over the samples, and the codes and labels of all of them, from which anchors are drawn.

    Attributes
    ----------
    sums : of B'B (r, r) and L'B (c, r)
    codes : the codes of each chunk
    labels : the 0/1 labels of each chunk, with as many columns as there were classes
    """

    sums: ClassSums
    codes: tuple[Codes, ...] = ()
    labels: tuple[sp.csr_array, ...] = ()

    def anchors(
        self, n_anchors: int, n_classes: int, rng: np.random.Generator
    ) -> tuple[Array, sp.csr_array]:
        """Return codes (a, r) and labels (a, c) of samples at the same positions in every chunk."""
        order = rng.permutation(max(len(each) for each in self.codes))
        codes, labels = [], []
        for B, L in zip(self.codes, self.labels, strict=True):
            rows = order[order < len(B)][:n_anchors]
            codes.append(B[rows])
            each = L[rows]
            shape = (len(rows), n_classes)
            labels.append(sp.csr_array((each.data, each.indices, each.indptr), shape=shape))
        return unpack(np.vstack(codes)).astype(np.float64), sp.csr_array(sp.vstack(labels))


class DOCH(LinearHasher[DOCHKept]):
    """Discrete online cross-modal hashing: codes that agree with those of sampled old items.

    The probability that two samples share a class is modelled as a sigmoid of the inner product of
    their codes. Bit by bit, the codes of a chunk are fitted to this model against anchors, which
    are drawn from all old chunks, and to a regression onto the labels.

    Published for cross-modal search. Here a query uses the sum of the projections of its
    modalities, so that it may have any of them.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    alpha : float, optional
        Factor of the inner product in the sigmoid; None for the published value of this length.
    theta : float
        Weight of the labels.
    n_anchors : int
        Anchors of each chunk, at the same positions in all of them; all rows of a smaller one.
    n_iter : int
        Iterations between two regressions onto the labels, of which there are 7.
    random_state : int, numpy Generator or None
        Seed of the random start of every round, and of the anchors.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        Class names in order of arrival; new ones may come in any chunk.
    n_seen_ : int
        Samples seen.

    Notes
    -----
    The method keeps the codes and the labels of everything seen, not the features. Its anchors, and
    so the time of a round, grow with the number of chunks.

    The hash functions are regressions without a ridge, solved by the pseudo-inverse of X'X.

    Cost of a round with n samples and a anchors: O(n a r) per iteration, then per modality n d^2
    for the sum X'X and its Cholesky factorisation; an eigendecomposition if it is singular.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> model = DOCH(16, random_state=0).partial_fit(X, [["sky"], ["sea"], ["sky"], ["cat"]])
    >>> model.classes_, model.codes_.shape, model.encode({"text": X["text"]}).shape
    (('sky', 'sea', 'cat'), (4, 2), (4, 2))
    """

    _weights = ("theta",)

    def __init__(
        self,
        n_bits: int = 64,
        alpha: float | None = None,
        theta: float = 0.1,
        n_anchors: int = 50,
        n_iter: int = 3,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.alpha = alpha
        self.theta = theta
        self.n_anchors = n_anchors
        self.n_iter = n_iter
        self.random_state = random_state

    def _check_parameters(self, state: LinearState[DOCHKept] | None) -> None:
        super()._check_parameters(state)
        check_count("n_anchors", self.n_anchors)
        if self.alpha is not None:
            check_weight("alpha", self.alpha, positive=True)

    def _first(self, rng: np.random.Generator) -> DOCHKept:
        return DOCHKept(ClassSums.zero(self.n_bits, ("BB",), ("LB",)))

    def _solved(self, own: DOCHKept, features: Mapping[str, GramSums]) -> LinearMap:
        return LinearMap(
            {
                name: np.ascontiguousarray(pinv_solve(sums.XX, sums.BX.T).T)
                for name, sums in features.items()
            }
        )

    def _codes(
        self,
        own: DOCHKept,
        L: sp.csr_array,
        classes: tuple[str, ...],
        rng: np.random.Generator,
    ) -> tuple[Array, DOCHKept]:
        """Return the codes of one round, see docs/formulas.md.

        Draws B and P, then in each iteration the positions of the anchors, in that order.
        """
        (n, c), r = L.shape, self.n_bits
        B = random_signs(rng, (n, r))
        P = rng.standard_normal((r, c))
        sums = own.sums.widened(c)
        for _ in range(_OUTER):
            for _ in range(self.n_iter):
                # the first chunk is compared with rows of its own, as they were before the step
                among = own if own.codes else DOCHKept(own.sums, (pack(B),), (L,))
                A, labels = among.anchors(self.n_anchors, c, rng)
                self._b_step(B, L, P, A, labels)
            P = pinv_solve(sums["BB"] + B.T @ B, (sums["LB"] + L.T @ B).T)
        sums = sums.plus(BB=B.T @ B, LB=L.T @ B)
        return B, DOCHKept(sums, (*own.codes, pack(B)), (*own.labels, L))

    def _b_step(
        self, B: Array, L: sp.csr_array, P: Array, anchors: Array, labels: sp.csr_array
    ) -> None:
        """Replace B (n, r) in place, bit by bit, given codes (a, r) and labels (a, c) of anchors.

        The inner product of two codes is an integer, so its sigmoid is looked up in a table.
        """
        r, a = B.shape[1], len(anchors)
        alpha = published_alpha(r) if self.alpha is None else float(self.alpha)
        sigmoid = 1 / (1 + np.exp(-alpha * np.arange(-r, r + 1)))
        VL, PP = 2 * (L @ P.T), P @ P.T  # (n, r), (r, r)
        own = alpha**2 * a / 4 + 2 * self.theta * np.diag(PP)
        step = max(1, _CELLS // a)
        for start in range(0, len(B), step):
            rows = slice(start, start + step)
            b = B[rows]  # a view
            shared = (L[rows] @ labels.T).sign() @ anchors  # (n, r)
            products = (b @ anchors.T + r).astype(np.intp)  # (n, a)
            expected = np.empty(products.shape)
            for k in range(r):
                np.take(sigmoid, products, out=expected, mode="clip")
                old = b[:, k].copy()
                target = alpha * (shared[:, k] - expected @ anchors[:, k])
                target += self.theta * (VL[rows, k] - 2 * (b @ PP[:, k])) + own[k] * old
                b[:, k] = signs(target)
                changed = b[:, k] != old
                products[changed] += np.outer(b[changed, k] - old[changed], anchors[:, k]).astype(
                    np.intp
                )
