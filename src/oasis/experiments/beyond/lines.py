"""Outcomes by row and column: a method over all seeds and draws, a figure of a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from oasis.experiments.beyond.answers import Answer, Figures
from oasis.experiments.beyond.inquiries import DEFAULT, Outcome
from oasis.experiments.measure.cells import title_of
from oasis.experiments.run.methods import place_of

COSINE = "float-cosine"
"""The reference ranker: cosine of the raw features."""


@dataclass(frozen=True)
class Measure:
    """One column: a figure of a question of an episode."""

    name: str
    kind: str
    question: str
    figure: str


MEASURES = (
    Measure("labels", "labels", "labels", "map"),
    Measure("coarse", "finer", "coarse", "map"),
    Measure("fine", "finer", "fine", "map"),
    Measure("never labelled", "never-labelled", "never-labelled", "map"),
    Measure("item (MRR)", "labels", "item", "mrr"),
    Measure("item (first 10)", "labels", "item", "first_10"),
    Measure("word", "never-labelled", "word", "map"),
    Measure("word as text", "never-labelled", "word-as-text", "map"),
    Measure("word in the stream", "unnamed", "word-as-text", "map"),
)
BEYOND = ("fine", "never labelled", "item (MRR)", "word as text")
"""The measures of which `Group.beyond` is the mean."""
_KINDS = ("hamming", "asymmetric")


@dataclass(frozen=True, eq=False)
class Line:
    """One row: a method at one weight of content, over all seeds and draws."""

    variant: str
    weight: str
    outcomes: tuple[Outcome, ...]

    @property
    def title(self) -> str:
        """Name of the row."""
        return title_of(self.variant) + ("" if self.weight == DEFAULT else f", w={self.weight}")

    @property
    def has_codes(self) -> bool:
        """Whether it is a hasher."""
        return any(each.inquiry.n_bits is not None for each in self.outcomes)

    def answers(self, measure: Measure) -> dict[tuple[int, int], Answer]:
        """Return the answers to a question by seed and draw."""
        return {
            (each.inquiry.seed, each.inquiry.number): each.answers[self.weight][measure.question]
            for each in self.outcomes
            if each.inquiry.kind == measure.kind
            and measure.question in each.answers.get(self.weight, {})
        }

    def values(self, measure: Measure, kind: str) -> dict[tuple[int, int], float]:
        """Return a figure by seed and draw, of answers that are not empty."""
        found = {key: _figures(each, kind) for key, each in self.answers(measure).items()}
        return {key: each[measure.figure] for key, each in found.items() if each}

    def mean(self, measure: Measure, kind: str) -> float | None:
        """Return the mean of a figure over seeds and draws; None if there is none."""
        values = self.values(measure, kind)
        return fmean(values.values()) if values else None

    def chance(self, measure: Measure) -> float | None:
        """Return the mean of a figure for a random order."""
        found = [each.chance for each in self.answers(measure).values() if each.chance]
        return fmean(each[measure.figure] for each in found) if found else None


@dataclass(frozen=True, eq=False)
class Group:
    """All methods on one data set with some modalities at one code length.

    ``n_bits`` is None if there are only rankers.
    """

    dataset: str
    features: str
    n_bits: int | None
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """Name of the group."""
        features = "" if self.features == "own" else f" ({self.features})"
        return f"{self.dataset}{features}" + (f", {self.n_bits} bits" if self.n_bits else "")

    def measures(self) -> list[Measure]:
        """Return the measures that have a figure, including those across modalities."""
        names = sorted(
            {
                question
                for line in self.lines
                for each in line.outcomes
                for question in each.answers.get(line.weight, {})
                if each.inquiry.kind == "across"
            },
            key=lambda name: int(name.rpartition("-")[2]),
        )
        across = [
            Measure(f"{_across_title(name)} (first {k})", "across", name, f"first_{k}")
            for name in names
            for k in (1, 10)
        ]
        return [each for each in (*MEASURES, *across) if self.has(each)]

    def has(self, measure: Measure) -> bool:
        """Return whether some method has the figure."""
        return any(line.mean(measure, kind) is not None for line in self.lines for kind in _KINDS)

    def cosine(self) -> Line | None:
        """Return the row of the reference ranker."""
        return next((line for line in self.lines if line.variant == COSINE), None)

    def share(self, line: Line, measure: Measure, kind: str) -> float | None:
        """Return the mean ratio of a figure to that of float cosine on the same draws."""
        cosine = self.cosine()
        if cosine is None:
            return None
        mine, theirs = line.values(measure, kind), cosine.values(measure, "asymmetric")
        both = [mine[key] / theirs[key] for key in mine if theirs.get(key)]
        return fmean(both) if both else None

    def beyond(self, line: Line) -> float | None:
        """Return the score of a method beyond the labels: 0 is chance, 1 is float cosine.

        The mean over measures of ``(x - chance) / (cosine - chance)`` by asymmetric scores. A
        question without an answer counts 0; None if some questions were not evaluated.
        """
        cosine = self.cosine()
        if cosine is None:
            return None
        shares = []
        for measure in MEASURES:
            if measure.name not in BEYOND:
                continue
            chance, best = cosine.chance(measure), cosine.mean(measure, "asymmetric")
            if chance is None or best is None or best <= chance:
                continue
            if all(each.inquiry.kind != measure.kind for each in line.outcomes):
                return None
            value = line.mean(measure, "asymmetric")
            shares.append(0.0 if value is None else (value - chance) / (best - chance))
        return fmean(shares) if shares else None


def groups_of(outcomes: Sequence[Outcome]) -> list[Group]:
    """Return the groups of some outcomes, methods in the order of `place_of`; rankers in each."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = outcome.inquiry.key.parts[0], outcome.inquiry.features
        found.setdefault(key, []).append(outcome)
    groups = []
    for (dataset, features), here in found.items():
        lengths = {each.inquiry.n_bits for each in here}
        for n_bits in sorted(n for n in lengths if n is not None) or lengths:
            own = [each for each in here if each.inquiry.n_bits in (n_bits, None)]
            variants = sorted(
                {each.inquiry.variant for each in own},
                key=lambda variant: (place_of(variant), variant),
            )
            lines = []
            for variant in variants:
                some = tuple(each for each in own if each.inquiry.variant == variant)
                weights = {weight for each in some for weight in each.answers} or {DEFAULT}
                lines += [Line(variant, weight, some) for weight in sorted(weights, key=_weight)]
            groups.append(Group(dataset, features, n_bits, tuple(lines)))
    return groups


def _figures(answer: Answer, kind: str) -> Figures | None:
    return answer.hamming if kind == "hamming" else answer.asymmetric


def _weight(name: str) -> tuple[bool, float]:
    return (False, 0.0) if name == DEFAULT else (True, float(name))


def _across_title(question: str) -> str:
    return f"across {int(question.rpartition('-')[2]):,}"
