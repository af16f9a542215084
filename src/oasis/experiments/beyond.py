"""The kind of study ``beyond``: information in a code that its label set does not have.

A setting is ``features/episode``, such as ``own/never-labelled-2`` or ``image+meaning/labels-0``;
`episodes` has the streams and their questions. In the label measure, items that share a label are
relevant, and a code that holds only the label set is optimal for it; the others need more.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from oasis.arrays import Array, Matrix, Single
from oasis.codes import Codes, pack
from oasis.errors import InputError
from oasis.experiments.brought import Ranker
from oasis.experiments.episodes import (
    FULL,
    QUICK,
    Episode,
    LabelNames,
    Material,
    Question,
    Sizes,
    episode,
    load_material,
    numbered,
)
from oasis.experiments.measure import by_codes_and_values, score_slices
from oasis.experiments.methods import method_named, place_of, title_of
from oasis.experiments.results import Results, rounded
from oasis.experiments.tables import Cell, Estimate, Line, Part, Table, variant_of
from oasis.experiments.task import Row, Task
from oasis.hashers.protocol import OnlineHasher
from oasis.metrics import (
    asymmetric_item_ranks,
    average_precision_from_scores,
    chance_map,
    found_at_k,
    item_ranks,
    item_ranks_from_scores,
    mean_reciprocal_rank,
)
from oasis.model import OASIS

Model: TypeAlias = OnlineHasher | Ranker
Figures: TypeAlias = dict[str, float]

DEFAULT_SETTINGS = tuple(f"own/{name}" for name in numbered(FULL))
PLACES = (1, 5, 10)
"""Values of k for recall at k of one relevant item."""
WEIGHTS = (0.0, 1.0)
"""Weights of content that are always evaluated too: labels only, content only."""

_ABOUT = (
    "Finer than the labels: coarse labels are given, and items that share a finer label are "
    "relevant. Never labelled: a quarter of the classes is in no label set; items that have them "
    "are stored without labels and searched with further ones. The item itself: by three words of "
    "its text, or its title. A word: the name of a class that was never a label, by the label "
    "space and as a text; in the stream: all items come with the stream. Across: items without a "
    "text, each searched by its text."
)


def check_setting(dataset: str, setting: str) -> None:
    """Raise unless a setting is modalities and an episode."""
    features, _, name = setting.partition("/")
    names = features.split("+")
    if features != "own" and (not all(names) or len(set(names)) < len(names)):
        raise InputError(f"{features!r} is not a list of modalities, such as own or image+meaning")
    if name not in numbered(Sizes(draws=100)):
        raise InputError(f"unknown episode {name!r}; known are {', '.join(numbered())}")


def facts(task: Task, data: Path | None) -> dict[str, Any]:
    """Return what a row depends on besides its task, as plain values."""
    dataset = _material(task.dataset, data, task.setting.partition("/")[0]).dataset
    method = method_named(task.method).facts(dataset, dict(task.parameters))
    return {"data": dataset.describe(), "method": method, "sizes": _sizes(task).as_dict()}


def work(task: Task, data: Path | None, progress: Callable[[int, int], None]) -> Row:
    """Stream the episode through the method and ask all questions, at each content weight.

    A question that the data or the method do not have is empty, with the reason.
    """
    features, _, name = task.setting.partition("/")
    material = _material(task.dataset, data, features)
    start = time.perf_counter()
    try:
        found = episode(material, name, task.seed, _sizes(task))
        method, parameters = method_named(task.method), dict(task.parameters)
        model = method.model(task.n_bits, task.seed, found.seen, parameters)
        stored = learn(model, found)
    except InputError as error:
        return {"answers": {}, "empty": str(error)}
    seconds = time.perf_counter() - start
    progress(1, 2)
    weights: dict[str, float | None] = {"default": None}
    if getattr(model, "n_content_bits", None) != 0 and _takes_content(model, "project"):
        more = [float(each) for each in str(task.option("content", "")).split(",") if each]
        weights |= {f"{weight:g}": weight for weight in (*WEIGHTS, *more)}
    answers = {
        name: {each.name: rounded(ask(model, stored, each, weight)) for each in found.questions}
        for name, weight in weights.items()
    }
    return {"answers": answers, "seconds": round(seconds, 3)}


def learn(model: Model, found: Episode) -> Codes | None:
    """Stream an episode through a method; return the codes of everything stored.

    Samples without labels are passed to `partial_fit` of `OASIS()`, which defines their codes.
    Published methods do not define them (their representation is zero in a round, and the code
    mostly its random start), so here they encode such samples by their hash function. A batch
    method would retrain on everything in each round, and gets all rounds as one. A ranker has no
    codes: None.
    """
    if not isinstance(model, OnlineHasher):
        for X, y in found.chunks():
            model.partial_fit(X, y)
        return None
    return np.concatenate([_stored(model, X, y) for X, y in found.chunks(joined=model.is_batch)])


def _stored(model: OnlineHasher, X: Mapping[str, Matrix], y: LabelNames) -> Codes:
    """Learn a chunk; return its codes."""
    labelled = np.array([bool(names) for names in y], dtype=np.bool_)
    if isinstance(model, OASIS) or labelled.all():
        return model.partial_fit(X, y).codes_.copy()
    codes = np.empty((len(y), model.n_bits // 8), dtype=np.uint8)
    if labelled.any():
        named = [names for names in y if names]
        model.partial_fit({name: x[labelled] for name, x in X.items()}, named)
        codes[labelled] = model.codes_
    codes[~labelled] = model.encode({name: x[~labelled] for name, x in X.items()})
    return codes


def _takes_content(model: Model, function: str) -> bool:
    found = getattr(model, function, None)
    return found is not None and "content" in inspect.signature(found).parameters


def ask(
    model: Model, stored: Codes | None, question: Question, content: float | None = None
) -> Row:
    """Evaluate a question on the stored codes, with expected ties.

    Parameters
    ----------
    content : weight of content in the queries' projections; None for the model's default

    Returns
    -------
    ``hamming`` and ``asymmetric`` (by projections, or a ranker's scores) -> ``map``, or ``mrr`` and
    ``first_1`` and so on; ``chance``, the same of a random order; ``empty``, why there is no answer
    """
    if question.empty:
        return {"chance": _chance(question), "empty": question.empty}
    try:
        if stored is None:
            found = {"asymmetric": _by_scores(model, question)}
        else:
            values = _project(model, question, content)
            found = _by_codes(values, stored[question.base], question)
    except InputError as error:
        return {"chance": _chance(question), "empty": str(error)}
    return {**found, "chance": _chance(question)}


def _sizes(task: Task) -> Sizes:
    return QUICK if task.option("quick", False) else FULL


@lru_cache(maxsize=1)
def _material(dataset: str, folder: Path | None, features: str) -> Material:
    return load_material(dataset, folder, features)


def _chance(question: Question) -> Figures:
    if question.items is not None:
        n = len(question.base)
        harmonic = float((1 / np.arange(1, n + 1)).sum())
        return {"mrr": harmonic / n, **{f"first_{k}": min(1.0, k / n) for k in PLACES}}
    if question.query_labels is None:
        return {}
    return {"map": chance_map(question.query_labels, question.base_labels)}


def _project(model: Model, question: Question, content: float | None) -> Single:
    function = "project_words" if question.X is None else "project"
    if not hasattr(model, function):
        raise InputError("does not answer names")
    asked: Any = question.names if question.X is None else question.X
    weight = {"content": content} if _takes_content(model, function) else {}
    projected: Single = getattr(model, function)(asked, **weight)
    return projected


def _by_codes(values: Single, base: Codes, question: Question) -> dict[str, Figures]:
    if question.items is not None:
        ranks = item_ranks(pack(values), base, question.items)
        by_projections = asymmetric_item_ranks(values, base, question.items)
        return {"hamming": _of_ranks(ranks), "asymmetric": _of_ranks(by_projections)}
    labels: Any = question.query_labels, question.base_labels
    by_codes, by_values = by_codes_and_values(values, base, *labels)
    return {"hamming": {"map": by_codes}, "asymmetric": {"map": by_values}}


def _by_scores(model: Ranker, question: Question) -> Figures:
    X = question.X
    if X is None:
        raise InputError("does not answer names")

    def blocks() -> Iterator[Single]:
        n_queries = int(next(iter(X.values())).shape[0])
        for rows in score_slices(n_queries, model.n_base_):
            yield model.scores({name: x[rows] for name, x in X.items()})[:, question.base]

    if question.items is not None:
        return _of_ranks(item_ranks_from_scores(blocks(), question.items))
    labels = question.query_labels, question.base_labels
    return {"map": float(average_precision_from_scores(blocks(), *labels).mean())}


def _of_ranks(ranks: Array) -> Figures:
    return {
        "mrr": mean_reciprocal_rank(ranks),
        **{f"first_{k}": found_at_k(ranks, k) for k in PLACES},
    }


def cells(row: Row) -> dict[str, float]:
    """Return the figures that two files are compared by: every answer."""
    return {
        f"{weight} {question} {way} {figure}": value
        for weight, asked in row["answers"].items()
        for question, answer in asked.items()
        for way in ("hamming", "asymmetric")
        for figure, value in answer.get(way, {}).items()
    }


_Measure: TypeAlias = tuple[str, str, str, str]
"""A column: its heading, a kind of episode, and a figure of one of its questions."""

_LABELS: _Measure = ("labels", "labels", "labels", "map")
_BEYOND: tuple[_Measure, ...] = (
    ("fine", "finer", "fine", "map"),
    ("never labelled", "never-labelled", "never-labelled", "map"),
    ("item (MRR)", "labels", "item", "mrr"),
    ("word as text", "never-labelled", "word-as-text", "map"),
)
_MEASURES: tuple[_Measure, ...] = (
    _LABELS,
    ("coarse", "finer", "coarse", "map"),
    *_BEYOND[:3],
    ("item (first 10)", "labels", "item", "first_10"),
    ("word", "never-labelled", "word", "map"),
    _BEYOND[3],
    ("word in the stream", "unnamed", "word-as-text", "map"),
)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A method at one weight of content: the rows of all seeds and draws by kind of episode."""

    variant: str
    weight: str
    rows: tuple[Row, ...]
    kinds: Mapping[str, Cell]

    @property
    def title(self) -> str:
        return title_of(self.variant) + ("" if self.weight == "default" else f", w={self.weight}")

    @property
    def has_codes(self) -> bool:
        return any(row["n_bits"] is not None for row in self.rows)

    def figure(self, measure: _Measure, way: str) -> Estimate | None:
        """Return a figure, the mean over seeds and draws."""
        _, kind, question, name = measure
        if kind not in self.kinds:
            return None
        return self.kinds[kind].figure("answers", self.weight, question, way, name)


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return one part for the modalities and code lengths, and the reasons of empty cells."""
    found = []
    for features in dict.fromkeys(row["setting"].partition("/")[0] for row in rows):
        own = [row for row in rows if row["setting"].startswith(f"{features}/")]
        lengths = sorted({row["n_bits"] for row in own if row["n_bits"] is not None}) or [None]
        for n_bits in lengths:
            here = [row for row in own if row["n_bits"] in (n_bits, None)]
            asked = list(_asked(here))
            title = f"Beyond the labels, {features}" + (f", {n_bits} bits" if n_bits else "")
            tables = (
                _measure_table("By projections", asked, "asymmetric"),
                _measure_table("By Hamming distance", asked, "hamming"),
                _empty_table(here),
            )
            found.append(Part(title, (_ABOUT,), (), tables, 1))
    return found


def _asked(rows: Sequence[Row]) -> Iterator[_Asked]:
    variants = {variant_of(row) for row in rows}
    for variant in sorted(variants, key=lambda each: (place_of(each), each)):
        some = tuple(row for row in rows if variant_of(row) == variant)
        kinds: dict[str, list[Row]] = {}
        for row in some:
            if row["answers"]:
                kind = row["setting"].partition("/")[2].rpartition("-")[0]
                kinds.setdefault(kind, []).append(row)
        cells = {kind: Cell(tuple(each), {}) for kind, each in kinds.items()}
        weights = {weight for row in some for weight in row["answers"]} or {"default"}
        for weight in sorted(weights, key=lambda each: (each != "default", each)):
            yield _Asked(variant, weight, some, cells)


def _beyond(asked: Sequence[_Asked], one: _Asked) -> float | None:
    """Return the score of a method beyond the labels: 0 is chance, 1 is float cosine.

    The mean over measures of ``(x - chance) / (cosine - chance)`` by projections. A question
    without an answer counts 0; None if the reference or an episode is lacking.
    """
    cosine = next((each for each in asked if each.variant == "float-cosine"), None)
    shares: list[float] = []
    if cosine is None:
        return None
    for measure in _BEYOND:
        chance, best = (cosine.figure(measure, way) for way in ("chance", "asymmetric"))
        if chance is None or best is None or best.mean <= chance.mean:
            continue
        if measure[1] not in one.kinds:
            return None
        value = one.figure(measure, "asymmetric") or chance
        shares.append((value.mean - chance.mean) / (best.mean - chance.mean))
    return Estimate.of(shares).mean if shares else None


def _measure_table(title: str, asked: Sequence[_Asked], way: str) -> Table:
    """Return every measure of every method, and chance."""
    rows = [row for one in asked for row in one.rows]
    names = {name for row in rows for each in row["answers"].values() for name in each}
    counts = sorted(int(name[7:]) for name in names if name.startswith("across-"))
    across = [
        (f"across {n:,} (first {k})", "across", f"across-{n}", f"first_{k}")
        for n in counts
        for k in (1, 10)
    ]
    measures = [
        each
        for each in (*_MEASURES, *across)
        if any(one.figure(each, w) for one in asked for w in ("hamming", "asymmetric"))
    ]
    lines = []
    for one in asked:
        if way == "asymmetric" or one.has_codes:
            score = _beyond(asked, one) if way == "asymmetric" else None
            values = [score, *(one.figure(each, way) for each in measures)]
            lines.append(Line((one.title,), values, "" if one.has_codes else None))
    chance = [
        next(filter(None, (one.figure(each, "chance") for one in asked)), None) for each in measures
    ]
    return Table.of(
        title,
        "MAP unless stated otherwise, expected ties; mean over seeds and draws. Rankers have "
        "scores of their own. Beyond: by projections, the mean of (x - chance) / (cosine - chance) "
        f"over {', '.join(each[0] for each in _BEYOND)}; above 1 a method is better than cosine of "
        "the features. w is the weight of content: 1 content only, 0 labels only. Bold: the best "
        "method with codes.",
        ("method",),
        ("beyond", *(each[0] for each in measures)),
        [*lines, Line(("chance",), (None, *chance))] if lines else (),
    )


def _empty_table(rows: Sequence[Row]) -> Table:
    reasons: dict[tuple[str, ...], None] = {}
    for row in rows:
        title, name = title_of(variant_of(row)), row["setting"].rpartition("-")[0]
        if row.get("empty"):
            reasons[title, name, row["empty"]] = None
        for asked in row["answers"].values():
            for question, answer in asked.items():
                if answer.get("empty"):
                    reasons[title, question, answer["empty"]] = None
    return Table("Empty cells", "", ("method", "question", "reason"), tuple(reasons), n_names=3)
