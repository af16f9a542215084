"""Codes with a label half and a content half, by label half: a list for each that many share.

The first bits of such a code encode the labels of an item, and few label halves occur; the other
bits hardly ever repeat. The score of a code is the label score of its list plus its content score,
and no content score exceeds C, the sum of the absolute content values of the query. So a list whose
label score plus C is below the s-th best score of all codes cannot matter:

1. Rank the lists by rounded label scores.
2. Guess the s-th best score, and search the lists that could reach it.
3. The s-th best score found is a floor. If a list that was left out may reach it, search all lists
   that may.

A list holds content bits in faiss's `IndexIVFPQFastScan`, which looks content scores up in tables
of 8 bits and adds the label score of the list in 16 bits. So the step of the rounding follows from
the content values of a query alone, however large its label values are. Codes whose label half few
others share are scanned as whole codes.

Rule: lists are made for the codes of a segment with at least `_LEAST_CODES` codes, if at least half
of them share their label half with `_LISTED` - 1 others.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array
from oasis.codes import Codes, unpack, words
from oasis.index.projections import (
    BLUR,
    MOST_CANDIDATES,
    Found,
    Ints,
    PackedScan,
    Projections,
    Scores,
    join,
    rounding_of,
    sign_centroids,
)

_LEAST_CODES = 1 << 17

_LISTED = 24
"""faiss keeps whole blocks of 32 codes: shorter lists waste memory and time."""

_MOST_CONTENT_BITS = 512
"""255 times a quarter of them are half of the 16 bits that faiss adds up in."""

_RANKED = 384
"""How many lists a query ranks."""

_LEAST_CONTENT = 2.0**-60
"""faiss cannot divide by less; the largest value of a query is about 1."""

_MOST_CONTENT = 4.0
"""Where the reach of content is beyond so many deviations of label scores, all lists may matter."""

_STEPS = 60_000
"""Steps of 16 bits that are used, fewer than 65,536: entries that are rounded up must fit too."""

_NO_LISTS = np.empty(0, dtype=np.int64)

_ONE_BY_ONE = 11
"""A way of faiss to search: with a reservoir, one query after the other."""


class LabelGroups:
    """Codes by label half; slots are their positions. See the module; use `of`."""

    def __init__(self, codes: Codes, n_label_bytes: int, order: Ints, begin: Ints) -> None:
        sizes = np.diff(begin, append=len(order))
        long = sizes >= _LISTED
        listed = order[ranges(begin[long], sizes[long])]
        rest = order[ranges(begin[~long], sizes[~long])]
        labels = codes[order[begin[long]], :n_label_bytes]
        self._n_label_bits, self._n_bits = 8 * n_label_bytes, 8 * codes.shape[1]
        self._sizes = sizes[long]
        self._heads = PackedScan(labels)
        self._labels = labels
        self._index = _content_lists(codes[listed, n_label_bytes:], listed, self._sizes)
        self._rest = PackedScan(codes[rest]) if len(rest) else None
        self._rest_slots = rest.astype(np.int32)
        blocks = -(-self._sizes // 32) * 32
        self._list_bytes = int(blocks.sum()) * (codes.shape[1] - n_label_bytes) + 8 * len(listed)

    @classmethod
    def of(cls, codes: Codes, n_label_bytes: int) -> LabelGroups | None:
        """Return the codes by label half; None where the rule of the module says no."""
        if (
            not n_label_bytes
            or len(codes) < _LEAST_CODES
            or 8 * (codes.shape[1] - n_label_bytes) > _MOST_CONTENT_BITS
        ):
            return None
        order, begin = equal_codes(np.ascontiguousarray(codes[:, :n_label_bytes]))
        sizes = np.diff(begin, append=len(codes))
        if 2 * int(sizes[sizes >= _LISTED].sum()) < len(codes):
            return None
        return cls(codes, n_label_bytes, order, begin)

    @property
    def nbytes(self) -> int:
        rest = 0 if self._rest is None else self._rest.nbytes
        plain = self._labels.nbytes + self._rest_slots.nbytes + self._sizes.nbytes
        return int(self._list_bytes + self._heads.nbytes + rest + plain)

    def search(self, projections: Projections, floor: Array | None, s: int, wider: int) -> Found:
        """Return candidates for the s best codes, as `PackedScan.search` does."""
        least = np.full(len(projections), -np.inf) if floor is None else floor
        n = min((s + s // 4 + 32) * wider, max(2 * s, MOST_CANDIDATES))
        queries = _queries(projections.bits(self._n_label_bits, self._n_bits))
        labels = _Labels(self._heads, self._labels, projections.bits(0, self._n_label_bits))
        looks = [
            self._look(labels, row, query, bar, s, n)
            for row, (query, bar) in enumerate(zip(queries, least.tolist(), strict=True))
        ]
        found = _together(looks, s)
        if self._rest is None:
            return found
        rest = self._rest.search(projections, found.floor, s, wider)
        slots = np.where(rest.slots < 0, -1, self._rest_slots[rest.slots])
        return join([found, rest._replace(slots=slots)])

    def _look(
        self, labels: _Labels, row: int, query: _Query, floor: float, s: int, n: int
    ) -> _Look:
        """Return the best codes of lists for one query."""
        if not query.total:
            return self._without_content(labels.all[row], query, floor, s)
        if query.total < _LEAST_CONTENT:
            return _NOTHING
        lists = _NO_LISTS
        if query.reach <= _MOST_CONTENT * labels.spread[row]:
            label, lists, off, outside = labels.ranked(row)
        if len(lists):
            bar = floor
            if floor == -np.inf:
                bar = _guess(label, self._sizes.take(lists), s, query.deviation)
            # label scores fall
            near = int(np.searchsorted(-label, off + query.reach - bar, side="right")) or 1
            outside = float(label[near]) + off if near < len(label) else outside
            look = self._search(query, lists[:near], labels.exact(row, lists[:near]), s, n)
            floor = max(floor, look.floor)
            if outside + query.reach < floor:
                return look._replace(floor=floor)
        label = labels.all[row]
        lists = np.flatnonzero(label >= min(floor - query.reach, label.max()))
        look = self._search(query, lists, label[lists], s, n)
        return look._replace(floor=max(floor, look.floor))

    def _search(self, query: _Query, lists: Ints, label: Array, s: int, n: int) -> _Look:
        """Return the n best codes of some lists; ``label`` are their label scores.

        Lists whose label score lies further below the best one than there is room for are left
        out; the bound is on their codes too.
        """
        top, last = float(label.max()), float(label.min())
        bound = -np.inf
        if last < top - query.room:
            near = label >= top - query.room
            bound = float(label[~near].max()) + query.reach
            lists, label = lists[near], label[near]
            last = float(label.min())
        sums, slots = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.int64)
        offsets = (label - top).astype(np.float32)
        _search_lists(self._index, query.values, lists, offsets, sums, slots)
        if slots[-1] < 0:
            there = slots >= 0
            sums, slots = sums[there], slots[there]
            # faiss leaves out codes whose sum is 0 steps: the lowest that there is
            complete = len(slots) == int(self._sizes.take(lists).sum())
            worst = -np.inf if complete else last - top - query.reach
        else:
            worst = float(sums[-1])
        floor = float(sums[s - 1]) + top - query.error if len(slots) >= s else -np.inf
        bound = max(bound, worst + top + query.error)
        return _Look(slots, bound, floor)

    def _without_content(self, label: Array, query: _Query, floor: float, s: int) -> _Look:
        """Return the best codes by label scores alone: the codes of a list tie."""
        order = np.argsort(-label)
        enough = int(np.searchsorted(np.cumsum(self._sizes[order]), s))
        bar = float(label[order[min(enough, len(order) - 1)]]) - 2 * query.reach
        chosen = np.flatnonzero(label >= bar)
        # the first slots of a list are those of its oldest items
        slots = [_slots_of(self._index, number, s) for number in chosen.tolist()]
        bound = float(label.max(where=label < bar, initial=-np.inf)) + query.reach
        return _Look(np.concatenate(slots), bound, floor)


class _Look(NamedTuple):
    """What lists have for one query; as the rows of `oasis.index.projections.Found`."""

    slots: Ints
    bound: float
    floor: float


class _Query(NamedTuple):
    """The content half of one query.

    Attributes
    ----------
    values : (n_content_bits,) float32, in units of `Projections.scaled`
    total : sum of absolute values; 0 if there is no content
    deviation : an estimate of the standard deviation of content scores
    reach : no content score exceeds this, errors included
    error : the largest error of a sum of look-ups and label score
    room : how far the label scores of a search may lie apart
    """

    values: Scores
    total: float
    deviation: float
    reach: float
    error: float
    room: float


_NOTHING = _Look(_NO_LISTS, np.inf, -np.inf)
"""What cannot be looked up; all codes will be scored."""


def _queries(part: Projections) -> list[_Query]:
    """Return the content halves of queries."""
    values = np.ascontiguousarray(part.scaled)
    norms = np.sqrt(np.einsum("ij,ij->i", values, values))
    queries = []
    for row, (norm, half, slack) in enumerate(
        zip(norms.tolist(), part.half.tolist(), part.slack.tolist(), strict=True)
    ):
        total, step = sum(half), max(half) * (2 / 255)
        room = _STEPS * step - 2 * total
        # label scores are rounded too, and faiss returns float32 numbers
        error = rounding_of(half) + (0.5 + BLUR) * step + 2.0**-20 * room + 2 * slack
        queries.append(_Query(values[row], total, norm, total + 2 * slack, error, room))
    return queries


class _Labels:
    """The label scores of lists, in units of `Projections.scaled`.

    Attributes
    ----------
    spread : list of the norms of the label values of queries
    """

    def __init__(self, heads: PackedScan, labels: Codes, part: Projections) -> None:
        self._heads, self._codes, self._part = heads, labels, part
        self.spread = np.sqrt(np.einsum("ij,ij->i", part.scaled, part.scaled)).tolist()

    @functools.cached_property
    def _ranked(self) -> tuple[Scores, Ints, Array, Array]:
        look = self._part.look_up(None)
        found = self._heads.best(look, min(_RANKED, len(self._codes)))
        return (*found, look.rounding + look.slack)

    def ranked(self, row: int) -> tuple[Scores, Ints, float, float]:
        """Return the lists with the best labels for one query.

        Rounded label scores, best first, numbers, an error, and a bound on the scores of others.
        """
        sums, lists, bound, error = (each[row] for each in self._ranked)
        if lists[-1] < 0:
            # faiss leaves out codes whose sum is 0 steps
            sums, lists = sums[lists >= 0], lists[lists >= 0]
        return sums, lists, float(error), float(bound)

    def exact(self, row: int, lists: Ints) -> Array:
        """Return the label scores of some lists for one query."""
        label: Array = unpack(self._codes[lists]) @ self._part.scaled[row].astype(np.float64)
        return label

    @functools.cached_property
    def all(self) -> Array:
        """(q, g): the label scores of all lists."""
        signs = unpack(self._codes).astype(np.float32)
        label: Array = (self._part.scaled @ signs.T).astype(np.float64)
        return label


def _together(looks: list[_Look], s: int) -> Found:
    """Return what was found for each query, padded to at least s codes."""
    slots = np.full((len(looks), max([s, *(len(look.slots) for look in looks)])), -1)
    for row, look in enumerate(looks):
        slots[row, : len(look.slots)] = look.slots
    bound, floor = (np.array([look[field] for look in looks], float) for field in (1, 2))
    return Found(slots, bound, floor)


def _guess(label: Scores, sizes: Ints, s: int, deviation: float) -> float:
    """Return a guess at the s-th best score; it decides how much is looked at, not the answer.

    If content scores are normal with standard deviation sd, the s-th best of m codes with a label
    score of at least l reaches ``l + z sd``, where a share s / m is above z: a little below the
    quantiles of the normal distribution, which are about ``sqrt(2 log(m / s))``. Labels fall.
    """
    reached = np.cumsum(sizes)
    enough = int(np.searchsorted(reached, s))
    if enough == len(reached):
        return -np.inf
    z = 1.2 * np.sqrt(np.log(reached[enough:] / s)) - 0.75
    return float((label[enough:] + z * deviation).max())


def _search_lists(
    index: Any, values: Scores, lists: Ints, label: Scores, sums: Scores, slots: Ints
) -> None:
    """Fill the sums and slots of the best codes of some lists, best first, -1 for none."""
    import faiss

    pointer = faiss.swig_ptr
    index.search_preassigned_c(
        1,
        pointer(values),
        len(sums),
        pointer(lists),
        pointer(label),
        pointer(sums),
        pointer(slots),
        False,
        _parameters(len(lists)),
    )


def _slots_of(index: Any, number: int, most: int) -> Ints:
    """Return the first slots of a list."""
    import faiss

    n = min(most, int(index.invlists.list_size(number)))
    slots: Ints = faiss.rev_swig_ptr(index.invlists.get_ids(number), n).copy()
    return slots


def _content_lists(codes: Codes, slots: Ints, sizes: Ints) -> Any:
    """Return the faiss index of content halves, those of one list after the other."""
    import faiss

    n_bits = 8 * codes.shape[1]
    # searches name the lists, so the quantizer that would choose them has no centroids
    quantizer = faiss.IndexFlatIP(n_bits)
    plain: Any = faiss.IndexIVFPQ(
        quantizer, n_bits, len(sizes), n_bits // 4, 4, faiss.METRIC_INNER_PRODUCT
    )
    faiss.copy_array_to_vector(sign_centroids(n_bits), plain.pq.centroids)
    plain.is_trained = True
    plain.ntotal = len(slots)
    start = 0
    for number, size in enumerate(sizes.tolist()):
        part = slice(start, start + size)
        plain.invlists.add_entries(
            number, size, faiss.swig_ptr(slots[part]), faiss.swig_ptr(codes[part])
        )
        start += size
    index: Any = faiss.IndexIVFPQFastScan(plain)
    # packed lists are a copy of those of ``plain``; the quantizer must outlive the index
    index.orig_invlists = None
    index.referenced_objects = [quantizer]
    index.implem = _ONE_BY_ONE
    return index


@functools.lru_cache(maxsize=1024)
def _parameters(n_lists: int) -> Any:
    """Return the parameters of a search in so many lists; never changed, so threads may share."""
    import faiss

    parameters = faiss.IVFSearchParameters()
    parameters.nprobe = n_lists
    return parameters


def equal_codes(codes: Codes) -> tuple[Ints, Ints]:
    """Return an order in which equal codes are side by side, and where each group begins.

    Codes of one hash may alternate: then there are more groups than codes, which costs some space.

    >>> import numpy as np
    >>> order, begin = equal_codes(np.array([[5], [3], [5]], dtype=np.uint8))
    >>> sorted(np.split(order, begin[1:]), key=len)[1].tolist()
    [0, 2]
    """
    n = len(codes)
    # sorting numbers is far faster than sorting positions by them: the low bits of each hash give
    # way to the position
    room = np.uint64(max(1, n).bit_length())
    keys = (_hashes(codes) >> room << room) | np.arange(n, dtype=np.uint64)
    keys.sort()
    order = (keys & ((np.uint64(1) << room) - np.uint64(1))).astype(np.int64)
    ordered = words(codes[order])
    differs = np.ones(n, dtype=np.bool_)
    differs[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    return order, np.flatnonzero(differs)


def _hashes(codes: Codes) -> npt.NDArray[np.uint64]:
    """Return a hash of each code, one uint64."""
    keys = np.zeros(len(codes), dtype=np.uint64)
    factor, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for column in words(codes).T:
        keys += column
        keys *= factor
        keys ^= keys >> shift
        keys *= factor
    return keys


def ranges(start: Ints, lengths: Ints) -> Ints:
    """Return ``start[i], start[i] + 1, ...``, ``lengths[i]`` numbers each, as one array.

    >>> import numpy as np
    >>> ranges(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    total = int(lengths.sum())
    offsets: Ints = start - (np.cumsum(lengths) - lengths)
    return np.arange(total) + np.repeat(offsets, lengths)
