"""Streams: the online settings as runbooks, which divide a data set into rounds."""

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
