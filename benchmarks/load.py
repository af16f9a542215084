"""The service under load: searches while it learns, the same search in-process, and its limits.

A server process has 100,000 items at 64 bits. Fifty clients send two searches a second each, on
connections that stay open, while one more client ingests a chunk every five seconds; the time of a
search runs from the moment it was due, so that waiting counts. Before it, the same search called
in-process. Then, without learning, the rate is raised until the 99th percentile passes 100 ms; and
chunks are ingested one after the other, over HTTP and in-process, in turns.

Clients and server share the cores, so what clients cost would be measured too, and is kept low: all
of them are one loop over bare sockets in a process of their own, their requests are made before the
start, and an answer is read for its status and length only. What that costs a search is a row of
the table. The client that ingests is a `oasis.client.Client`.

Run it with ``python -m benchmarks load`` (60 seconds of load, about three minutes in all).
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import safetensors.numpy
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks.collection import fill
from benchmarks.timing import Row, row
from oasis.client import Client
from oasis.collection import Collection

N_ITEMS = 100_000
N_CLIENTS = 50
RATE = 2.0
SECONDS = 60.0
CHUNK = 2_000
PAUSE = 5.0
P99_MS = 100.0
EXTRA_MS = 5.0
INGEST_RATIO = 1.2
STEPS = (100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1500)
_REQUESTS = 100
_WIDTH = 64
_SEED = 20262


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve a collection in a process of its own; yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "oasis", "serve", str(path), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "COLUMNS": "400"},
    )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        found = re.search(r"http://\S+:\d+", line)
        if found is None:
            raise RuntimeError(f"the service did not start: {line!r}")
        yield found[0]
    finally:
        process.terminate()
        process.communicate()


# -- searching clients, in a process of their own ------------------------------------------------


class Answered(NamedTuple):
    """What clients saw: delays in ms, errors among the answers; and their own processor time."""

    delays: npt.NDArray[np.float64]
    errors: int
    cpu: float


def request_of(rng: np.random.Generator) -> bytes:
    """Return one search as it goes over the wire: a query of float32, the best ten."""
    query = {"image": rng.standard_normal((1, _WIDTH), dtype=np.float32)}
    body = safetensors.numpy.save(query, {"request": '{"k": 10}'})
    head = (
        "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-safetensors\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Caller:
    """One client: its connection, and what has arrived of the answer to its last search."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._answer = b""
        self._length = 0

    def send(self, request: bytes) -> None:
        """Send a search; the answer to the one before has arrived."""
        self._answer, self._length = b"", 0
        self.socket.sendall(request)

    def receive(self) -> int:
        """Take what has arrived; return the status once that is the whole answer, else 0."""
        arrived = self.socket.recv(1 << 16)
        if not arrived:
            raise ConnectionError("the service has closed a connection")
        self._answer += arrived
        if not self._length:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return 0
            found = re.search(rb"content-length: (\d+)", self._answer[:end], re.IGNORECASE)
            self._length = end + 4 + (int(found[1]) if found else 0)
        return int(self._answer[9:12]) if len(self._answer) >= self._length else 0


def call(port: int, n: int, rate: float, seconds: float) -> Answered:
    """Send searches by n clients at a steady rate together.

    A client whose answer is late sends its next search at once, as one that was due long ago.
    """
    rng = np.random.default_rng(_SEED)
    requests = [request_of(rng) for _ in range(_REQUESTS)]
    callers = [Caller(port) for _ in range(n)]
    by_socket = {each.socket: each for each in callers}
    pause, start, busy = n / rate, time.monotonic() + 0.1, time.process_time()
    end = start + seconds
    idle = [(start + pause * rng.random(), number) for number in range(n)]
    number_of = {each.socket: number for number, each in enumerate(callers)}
    heapq.heapify(idle)
    waiting: set[socket.socket] = set()
    delays: list[float] = []
    errors = 0
    while idle or waiting:
        while idle and idle[0][0] <= time.monotonic():
            due, number = heapq.heappop(idle)
            callers[number].due = due
            callers[number].send(requests[len(delays) % _REQUESTS])
            waiting.add(callers[number].socket)
        # select, as epoll and asyncio on it round a timeout up to the next millisecond
        limit = max(0.0, idle[0][0] - time.monotonic()) if idle else None
        for arrived in select.select(list(waiting), (), (), limit)[0]:
            caller = by_socket[arrived]
            if not (status := caller.receive()):
                continue
            delays.append(1e3 * (time.monotonic() - caller.due))
            errors += status != 200
            waiting.remove(arrived)
            if (due := caller.due + pause) < end:
                heapq.heappush(idle, (due, number_of[arrived]))
    busy = time.process_time() - busy
    for each in callers:
        each.socket.close()
    return Answered(np.array(delays), errors, busy)


def searches(url: str, n: int, rate: float, seconds: float) -> Answered:
    """Return what n clients together saw; they are a process of their own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(call, (int(url.rsplit(":", 1)[1]), n, rate, seconds))


# -- chunks --------------------------------------------------------------------------------------


def chunk(number: int, n: int = CHUNK) -> tuple[Any, list[list[str]], list[str]]:
    """Return features, labels and ids of a chunk."""
    rng = np.random.default_rng([_SEED, 7, number])
    X = {"image": rng.standard_normal((n, _WIDTH), dtype=np.float32)}
    y = [[f"class {kind}"] for kind in rng.integers(0, 79, n)]
    return X, y, [f"chunk {number} row {row}" for row in range(n)]


class Learner(threading.Thread):
    """Ingests a chunk every few seconds until it is told to end."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.ended = threading.Event()
        self.spans: list[float] = []

    def run(self) -> None:
        with Client(self.url) as c:
            while not self.ended.is_set():
                began = time.monotonic()
                c.ingest(*chunk(len(self.spans)))
                self.spans.append(time.monotonic() - began)
                self.ended.wait(max(0.0, PAUSE - self.spans[-1]))


# -- measuring -----------------------------------------------------------------------------------


def in_process(path: Path, n: int) -> npt.NDArray[np.float64]:
    """Return the times of the same search called directly, in ms."""
    rng = np.random.default_rng(_SEED)
    spans = []
    with Collection.open(path, readonly=True) as c:
        for _ in range(n):
            query = {"image": rng.standard_normal((1, _WIDTH), dtype=np.float32)}
            began = time.perf_counter()
            c.search(query, 10)
            spans.append(1e3 * (time.perf_counter() - began))
    return np.array(spans)


def measure_searches(path: Path, seconds: float) -> Iterator[Row]:
    """Yield delays under load, beside the library's own."""
    own = float(np.median(in_process(path, 300)))
    with served(path) as url:
        searches(url, 4, 20, 2.0)  # what is loaded once
        learner = Learner(url)
        learner.start()
        busy = searches(url, N_CLIENTS, N_CLIENTS * RATE, seconds)
        learner.ended.set()
        learner.join()
        quiet = searches(url, N_CLIENTS, N_CLIENTS * RATE, min(seconds, 15))
    n, chunks, longest = len(busy.delays), len(learner.spans), 1e3 * max(learner.spans)
    clients = f"{N_CLIENTS} clients, {N_CLIENTS * RATE:g} a second"
    yield row("errors while learning", busy.errors, busy.errors / n, f"of {n:,}, bar 0", "answers")
    yield row("search in-process, p50", own, None, "", "ms")
    for name, found in (("while learning", busy), ("without learning", quiet)):
        p50, p99 = np.percentile(found.delays, (50, 99)).tolist()
        bar = f"bar {own + EXTRA_MS:.1f} ms, " if found is busy else ""
        note = f"of in-process, {bar}{clients}"
        yield row(f"search over HTTP {name}, p50", p50, p50 / own, note, "ms")
        yield row(f"search over HTTP {name}, p99", p99, p99 / own, "of in-process", "ms")
    most = float(busy.delays.max())
    note = f"of the longest of {chunks} chunks of {CHUNK:,}, {longest:.0f} ms; bar 1"
    yield row("search over HTTP while learning, longest", most, most / longest, note, "ms")
    cost = 1e3 * busy.cpu / n
    yield row("processor time of the clients, a search", cost, None, "", "ms")


def measure_rate(path: Path, seconds: float) -> Iterator[Row]:
    """Yield the highest rate tried with p99 under the bar."""
    best, told = 0, []
    with served(path) as url:
        searches(url, 4, 20, 2.0)
        for rate in STEPS:
            found = searches(url, N_CLIENTS, rate, seconds)
            p99 = float(np.percentile(found.delays, 99))
            told.append(f"{rate}: {p99:.0f} ms")
            if p99 > P99_MS or found.errors:
                break
            best = rate
    name = f"highest rate with p99 under {P99_MS:.0f} ms"
    yield row(name, best, None, f"p99 at {', '.join(told)}", "a second")


def measure_ingest(path: Path, folder: Path, n: int) -> Iterator[Row]:
    """Yield the time of a chunk over HTTP beside the library's own, on copies, in turns."""
    twins = [Path(shutil.copytree(path, folder / name)) for name in ("here", "there")]
    spans: list[list[float]] = [[], []]
    n_threads = max(1, (os.cpu_count() or 1) - 1)  # as many as the service lets learning use
    with (
        threadpool_limits(n_threads),
        served(twins[1]) as url,
        Client(url) as there,
        Collection.open(twins[0]) as here,
    ):
        for number in range(n + 1):
            data = chunk(number)
            ways: tuple[Callable[..., None], ...] = (here.ingest, there.ingest)
            for at, ingest in enumerate(ways):
                began = time.perf_counter()
                ingest(*data)
                spans[at].append(time.perf_counter() - began)
    own, over = (1e3 * float(np.median(each[1:])) for each in spans)
    ratio = float(np.median(np.divide(spans[1][1:], spans[0][1:])))
    note = f"of in-process, {own:.0f} ms; bar {INGEST_RATIO}"
    yield row(f"ingest of {CHUNK:,} over HTTP", over, ratio, note, "ms")


def run(seconds: float = SECONDS, n_items: int = N_ITEMS) -> list[Row]:
    """Return one row for each measurement."""
    # not in memory: what is written while it is searched goes to the disk
    folder = Path(tempfile.mkdtemp(prefix=".benchmark-", dir=Path.cwd()))
    path = folder / "c"
    try:
        fill(path, n_items)
        return [
            *measure_ingest(path, folder, 10),
            *measure_searches(path, seconds),
            *measure_rate(path, max(3.0, seconds / 10)),
        ]
    finally:
        shutil.rmtree(folder)
