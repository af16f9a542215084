"""Logs for machines: one JSON object a line on standard error, and nothing else.

`JsonOnStderr` makes that hold for all that is written there, whoever writes it:

=============================================  =====================================================
what is logged                                 `LineHandler`: one line at a time, each written whole
warnings; exceptions that end the process or   hooks log them
a thread, or that nobody can catch
handlers of libraries, ``print``, C libraries, descriptor 2 is a pipe; a thread logs each line of it
child processes, tracebacks of the interpreter
=============================================  =====================================================

What a library prints while the process is killed by a signal is lost: nobody is left to log it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import sys
import threading
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

LOG = logging.getLogger("oasis.service")

_STDERR = 2
_BLOCK = 1 << 16
_MAX_LINE = 1 << 16
_DRAIN_SECONDS = 1.0


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


class LineHandler(logging.Handler):
    """Writes each record as one line to a descriptor, to its end before the next one is begun.

    If the reader has closed its end, lines are dropped.

    Parameters
    ----------
    descriptor : int
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the lock of the handler is held meanwhile."""
        rest = memoryview(f"{self.format(record)}\n".encode())
        while rest:
            try:
                rest = rest[os.write(self.descriptor, rest) :]
            except (
                BlockingIOError
            ):  # the descriptor was made non-blocking before it was given to us
                select.select([], [self.descriptor], [])
            except OSError:
                return


class JsonOnStderr:
    """Makes every line on standard error one of JSON, from now to the end of the process.

    For a process that serves: the handlers of the root logger, the hooks of the interpreter and
    descriptor 2 are replaced. `restore` puts them back if the process could not start to serve.

    Parameters
    ----------
    level : int
        Level of oasis's own loggers; other loggers log warnings.
    """

    def __init__(self, level: int = logging.INFO) -> None:
        self._loggers = {
            each: (each.handlers, each.level, each.propagate)
            for each in map(logging.getLogger, ("", "oasis", "uvicorn"))
        }
        self._hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
        sys.stderr.flush()
        self._stderr = os.dup(_STDERR)
        self._handler = LineHandler(self._stderr)
        for logger in self._loggers:
            logger.handlers, logger.propagate = [], True
        logging.getLogger().handlers = [self._handler]
        logging.getLogger().setLevel(logging.WARNING)
        logging.getLogger("oasis").setLevel(level)
        # the service logs its start and stop itself
        logging.getLogger("uvicorn").setLevel(max(level, logging.WARNING))
        sys.excepthook, sys.unraisablehook = _log_end, _log_unraisable
        threading.excepthook = _log_thread
        logging.captureWarnings(True)
        self._reader = threading.Thread(
            target=_log_strays, args=(_pipe_as_stderr(),), name="stderr", daemon=True
        )
        self._reader.start()
        atexit.register(self._drain)

    def restore(self) -> None:
        """Put everything back as it was; what was written until now is logged."""
        self._close_pipe(self._stderr)
        with self._handler.lock or nullcontext():
            self._handler.descriptor = _STDERR  # a child may hold the pipe open, and go on writing
        os.close(self._stderr)
        logging.captureWarnings(False)
        sys.excepthook, sys.unraisablehook, threading.excepthook = self._hooks
        for logger, (handlers, level, propagate) in self._loggers.items():
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        atexit.unregister(self._drain)

    def _drain(self) -> None:
        """Log what was written until now; what a library writes after this is dropped."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        self._close_pipe(nowhere)
        os.close(nowhere)

    def _close_pipe(self, instead: int) -> None:
        sys.stderr.flush()
        os.dup2(instead, _STDERR)  # closes the last end of the pipe, unless a child has one
        self._reader.join(_DRAIN_SECONDS)


def _pipe_as_stderr() -> int:
    """Put a pipe in place of descriptor 2, and return its end to read."""
    strays, end = os.pipe()
    # a library that writes more than the pipe holds while it has the interpreter lock would wait
    # for ever for the thread that empties the pipe: non-blocking, so that the excess is dropped
    os.set_blocking(end, False)
    os.dup2(end, _STDERR)
    os.close(end)
    return strays


def _log_strays(strays: int) -> None:
    """Log what others write to standard error, a line at a time, until nobody can any more."""
    with os.fdopen(strays, "rb", buffering=0) as pipe:
        begun = b""
        while block := pipe.read(_BLOCK):
            *lines, begun = (begun + block).split(b"\n")
            if len(begun) > _MAX_LINE:
                lines, begun = [*lines, begun], b""
            for line in lines:
                _log_stray(line)
        _log_stray(begun)


def _log_stray(line: bytes) -> None:
    text = line.decode(errors="replace").rstrip()
    if text:
        LOG.warning("written to standard error", extra={"facts": {"text": text}})


def _log_end(_: object, error: BaseException, __: object) -> None:
    LOG.critical("ended by an exception", exc_info=error)


def _log_thread(found: threading.ExceptHookArgs) -> None:
    facts = {"thread": found.thread.name if found.thread else None}
    error = found.exc_value
    if error is not None:
        LOG.error("a thread failed", exc_info=error, extra={"facts": facts})


def _log_unraisable(found: sys.UnraisableHookArgs) -> None:
    facts = {"where": found.err_msg or "Exception ignored", "object": type(found.object).__name__}
    LOG.error(
        "an exception that nobody could catch", exc_info=found.exc_value, extra={"facts": facts}
    )
