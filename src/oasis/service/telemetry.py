"""What an operator is told: a log of one JSON object a line, and counters for Prometheus."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

LOG = logging.getLogger("oasis.service")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; ``extra={"facts": {...}}`` adds to it.

    A record that cannot be formatted becomes a line that says so.

    >>> record = logging.makeLogRecord({"name": "oasis.service", "levelname": "INFO",
    ...     "msg": "request", "created": 0.0, "facts": {"status": 200}})
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "event": "request", "status": 200}'
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {"time": at, "level": record.levelname.lower()}
        if record.name != LOG.name:
            found["logger"] = record.name
        try:
            told = {"event": record.getMessage(), **getattr(record, "facts", {})}
            if record.exc_info:
                told["exception"] = self.formatException(record.exc_info)
            return json.dumps(found | told, default=str, allow_nan=False)
        except Exception as error:  # noqa: BLE001 - whatever was logged, the line is JSON
            place = f"{record.pathname}:{record.lineno}"
            reason = type(error).__name__
            return json.dumps({**found, "event": "not formatted", "by": place, "reason": reason})


def log_as_json(level: int = logging.INFO) -> None:
    """Log records, warnings and exceptions that nobody catches as JSON on standard error.

    ``level`` is that of oasis's own loggers; others log warnings. What libraries of C write there
    themselves stays as it is.
    """
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonFormatter}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": "WARNING"},
            # the service logs its start and stop itself
            "loggers": {"oasis": {"level": level}, "uvicorn": {"level": max(level, 30)}},
        }
    )
    logging.captureWarnings(True)
    sys.excepthook = lambda _, error, __: LOG.critical("ended by an exception", exc_info=error)
    threading.excepthook = lambda found: LOG.error(
        "a thread failed", exc_info=found.exc_value, extra={"facts": {"thread": str(found.thread)}}
    )


# -- counters ----------------------------------------------------------------------------------

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper ends of the classes of durations, in seconds."""

_Labels: TypeAlias = tuple[tuple[str, str], ...]


class Counters:
    """What has happened so far, by name and labels; any thread may count.

    >>> counters = Counters()
    >>> counters.count("oasis_requests_total", "Requests answered.", {"status": "200"})
    >>> print(counters.text(), end="")
    # HELP oasis_requests_total Requests answered.
    # TYPE oasis_requests_total counter
    oasis_requests_total{status="200"} 1
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._help: dict[str, tuple[str, str]] = {}
        self._counts: dict[str, dict[_Labels, float]] = {}
        self._histograms: dict[str, dict[_Labels, list[float]]] = {}

    def count(
        self, name: str, what: str, labels: Mapping[str, str] | None = None, n: float = 1
    ) -> None:
        """Add to a counter."""
        key = tuple(sorted((labels or {}).items()))
        with self._guard:
            self._help.setdefault(name, ("counter", what))
            counts = self._counts.setdefault(name, {})
            counts[key] = counts.get(key, 0) + n

    def observe(
        self, name: str, what: str, seconds: float, labels: Mapping[str, str] | None = None
    ) -> None:
        """Add a duration to a histogram."""
        key = tuple(sorted((labels or {}).items()))
        with self._guard:
            self._help.setdefault(name, ("histogram", what))
            cells = self._histograms.setdefault(name, {}).setdefault(
                key, [0.0] * (len(BUCKETS) + 2)
            )
            cells[bisect_left(BUCKETS, seconds)] += 1
            cells[-1] += seconds

    def text(self, gauges: Iterable[tuple[str, str, float]] = ()) -> str:
        """Return everything as text; gauges are (name, what, value now)."""
        lines: list[str] = []
        with self._guard:
            for name, (kind, what) in sorted(self._help.items()):
                lines += [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
                for key, value in sorted(self._counts.get(name, {}).items()):
                    lines.append(f"{name}{_braces(key)} {value:.12g}")
                for key, cells in sorted(self._histograms.get(name, {}).items()):
                    lines += _histogram(name, key, cells)
        for name, what, value in gauges:
            lines += [f"# HELP {name} {what}", f"# TYPE {name} gauge", f"{name} {value:.12g}"]
        return "\n".join(lines) + "\n"


def _histogram(name: str, key: _Labels, cells: list[float]) -> list[str]:
    lines, below = [], 0.0
    for bound, n in zip((*BUCKETS, "+Inf"), cells[:-1], strict=True):
        below += n
        lines.append(f"{name}_bucket{_braces((*key, ('le', str(bound))))} {below:.12g}")
    return [
        *lines,
        f"{name}_sum{_braces(key)} {cells[-1]:.12g}",
        f"{name}_count{_braces(key)} {below:.12g}",
    ]


def _braces(key: _Labels) -> str:
    if not key:
        return ""
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in key)
    return f"{{{inside}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
