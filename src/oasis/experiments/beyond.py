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
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Matrix, Single
from oasis.codes import Codes, pack
from oasis.errors import InputError
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
from oasis.experiments.figures import Line as Drawn
from oasis.experiments.figures import draw
from oasis.experiments.methods import Ranker, method_named, place_of, title_of
from oasis.experiments.results import Results, rounded
from oasis.experiments.tables import Part, Table, variant_of
from oasis.experiments.task import Row, Task
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

Model: TypeAlias = OnlineHasher | Ranker
Figures: TypeAlias = dict[str, float]

DEFAULT_SETTINGS = tuple(f"own/{name}" for name in numbered(FULL))
PLACES = (1, 5, 10)
"""Values of k for recall at k of one relevant item."""
WEIGHTS = (0.0, 1.0)
"""Weights of content that are always evaluated too: labels only, content only."""

_TIE_PLACE = 10
_SCORE_CELLS = 1 << 23
_COSINE = "float-cosine"
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
    """Stream the episode through the method and evaluate all questions, at each content weight.

    A question that the data or the method do not have is empty, with the reason.
    """
    features, _, name = task.setting.partition("/")
    material = _material(task.dataset, data, features)
    method = method_named(task.method)
    start = time.perf_counter()
    try:
        found = episode(material, name, task.seed, _sizes(task))
        model = method.model(task.n_bits, task.seed, found.seen, dict(task.parameters))
        stored = learn(model, found)
    except InputError as error:
        return {"answers": {}, "empty": str(error)}
    seconds = time.perf_counter() - start
    progress(1, 2)
    weights: dict[str, float | None] = {"default": None}
    if takes_content(model):
        more = [float(each) for each in str(task.option("content", "")).split(",") if each]
        weights |= {f"{weight:g}": weight for weight in (*WEIGHTS, *more)}
    answers = {
        name: {each.name: rounded(ask(model, stored, each, weight)) for each in found.questions}
        for name, weight in weights.items()
    }
    row: Row = {"answers": answers, "seconds": round(seconds, 3)}
    if stored is not None:
        row["codes"] = rounded(diagnose(model, stored, found.questions[0]))
    return row


def learn(model: Model, found: Episode) -> Codes | None:
    """Stream an episode through a method; return the codes of everything stored.

    Samples without labels are passed to `partial_fit` of `OASIS()`, which defines their codes.
    Published methods do not define them (their representation is zero in a round, and the code
    mostly its random start), so here they encode such samples by their hash function. A ranker has
    no codes: None.
    """
    codes: list[Codes] = []
    if isinstance(model, OnlineHasher) and model.is_batch:
        found = found.joined()  # it would retrain on everything in each round
    for X, y in chain(found.learned_chunks(), found.later_chunks()):
        if isinstance(model, OnlineHasher):
            codes.append(_stored(model, X, y))
        else:
            model.partial_fit(X, y)
    return np.concatenate(codes) if codes else None


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


def takes_content(model: Model) -> bool:
    """Return whether a model's projections can weigh content: not if its codes have none."""
    if getattr(model, "n_content_bits", None) == 0:
        return False
    project = getattr(model, "project", None)
    return project is not None and "content" in inspect.signature(project).parameters


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
    chance = _chance(question)
    if question.empty:
        return {"chance": chance, "empty": question.empty}
    base = question.base
    try:
        if stored is None:
            return {"asymmetric": _by_scores(model, question), "chance": chance}
        projections = _project(model, question, content)
    except InputError as error:
        return {"chance": chance, "empty": str(error)}
    codes, kept = pack(projections), stored[base]
    if question.items is not None:
        by_codes = _of_ranks(item_ranks(codes, kept, question.items))
        by_values = _of_ranks(asymmetric_item_ranks(projections, kept, question.items))
    else:
        labels = question.query_labels, question.base_labels
        by_codes = {"map": float(average_precision(codes, kept, *labels).mean())}
        values = asymmetric_average_precision(projections, kept, *labels)
        by_values = {"map": float(values.mean())}
    return {"hamming": by_codes, "asymmetric": by_values, "chance": chance}


def diagnose(model: Model, stored: Codes, question: Question) -> dict[str, float | int]:
    """Return statistics of the codes: distinct codes, entropy, ties at the tenth hit.

    Ties are omitted if the method does not support the question.
    """
    base = stored[question.base]
    found = code_statistics(base).as_dict()
    if question.empty:
        return found
    try:
        projections = _project(model, question, None)
    except InputError:
        return found
    place = min(_TIE_PLACE, len(base))
    return {
        **found,
        "tied_hamming": tied_at_k(pack(projections), base, place),
        "tied_asymmetric": asymmetric_tied_at_k(projections, base, place),
    }


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
    if question.X is None:
        if not hasattr(model, "project_words"):
            raise InputError("does not answer names")
        asked: Any = question.names
        function = model.project_words
    else:
        asked, function = question.X, model.project
    weighed = "content" in inspect.signature(function).parameters
    projected: Single = function(asked, content=content) if weighed else function(asked)
    return projected


def _by_scores(model: Ranker, question: Question) -> Figures:
    if question.X is None:
        raise InputError("does not answer names")
    blocks = _score_blocks(model, question.X, question)
    if question.items is not None:
        return _of_ranks(item_ranks_from_scores(blocks, question.items))
    values = average_precision_from_scores(blocks, question.query_labels, question.base_labels)
    return {"map": float(values.mean())}


def _score_blocks(
    ranker: Ranker, X: Mapping[str, Matrix], question: Question
) -> Iterator[npt.NDArray[np.float32]]:
    n_queries = int(next(iter(X.values())).shape[0])
    size = max(1, _SCORE_CELLS // max(1, ranker.n_base_))
    for start in range(0, n_queries, size):
        part = {name: x[start : start + size] for name, x in X.items()}
        yield ranker.scores(part)[:, question.base]


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


@dataclass(frozen=True)
class _Measure:
    """One column: a figure of a question of a kind of episode."""

    name: str
    kind: str
    question: str
    figure: str


_MEASURES = (
    _Measure("labels", "labels", "labels", "map"),
    _Measure("coarse", "finer", "coarse", "map"),
    _Measure("fine", "finer", "fine", "map"),
    _Measure("never labelled", "never-labelled", "never-labelled", "map"),
    _Measure("item (MRR)", "labels", "item", "mrr"),
    _Measure("item (first 10)", "labels", "item", "first_10"),
    _Measure("word", "never-labelled", "word", "map"),
    _Measure("word as text", "never-labelled", "word-as-text", "map"),
    _Measure("word in the stream", "unnamed", "word-as-text", "map"),
)
_BEYOND = ("fine", "never labelled", "item (MRR)", "word as text")


@dataclass(frozen=True, eq=False)
class _Line:
    """One line of a table: a method at one weight of content, over all seeds and draws."""

    variant: str
    weight: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return title_of(self.variant) + ("" if self.weight == "default" else f", w={self.weight}")

    @property
    def has_codes(self) -> bool:
        return any(row["n_bits"] is not None for row in self.rows)

    def values(self, measure: _Measure, way: str) -> dict[tuple[int, str], float]:
        """Return a figure by seed and episode."""
        found = {}
        for row in self.rows:
            name = row["setting"].partition("/")[2]
            answer = row["answers"].get(self.weight, {}).get(measure.question, {})
            if name.rpartition("-")[0] == measure.kind and measure.figure in answer.get(way, {}):
                found[row["seed"], name] = answer[way][measure.figure]
        return found

    def mean(self, measure: _Measure, way: str) -> float | None:
        values = self.values(measure, way)
        return fmean(values.values()) if values else None


def parts(results: Results, dataset: str, rows: Sequence[Row]) -> list[Part]:
    """Return one part for the modalities and code lengths, and the reasons of empty cells."""
    found = []
    for features in dict.fromkeys(row["setting"].partition("/")[0] for row in rows):
        own = [row for row in rows if row["setting"].startswith(f"{features}/")]
        lengths = sorted({row["n_bits"] for row in own if row["n_bits"] is not None}) or [None]
        for n_bits in lengths:
            here = [row for row in own if row["n_bits"] in (n_bits, None)]
            lines = _lines(here)
            measures = [each for each in (*_MEASURES, *_across(here)) if _has(lines, each)]
            title = f"Beyond the labels, {features}" + (f", {n_bits} bits" if n_bits else "")
            tables = (
                _glance_table(lines),
                _measure_table("By projections", lines, measures, "asymmetric"),
                _measure_table("By Hamming distance", lines, measures, "hamming"),
                _code_table(lines),
                _empty_table(here),
            )
            name = f"{dataset}-{features}-{n_bits or 'float'}-beyond"
            found.append(Part(title, (_ABOUT,), _glance(name, lines), tables, 2))
    return found


def _lines(rows: Sequence[Row]) -> list[_Line]:
    lines = []
    variants = {variant_of(row) for row in rows}
    for variant in sorted(variants, key=lambda each: (place_of(each), each)):
        some = tuple(row for row in rows if variant_of(row) == variant)
        weights = {weight for row in some for weight in row["answers"]} or {"default"}
        order = sorted(weights, key=lambda each: (each != "default", each))
        lines += [_Line(variant, weight, some) for weight in order]
    return lines


def _across(rows: Sequence[Row]) -> list[_Measure]:
    names = {
        question
        for row in rows
        for asked in row["answers"].values()
        for question in asked
        if question.startswith("across-")
    }
    return [
        _Measure(f"across {int(name[7:]):,} (first {k})", "across", name, f"first_{k}")
        for name in sorted(names, key=lambda name: int(name[7:]))
        for k in (1, 10)
    ]


def _has(lines: Sequence[_Line], measure: _Measure) -> bool:
    return any(line.values(measure, way) for line in lines for way in ("hamming", "asymmetric"))


def _beyond(lines: Sequence[_Line], line: _Line) -> float | None:
    """Return the score of a line beyond the labels: 0 is chance, 1 is float cosine.

    The mean over measures of ``(x - chance) / (cosine - chance)`` by projections. A question
    without an answer counts 0; None if the reference or an episode is lacking.
    """
    cosine = next((each for each in lines if each.variant == _COSINE), None)
    if cosine is None:
        return None
    kinds = {row["setting"].partition("/")[2].rpartition("-")[0] for row in line.rows}
    shares = []
    for measure in (each for each in _MEASURES if each.name in _BEYOND):
        chance, best = cosine.mean(measure, "chance"), cosine.mean(measure, "asymmetric")
        if chance is None or best is None or best <= chance:
            continue
        if measure.kind not in kinds:
            return None
        value = line.mean(measure, "asymmetric")
        shares.append(0.0 if value is None else (value - chance) / (best - chance))
    return fmean(shares) if shares else None


def _glance_table(lines: Sequence[_Line]) -> Table:
    """Return the label measure beside the others, with ranks among methods with codes."""
    pairs = {line: (line.mean(_MEASURES[0], "asymmetric"), _beyond(lines, line)) for line in lines}
    rows = []
    for line in sorted(lines, key=lambda line: -(pairs[line][0] or 0.0)):
        texts: list[str] = []
        for column, form in ((0, ".3f"), (1, ".0%")):
            value = pairs[line][column]
            better = [
                v for each in lines if each.has_codes and (v := pairs[each][column]) is not None
            ]
            place = 1 + sum(each > (value or 0.0) for each in better)
            text = "" if value is None else format(value, form)
            shown = line.has_codes and value is not None
            texts += [f"*{text}" if shown and place == 1 else text, str(place) if shown else ""]
        rows.append((line.title, *texts))
    return Table(
        "Labels, and beyond",
        "Label MAP by projections, and its rank among methods with codes. Beyond: the mean of (x - "
        f"chance) / (cosine - chance) over {', '.join(_BEYOND)}; above 100 % a method is better "
        "than cosine of the features. w is the weight of content: 1 content only, 0 labels only.",
        ("method", "labels", "place", "beyond", "place"),
        tuple(rows),
        n_names=1,
    )


def _measure_table(
    title: str, lines: Sequence[_Line], measures: Sequence[_Measure], way: str
) -> Table:
    """Return every measure of every method, and chance."""
    shown = [line for line in lines if way == "asymmetric" or line.has_codes]
    rows = [[line.title] for line in shown]
    chance = ["chance"]
    for measure in measures:
        values = [line.mean(measure, way) for line in shown]
        own = [v for v, line in zip(values, shown, strict=True) if line.has_codes and v is not None]
        for row, line, value in zip(rows, shown, values, strict=True):
            best = line.has_codes and value is not None and value == max(own)
            row.append("" if value is None else f"{'*' * best}{value:.3f}")
        known = [v for line in lines if (v := line.mean(measure, "chance")) is not None]
        chance.append(f"{known[0]:.3f}" if known else "")
    return Table(
        title,
        "MAP unless stated otherwise, expected ties; mean over seeds and draws. Rankers have "
        "scores of their own. Bold: the best method with codes.",
        ("method", *(each.name for each in measures)),
        tuple(tuple(row) for row in (*rows, chance)) if rows else (),
        n_names=1,
    )


def _code_table(lines: Sequence[_Line]) -> Table:
    """Return statistics of the stored codes of the stream with all labels."""
    keys = {"distinct": ",.0f", "codes": ",.0f", "largest_group": ",.0f", "entropy": ".3f"}
    keys |= {"constant_bits": ".0f", "tied_hamming": ".0%", "tied_asymmetric": ".0%"}
    rows = []
    for line in (each for each in lines if each.weight == "default"):
        found = [r["codes"] for r in line.rows if "codes" in r and "/labels-" in r["setting"]]
        if found:
            means = {k: [each[k] for each in found if k in each] for k in keys}
            texts = (format(fmean(v), keys[k]) if v else "" for k, v in means.items())
            rows.append((line.title, *texts))
    return Table(
        "What codes tell apart",
        "After the stream with all labels: distinct codes of all, items that share the most "
        "frequent one, mean entropy of a bit, bits that are the same in all items, and the share "
        f"of queries whose hit at rank {_TIE_PLACE} is in a tie.",
        (
            *("method", "distinct", "of", "largest", "entropy", "constant"),
            *("tied, Hamming", "tied, projections"),
        ),
        tuple(rows),
        n_names=1,
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


def _glance(name: str, lines: Sequence[_Line]) -> Any:
    marks = [
        Drawn(
            f"{line.variant}+w={line.weight}" if line.weight != "default" else line.variant,
            [x],
            [y],
            points=True,
        )
        for line in lines
        if (x := line.mean(_MEASURES[0], "asymmetric")) is not None
        and (y := _beyond(lines, line)) is not None
    ]
    return draw(
        name,
        "Labels, and beyond",
        "x: finds items with the same labels. y: finds what labels do not determine. Methods that "
        "encode only labels are at the lower right; 1 is cosine of the features.",
        {"": marks} if len(marks) > 1 else {},
        "label MAP",
        "beyond: share of float cosine",
    )
