"""Measures of retrieval quality, blocked: memory grows with the base, never with queries x base.

Two samples are similar when they share a label. A query with no similar item counts 0. Ties are
left open by default (``ties="expected"``: the mean over all orders of tied items, in closed form);
``ties="stable"`` puts the older base item first. An empty base gives 0, a mean over no queries is
refused.
"""

from oasis.metrics.chance import chance_map
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
from oasis.metrics.rounds import forgetting
from oasis.metrics.scores import (
    asymmetric_average_precision,
    average_precision_from_scores,
    mean_average_precision_from_scores,
)
from oasis.metrics.ties import Ties

__all__ = [
    "PrecisionRecall",
    "Ties",
    "asymmetric_average_precision",
    "average_precision",
    "average_precision_from_scores",
    "chance_map",
    "forgetting",
    "mean_average_precision",
    "mean_average_precision_from_scores",
    "ndcg_at_k",
    "per_class_average_precision",
    "precision_at_k",
    "precision_recall_curve",
    "recall_at_k",
]
