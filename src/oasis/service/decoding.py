"""Untrusted pictures are decoded in processes of their own, which are killed at a limit.

A file of half a megabyte can keep a decoder busy for minutes, or make it take gigabytes, and a
thread that decodes cannot be stopped. So the service hands the bytes of a picture to one of a few
processes: ``python -m oasis.service.decoding``. Its memory and its processor time are limited, and
it is killed if it does not answer in time; the picture is refused, and the next one gets a new
process. The process returns the pixels, so that features are the same as with `open_picture` here.
Its answers are bytes and JSON, never a pickle: it may have been taken over by a picture.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from oasis.errors import DataError, MissingExtraError

_SPARE_SECONDS = 1.0
_START_SECONDS = 60.0
MEMORY_BYTES = 2 << 30
"""Address space of a decoding process: 12 bytes a pixel, and the libraries."""


class DecodingProcesses:
    """A few processes that decode pictures; started when they are first needed. Any thread may ask.

    Parameters
    ----------
    n : int
        Pictures that are decoded at once.
    seconds : float
        For one picture; then its process is killed.
    max_pixels : int
        A picture that declares more is refused undecoded.
    """

    def __init__(self, n: int, seconds: float, max_pixels: int) -> None:
        self.seconds = seconds
        self.max_pixels = max_pixels
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()
        for _ in range(n):
            self._idle.put(None)
        self._guard = threading.Lock()
        self._running: set[_Process] = set()
        self._closed = False

    def within(self, seconds: float) -> Callable[[bytes, int], Any]:
        """Return what decodes the pictures of one request, which share some seconds."""
        end: float | None = None

        def decode(content: bytes, max_pixels: int) -> Any:
            nonlocal end
            now = time.monotonic()
            end = now + seconds if end is None else end
            if now >= end:
                raise DataError(
                    f"the picture is refused: those before it took all of the {seconds:g} seconds "
                    "that a request has for its pictures"
                )
            return self.decode(content, max_pixels, end - now)

        return decode

    def decode(self, content: bytes, max_pixels: int, seconds: float) -> Any:
        """Return the decoded `oasis.features.pictures.Picture`, or raise `DataError`."""
        deadline = time.monotonic() + seconds
        try:
            process = self._idle.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise DataError("the picture is refused: all decoders are busy; try again") from None
        try:
            process = process or self._started()
            # a process that was just started has to import first, which the limit allows for
            left = min(self.seconds, deadline - time.monotonic())
            return process.decode(content, min(max_pixels, self.max_pixels), max(left, 0.1))
        except (OSError, EOFError):
            raise DataError(
                f"the picture is refused: decoding it took more than {self.seconds:g} seconds or "
                f"{MEMORY_BYTES >> 20} MB"
            ) from None
        finally:
            alive = process is not None and process.is_alive
            if process is not None and not alive:
                with self._guard:
                    self._running.discard(process)
            self._idle.put(process if alive else None)

    def _started(self) -> _Process:
        process = _Process(self.seconds)
        with self._guard:
            if not self._closed:
                self._running.add(process)
                return process
        process.kill()
        raise DataError("the picture is refused: the service is being stopped")

    def close(self) -> None:
        """Kill all processes; pictures that are being decoded are refused."""
        with self._guard:
            self._closed = True
            for process in self._running:
                process.kill()
            self._running.clear()


class _Process:
    """One decoding process; one caller at a time."""

    def __init__(self, seconds: float) -> None:
        self.is_alive = True
        self._guard = threading.Lock()
        self._connection, there = Pipe()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "oasis.service.decoding", str(there.fileno()), str(seconds)],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        # the time to start does not count for the first picture
        self._asked(_START_SECONDS, self._connection.recv_bytes)

    def decode(self, content: bytes, max_pixels: int, seconds: float) -> Any:
        from PIL import Image

        from oasis.features.pictures import Picture

        def ask() -> tuple[Any, bytes]:
            self._connection.send_bytes(str(max_pixels).encode())
            self._connection.send_bytes(content)
            return json.loads(self._connection.recv_bytes()), self._connection.recv_bytes()

        head, pixels = self._asked(seconds, ask)
        if "error" in head:
            raise DataError(head["error"])
        if "missing" in head:
            raise MissingExtraError("Pillow", extra="images", what="reading images")
        image = Image.frombytes(head["mode"], tuple(head["size"]), pixels)
        return Picture(image, None if head["levels"] is None else tuple(head["levels"]))

    def _asked(self, seconds: float, ask: Callable[[], Any]) -> Any:
        """Return an answer; if it is late, or was not read to its end, the process is killed."""
        late = threading.Timer(seconds, self._process.kill)
        late.start()
        try:
            return ask()
        except BaseException:  # any exception: its next answer would be taken for another's
            self.kill()
            raise
        finally:
            late.cancel()

    def kill(self) -> None:
        with self._guard:
            self.is_alive = False
            self._process.kill()
            self._process.wait()
            self._connection.close()


# -- in the process ----------------------------------------------------------------------------


def _serve(connection: Connection, seconds: float) -> None:
    """Decode the pictures that come in until there are no more."""
    import resource

    from oasis.features.pictures import open_picture

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    connection.send_bytes(b"ready")
    while True:
        try:
            max_pixels, content = int(connection.recv_bytes()), connection.recv_bytes()
        except EOFError:
            return
        # ends this process by itself, also where nobody is left to kill it
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime + seconds + _SPARE_SECONDS) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        pixels = b""
        answer: dict[str, Any]
        try:
            image, levels = open_picture(content, max_pixels).parts
            pixels = image.tobytes()
            answer = {"mode": image.mode, "size": image.size, "levels": levels}
        except MissingExtraError:
            answer = {"missing": True}
        except DataError as error:
            answer = {"error": str(error)}
        except MemoryError:
            answer = {"error": "the picture is refused: decoding it takes too much memory"}
        connection.send_bytes(json.dumps(answer).encode())
        connection.send_bytes(pixels)


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])), float(sys.argv[2]))
