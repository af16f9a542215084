"""Real-valued queries, prepared for an exact search: scores, scales and bounds on rounding."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack
from oasis.errors import InputError

Slots = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

_BLOCK = 1024
"""Codes that are scored at a time: their table entries stay in the cache."""

_TABLES = 16
"""Queries whose byte tables are made at a time: about half a megabyte at 128 bits."""

_MOST_MULTIPLES = 2.0**22
"""The sum of small multiples: sums that differ stay so when they are rounded to float32."""

_FEW_QUERIES = 4
"""So few are prepared faster with Python's numbers than with arrays."""

_LARGEST = float(np.finfo(np.float32).max)

BLUR = 2.0**-8
"""Slack for float32 arithmetic in faiss's tables, in steps of the rounding; it takes under 2e-4."""


class Surrogate(NamedTuple):
    """Queries to scan with in place of given ones: some values are cut, so that steps are finer.

    Attributes
    ----------
    scaled : (q, n_bits) float32
    rounding, slack : (q,), as those of `Projections`
    excess : (q,)
        Largest difference between a score of the given query and one of this query.
    floor : (q,)
        Codes with a lower score are not in the answer; ``excess`` holds only for the others.
    """

    scaled: Scores
    rounding: Array
    slack: npt.NDArray[np.floating[Any]]
    excess: Array
    floor: Array

    def some(self, which: Slots) -> Surrogate:
        """Return some of the queries."""
        return Surrogate(
            self.scaled[which],
            self.rounding[which],
            self.slack[which],
            self.excess[which],
            self.floor[which],
        )


@dataclass(frozen=True)
class Projections:
    """Real-valued queries, prepared so that float32 scans find candidates for an exact answer.

    The score of a code is the inner product of query and signs, computed in float64 and rounded to
    float32 once. Scans work in float32 on ``scaled = values * scale``. A float32 sum over
    ``scaled`` differs from the exact one by at most ``slack``, the final rounding included, so
    candidates of a scan are scored again in float64.
    Where all values of a query are small multiples of one value, as with signs or counts, the
    multiples are scanned: every sum is exact then, ``slack`` is 0, and ties are true ties.

    Attributes
    ----------
    values : (q, n_bits) float64, as given, or the multiples
    scaled : (q, n_bits) float32
    scale : (q,) float64, a power of two, or 1 for multiples
    unit : (q,) float64; ``values * unit`` is the query as given
    slack : (q,) float32, in the units of ``scaled``
    """

    values: Array
    scaled: Scores
    scale: Array
    unit: Array
    slack: Scores

    @classmethod
    def of(cls, projections: npt.NDArray[Any]) -> Projections:
        """Prepare (q, n_bits) real numbers, or refuse those that have no finite score."""
        values = projections.astype(np.float64)
        size = np.abs(values)
        if len(values) == 1:
            alone = cls._of_one(values, size)
            if alone is not None:
                return alone
        total = size.sum(axis=1)
        refused = ~(total <= _LARGEST)
        if refused.any():
            raise InputError(
                f"projection {int(np.argmax(refused))} holds NaN, infinity or numbers too large "
                "for float32; expected finite numbers"
            )
        # a power of two, so that scaling itself is exact
        scale = np.ldexp(1.0, np.minimum(-np.frexp(size.max(axis=1))[1], 1000))
        # the sum of n rounded terms, the rounding of the terms and that of the final score
        error = 2.0**-23 * values.shape[1] * total + 2.0**-149
        slack = np.minimum(error * scale, 2.0**100).astype(np.float32)
        unit = np.ones(len(values))
        scaled = (values * scale[:, None]).astype(np.float32)
        for row, (multiples, step) in _multiples(values, size).items():
            values[row], scaled[row] = multiples, multiples
            scale[row], unit[row], slack[row] = 1, step, 0
        return cls(values, scaled, scale, unit, slack)

    @classmethod
    def _of_one(cls, values: Array, size: Array) -> Projections | None:
        """Prepare one query: the same with less to set up. None where it may be special."""
        only = size[0]
        total, least = float(np.add.reduce(only)), float(np.minimum.reduce(only))
        if not total <= _LARGEST or total == 0:
            return None
        least = least if least > 0 else float(only[only > 0].min())
        if total <= _MOST_MULTIPLES * least and all(
            (each / least).is_integer() for each in (*only[:4].tolist(), *only[-4:].tolist())
        ):
            return None  # small multiples perhaps
        scale = math.ldexp(1.0, min(-math.frexp(float(np.maximum.reduce(only)))[1], 1000))
        error = 2.0**-23 * values.shape[1] * total + 2.0**-149
        one = cls(
            values,
            (values * scale).astype(np.float32),
            np.array([scale]),
            _ONE,
            np.array([min(error * scale, 2.0**100)], dtype=np.float32),
        )
        one.__dict__["half_spans"] = np.add.reduce(size.reshape(1, -1, 4), axis=2) * scale
        return one

    def __getitem__(self, which: npt.NDArray[Any]) -> Projections:
        return Projections(
            self.values[which],
            self.scaled[which],
            self.scale[which],
            self.unit[which],
            self.slack[which],
        )

    def __len__(self) -> int:
        return len(self.values)

    @functools.cached_property
    def tables(self) -> Array:
        """(q, n_bits / 4, 16): inner products of four values with the signs of each nibble.

        The four terms are added in one order for all nibbles, so that bits of weight 0 change no
        sum.
        """
        tables: Array = np.einsum("qmi,ij->qmj", self.values.reshape(len(self), -1, 4), NIBBLES)
        return tables

    @functools.cached_property
    def rounding(self) -> Array:
        """(q,): the largest error of a sum of table entries that faiss rounded to 8 bits.

        With tables t_m and one step ``h = max_m (max t_m - min t_m) / 255``, faiss keeps the
        integers nearest to ``(t_m - min t_m) / h``. The error of an entry is at most h / 2, and at
        most the span of its table; the error of a sum is the sum of these over m. Codes that a scan
        did not return have a true score of at most the worst returned sum plus this. The unit is
        that of ``scaled``.

        >>> import numpy as np
        >>> bool(Projections.of(np.ones((1, 8))).rounding[0] < 2 * 0.51 * 8 / 255)
        True
        """
        return rounding_bound(self.half_spans)

    @functools.cached_property
    def half_spans(self) -> Array:
        """(q, n_bits / 4): half of largest less smallest entry of each table, as ``scaled`` is."""
        return _half_spans(np.abs(self.values)) * self.scale[:, None]

    def eased(self, floor: Array) -> Surrogate:
        """Return queries whose tables faiss rounds in finer steps, given that s codes reach floor.

        With ``total = sum_i |q_i|``, a code that disagrees with the sign of q_i has a score of
        ``total - 2 |q_i|`` at most. Where that is below the floor, all codes that matter agree on
        bit i: its value may be cut, and their scores fall by the same amount. Values are cut at
        the norm of the others, so that codes which disagree stay behind most of the others.
        The floor is in units of ``scaled``, as `lowest` gives it; -inf where nothing is known.
        """
        nothing = Surrogate(self.scaled, self.rounding, self.slack, np.zeros(len(self)), floor)
        if not floor.max() > -np.inf:
            return nothing
        size = np.abs(self.scaled.astype(np.float64))
        room = size.sum(axis=1) - floor + self.slack
        if not (2 * size.max(axis=1) > room).any():
            return nothing
        forced = 2 * size > room[:, None]
        limit = np.sqrt(np.where(forced, 0.0, size**2).sum(axis=1))
        cut = forced & (size > limit[:, None]) & (limit > 0)[:, None]
        if not cut.any():
            return nothing
        limits = np.broadcast_to(limit[:, None], size.shape).astype(np.float32)
        scaled = np.where(cut, np.copysign(limits, self.scaled), self.scaled)
        left = np.abs(scaled.astype(np.float64))
        changed = cut.any(axis=1)
        rounding = np.where(changed, rounding_bound(_half_spans(left)), self.rounding)
        excess = (size - left).sum(axis=1)
        # sums in float32 are off in proportion to what is left, and ``scaled`` is rounded once
        slack = 2.0**-23 * size.shape[1] * left.sum(axis=1) + self.slack / size.shape[1]
        return Surrogate(
            scaled,
            rounding,
            np.where(changed, slack, self.slack),
            np.where(changed, excess, 0.0),
            floor,
        )

    def scores(self, codes: Codes) -> Scores:
        """Return the scores (q, c) of codes (q, c, n_bytes): those in row i for query i."""
        q, c, n_bytes = codes.shape
        return self.score(np.repeat(np.arange(q), c), codes.reshape(-1, n_bytes)).reshape(q, c)

    def score(self, query: Slots, codes: Codes) -> Scores:
        """Return the score of ``codes[i]`` for ``query[i]``; ``query`` ascends."""
        out = np.empty(len(query), dtype=np.float32)
        size = 32 * self.values.shape[1]
        ends = np.searchsorted(query, np.arange(0, len(self) + _TABLES, _TABLES))
        for block, (start, stop) in enumerate(itertools.pairwise(ends.tolist())):
            if start == stop:
                continue
            first = block * _TABLES
            nibbles = self.tables[first : first + _TABLES]
            tables = _byte_tables(nibbles).ravel()
            for begin in range(start, stop, _BLOCK):
                some = slice(begin, min(stop, begin + _BLOCK))
                at = (query[some] - first) * size
                sums = sum_of_bytes(tables, codes[some], at)
                out[some] = sums * self.unit[query[some]] + 0.0
        return out

    def byte_tables(self, i: int) -> Array:
        """(n_bytes * 256,): inner products of query i, in ``values``, with the signs of a byte."""
        return self._only_byte_tables if len(self) == 1 else _byte_tables(self.tables[i]).ravel()

    def label_tables(self, n_bytes: int) -> Array:
        """(q * n_bytes * 256,): the same of all queries, of the first bytes of a code alone."""
        return _byte_tables(self.tables[:, : 2 * n_bytes]).ravel()

    @functools.cached_property
    def _only_byte_tables(self) -> Array:
        return _byte_tables(self.tables[0]).ravel()

    def scores_of(self, i: int, codes: Codes, tables: Array | None = None) -> Scores:
        """Return the scores of codes (c, n_bytes) for query i; ``tables`` are its byte tables."""
        tables = self.byte_tables(i) if tables is None else tables
        unit = float(self.unit[i])
        blocks = [
            # adding zero turns -0.0 into 0.0: both are the same score
            (sum_of_bytes(tables, codes[start : start + _BLOCK]) * unit + 0.0).astype(np.float32)
            for start in range(0, max(1, len(codes)), _BLOCK)
        ]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def scores_alone(self, codes: Codes) -> Scores:
        """Return the same for a single query, without tables where codes are few."""
        if len(codes) > _BLOCK:
            return self.scores_of(0, codes)
        signs = _SIGNS.take(codes, axis=0).reshape(len(codes), -1)
        # adding zero as above; one order of addition for all codes
        scores = np.einsum("ij,j->i", signs, self.values[0]) * float(self.unit[0]) + 0.0
        rounded: Scores = scores.astype(np.float32)
        return rounded

    def lowest(self, scores: Scores) -> Array:
        """Return, for each query, the sum below which a code is certainly worse than a score.

        In units of ``scaled``: the score less what rounding it to float32 may have added, which is
        the part of one term in ``slack``; sums of multiples are integers.
        """
        exact = scores / self.unit * self.scale
        rounded = self.slack.astype(np.float64) / self.values.shape[1] + 2.0**-149 * self.scale
        return np.where(self.slack == 0, np.rint(exact), exact - rounded)

    def lowest_of(self, i: int, score: float) -> float:
        """Return the same for one score of query i."""
        scale, slack = float(self.scale[i]), float(self.slack[i])
        exact = score / float(self.unit[i]) * scale
        if slack == 0:
            return float(round(exact))
        return exact - slack / int(self.values.shape[1]) - 2.0**-149 * scale


def _half_spans(size: Array) -> Array:
    """Return the sums of four absolute values each: (q, n_bits) to (q, n_bits / 4)."""
    half: Array = size.reshape(len(size), -1, 4).sum(axis=2)
    return half


def rounding_bound(half: Array) -> Array:
    """Return the bound of `Projections.rounding` for half spans (q, n_bits / 4), in their unit."""
    if len(half) < _FEW_QUERIES:
        return np.array([rounding_of(row) for row in half.tolist()])
    step = half.max(axis=1) * (2 / 255)
    distance = 2 * np.minimum(half, (step / 4)[:, None]).sum(axis=1)
    # the last term is for the float32 numbers that faiss returns
    bound: Array = distance + BLUR * half.shape[1] * step + 2.0**-20 * half.sum(axis=1)
    return bound


def rounding_of(half: list[float]) -> float:
    """Return the same for one query."""
    step = max(half) * (2 / 255)
    quarter = step / 4
    distance = 2 * sum(each if each < quarter else quarter for each in half)
    return distance + BLUR * len(half) * step + 2.0**-20 * sum(half)


def _byte_tables(nibbles: Array) -> Array:
    """Return tables per byte, (..., n, 256), from those per nibble, (..., 2 n, 16)."""
    both = nibbles[..., 1::2, :, None] + nibbles[..., ::2, None, :]
    tables: Array = both.reshape(*both.shape[:-2], 256)
    return tables


def sum_of_bytes(tables: Array, codes: Codes, first: Slots | None = None) -> Array:
    """Return the sum of one entry per byte of ``codes``, added in one order for all codes.

    ``first`` (c,) is where the tables of each code begin, 0 where it is not given.
    """
    # one row a byte: rows are added up much faster than the few entries of a code
    entries = np.add(codes.T, _offsets(codes.shape[1]), order="C")
    if first is not None:
        entries += first
    sums: Array = np.add.reduce(tables.take(entries), axis=0)
    return sums


@functools.lru_cache(maxsize=8)
def _offsets(n_bytes: int) -> Slots:
    """Return where the entries of each byte begin in a table, (n_bytes, 1)."""
    return np.arange(0, 256 * n_bytes, 256)[:, None]


_ONE = np.ones(1)

_SIGNS = unpack(np.arange(256, dtype=np.uint8)[:, None]).astype(np.float64)
"""(256, 8): the eight signs that a byte stands for."""

NIBBLES = np.ascontiguousarray(
    unpack(np.arange(16, dtype=np.uint8)[:, None])[:, :4].T.astype(np.float64)
)
"""(4, 16): the four signs that a nibble stands for."""


def _multiples(values: Array, size: Array) -> dict[int, tuple[Array, float]]:
    """Return, for each row that is small multiples of one number, the multiples and the number."""
    step = np.where(size > 0, size, np.inf).min(axis=1)
    step[np.isinf(step)] = 1.0
    with np.errstate(over="ignore"):
        # the first eight settle it for nearly all rows
        ratio = values[:, :8] / step[:, None]
        possible = (ratio == np.rint(ratio)).all(axis=1)
        if not possible.any():
            return {}
        ratio = values / step[:, None]
    found = {}
    for row in np.flatnonzero(possible & (ratio == np.rint(ratio)).all(axis=1)).tolist():
        # so few and so large that unlike sums stay unlike when rounded to float32
        if (
            np.abs(ratio[row]).sum() <= _MOST_MULTIPLES
            and step[row] >= 2.0**-126
            and bool((ratio[row] * step[row] == values[row]).all())
        ):
            found[row] = (ratio[row], float(step[row]))
    return found
