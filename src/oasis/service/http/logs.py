"""Logs for machines: one JSON object a line on standard error."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime

LOG = logging.getLogger("oasis.service")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; ``extra={"facts": {...}}`` adds to it.

    >>> record = logging.makeLogRecord({"name": "oasis.service", "levelname": "INFO",
    ...     "msg": "request", "created": 0.0, "facts": {"status": 200}})
    >>> JsonFormatter().format(record)
    '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "event": "request", "status": 200}'
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.name != LOG.name:
            found["logger"] = record.name
        found |= getattr(record, "facts", {})
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send everything that is logged in this process to standard error, as JSON lines.

    Warnings of Python, and exceptions that end the process or one of its threads, are logged too.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("oasis", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = []
        logger.propagate = True
    logging.getLogger("oasis").setLevel(level)
    # its start and stop are told by ours
    logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
    logging.captureWarnings(True)
    threading.excepthook = _log_thread


def _log_thread(found: threading.ExceptHookArgs) -> None:
    facts = {"thread": found.thread.name if found.thread else None}
    error = found.exc_value
    if error is not None:
        LOG.error("a thread failed", exc_info=error, extra={"facts": facts})
