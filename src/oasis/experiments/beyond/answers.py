"""Evaluate any method (hasher, batch method, ranker) on the questions of an episode."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Single
from oasis.codes import Codes, pack
from oasis.errors import InputError
from oasis.experiments.beyond.episodes import LabelNames
from oasis.experiments.beyond.protocols import Episode, Question
from oasis.experiments.run.methods import Ranker
from oasis.hashers.protocol import OnlineHasher
from oasis.metrics import (
    asymmetric_average_precision,
    asymmetric_item_ranks,
    asymmetric_tied_at_k,
    average_precision,
    average_precision_from_scores,
    chance_map,
    code_statistics,
    found_at_k,
    item_ranks,
    item_ranks_from_scores,
    mean_reciprocal_rank,
    tied_at_k,
)
from oasis.model import OASIS

Model = OnlineHasher | Ranker
Figures = dict[str, float]

PLACES = (1, 5, 10)
"""Values of k for recall at k of one relevant item."""

TIE_PLACE = 10
"""The rank at which ties are counted."""

_SCORE_CELLS = 1 << 23


@dataclass(frozen=True)
class Answer:
    """How well a question was answered.

    Attributes
    ----------
    hamming, asymmetric : mapping or None
        ``map``, or ``mrr`` and ``first_1`` and so on: by codes, and by the query's projection
        against codes. Scores of a ranker are under ``asymmetric``. None if there is no answer.
    chance : mapping
        The same figures for a random order.
    empty : str
        Why there is no answer.
    """

    hamming: Figures | None
    asymmetric: Figures | None
    chance: Figures
    empty: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


class CannotAnswer(InputError):
    """A method does not support this question."""


def learn(model: Model, episode: Episode) -> Codes | None:
    """Stream an episode through a method; return the codes of everything stored.

    Samples without labels are passed to `partial_fit` of `OASIS()`, which defines their codes.
    Published methods do not define them, so here they encode such samples by their hash function.
    A ranker has no codes: None.
    """
    codes: list[Codes] = []
    if isinstance(model, OnlineHasher) and model.is_batch:
        episode = episode.joined()  # it would retrain on everything in each round
    for X, y in chain(episode.learned_chunks(), episode.later_chunks()):
        if isinstance(model, OnlineHasher):
            codes.append(_stored(model, X, y))
        else:
            model.partial_fit(X, y)
    return np.concatenate(codes) if codes else None


def _stored(model: OnlineHasher, X: Mapping[str, Matrix], y: LabelNames) -> Codes:
    """Learn a chunk; return its codes."""
    labelled = np.array([bool(names) for names in y], dtype=np.bool_)
    if stores_unlabelled(model) or labelled.all():
        return model.partial_fit(X, y).codes_.copy()
    codes = np.empty((len(y), model.n_bits // 8), dtype=np.uint8)
    if labelled.any():
        model.partial_fit(
            {name: x[labelled] for name, x in X.items()}, [names for names in y if names]
        )
        codes[labelled] = model.codes_
    codes[~labelled] = model.encode({name: x[~labelled] for name, x in X.items()})
    return codes


def stores_unlabelled(model: OnlineHasher) -> bool:
    """Return whether a method defines the code of a sample without labels.

    In the rounds of published methods the representation of such a sample is zero, and its code is
    mostly the random start of the round.
    """
    return isinstance(model, OASIS)


def takes_content(model: Model) -> bool:
    """Return whether a model's projections can weigh content: not if its codes have none."""
    if getattr(model, "n_content_bits", None) == 0:
        return False
    project = getattr(model, "project", None)
    return project is not None and "content" in inspect.signature(project).parameters


def ask(
    model: Model, stored: Codes | None, question: Question, content: float | None = None
) -> Answer:
    """Evaluate a question on the stored codes, by codes and by projections, with expected ties.

    Parameters
    ----------
    content : float, optional
        Weight of content in the queries' projections; None for the model's default.
    """
    chance = chance_of(question)
    if question.empty:
        return Answer(None, None, chance, question.empty)
    try:
        if stored is None:
            return Answer(None, _by_scores(model, question), chance)
        projections = _project(model, question, content)
    except InputError as error:
        return Answer(None, None, chance, str(error))
    base = stored[question.base]
    return Answer(
        _by_codes(pack(projections), base, question),
        _by_projections(projections, base, question),
        chance,
    )


def diagnose(
    model: Model, stored: Codes, question: Question, content: float | None = None
) -> dict[str, float | int]:
    """Return statistics of the codes: distinct codes, entropy, ties at the tenth hit.

    Ties are omitted if the method does not support the question.
    """
    base = stored[question.base]
    found = code_statistics(base).as_dict()
    if question.empty:
        return found
    try:
        projections = _project(model, question, content)
    except InputError:
        return found
    place = min(TIE_PLACE, len(base))
    return {
        **found,
        "tied_hamming": tied_at_k(pack(projections), base, place),
        "tied_asymmetric": asymmetric_tied_at_k(projections, base, place),
    }


def chance_of(question: Question) -> Figures:
    """Return the figures of a random order."""
    if question.items is not None:
        n = len(question.base)
        harmonic = float((1 / np.arange(1, n + 1)).sum())
        firsts = {f"first_{k}": min(1.0, k / n) for k in PLACES}
        return {"mrr": harmonic / n, **firsts}
    if question.query_labels is None:
        return {}
    return {"map": chance_map(question.query_labels, question.base_labels)}


def _project(model: Model, question: Question, content: float | None) -> Single:
    if not isinstance(model, OnlineHasher):
        raise CannotAnswer(f"{type(model).__name__} has no codes")
    if question.X is None:
        if not hasattr(model, "project_words"):
            raise CannotAnswer("does not answer names")
        if "content" in inspect.signature(model.project_words).parameters:
            weighed_words: Single = model.project_words(question.names, content=content)
            return weighed_words
        projected: Single = model.project_words(question.names)
        return projected
    if takes_content(model):
        weighed: Single = model.project(question.X, content=content)  # type: ignore[call-arg]
        return weighed
    return model.project(question.X)


def _by_codes(codes: Codes, base: Codes, question: Question) -> Figures:
    if question.items is not None:
        return _of_ranks(item_ranks(codes, base, question.items))
    return _of_precisions(
        average_precision(codes, base, question.query_labels, question.base_labels)
    )


def _by_projections(projections: Single, base: Codes, question: Question) -> Figures:
    if question.items is not None:
        return _of_ranks(asymmetric_item_ranks(projections, base, question.items))
    return _of_precisions(
        asymmetric_average_precision(projections, base, question.query_labels, question.base_labels)
    )


def _by_scores(model: Model, question: Question) -> Figures:
    if question.X is None or isinstance(model, OnlineHasher):
        raise CannotAnswer("does not answer names")
    blocks = _score_blocks(model, question.X, question)
    if question.items is not None:
        return _of_ranks(item_ranks_from_scores(blocks, question.items))
    return _of_precisions(
        average_precision_from_scores(blocks, question.query_labels, question.base_labels)
    )


def _score_blocks(
    ranker: Ranker, X: Mapping[str, Matrix], question: Question
) -> Iterator[npt.NDArray[np.float32]]:
    n_queries = int(next(iter(X.values())).shape[0])
    size = max(1, _SCORE_CELLS // max(1, ranker.n_base_))
    for start in range(0, n_queries, size):
        part = {name: x[start : start + size] for name, x in X.items()}
        yield ranker.scores(part)[:, question.base]


def _of_precisions(values: Array) -> Figures:
    return {"map": float(values.mean())}


def _of_ranks(ranks: Array) -> Figures:
    return {
        "mrr": mean_reciprocal_rank(ranks),
        **{f"first_{k}": found_at_k(ranks, k) for k in PLACES},
    }
