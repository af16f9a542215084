"""Streams: the online settings as runbooks, and the rounds that they make of a data set."""

from oasis.streams.runbooks import (
    Round,
    Runbook,
    balanced,
    class_order,
    rounds,
    runbook,
    runbooks,
)

__all__ = ["Round", "Runbook", "balanced", "class_order", "rounds", "runbook", "runbooks"]
