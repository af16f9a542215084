"""Average precision per query after the last round, and confidence intervals of differences.

One ``.npz`` file per run, at the run's key, without pickles. Runs of one data set, setting and seed
have the same queries, so two methods can be compared query by query.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oasis.arrays import Array, Rows
from oasis.errors import FormatError
from oasis.store import replacing

QUERIES = "queries"
"""Subfolder of average precisions per query in a results folder."""

RESAMPLES = 1000
LEVEL = 0.95

_DAMAGE = (zipfile.BadZipFile, EOFError, LookupError, TypeError, ValueError)
_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The queries of all rounds after the last one.

    Attributes
    ----------
    rows : (q,) int64, rows of the data set
    sets : (q,) int64, number of the query set that each belongs to; the last round's is the largest
    expected : (q,) float64, average precision by Hamming distance, expected ties
    asymmetric : (q,) float64, by projections; empty for a ranker
    """

    rows: Rows
    sets: Rows
    expected: Array
    asymmetric: Array

    def __len__(self) -> int:
        return len(self.rows)


def write_queries(path: Path, scores: QueryScores) -> None:
    """Write the scores of a run as float32, atomically; folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(
            stream,
            rows=scores.rows.astype(np.int64),
            sets=scores.sets.astype(np.int64),
            expected=scores.expected.astype(np.float32),
            asymmetric=scores.asymmetric.astype(np.float32),
        )


def read_queries(path: Path) -> QueryScores:
    """Read what `write_queries` wrote."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            scores = QueryScores(
                archive["rows"],
                archive["sets"],
                archive["expected"].astype(np.float64),
                archive["asymmetric"].astype(np.float64),
            )
    except _DAMAGE as error:
        raise FormatError(f"{path} is damaged: {error!r}") from error
    if not len(scores.rows) == len(scores.sets) == len(scores.expected):
        raise FormatError(f"{path} is damaged: its arrays differ in length")
    return scores


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of average precision, and its bootstrap interval.

    Attributes
    ----------
    mean, low, high : float
        The difference and the bounds of its 95 % interval.
    n_queries, n_seeds : int
        Number of pairs.
    """

    mean: float
    low: float
    high: float
    n_queries: int
    n_seeds: int

    @property
    def verdict(self) -> str:
        """Whether the first method is better, worse, or the interval contains 0."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "undecided"


def paired_difference(
    ours: Mapping[int, QueryScores],
    theirs: Mapping[int, QueryScores],
    figure: str = "expected",
    n_resamples: int = RESAMPLES,
) -> Difference | None:
    """Compare two methods query by query, over the seeds that both have.

    Parameters
    ----------
    ours, theirs : seed -> scores
    figure : "expected" or "asymmetric"
    n_resamples : of the bootstrap: seeds are drawn with replacement, and then the queries of each

    Returns
    -------
    The difference ``ours - theirs``, or None if no seed has both figures for the same queries.

    Notes
    -----
    The mean over seeds of the means over queries. The bootstrap is seeded. Cost: resamples times
    queries.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.arange(200)
    >>> base = np.linspace(0, 1, 200)
    >>> a = QueryScores(rows, rows * 0, base * 0.9 + 0.1, base)
    >>> b = QueryScores(rows, rows * 0, base * 0.9, base)
    >>> found = paired_difference({0: a}, {0: b})
    >>> round(found.mean, 3), found.verdict
    (0.1, 'better')
    """
    pairs = [
        getattr(ours[seed], figure) - getattr(theirs[seed], figure)
        for seed in sorted(set(ours) & set(theirs))
        if _same_queries(ours[seed], theirs[seed], figure)
    ]
    if not pairs:
        return None
    rng = np.random.default_rng(0)
    means = np.stack([_resampled_means(values, n_resamples, rng) for values in pairs])  # (s, b)
    picked = rng.integers(len(pairs), size=means.shape)
    # a seed that is drawn twice gets two independent draws of its queries
    drawn = means[picked, rng.integers(n_resamples, size=means.shape)].mean(axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(
        float(np.mean([values.mean() for values in pairs])),
        float(low),
        float(high),
        sum(map(len, pairs)),
        len(pairs),
    )


def _same_queries(a: QueryScores, b: QueryScores, figure: str) -> bool:
    lengths = {len(a), len(getattr(a, figure)), len(getattr(b, figure))}
    return len(a) > 0 and len(lengths) == 1 and np.array_equal(a.rows, b.rows)


def _resampled_means(values: Array, n_resamples: int, rng: np.random.Generator) -> Array:
    """Return the means of resamples of the values, (n_resamples,), in blocks of draws."""
    means = np.empty(n_resamples)
    size = max(1, _CELLS // len(values))
    for start in range(0, n_resamples, size):
        n = min(size, n_resamples - start)
        means[start : start + n] = values[rng.integers(len(values), size=(n, len(values)))].mean(1)
    return means
