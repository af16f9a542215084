"""The method exactly as published, which `OASIS.paper` returns; see docs/formulas.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from os import PathLike
from typing import Any, ClassVar

import numpy as np

from oasis.arrays import Array, Single, state_of
from oasis.codes import Codes
from oasis.hashers.chunk import check_features
from oasis.labels import LabelSpace
from oasis.model.base import Model, ModelState, check_count, check_number
from oasis.model.file import check_shapes
from oasis.model.hash_functions import LinearMap
from oasis.model.ridge import Ridge, check_width
from oasis.model.round import ChunkRows, Published, iterations
from oasis.model.updates import SemanticSums, Weights


@dataclass(frozen=True)
class PublishedState(ModelState):
    """The state of the published method.

    Attributes
    ----------
    sums : sums of codes and semantics
    """

    sums: SemanticSums

    @property
    def code_matrices(self) -> dict[str, Array]:
        return {"sum G'V": self.sums.GV, "sum V'V": self.sums.VV}

    def grown(self, label_sets: Iterable[Iterable[str]]) -> PublishedState:
        """Return the state that also knows the classes of these label sets; sums grow by zeros."""
        labels = self.labels.grown(dict.fromkeys(chain.from_iterable(label_sets)))
        return replace(self, labels=labels, sums=self.sums.widened(labels.n_features))

    def check(self) -> None:
        super().check()
        sums, f = self.sums, self.labels.n_features if self.n_seen else 0
        r = self.parameters["n_bits"]
        shapes = {"BG": (sums.BG, (r, f)), "GV": (sums.GV, (f, r)), "VV": (sums.VV, (r, r))}
        for name, ridge in self.ridges.items():
            shapes[f"{name}/BX"] = (ridge.BX, (r, ridge.n_features))
        check_shapes(shapes)

    @cached_property
    def linear_map(self) -> LinearMap:
        """``x -> sum_m x_m W_m'``."""
        return LinearMap({name: ridge.W for name, ridge in self.ridges.items()})


class PublishedOASIS(Model[PublishedState]):
    """OASIS as in the paper: the codes of a chunk are found by alternating updates of the loss.

    Unlabelled samples have a zero row in G, as in the formulas. Features are not normalised.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    labels : optional
        Source of the class vectors, see `OASIS`; "wordllama" by default.
    alpha, beta, gamma, theta, delta : float
        Weights of the loss: similarity, semantics, features, and the two ridges.
    n_iter : int
        Iterations per round.
    random_state : int, numpy Generator or None
        Seed of the random start of every round.

    Attributes
    ----------
    codes_, classes_, n_seen_ : see `OASIS`

    Examples
    --------
    >>> import numpy as np
    >>> image = np.random.default_rng(0).random((40, 20))
    >>> model = PublishedOASIS(16, labels="orthogonal", random_state=0)
    >>> model.partial_fit({"image": image}, [["sky"], ["sea", "sky"]] * 20).codes_.shape
    (40, 2)
    """

    kind: ClassVar[str] = "paper"
    state_type: ClassVar[type[ModelState]] = PublishedState
    unit_length: ClassVar[bool] = False

    def __init__(
        self,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        alpha: float = 10.0,
        beta: float = 1.0,
        gamma: float = 1.0,
        theta: float = 1.0,
        delta: float = 1.0,
        n_iter: int = 3,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.labels = labels
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.theta = theta
        self.delta = delta
        self.n_iter = n_iter
        self.random_state = random_state

    @property
    def weights(self) -> Weights:
        """The weights of the loss."""
        return Weights(self.alpha, self.beta, self.gamma, self.theta)

    def hash_function(self) -> LinearMap:
        return self.learned.linear_map

    def project(self, X: Mapping[str, Any]) -> Single:
        """Return ``sum_m X_m W_m'``, (n, n_bits) float32, over any of the modalities."""
        return self.hash_function().project(check_features(X, self.learned.widths))

    def project_words(self, names: Iterable[str]) -> Single:
        """Return ``g (sum G'V)`` for the unit vector g of each name, (n, n_bits) float32.

        The codes of samples with only this label approach it. The label space must have words.
        """
        state = self.learned
        projections: Single = (state.labels.query_vectors(names) @ state.sums.GV).astype(np.float32)
        return projections

    def start(self, widths: Mapping[str, int]) -> PublishedState:
        delta = float(self.delta)
        for width in widths.values():
            check_width(width)
        return PublishedState(
            self._learned_with(),
            LabelSpace.of(self.labels),
            {name: Ridge.zero(self.n_bits, width, delta) for name, width in widths.items()},
            0,
            self._first_generator(),
            SemanticSums.zero(self.n_bits),
        )

    def run_round(
        self, state: PublishedState, label_sets: list[tuple[str, ...]], rows: ChunkRows
    ) -> tuple[PublishedState, Codes]:
        state = state.grown(label_sets)
        rng = state.rng()
        L = state.labels.indicator(label_sets)  # (n, c)
        problem = Published(state.labels, L, state.ridges, self.weights, self.n_bits)
        learned = rows.sample_rows(problem, rng)
        for _ in iterations(learned, state.sums, self.weights, self.n_iter):
            pass
        after = replace(
            state,
            sums=state.sums.joined(learned.sums()),
            ridges=learned.regressions(),
            n_seen=state.n_seen + len(label_sets),
            generator=state_of(rng),
        )
        return after, learned.codes()

    def _check_parameters(self, state: PublishedState | None) -> None:
        for name in ("alpha", "beta", "gamma"):
            check_number(name, getattr(self, name))
        check_number("theta", self.theta, positive=True)
        check_count("n_iter", self.n_iter, 1)
        super()._check_parameters(state)
