"""Measures of retrieval quality, computed in blocks: memory is O(base), not O(queries x base).

By labels: MAP, precision, recall, nDCG. Beyond labels: the rank of one relevant item, and
statistics of the codes (distinct codes, entropy, ties).

Two samples are similar if they share a label. A query with no similar item counts 0. By default
(``ties="expected"``) tied items count with the mean over all their orders, in closed form;
``ties="stable"`` puts the older base item first. An empty base gives 0. A mean over no queries
raises an error.
"""

from oasis.metrics.chance import chance_map
from oasis.metrics.diagnostics import (
    CodeStatistics,
    asymmetric_tied_at_k,
    code_statistics,
    tied_at_k,
)
from oasis.metrics.first_hits import (
    asymmetric_hits,
    hits_from_scores,
    neighbour_recall,
    success_at_k,
)
from oasis.metrics.hamming import (
    PrecisionRecall,
    average_precision,
    mean_average_precision,
    ndcg_at_k,
    per_class_average_precision,
    precision_at_k,
    precision_recall_curve,
    recall_at_k,
)
from oasis.metrics.ranks import (
    asymmetric_item_ranks,
    found_at_k,
    item_ranks,
    item_ranks_from_scores,
    mean_reciprocal_rank,
)
from oasis.metrics.rounds import forgetting
from oasis.metrics.scores import (
    asymmetric_average_precision,
    average_precision_from_scores,
    mean_average_precision_from_scores,
)
from oasis.metrics.ties import Ties

__all__ = [
    "CodeStatistics",
    "PrecisionRecall",
    "Ties",
    "asymmetric_average_precision",
    "asymmetric_hits",
    "asymmetric_item_ranks",
    "asymmetric_tied_at_k",
    "average_precision",
    "average_precision_from_scores",
    "chance_map",
    "code_statistics",
    "forgetting",
    "found_at_k",
    "hits_from_scores",
    "item_ranks",
    "item_ranks_from_scores",
    "mean_average_precision",
    "mean_average_precision_from_scores",
    "mean_reciprocal_rank",
    "ndcg_at_k",
    "neighbour_recall",
    "per_class_average_precision",
    "precision_at_k",
    "precision_recall_curve",
    "recall_at_k",
    "success_at_k",
    "tied_at_k",
]
