"""Untrusted pictures are decoded in processes of their own, which are killed at a limit.

A file of half a megabyte can keep a decoder busy for minutes, or make it take gigabytes, and a
thread that decodes cannot be stopped. So the service hands the bytes of a picture to one of a few
processes: ``python -m oasis.service.decoding``. Its memory and its processor time are limited, and
it is killed if it does not answer in time; the picture is refused, and the next one gets a new
process. The process returns the pixels, so that features are the same as with `open_picture` here.
"""

from __future__ import annotations

import json
import os
import queue
import select
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Any

from oasis.errors import DataError, MissingExtraError

_SIZES = struct.Struct("<QQ")
_HEAD = struct.Struct("<I")
_BLOCK = 1 << 20
_SPARE_SECONDS = 1.0
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
        except _ProcessDied:
            raise DataError(
                f"the picture is refused: decoding it took more than {self.seconds:g} seconds or "
                f"{MEMORY_BYTES >> 20} MB"
            ) from None
        finally:
            alive = process is not None and process.alive
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


class DecodingBudget:
    """The time that the pictures of one request may take together.

    Parameters
    ----------
    processes : DecodingProcesses
    seconds : float
        From the first picture on.
    """

    def __init__(self, processes: DecodingProcesses, seconds: float) -> None:
        self._processes = processes
        self._seconds = seconds
        self._deadline: float | None = None

    def decode(self, content: bytes, max_pixels: int) -> Any:
        """Return the decoded picture, or raise `DataError`."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now >= self._deadline:
            raise DataError(
                f"the picture is refused: those before it took all of the {self._seconds:g} "
                "seconds that a request has for its pictures"
            )
        return self._processes.decode(content, max_pixels, self._deadline - now)


class _ProcessDied(Exception):
    """A decoding process was killed, or ended."""


class _Process:
    """One decoding process; one caller at a time."""

    def __init__(self, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oasis.service.decoding", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._guard = threading.Lock()
        self._ended = False
        # the time to start does not count for the first picture
        try:
            self._read(1, time.monotonic() + 60)
        except BaseException:  # any exception: nothing else would end the process
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        return not self._ended

    def decode(self, content: bytes, max_pixels: int, seconds: float) -> Any:
        from PIL import Image

        from oasis.features.pictures import Picture

        try:
            head, pixels = self._answer(content, max_pixels, time.monotonic() + seconds)
        except (_ProcessDied, OSError, ValueError):
            self.kill()
            raise _ProcessDied from None
        except BaseException:  # the rest of its answer would be taken for the next one
            self.kill()
            raise
        if "error" in head:
            raise DataError(head["error"])
        if "missing" in head:
            raise MissingExtraError("Pillow", extra="images", what="reading images")
        image = Image.frombytes(head["mode"], tuple(head["size"]), pixels)
        return Picture(image, None if head["levels"] is None else tuple(head["levels"]))

    def _answer(self, content: bytes, max_pixels: int, deadline: float) -> tuple[Any, bytes]:
        """Return what the process says of a picture, and its pixels."""
        stdin: Any = self._process.stdin
        stdin.write(_SIZES.pack(len(content), max_pixels))
        stdin.write(content)
        stdin.flush()
        (size,) = _HEAD.unpack(self._read(_HEAD.size, deadline))
        head = json.loads(self._read(size, deadline))
        return head, self._read(head["bytes"], deadline)

    def _read(self, n: int, deadline: float) -> bytes:
        stdout: Any = self._process.stdout
        polled = select.poll()  # select takes descriptors below 1024 only
        polled.register(stdout, select.POLLIN)
        found = bytearray()
        while len(found) < n:
            left = deadline - time.monotonic()
            ready = polled.poll(1000 * left) if left > 0 else []
            part = os.read(stdout.fileno(), min(_BLOCK, n - len(found))) if ready else b""
            if not part:  # too late, or it has ended
                raise _ProcessDied
            found += part
        return bytes(found)

    def kill(self) -> None:
        with self._guard:
            if self._ended:
                return
            self._ended = True
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:  # what was not sent cannot be flushed to a process that is gone
                        continue


# -- in the process ----------------------------------------------------------------------------


def _serve(stdin: IO[bytes], stdout: IO[bytes], seconds: float) -> None:
    """Decode the pictures that come in until there are no more."""
    import resource

    from oasis.features.pictures import open_picture

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    stdout.write(b"+")
    stdout.flush()
    while head := stdin.read(_SIZES.size):
        length, max_pixels = _SIZES.unpack(head)
        content = stdin.read(length)
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
        said = json.dumps({**answer, "bytes": len(pixels)}).encode()
        stdout.write(_HEAD.pack(len(said)) + said)
        stdout.write(pixels)
        stdout.flush()


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]))
