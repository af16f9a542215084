"""Streams: the online settings as runbooks, and the rounds that they make of a data set."""

from oasis.streams.dealing import Round, balanced, class_order, rounds
from oasis.streams.runbooks import Runbook, numbered_runbook, runbook, runbooks

__all__ = [
    "Round",
    "Runbook",
    "balanced",
    "class_order",
    "numbered_runbook",
    "rounds",
    "runbook",
    "runbooks",
]
