"""The first look of a batch: queries whose ranked groups all have lists look into them together.

This is the first look of `oasis.index.engine.group_search`, for many queries with the same few
operations on arrays, and one call of faiss. Queries that need more continue one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from oasis.index.engine.content_lists import ContentQueries
from oasis.index.engine.group_search import GroupSearch, Look, reachable
from oasis.index.engine.projections import Projections

if TYPE_CHECKING:
    from oasis.index.engine.label_groups import LabelGroups


def together(
    groups: LabelGroups,
    projections: Projections,
    content: ContentQueries,
    searches: list[GroupSearch],
) -> dict[int, Look]:
    """Return the looks of queries that need no more than the lists of their ranked groups.

    Of the others the floor is raised by what was found.
    """
    ranked = [
        (row, search.ranked)
        for row, search in enumerate(searches)
        if search.ranked is not None and not search.in_full
    ]
    width = max((len(each.label) for _, each in ranked), default=0)
    ranked = [each for each in ranked if len(each[1].label) == width]
    if groups.lists is None or len(ranked) < 2 or not width:
        return {}
    rows = np.array([row for row, _ in ranked])
    label = np.array([each.label for _, each in ranked], dtype=np.float64)  # (r, g), best first
    number = np.array([each.number for _, each in ranked])
    rounded, outside = np.array([(each.error, each.outside) for _, each in ranked]).T
    floor, reach, deviation = np.array(
        [(searches[row].floor, searches[row].reach, searches[row].deviation) for row, _ in ranked]
    ).T
    s = searches[0].s

    reached = groups.sizes(number).cumsum(axis=1)
    guesses = reachable(label, np.maximum(reached, s), s, deviation[:, None])
    guessed = np.where(reached < s, -np.inf, guesses).max(axis=1)
    bar = np.where(floor > -np.inf, floor, guessed)
    likely = np.where(floor > -np.inf, floor, guessed + 2.5 * deviation)
    near = label >= (bar - reach - rounded)[:, None]
    n_near = near.sum(axis=1)
    beyond = label[np.arange(len(rows)), np.minimum(n_near, width - 1)] + rounded
    beyond = np.where(n_near < width, beyond, outside)
    alone = (near & (number >= groups.n_lists)).any(axis=1)
    chosen = np.flatnonzero((outside + reach < likely) & ~alone & (n_near > 0))
    if len(chosen) < 2:
        return {}

    rows, beyond, reach, floor = rows[chosen], beyond[chosen], reach[chosen], floor[chosen]
    width = int(n_near[chosen].max())
    near = near[chosen, :width]
    lists = np.where(near, number[chosen, :width], -1)
    labels = np.zeros(lists.shape)
    labels[near] = groups.label_scores(projections, rows[near.nonzero()[0]], lists[near])
    queries = content[rows]
    found = groups.lists.search(queries, lists, labels, searches[0].n_listed)

    # sums fall along a row
    there = found.slots >= 0
    reached = np.where(there[:, s - 1], found.sums[:, s - 1] - queries.error, -np.inf)
    floor = np.maximum(floor, reached)
    matter = there & (found.sums >= (floor - queries.error)[:, None])
    looks: dict[int, Look] = {}
    for at, (row, n, bound, least, enough) in enumerate(
        zip(
            rows.tolist(),
            np.where(floor > -np.inf, matter.sum(axis=1), there.sum(axis=1)).tolist(),
            found.bound.tolist(),
            floor.tolist(),
            (beyond + reach < floor).tolist(),
            strict=True,
        )
    ):
        searches[row].floor = least
        if enough:
            looks[row] = (found.sums[at, :n], found.slots[at, :n], bound)
    return looks
