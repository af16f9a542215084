"""OASIS: online enhanced semantic hashing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from oasis.arrays import Matrix, unit_rows
from oasis.codes import Codes, check_n_bits, pack
from oasis.errors import FormatError, InputError
from oasis.hashers.chunk import (
    Chunk,
    check_features,
)
from oasis.hashers.learner import (
    Learner,
)
from oasis.hashers.protocol import (
    Labels,
)
from oasis.labels import LabelSpace
from oasis.model.codewords import (
    sample_codes,
    usual_owned,
)
from oasis.model.file import State, read_model, write_model
from oasis.model.hash_functions import (
    sharpened,
)
from oasis.model.readout import Codebook
from oasis.model.ridge import Ridge
from oasis.model.updates import (
    Sums,
    Weights,
    iterate,
    no_prediction,
)


class OASIS(Learner[State]):
    """Learn binary codes from a stream of multi-modal chunks whose classes nobody announced.

    Stored codes never change, an update needs the features of the new chunk only, and classes may
    arrive in any round. ``OASIS()`` is the best configuration known; `OASIS.paper` is the method
    as published, nothing added.

    Parameters
    ----------
    n_bits : int
        Length of a code, a positive multiple of 8.
    labels : optional
        What class names mean: a mapping name -> vector, "orthogonal", "wordllama", the path of a
        word2vec or GloVe file, or a `LabelSpace` that blends them. None: a blend of WordLlama's
        words with an axis of its own for each class.
    alpha, beta, gamma, theta, delta : float
        Weights of the published loss: similarity, semantics, features, and the two ridges. All but
        ``delta`` need ``codes="samples"`` to have an effect.
    n_iter : int
        Iterations a round of ``codes="samples"``.
    codes : {"classes", "samples"}
        How samples get their codes. "classes": every class has a codeword, learned when the class
        arrives and kept from then on, and a code is the sign of the sum of its classes' codewords;
        see `oasis.model.codewords`. "samples": as published, the codes of a chunk are found
        together with everything else in the loss.
    owned : int, optional
        How many bits are owned by classes, with ``codes="classes"``: such a bit says whether a
        sample has one of its owners. Owned bits serve asymmetric search, the others plain Hamming
        search: 0 favours that, ``n_bits`` makes asymmetric search nearly as good as with the label
        sets themselves and plain Hamming search useless. None: as many as plain Hamming search
        hardly misses, 9 of 64 and 48 of 128.
    queries : {"labels", "codes"}
        How a query finds its code. "labels": its labels are predicted, and it goes where stored
        codes with such labels are. "codes": its bits are predicted by regression on stored codes;
        ``gamma`` weighs that regression in the codes themselves.
    normalize : bool
        Scale each sample's features to unit length, modality by modality, so that ``delta`` means
        the same on every data set.
    unlabelled : {"encode", "learn"}
        "encode" leaves unlabelled samples out of every sum and gives them the codes that samples
        with their predicted labels have, as predicted after the round (with ``queries="codes"``
        those of queries). "learn" treats them as the formulas do, with a zero representation; with
        ``codes="classes"`` that is the code of no class, all bits 0.
    random_state : int, numpy Generator or None
        Seed of the random start of every round.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8
        The last chunk's codes, to be stored as they are.
    classes_ : tuple of str
        Class names in order of arrival.
    n_seen_ : int
        Samples seen.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> image, text = rng.random((4, 20)), rng.random((4, 10))
    >>> model = OASIS(n_bits=16, random_state=0)
    >>> model = model.partial_fit(
    ...     {"image": image, "text": text}, [["sky"], ["sky", "sea"], ["cat"], ["cat"]]
    ... )
    >>> model.classes_, model.codes_.shape
    (('sky', 'sea', 'cat'), (4, 2))
    >>> model.encode({"text": text[:1]}).shape
    (1, 2)
    """

    def __init__(
        self,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] | None = None,
        alpha: float = 10.0,
        beta: float = 1.0,
        gamma: float = 1.0,
        theta: float = 1.0,
        delta: float = 1.0,
        n_iter: int = 3,
        codes: Literal["classes", "samples"] = "classes",
        owned: int | None = None,
        queries: Literal["labels", "codes"] = "labels",
        normalize: bool = True,
        unlabelled: Literal["encode", "learn"] = "encode",
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
        self.codes = codes
        self.owned = owned
        self.queries = queries
        self.normalize = normalize
        self.unlabelled = unlabelled
        self.random_state = random_state

    @classmethod
    def paper(
        cls,
        n_bits: int = 64,
        labels: LabelSpace | Mapping[str, Any] | str | PathLike[str] = "wordllama",
        **parameters: Any,
    ) -> Self:
        """Return the method as published, nothing added."""
        as_published: dict[str, Any] = {
            "codes": "samples",
            "queries": "codes",
            "normalize": False,
            "unlabelled": "learn",
        }
        return cls(n_bits, labels, **as_published | parameters)

    @property
    def weights(self) -> Weights:
        """The weights of the loss."""
        return Weights(self.alpha, self.beta, self.gamma, self.theta)

    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        """Learn from one chunk; afterwards ``codes_`` holds its codes.

        Parameters
        ----------
        X : mapping of modality name to an (n, d) array or CSR matrix
            Every modality of the first chunk, in every chunk. A sample that lacks a modality has
            a row of zeros there, which adds nothing to any sum.
        y : one iterable of class names per sample
            Empty or None: unlabelled.

        Everything is checked before anything is changed: a refused chunk leaves the model as it
        was. Costs, beyond one ``syrk`` and one Cholesky factorisation of the widest modality,
        O(n (f + d) r) per iteration; small chunks avoid the factorisation.
        """
        return super().partial_fit(X, y, classes)

    def project(self, X: Mapping[str, Any]) -> npt.NDArray[np.float32]:
        """Return the real values whose signs are the codes, (n, n_bits) float32.

        X may have any of the modalities. As published they are ``sum_m X_m W_m'``.
        """
        state = self.learned
        return state.hash_function(self.normalize).project(check_features(X, state.widths))

    def project_words(self, names: Iterable[str]) -> npt.NDArray[np.float32]:
        """Return the projections of class names, seen or never seen, (n, n_bits) float32.

        A name goes where the codes of the classes are that are near it in the label space, which
        must have words. As published, the projection of a name with the unit vector g is
        ``g (sum G'V)``: what a sample with this label alone would be pulled towards.
        """
        state = self.learned
        vectors = state.labels.query_vectors(names)  # (n, f)
        if self.codes == "samples" and self.queries == "codes":
            return (vectors @ state.sums.GV).astype(np.float32)
        nearness = vectors @ state.labels.vectors().T  # (n, c)
        return state.readout.project(sharpened(nearness))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one safetensors file, atomically.

        Everything that the next round uses is in it, so a loaded model goes on exactly as this
        one would. No pickle is involved.
        """
        write_model(Path(path), self._parameters(), self.learned, self.codes_)

    @classmethod
    def load(cls, path: str | PathLike[str], words: Any = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        words : optional
            Where the word source is now, if it was a file that has moved. It is needed only when
            new classes arrive, and must be the same file by checksum.
        """
        parameters, state, codes = read_model(Path(path), words)
        try:
            model = cls(**parameters)
            model._check_parameters(state)
        except (TypeError, InputError) as error:
            raise FormatError(f"{path} is damaged: {error}") from error
        model.labels = state.labels
        model.state_, model.codes_ = state, codes
        return model

    def _parameters(self) -> dict[str, Any]:
        """Return the JSON-able constructor arguments; what ``labels`` means is saved apart."""
        parameters = {
            key: value
            for key, value in self.get_params(deep=False).items()
            if key not in ("labels", "random_state")
        }
        seed = self.random_state
        parameters["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
        return parameters

    def begin(self, widths: Mapping[str, int]) -> State:
        """Return what the next round starts from: the state, or a new one for these widths.

        For those who learn a chunk in another way than `partial_fit`, such as `oasis.scale.dask`.
        Parameters are checked and nothing is changed.
        """
        old: State | None = getattr(self, "state_", None)
        self._check_parameters(old)
        return old or self._start(widths)

    def _check_parameters(self, state: State | None) -> None:
        n_bits = check_n_bits(self.n_bits)
        for name, known in (
            ("codes", ("classes", "samples")),
            ("queries", ("labels", "codes")),
            ("unlabelled", ("encode", "learn")),
        ):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} must be {known[0]!r} or {known[1]!r}, got {getattr(self, name)!r}"
                )
        if not isinstance(self.normalize, (bool, np.bool_)):
            raise InputError(f"normalize must be True or False, got {self.normalize!r}")
        for name, least, strict in (
            ("alpha", 0, False),
            ("beta", 0, False),
            ("gamma", 0, False),
            ("theta", 0, True),
            ("delta", 0, True),
        ):
            value = getattr(self, name)
            number = isinstance(value, (int, float, np.number)) and math.isfinite(value)
            if not number or value < least or (strict and value == least):
                bound = "positive" if strict else "at least 0"
                raise InputError(f"{name} must be a finite number, {bound}, got {value!r}")
        number = isinstance(self.owned, (int, np.integer)) and not isinstance(self.owned, bool)
        if self.owned is not None and not (number and 0 <= self.owned <= n_bits):
            raise InputError(
                f"owned must be None or an integer from 0 to n_bits, {n_bits}, got {self.owned!r}"
            )
        if not isinstance(self.n_iter, (int, np.integer)) or self.n_iter < 1:
            raise InputError(f"n_iter must be a positive integer, got {self.n_iter!r}")
        seed = self.random_state
        is_seed = isinstance(seed, (int, np.integer)) and seed >= 0
        if not (seed is None or is_seed or isinstance(seed, np.random.Generator)):
            raise InputError(
                f"random_state must be None, an integer >= 0 or a Generator, got {seed!r}"
            )
        if state is None:
            return
        for name, value, learned in (
            ("n_bits", n_bits, len(state.sums.VV)),
            ("delta", self.delta, next(iter(state.ridges.values())).delta),
            ("queries", self.queries, state.queries),
            ("codes", self.codes, state.codes),
            ("owned", self._n_owned, state.n_owned),
        ):
            if value != learned:
                raise InputError(
                    f"{name} is fixed once a model has learned: it is {learned}, got {value}"
                )

    def _start(self, widths: Mapping[str, int]) -> State:
        n_targets = self.n_bits if self.queries == "codes" else 0
        ridges = {
            name: Ridge.zero(n_targets, width, float(self.delta)) for name, width in widths.items()
        }
        seed = self.random_state
        if isinstance(seed, np.random.Generator):
            seed = int(seed.integers(2**63))  # a stream of our own, of the one kind that is saved
        labels = LabelSpace.of(self.labels)
        generator = dict(np.random.PCG64(seed).state)
        sums, book = Sums.zero(self.n_bits), Codebook.zero(self.n_bits)
        return State(
            labels,
            sums,
            book,
            np.empty((0, self.n_bits)),
            self._n_owned,
            ridges,
            self.codes,
            self.queries,
            0,
            generator,
        )

    @property
    def _n_owned(self) -> int:
        if self.codes == "samples":
            return 0
        return usual_owned(self.n_bits) if self.owned is None else int(self.owned)

    def _learn(self, old: State | None, chunk: Chunk) -> tuple[State, Codes]:
        state = old or self._start({name: int(x.shape[1]) for name, x in chunk.X.items()})
        rows = np.arange(chunk.n_samples)
        if self.unlabelled == "encode":
            rows = np.flatnonzero([bool(names) for names in chunk.labels])
        whole = len(rows) == chunk.n_samples
        codes = np.zeros((chunk.n_samples, self.n_bits // 8), dtype=np.uint8)
        if len(rows):
            X = chunk.X if whole else {name: matrix[rows] for name, matrix in chunk.X.items()}
            learned, B = self._learn_rows(state, X, [chunk.labels[row] for row in rows])
            codes[rows] = pack(B)
        else:
            learned = state
        if not whole:
            rest = np.setdiff1d(np.arange(chunk.n_samples), rows)
            X = {name: matrix[rest] for name, matrix in chunk.X.items()}
            codes[rest] = pack(learned.coder(self.normalize).project(X))
        return replace(learned, n_seen=state.n_seen + chunk.n_samples), codes

    def _learn_rows(
        self, state: State, X: dict[str, Matrix], label_sets: list[tuple[str, ...]]
    ) -> tuple[State, npt.NDArray[np.float64]]:
        state = state.grown(label_sets)
        L = state.labels.indicator(label_sets)  # (n, c)
        rng = state.rng()
        if self.normalize:
            X = {name: unit_rows(matrix) for name, matrix in X.items()}
        rounds = {name: state.ridges[name].round(matrix) for name, matrix in X.items()}
        if self.codes == "classes":
            state = state.with_codewords(L, rng)
            B = sample_codes(L, state.codewords)
        else:
            G = state.labels.represent_rows(L)  # (n, f)

            def predict(B: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
                return np.asarray(sum(each.predict(B) for each in rounds.values()))

            hint = predict if self.queries == "codes" else no_prediction
            *_, last = iterate(state.sums, G, hint, self.weights, self.n_iter, rng)
            B = last.B
            state = replace(state, sums=state.sums.plus(B, G, last.V))
        targets = B if self.queries == "codes" else L.toarray()
        learned = replace(
            state,
            codebook=state.codebook.plus(B, L),
            ridges={name: each.finish(targets) for name, each in rounds.items()},
            generator=dict(rng.bit_generator.state),
        )
        return learned, B
