"""Measures of retrieval quality, computed in blocks: memory is O(base), not O(queries x base).

By labels: MAP, precision, success, nDCG. Beyond labels: the rank of one relevant item, recall of
neighbours, and statistics of the codes (distinct codes, entropy, ties).

Two samples are similar if they share a label. A query with no similar item counts 0. Tied items
count with the mean over all their orders, in closed form; average precision with ``ties="stable"``
puts the older base item first. An empty base gives 0. A mean over no queries raises an error.
"""

from oasis.metrics.hamming import (
    average_precision,
    mean_average_precision,
    ndcg_at_k,
    precision_at_k,
    precision_within,
    success_at_k,
)
from oasis.metrics.ranks import (
    asymmetric_item_ranks,
    found_at_k,
    item_ranks,
    item_ranks_from_scores,
    mean_reciprocal_rank,
    neighbour_recall,
)
from oasis.metrics.scores import (
    asymmetric_average_precision,
    asymmetric_hits,
    average_precision_from_scores,
    chance_map,
    hits_from_scores,
)
from oasis.metrics.statistics import code_statistics, tied_at_k
from oasis.metrics.ties import Ties

__all__ = [
    "Ties",
    "asymmetric_average_precision",
    "asymmetric_hits",
    "asymmetric_item_ranks",
    "average_precision",
    "average_precision_from_scores",
    "chance_map",
    "code_statistics",
    "found_at_k",
    "hits_from_scores",
    "item_ranks",
    "item_ranks_from_scores",
    "mean_average_precision",
    "mean_reciprocal_rank",
    "ndcg_at_k",
    "neighbour_recall",
    "precision_at_k",
    "precision_within",
    "success_at_k",
    "tied_at_k",
]
