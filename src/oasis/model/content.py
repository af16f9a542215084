"""Content bits: the bits of a code that describe an item beyond its labels.

Each modality has a share of the content bits. A bit is the sign of a linear function ``x P - o`` of
the modality's features at unit length. The function is computed once, from a sample of the first
chunk, before any code is stored, and never changes. So content bits mean the same in every round,
whatever classes arrive.

**Dense features** (`_dense_directions`). The directions have a large variance and predict the other
modalities. Let A be the centred sample and T the whitened sample of another modality, both reduced
to their principal components. The ridge regression ``M = (A'A + 30 I)^-1 A'T`` gives the part
``A M`` of A that predicts T. The principal components of ``[A M, A]``, with both parts scaled to
unit size, are divided by the square root of their standard deviation and rotated to minimise the
quantisation error (ITQ). Because T is whitened, the leading components approximate those of a
canonical correlation analysis, so that a text query finds a picture without text. On coco79, 32
bits of the image guided by the words of captions find classes better than the image features do.

**Sparse features**, such as hashed words (`_sparse_directions`). Random normal directions, which
need no data. Their signs preserve inner products, and so the single words of an item; principal
components preserve only what many items share. Rare words weigh more, by the square root of
``log(n / df)``.

A modality has bits in proportion to the share of samples that have it: where no item of the first
chunk has a text, nearly all bits describe pictures.

A small sample is unreliable, so its statistics are shrunk: means and document frequencies towards a
prior worth `PRIOR_ROWS` rows, variances by adding random rows in all directions. A first chunk of
one sample therefore gives random directions and one of thousands gives learned ones, with a smooth
transition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oasis.arrays import Array, Matrix, Single, has_row, is_sparse
from oasis.model.hash_functions import LinearMap, Mask, added_evidence
from oasis.model.threads import one_thread

SAMPLE_ROWS = 4096
"""Maximum number of rows of the first chunk from which content bits are computed."""

PRIOR_ROWS = 50
"""Weight of the prior, in rows, when a sample's statistics are shrunk."""

SPARSE = 0.1
"""Share of non-zero features below which a modality counts as sparse."""

SPARSE_SHARE = 1.25
"""Content bits of a sparse modality per bit of a dense one: single words need more bits."""

BITS_A_FEATURE = 4
"""Maximum number of content bits per feature of a modality."""

COMPONENTS = 256
"""Maximum number of principal components to which a modality is reduced first."""

OWN_SHARE = 0.1
"""Weight of a modality's own variance; its prediction of each other modality has weight 1."""

GUIDE_RIDGE = 30.0
"""Ridge of the regression of another modality on this one."""

LEAST_VARIANCE = 1e-4
"""Regularisation of whitening: this share of the largest variance is added to each variance."""

TURNS = 50
"""Iterations of ITQ."""


@dataclass(frozen=True)
class Content:
    """The functions of all content bits; a modality without bits is not in it.

    Attributes
    ----------
    own : modality name -> map of its unit-length features to its share of the content values,
        which have mean 0 and mean square 1 over the sample
    """

    own: Mapping[str, LinearMap]

    @property
    def sizes(self) -> dict[str, int]:
        """Content bits of each modality, in their order in a code."""
        return {name: len(map_.weights[name]) for name, map_ in self.own.items()}

    def values(self, X: Mapping[str, Matrix]) -> Single:
        """Return the content values (n, r_c) of rows; 0 on the bits of a missing modality."""
        n = next(iter(X.values())).shape[0]
        parts = [
            map_.project({name: X[name]}) if name in X else np.zeros((n, r), np.float32)
            for (name, map_), r in zip(self.own.items(), self.sizes.values(), strict=True)
        ]
        return np.hstack(parts) if parts else np.zeros((n, 0), np.float32)

    def place_without(self, other: str, name: str) -> slice:
        """Return the columns of a modality among the values of all modalities but ``other``."""
        start = 0
        for each, size in self.sizes.items():
            if each == name:
                return slice(start, start + size)
            start += size * (each != other)
        raise KeyError(name)

    def without(self, name: str) -> OtherContent:
        """Return the map to the content values of all other modalities."""
        return OtherContent(Content({k: map_ for k, map_ in self.own.items() if k != name}))


@dataclass(frozen=True)
class OtherContent:
    """The content values of some modalities, as targets of another modality's regression."""

    content: Content

    @property
    def n_values(self) -> int:
        return sum(self.content.sizes.values())

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return (n, n_values) float32."""
        return self.content.values(X)


@dataclass(frozen=True)
class ContentMap:
    """Map features to content values; values of a missing modality are predicted from the others.

    Attributes
    ----------
    content : the functions of the content bits
    predictors : modality name -> map to the content values of all other modalities
    explained : modality name -> R² (r_other,) of these predictions
    """

    content: Content
    predictors: Mapping[str, LinearMap]
    explained: Mapping[str, Array]

    def project(self, X: Mapping[str, Matrix]) -> Single:
        """Return (n, r_c) float32; the sign is the bit, the magnitude its confidence."""
        own = {
            name: map_.project({name: X[name]})
            for name, map_ in self.content.own.items()
            if name in X
        }
        self.complete(own, X, {name: has_row(matrix) for name, matrix in X.items()})
        n = next(iter(X.values())).shape[0]
        parts = [
            own[name] if name in own else self._predicted(name, X, n) for name in self.content.own
        ]
        return np.hstack(parts) if parts else np.zeros((n, 0), np.float32)

    def complete(
        self, own: Mapping[str, Single], X: Mapping[str, Matrix], has: Mapping[str, Mask]
    ) -> None:
        """Replace the content values of rows that lack their modality by predicted ones.

        Parameters
        ----------
        own : modality name -> its content values (n, r_m), modified in place
        X : features of all present modalities
        has : modality name -> which rows have it
        """
        for name, values in own.items():
            if not has[name].all():
                rows = np.flatnonzero(~has[name])
                others = {k: x[rows] for k, x in X.items() if k != name}
                values[rows] = self._predicted(name, others, len(rows))

    def _predicted(self, name: str, X: Mapping[str, Matrix], n: int) -> Single:
        """Return the content values of a modality that all n rows lack."""
        projected = {k: self.pairs[k, name].project_rows(k, x) for k, x in X.items()}
        return self.joined_predictions(name, projected, n)

    @cached_property
    def pairs(self) -> dict[tuple[str, str], LinearMap]:
        """Present and missing modality -> map of the first to the content values of the second."""
        pairs = {}
        for present, map_ in self.predictors.items():
            for name in self.content.sizes.keys() - {present}:
                where = self.content.place_without(present, name)
                weights, offsets = map_.weights[present][where], map_.offsets[present][where]
                pairs[present, name] = LinearMap(
                    {present: weights}, {present: offsets}, normalize=True
                )
        return pairs

    def joined_predictions(
        self, name: str, predictions: Mapping[str, tuple[Single, Mask]], n: int
    ) -> Single:
        """Return the content values (n, r_m) of a missing modality.

        Parameters
        ----------
        predictions : present modality -> its values in `pairs`, and which rows have it
        """
        size = self.content.sizes[name]
        if not predictions:
            return np.zeros((n, size), np.float32)
        parts = [
            (values, has, self.explained[other][self.content.place_without(other, name)])
            for other, (values, has) in predictions.items()
        ]
        return added_evidence(parts, np.zeros(size, np.float32))


def make_content(X: Mapping[str, Matrix], n_bits: int, rng: np.random.Generator) -> Content:
    """Return the functions of ``n_bits`` content bits, made from a sample of the first chunk.

    Parameters
    ----------
    X : modality name -> sampled rows (n, d) at unit length; rows of zeros lack the modality

    Notes
    -----
    Cost for dense features: a few products of n x d x `COMPONENTS`, once in the life of a model.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> image = rng.standard_normal((200, 30))
    >>> content = make_content({"image": image, "text": np.eye(200)}, 24, rng)
    >>> content.sizes, content.values({"image": image[:3]}).shape
    ({'image': 11, 'text': 13}, (3, 24))
    """
    sparse = {name: has_few_features(matrix) for name, matrix in X.items()}
    sizes = shares(
        n_bits,
        {name: (SPARSE_SHARE if sparse[name] else 1.0) * _presence(X[name]) for name in X},
        {name: BITS_A_FEATURE * matrix.shape[1] for name, matrix in X.items()},
    )
    scores = {name: _scores(matrix, rng) for name, matrix in X.items()}
    own = {}
    for name, matrix in X.items():
        if not sizes[name]:
            continue
        if sparse[name]:
            directions = _sparse_directions(matrix, sizes[name], rng)
        else:
            others = [scores[other].scores for other in X if other != name]
            directions = _dense_directions(scores[name], others, sizes[name], rng)
        own[name] = _standardised(name, matrix, directions)
    return Content(own)


def shares(n_bits: int, weights: Mapping[str, float], caps: Mapping[str, int]) -> dict[str, int]:
    """Return how many content bits each modality has: in proportion to weights, up to a cap.

    Bits above the cap of one modality go to the others. If the caps together are below ``n_bits``,
    they are ignored.

    >>> shares(48, {"image": 1, "words": 2}, {"image": 5120, "words": 8192})
    {'image': 16, 'words': 32}
    >>> shares(64, {"image": 1, "price": 1}, {"image": 5120, "price": 4})
    {'image': 60, 'price': 4}
    """
    if sum(caps.values()) < n_bits:
        caps = dict.fromkeys(caps, n_bits)
    sizes = dict.fromkeys(weights, 0)
    for _ in range(n_bits):  # one bit at a time, to the modality with the fewest bits per weight
        name = min(
            (name for name in sizes if sizes[name] < caps[name]),
            key=lambda name: (sizes[name] + 1) / weights[name],
        )
        sizes[name] += 1
    return sizes


@dataclass(frozen=True)
class _Scores:
    """A modality's sample, projected on its principal components.

    Attributes
    ----------
    components : (d, q) orthonormal
    scores : (n + v, q), projections of the centred rows and of v random rows
    """

    components: Single
    scores: Single


def _scores(X: Matrix, rng: np.random.Generator) -> _Scores:
    rows = np.flatnonzero(has_row(X))
    n, d = X.shape
    A = np.zeros((n + PRIOR_ROWS, d), dtype=np.float32)
    sample = X[rows].toarray() if is_sparse(X) else X[rows]
    A[rows] = sample - _shrunk_mean(X)
    noise = rng.standard_normal((PRIOR_ROWS, d)).astype(np.float32)
    A[n:] = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    components = _principal_components(A, COMPONENTS, rng)
    return _Scores(components, A @ components)


def _dense_directions(
    own: _Scores, others: list[Single], n_bits: int, rng: np.random.Generator
) -> Array:
    """Return P (d, n_bits) for dense features; see the head of this file."""
    S = own.scores.astype(np.float64)
    q = S.shape[1]
    gram = S.T @ S
    parts = [np.sqrt(OWN_SHARE) * np.eye(q) / max(np.linalg.norm(S), 1e-12)]
    for T in others:
        white = _whitened(T)
        white[-PRIOR_ROWS:] = 0  # random rows of two modalities have nothing in common
        M = np.linalg.solve(gram + GUIDE_RIDGE * np.eye(q), S.T @ white)  # (q, q_other)
        size = np.linalg.norm(S @ M)
        if size > 1e-9:
            parts.append(M / size)
    W = np.hstack(parts)  # (q, k)
    _, U = np.linalg.eigh(W.T @ gram @ W)
    W = W @ U[:, ::-1][:, :n_bits]  # (q, min(k, n_bits))
    if W.shape[1] < n_bits:  # more bits than features: further directions in the same space
        W = W @ rng.standard_normal((W.shape[1], n_bits)) / np.sqrt(n_bits)
    deviation = np.sqrt(np.square(S @ W).mean(axis=0))
    W = W / np.sqrt(np.maximum(deviation, 1e-6 * max(deviation.max(), 1e-12)))
    P: Array = own.components @ (W @ _rotation(S @ W, rng))
    return P


def _whitened(T: Single) -> Array:
    """Return scores T (n, q), whitened: along their principal components, variances about equal."""
    variances, U = np.linalg.eigh(T.T.astype(np.float64) @ T)
    floor = LEAST_VARIANCE * variances.max()
    if floor <= 0:
        return T.astype(np.float64)
    white: Array = (T @ U) / np.sqrt(np.maximum(variances, 0) + floor)
    return white


def _sparse_directions(X: Matrix, n_bits: int, rng: np.random.Generator) -> Array:
    """Return P (d, n_bits) for sparse features; see the head of this file."""
    n, d = X.shape
    filled = X.astype(np.bool_)
    frequency = np.asarray(filled.sum(axis=0), dtype=np.float64).ravel()
    typical = frequency.sum() / max(n * d, 1)
    rarity = np.log((n + PRIOR_ROWS + 1) / (frequency + PRIOR_ROWS * typical + 0.5))
    weights = np.sqrt(np.maximum(rarity, 0.0))
    P: Array = weights[:, None] * rng.standard_normal((d, n_bits))
    return P


def _standardised(name: str, X: Matrix, P: Array) -> LinearMap:
    """Return the map whose values have mean about 0 and mean square about 1 over the sample."""
    mean = _shrunk_mean(X).astype(np.float64)
    rows = X[np.flatnonzero(has_row(X))]
    values = np.asarray(rows @ P) - mean @ P
    prior = np.square(P).sum() / P.shape[0]  # of a random row of unit length
    size = np.sqrt((np.square(values).sum() / P.shape[1] + prior) / (values.shape[0] + 1))
    P = P / max(size, 1e-12)
    return LinearMap({name: np.ascontiguousarray(P.T)}, {name: mean @ P}, normalize=True)


def _presence(X: Matrix) -> float:
    """Return the share of rows that have a modality, shrunk towards one half."""
    return float((has_row(X).sum() + PRIOR_ROWS / 2) / (X.shape[0] + PRIOR_ROWS))


def _shrunk_mean(X: Matrix) -> Single:
    """Return the mean (d,) of the rows that are not zero, shrunk towards 0."""
    n = int(has_row(X).sum())
    total = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
    mean: Single = (total / (n + PRIOR_ROWS)).astype(np.float32)
    return mean


def _principal_components(A: Single, q: int, rng: np.random.Generator) -> Single:
    """Return approximately the q leading principal directions of rows A (n, d), orthonormal (d, q).

    Randomised range finder with two power iterations (Halko, Martinsson and Tropp 2011).
    """
    n, d = A.shape
    q = min(q, n, d)
    basis = rng.standard_normal((d, min(d, q + 16))).astype(np.float32)
    for _ in range(3):
        basis = _orthonormal(A.T @ _orthonormal(A @ basis))
    with one_thread():
        _, _, turned = np.linalg.svd(A @ basis, full_matrices=False)
    components: Single = (basis @ turned.T)[:, :q]
    return components


@one_thread()
def _orthonormal(A: Single) -> Single:
    """Return an orthonormal basis of the columns of a tall matrix."""
    return np.linalg.qr(A)[0]


@one_thread()
def _rotation(V: Array, rng: np.random.Generator) -> Array:
    """Return the rotation R (r, r) that approximately minimises ``|sign(V R) - V R|`` (ITQ)."""
    r = V.shape[1]
    V = V / max(np.sqrt(np.square(V).mean()), 1e-12)
    R = np.linalg.qr(rng.standard_normal((r, r)))[0]
    for _ in range(TURNS):
        left, _, right = np.linalg.svd(np.where(V @ R > 0, 1.0, -1.0).T @ V)
        R = (left @ right).T
    return R


def has_few_features(X: Matrix) -> bool:
    """Return whether rows have few features each, as words do: a share of less than `SPARSE`."""
    n_cells = max(X.shape[0] * X.shape[1], 1)
    filled = X.count_nonzero() if is_sparse(X) else np.count_nonzero(X)
    return bool(X.shape[1] > 1 and 0 < filled < SPARSE * n_cells)
