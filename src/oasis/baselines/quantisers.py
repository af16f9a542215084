"""What engineers use instead of hashing: product quantisers and RaBitQ of faiss, by bytes an item.

They know no labels. Features are scaled to unit length, modality by modality, concatenated and
reduced to principal components, all fitted on the first chunk and then frozen; with ``refit`` on
everything seen, as an upper bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias

import faiss
import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Single, generator_at, unit_rows
from oasis.baselines.shared.components import Centred, principal_axes
from oasis.baselines.shared.kernel import stacked
from oasis.baselines.shared.parameters import first_state
from oasis.codes import check_n_bits
from oasis.errors import InputError, NotFittedError
from oasis.hashers.chunk import check_chunk, check_features
from oasis.hashers.protocol import Estimator, Labels

Kind: TypeAlias = Literal["pq", "opq", "rabitq"]

_MOST_AXES = 256
_FACTOR_BYTES = 8  # RaBitQ stores two floats an item besides its bits
_TABLE_BITS = 8


class Quantiser(Estimator):
    """Rank by the distance of a query to quantised items.

    Parameters
    ----------
    kind : {"pq", "opq", "rabitq"}
        A product quantiser of one byte per part; the same after a learned rotation; RaBitQ, one bit
        per component and two floats, which count: 128 bits hold 64 components.
    n_bits : int
        Bits of an item, a multiple of 8; RaBitQ needs 72 or more.
    refit : bool
        Fit again on everything seen at each chunk, and keep all features for it.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    n_base_ : int
        Number of base items.

    Notes
    -----
    ``scores`` are those of an index over the codes, ``2 q.x - |x|^2``: the decoded items are kept
    here as float32, so that they are a matrix product.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"image": np.random.default_rng(0).random((300, 16))}
    >>> ranker = Quantiser("pq", n_bits=32, random_state=0).partial_fit(X, [[]] * 300)
    >>> ranker.scores({"image": X["image"][:2]}).argmax(axis=1).tolist()
    [0, 1]
    """

    fitted_: tuple[dict[str, Array], dict[str, Array], Any]
    base_: tuple[Single, Single]

    def __init__(
        self,
        kind: Kind = "opq",
        n_bits: int = 128,
        refit: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.kind = kind
        self.n_bits = n_bits
        self.refit = refit
        self.random_state = random_state

    @property
    def n_base_(self) -> int:
        return len(self._base()[0])

    def partial_fit(self, X: Mapping[str, Any], y: Labels) -> Self:
        """Add a chunk to the base. Everything is checked before anything is changed."""
        if self.kind not in ("pq", "opq", "rabitq"):
            raise InputError(f"kind must be 'pq', 'opq' or 'rabitq', got {self.kind!r}")
        n_bytes = check_n_bits(self.n_bits) // 8
        if self.kind == "rabitq" and n_bytes <= _FACTOR_BYTES:
            raise InputError(f"RaBitQ needs 72 bits at least, got n_bits={self.n_bits}")
        widths = getattr(self, "widths_", None)
        chunk = _units(check_chunk(X, y, widths).X)
        if self.refit or widths is None:
            seen = [*getattr(self, "seen_", []), chunk]
            joined = {name: stacked([each[name] for each in seen]) for name in chunk}
            axes, means, index = self._fitted(joined, n_bytes)
            vectors = _reduced(joined, axes, means)
            decoded, norms = _decoded(index, vectors)
            if self.refit:
                self.seen_ = seen
        else:
            fitted, base = self.fitted_, self.base_
            axes, means, index = fitted
            more, squares = _decoded(index, _reduced(chunk, axes, means))
            decoded, norms = (
                np.concatenate(pair) for pair in zip(base, (more, squares), strict=True)
            )
        self.widths_ = {name: int(matrix.shape[1]) for name, matrix in chunk.items()}
        self.fitted_ = axes, means, index
        self.base_ = decoded, norms
        return self

    def scores(self, X: Mapping[str, Any]) -> Single:
        """Return the (n_queries, n_base) scores of queries with any of the modalities."""
        decoded, norms = self._base()
        axes, means, index = self.fitted_
        queries = _reduced(_units(check_features(X, self.widths_)), axes, means)
        if isinstance(index, faiss.IndexPreTransform):
            queries = _rotation(index).apply(queries)
        found: Single = 2 * (queries @ decoded.T) - norms
        return found

    def _base(self) -> tuple[Single, Single]:
        base: tuple[Single, Single] | None = getattr(self, "base_", None)
        if base is None:
            raise NotFittedError("this ranker has no base yet; call partial_fit first")
        return base

    def _fitted(
        self, X: dict[str, Matrix], n_bytes: int
    ) -> tuple[dict[str, Array], dict[str, Array], Any]:
        """Return principal axes and means of each modality, and a trained index."""
        data = Centred(X)
        wanted = 8 * (n_bytes - _FACTOR_BYTES) if self.kind == "rabitq" else _MOST_AXES
        axes = principal_axes(data, wanted, generator_at(first_state(self.random_state)))
        # a table of 256 needs as many samples; two of 16 are the same number of bytes
        table_bits = _TABLE_BITS if data.n_samples >= 1 << _TABLE_BITS else _TABLE_BITS // 2
        n_parts = n_bytes * _TABLE_BITS // table_bits
        n_axes = wanted
        if self.kind != "rabitq":
            n_axes = max(n_parts, axes.shape[1] // n_parts * n_parts)
        short = n_axes - axes.shape[1]
        axes = np.pad(axes, ((0, 0), (0, short))) if short > 0 else axes[:, :n_axes]
        split = data.split(axes)
        vectors = _reduced(X, split, data.means)
        if self.kind == "rabitq":
            index: Any = faiss.IndexRaBitQ(n_axes, faiss.METRIC_L2)
        else:
            if len(vectors) < 1 << table_bits:
                raise InputError(f"{len(vectors)} samples are too few to train a quantiser on")
            index = faiss.IndexPQ(n_axes, n_parts, table_bits)
            index.pq.cp.min_points_per_centroid = 1
        if self.kind == "opq":
            index = faiss.IndexPreTransform(faiss.OPQMatrix(n_axes, n_parts), index)
        index.train(vectors)
        return split, data.means, index


def _units(X: Mapping[str, Matrix]) -> dict[str, Matrix]:
    return {name: unit_rows(matrix) for name, matrix in X.items()}


def _reduced(
    X: Mapping[str, Matrix], axes: Mapping[str, Array], means: Mapping[str, Array]
) -> Single:
    """Return the components of samples, (n, a) float32; a lacking modality adds nothing."""
    parts = Centred(X)
    total = np.zeros((parts.n_samples, next(iter(axes.values())).shape[1]))
    for name, matrix in X.items():
        total += matrix @ axes[name].astype(matrix.dtype, copy=False)
        total -= np.outer(parts.present[name], means[name] @ axes[name])
    return np.ascontiguousarray(total, dtype=np.float32)


def _rotation(index: Any) -> Any:
    return index.chain.at(0)


def _decoded(index: Any, vectors: Single) -> tuple[Single, Single]:
    """Return what the codes of vectors say: (n, a) vectors x and (n,) squared lengths."""
    if isinstance(index, faiss.IndexPreTransform):
        vectors = _rotation(index).apply(vectors)
        index = faiss.downcast_index(index.index)
    codes: npt.NDArray[np.uint8] = index.sa_encode(vectors)
    decoded: Single = index.sa_decode(codes)
    if isinstance(index, faiss.IndexRaBitQ):
        centre = faiss.vector_to_array(index.center)
        offsets = decoded - centre
        # |q - x|^2 = |x - c|^2 + |q - c|^2 - 2 (q - c).(x - c), with the stored |x - c|^2
        lengths = codes[:, -8:-4].copy().view(np.float32)[:, 0]
        return offsets, lengths + 2 * offsets @ centre
    return decoded, np.square(decoded).sum(axis=1)
