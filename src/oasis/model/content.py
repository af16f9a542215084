"""Content bits: the bits of a code that describe an item beyond its labels.

Each modality has a share of the content bits. A bit is the sign of a linear function ``x P - o`` of
the modality's features at unit length.

**Dense features**: principal components of the centred rows, divided by the square root of their
standard deviation and rotated to minimise the quantisation error (ITQ).

**Sparse features**, such as hashed words: random normal directions. Their signs preserve inner
products, and so the single words of an item; principal components preserve only what many items
share. Rare words weigh more, by the square root of ``log(n / df)``.

**When.** The functions of a modality are made when `ENOUGH_ROWS` rows with it have come, from at
most `SAMPLE_ROWS` rows of the chunk in which that happens and from the sums over earlier rows, and
never change afterwards. Of earlier rows X only ``X'X`` is known: a random rotation of a root of it
stands for them (`stand_ins`), rows with the same mean and the same covariance. Until then the
functions are provisional, made from what has come, and `OASIS.recode` computes the codes of these
few items anew, once.

A small sample is unreliable, so its statistics are shrunk: means and document frequencies towards a
prior worth `PRIOR_ROWS` rows, variances by adding random rows in all directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from oasis.arrays import Array, Matrix, Single, has_row, is_sparse
from oasis.errors import InputError
from oasis.model.hash_functions import LinearMap, Mask, added_evidence
from oasis.model.threads import one_thread

ENOUGH_ROWS = 256
"""Rows of a modality from which its content bits are made for good."""

SAMPLE_ROWS = 4096
"""Maximum number of rows of a chunk that they are made from."""

PRIOR_ROWS = 50
"""Weight of the prior, in rows, when a sample's statistics are shrunk."""

SPARSE = 0.1
"""Share of non-zero features below which a modality counts as sparse."""

SPARSE_SHARE = 1.25
"""Content bits of a sparse modality per bit of a dense one: single words need more bits."""

BITS_A_FEATURE = 4
"""Maximum number of content bits per feature of a modality."""

TURNS = 50
"""Iterations of ITQ."""

GUESS_WIDTHS = (1280, 256)
"""Features of pictures and of meanings, see `oasis.features.picture_meaning`."""


@dataclass(frozen=True)
class Content:
    """The functions of all content bits.

    Attributes
    ----------
    sizes : modality name -> its content bits, in their order in a code
    own : modality name -> map of its unit-length features to its content values, which have mean 0
        and mean square 1 over the sample; a modality that no row had yet is not in it
    rows : modality name -> rows that its functions were made from
    guess : two modalities (present, missing), if features of the second are guessed from the first
        where it lacks, by `oasis.features.picture_meaning`; see `OASIS`
    residual : whether `values` are those of the missing modality less the guessed ones
    """

    sizes: Mapping[str, int]
    own: Mapping[str, LinearMap]
    rows: Mapping[str, int]
    guess: tuple[str, str] | None = None
    residual: bool = False

    @property
    def n_values(self) -> int:
        return sum(self.sizes.values())

    def values(self, X: Mapping[str, Matrix]) -> Single:
        """Return the content values (n, r_c) of rows; 0 on the bits of a missing modality."""
        n = next(iter(X.values())).shape[0]
        parts = [
            self.own[name].project({name: X[name]})
            if name in X and name in self.own
            else np.zeros((n, size), np.float32)
            for name, size in self.sizes.items()
        ]
        total = np.hstack(parts) if parts else np.zeros((n, 0), np.float32)
        if self.residual and self.guess is not None and self.guess[1] in X:
            rows = np.flatnonzero(has_row(X[self.guess[1]]))
            guessed = self.guessed({name: matrix[rows] for name, matrix in X.items()})
            total[rows, self.place(self.guess[1])] -= 0 if guessed is None else guessed
        return total

    def guessed(self, X: Mapping[str, Matrix]) -> Single | None:
        """Return the guessed content values (n, r_m), or None where there is nothing to guess."""
        if self.guess is None or self.guess[0] not in X or self.guess[1] not in self.own:
            return None
        present, missing = self.guess
        return self.own[missing].project({missing: guessed_features(X[present])})

    # the name that a regression asks of its targets
    project = values

    def place(self, name: str) -> slice:
        """Return the columns of a modality among the content values."""
        start = 0
        for each, size in self.sizes.items():
            if each == name:
                return slice(start, start + size)
            start += size
        raise KeyError(name)

    def without(self, name: str) -> Content:
        """Return the content of all other modalities: the targets of this one's regression.

        That of the modality from which another is guessed predicts what the guess leaves.
        """
        sizes, own, rows = dict(self.sizes), dict(self.own), dict(self.rows)
        for each in (sizes, own, rows):
            each.pop(name, None)
        residual = self.guess is not None and name == self.guess[0]
        return Content(sizes, own, rows, self.guess, residual)

    def completed(self, X: Mapping[str, Matrix]) -> dict[str, Matrix]:
        """Return rows X of unit length, with guessed features where a modality lacks."""
        known = dict(X)
        if self.guess is not None and set(self.guess) <= X.keys():
            present, missing = self.guess
            rows = np.flatnonzero(~has_row(X[missing]))
            filled = _dense(X[missing]).astype(np.float32)
            filled[rows] = guessed_features(X[present][rows])
            known[missing] = filled
        return known


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
            own[name] if name in own else self._predicted(name, X, n) for name in self.content.sizes
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
        projected = {
            k: self.pairs[k, name].project_rows(k, x)
            for k, x in X.items()
            if (k, name) in self.pairs
        }
        return self.joined_predictions(name, projected, n, self.guesses(name, X))

    def guesses(self, name: str, X: Mapping[str, Matrix]) -> Single | None:
        """Return the guessed content values (n, r_m) of a modality; None if there are none."""
        is_guessed = self.content.guess is not None and name == self.content.guess[1]
        return self.content.guessed(X) if is_guessed else None

    @cached_property
    def pairs(self) -> dict[tuple[str, str], LinearMap]:
        """Present and missing modality -> map of the first to the content values of the second."""
        pairs = {}
        for present, map_ in self.predictors.items():
            others = self.content.without(present)
            for name in others.own:
                where = others.place(name)
                weights, offsets = map_.weights[present][where], map_.offsets[present][where]
                pairs[present, name] = LinearMap(
                    {present: weights}, {present: offsets}, normalize=True
                )
        return pairs

    def joined_predictions(
        self,
        name: str,
        predictions: Mapping[str, tuple[Single, Mask]],
        n: int,
        guesses: Single | None = None,
    ) -> Single:
        """Return the content values (n, r_m) of a missing modality.

        Parameters
        ----------
        predictions : present modality -> its values in `pairs`, and which rows have it
        guesses : (n, r_m), to which the values of the modality that they are made from are added
        """
        if guesses is not None and self.content.guess is not None:
            present = self.content.guess[0]
            values, has = predictions[present]
            predictions = {**predictions, present: (values + guesses, has)}
        nothing = np.zeros(self.content.sizes[name], np.float32)
        if not predictions:
            return np.zeros((n, len(nothing)), np.float32)
        parts = [
            (values, nothing, has, self.explained[k][self.content.without(k).place(name)])
            for k, (values, has) in predictions.items()
        ]
        return added_evidence(parts, nothing)


def guessed_features(X: Matrix) -> Single:
    """Return the features that pictures (n, 1280) would have in the modality that is guessed."""
    from oasis.features import picture_meaning

    return picture_meaning(_dense(X))


def check_guess(guess: Any, widths: Mapping[str, int]) -> tuple[str, str] | None:
    """Return the pair of modalities; an `InputError` unless these can be guessed from each other.

    >>> check_guess(("image", "meaning"), {"image": 1280, "meaning": 256})
    ('image', 'meaning')
    """
    if guess is None:
        return None
    pair = tuple(guess) if isinstance(guess, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(each, str) for each in pair) or pair[0] == pair[1]:
        raise InputError(f"guess is None or a pair of modalities (present, missing), got {guess!r}")
    for name, expected in zip(pair, GUESS_WIDTHS, strict=True):
        if widths.get(name, expected) != expected:
            raise InputError(
                f"guess={pair!r} needs {expected} features of {name!r}, got {widths[name]}: a "
                "meaning is guessed from features of EfficientNetLite0"
            )
    return pair


def shared_bits(n_bits: int, X: Mapping[str, Matrix]) -> dict[str, int]:
    """Return how many content bits each modality of a chunk has.

    A sparse one has `SPARSE_SHARE` for each bit of a dense one, up to `BITS_A_FEATURE` a feature;
    bits above that go to the others. If all modalities are that narrow, the limit is ignored.

    >>> shared_bits(64, {"image": np.ones((9, 500)), "price": np.ones((9, 1))})
    {'image': 60, 'price': 4}
    """
    weights = {name: SPARSE_SHARE if has_few_features(x) else 1.0 for name, x in X.items()}
    caps = {name: BITS_A_FEATURE * x.shape[1] for name, x in X.items()}
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


def with_functions(
    content: Content, name: str, X: Matrix, past: Array | None, rng: np.random.Generator
) -> Content:
    """Return the content in which the functions of a modality are made from what has come.

    Parameters
    ----------
    X : (n, d), rows of a chunk at unit length; rows of zeros lack the modality
    past : (d + 1, d + 1), X'X of all earlier rows, each with a constant at its end; None if there
        are none

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> image = rng.standard_normal((200, 30))
    >>> made = with_functions(Content({"image": 24}, {}, {}), "image", image, None, rng)
    >>> made.values({"image": image[:3]}).shape, dict(made.rows)
    ((3, 24), {'image': 200})
    """
    size, (_, d) = content.sizes[name], X.shape
    there = X[np.flatnonzero(has_row(X))]
    before = np.zeros((0, d + 1)) if past is None else stand_ins(past, rng)
    n_before = 0.0 if past is None else float(past[-1, -1])
    n = there.shape[0] + n_before
    total = np.asarray(there.sum(axis=0), dtype=np.float64).ravel()
    mean = (total + before[:, -1] @ before[:, :-1]) / (n + PRIOR_ROWS)  # (d,)
    if has_few_features(X):
        P = _sparse_directions(there, past, size, rng)
    else:
        centred = np.vstack([_dense(there) - mean, before[:, :-1] - np.outer(before[:, -1], mean)])
        P = _dense_directions(centred, size, rng)
    offset = mean @ P
    values = np.vstack([there @ P - offset, before[:, :-1] @ P - np.outer(before[:, -1], offset)])
    prior = np.square(P).sum() / d  # of a random row of unit length
    scale = np.sqrt((np.square(values).sum() / size + prior) / (n + 1))
    P = P / max(scale, 1e-12)
    map_ = LinearMap({name: np.ascontiguousarray(P.T)}, {name: mean @ P}, normalize=True)
    return replace(content, own={**content.own, name: map_}, rows={**content.rows, name: round(n)})


def stand_ins(gram: Array, rng: np.random.Generator) -> Array:
    """Return rows R (k, d), randomly turned, with ``R'R`` equal to a positive ``gram`` (d, d).

    >>> X = np.array([[1.0, 2.0], [2.0, 4.0]])
    >>> R = stand_ins(X.T @ X, np.random.default_rng(0))
    >>> R.shape, bool(np.allclose(R.T @ R, X.T @ X))
    ((1, 2), True)
    """
    from scipy.linalg import lapack

    least = max(float(np.trace(gram)), 0.0) * 1e-12
    root, order, rank, _ = lapack.dpstrf(np.asfortranarray(gram), tol=least, lower=0)
    rows = np.zeros((rank, len(gram)))
    rows[:, order - 1] = np.triu(root)[:rank]
    with one_thread():
        turned: Array = np.linalg.qr(rng.standard_normal((rank, rank)))[0] @ rows
    return turned


def _dense_directions(A: Array, n_bits: int, rng: np.random.Generator) -> Array:
    """Return P (d, n_bits) for centred rows A (n, d) of dense features."""
    d = A.shape[1]
    noise = rng.standard_normal((PRIOR_ROWS, d))
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    rows: Single = np.vstack([A, noise]).astype(np.float32)
    components = _principal_components(rows, n_bits, rng)  # (d, q)
    S = (rows @ components).astype(np.float64)
    W = np.eye(S.shape[1])
    if len(W) < n_bits:  # more bits than features: further directions in the same space
        W = rng.standard_normal((len(W), n_bits)) / np.sqrt(n_bits)
    deviation = np.sqrt(np.square(S @ W).mean(axis=0))
    W = W / np.sqrt(np.maximum(deviation, 1e-6 * max(deviation.max(), 1e-12)))
    P: Array = components @ (W @ _rotation(S @ W, rng))
    return P


def _sparse_directions(
    X: Matrix, past: Array | None, n_bits: int, rng: np.random.Generator
) -> Array:
    """Return P (d, n_bits) for rows X (n, d) of sparse features, and those behind ``past``."""
    n, d = X.shape
    frequency = np.asarray(X.astype(np.bool_).sum(axis=0), dtype=np.float64).ravel()
    if past is not None:  # (sum x)² / sum x² is the number of rows, where these are alike
        squares = np.maximum(np.diagonal(past)[:-1], 1e-12)
        frequency += np.square(past[-1, :-1]) / squares
        n += round(past[-1, -1])
    typical = frequency.sum() / max(n * d, 1)
    rarity = np.log((n + PRIOR_ROWS + 1) / (frequency + PRIOR_ROWS * typical + 0.5))
    weights = np.sqrt(np.maximum(rarity, 0.0))
    P: Array = weights[:, None] * rng.standard_normal((d, n_bits))
    return P


def _dense(X: Matrix) -> Array:
    return (X.toarray() if is_sparse(X) else X).astype(np.float64)


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
    """Return whether rows that are there have few features, as words do: less than `SPARSE`."""
    n_cells = max(int(has_row(X).sum()) * X.shape[1], 1)
    filled = X.count_nonzero() if is_sparse(X) else np.count_nonzero(X)
    return bool(X.shape[1] > 1 and 0 < filled < SPARSE * n_cells)
