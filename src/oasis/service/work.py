"""Who works for which request: costs, threads in lanes, the one writer.

A request has a cost: about the milliseconds that it takes on a small machine, estimated before it
runs. What a client has running may cost ``Limits.client_cost`` together; more is refused with 429.
One request is always taken, whatever it costs.

======  ============================================================================================
quick   reads that take no time: an item, its picture, counts
decode  one thread: decoding a large body holds the interpreter lock
search  searches that take one slice
batch   searches of many queries, slice by slice; half the cores, so that others get the lock
write   one thread, one change at a time
======  ============================================================================================

A lane serves its clients in turn, so that a client with many requests waits for its own, and others
wait for one slice at most. A request that is too late, or whose caller has hung up, gets no more
turns. What runs in a thread already is not interrupted.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from oasis.collection import Collection
from oasis.features.pictures import DeferredPicture
from oasis.model.threads import at_most
from oasis.service.decoding import DecodingProcesses
from oasis.service.problems import Problem, busy
from oasis.service.settings import Limits, Settings
from oasis.service.telemetry import Counters

Answer = TypeVar("Answer")
Job = tuple["Future[Any]", Callable[[], Any]]

BODY_COST = 2e-5  # a byte of a body
ROW_COST = 2.0  # a sample of an ingest
PICTURE_COST = 100.0
PROBE_SECONDS = 2.0
"""Seconds within which Milvus must answer for the service to report that it is ready."""


class Lane:
    """Threads that take the jobs of clients in turn.

    Parameters
    ----------
    name : str
    n_threads : int
    share : int
        Threads that one client may have at a time.
    begin : callable, optional
        Called in each thread first.
    """

    def __init__(
        self, name: str, n_threads: int, share: int, begin: Callable[[], None] = lambda: None
    ) -> None:
        self.waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self.running: Counter[str] = Counter()
        self._share = share
        self._begin = begin
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"oasis-{name}-{number}", daemon=True)
            for number in range(n_threads)
        ]
        self._started = 0

    def submit(self, client: str, job: Callable[[], Answer]) -> Future[Answer]:
        """Let a thread do a job when it is the client's turn."""
        future: Future[Answer] = Future()
        with self._changed:
            if self._closed:
                raise busy("the service is being stopped")
            self.waiting.setdefault(client, deque()).append((future, job))
            if self._started < len(self._threads):
                self._threads[self._started].start()
                self._started += 1
            self._changed.notify()
        return future

    def _next(self) -> tuple[str, Job] | None:
        """Return a job of the client that has waited longest since its last one, if any may run."""
        for client, jobs in self.waiting.items():
            if self.running[client] < self._share:
                job = jobs.popleft()
                del self.waiting[client]
                if jobs:
                    self.waiting[client] = jobs
                self.running[client] += 1
                return client, job
        return None

    def _work(self) -> None:
        self._begin()
        while True:
            with self._changed:
                while (found := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
            client, (future, job) = found
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(job())
                except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                    future.set_exception(error)
            del found, future, job  # an answer must not stay until the next job
            with self._changed:
                self.running[client] -= 1
                if not self.running[client]:
                    del self.running[client]
                self._changed.notify()

    def close(self) -> None:
        """Drop what waits, and wait for what runs."""
        with self._changed:
            self._closed = True
            for jobs in self.waiting.values():
                for future, _ in jobs:
                    future.cancel()
            self.waiting.clear()
            self._changed.notify_all()
        for thread in self._threads[: self._started]:
            thread.join()


class Writer:
    """The one thread that changes the collection, and a bounded queue before it.

    Learning uses all cores but one, which is left to searches. OpenMP has a limit per calling
    thread; BLAS has one for the process, which is held while a change runs.

    Parameters
    ----------
    limit : int
        Changes that may wait or run; one client may have half of them, at least two.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.stopping = False
        self._cores = max(1, (os.cpu_count() or 1) - 1)
        self._lane = Lane("writer", 1, 1, self._begin)
        self._guard = threading.Lock()
        self._by_client: Counter[str] = Counter()
        self._seconds = 1.0

    def _begin(self) -> None:
        import scipy.linalg  # noqa: F401 - learning loads it; its BLAS has to be there to be found

        ThreadpoolController().limit(limits=self._cores, user_api="openmp")

    def __len__(self) -> int:
        return self._by_client.total()

    async def run(self, change: Callable[[], Answer], client: str = "") -> Answer:
        """Make a change in its turn and return what it returns.

        It is made even if the caller has gone away meanwhile.
        """
        with self._guard:
            self._refuse_when_stopping()
            n, own = len(self), self._by_client[client]
            if n >= self.limit or own >= max(2, self.limit // 2):
                raise busy(
                    f"{n} changes are waiting already, {own} of them yours; come again",
                    n * self._seconds,
                    status=429,
                )
            self._by_client[client] += 1
        try:
            future = self._lane.submit(client, lambda: self._timed(change))
        except BaseException:
            self._done(client)
            raise
        future.add_done_callback(lambda _: self._done(client))
        return await asyncio.shield(asyncio.wrap_future(future))

    def _timed(self, change: Callable[[], Answer]) -> Answer:
        self._refuse_when_stopping()
        start = time.perf_counter()
        try:
            with at_most(self._cores):
                return change()
        finally:
            self._seconds += 0.3 * (time.perf_counter() - start - self._seconds)

    def _done(self, client: str) -> None:
        with self._guard:
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]

    def _refuse_when_stopping(self) -> None:
        if self.stopping:
            raise Problem(
                503,
                "stopping",
                "the service is being stopped; nothing was changed",
                headers={"Retry-After": "5"},
            )

    def close(self) -> None:
        """Take no more changes, and wait until the running one is done."""
        self.stopping = True
        self._lane.close()


@dataclass
class Service:
    """A collection with the threads that search it, the one that writes to it, and counters."""

    collection: Collection
    settings: Settings
    counters: Counters = field(init=False, default_factory=Counters)
    costs: dict[str, float] = field(init=False, default_factory=dict)
    """Of what each client has running."""
    checking: bool = field(init=False, default=False)
    comparing: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        limits = self.settings.limits
        n_threads = limits.search_threads or max(4, 2 * (os.cpu_count() or 1))
        self.writer = Writer(limits.ingests)
        self.quick = Lane("quick", 2, 2)
        self.decode = Lane("decode", 1, 1)
        self.search = Lane("search", n_threads, max(1, n_threads // 2))
        n_batch = max(1, (os.cpu_count() or 1) // 2)
        self.batch = Lane("batch", n_batch, n_batch)
        # one thread of its own, so that probes of an absent engine take none from searches
        self.probing = Lane("probe", 1, 1)
        self.decoding = DecodingProcesses(
            limits.picture_processes, limits.picture_seconds, limits.pixels
        )

    def untrusted(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the raw items of a request, their pictures to be decoded in other processes."""
        decode = self.decoding.within(self.settings.limits.answer_seconds)
        return [
            item
            if item["image"] is None
            else {**item, "image": DeferredPicture.of(item["image"], decode)}
            for item in items
        ]

    def stop(self) -> None:
        """Take no more changes, and give up pictures that are being decoded; does not wait."""
        self.writer.stopping = True
        self.decoding.close()

    def close(self) -> None:
        """Wait for the running change and the running searches; pictures are given up."""
        self.decoding.close()
        for each in (self.writer, self.search, self.batch, self.decode, self.quick, self.probing):
            each.close()


class Call:
    """One request to a service: who asks, what it costs, and until when it may take.

    Parameters
    ----------
    service : Service
    client : str
    gone : coroutine function
        Returns when the caller has hung up; called after the body has arrived.
    """

    def __init__(self, service: Service, client: str, gone: Callable[[], Awaitable[None]]) -> None:
        self.service = service
        self.client = client
        self.cost = 0.0
        self._gone = gone
        self._deadline: float | None = None

    @property
    def limits(self) -> Limits:
        return self.service.settings.limits

    @property
    def collection(self) -> Collection:
        return self.service.collection

    def charge(self, cost: float) -> None:
        """Add to what this request costs, or refuse it beside what its client has running."""
        costs = self.service.costs
        others = costs.get(self.client, 0.0) - self.cost
        if others > 1e-6 and others + self.cost + cost > self.limits.client_cost:
            raise busy(
                "your other requests are as much as one client may have running; come again, or "
                "ask for less at once",
                status=429,
            )
        self.cost += cost
        costs[self.client] = others + self.cost

    def end(self) -> None:
        """Give back what this request cost."""
        costs = self.service.costs
        left = costs.pop(self.client, 0.0) - self.cost
        if left > 1e-6:
            costs[self.client] = left

    async def quick(self, job: Callable[[], Answer]) -> Answer:
        """Do a read that takes no time in a thread."""
        return await self._turn(self.service.quick, job)

    async def decode(self, job: Callable[[], Answer]) -> Answer:
        """Decode a large body in a thread."""
        return await self._turn(self.service.decode, job)

    async def long(self, job: Callable[[], Answer]) -> Answer:
        """Do a search, or what takes as long, in a thread."""
        return await self._turn(self.service.search, job)

    async def slice(self, job: Callable[[], Answer]) -> Answer:
        """Do a slice of a search of many queries in a thread."""
        return await self._turn(self.service.batch, job)

    async def probe(self) -> None:
        """Check that codes can be searched, also if they are in an external engine."""
        collection = self.collection
        if not collection.codes_are_here:
            late = busy("the engine that searches the codes does not answer in time")
            await self._turn(
                self.service.probing, lambda: len(collection.index), PROBE_SECONDS, late
            )

    async def change(self, change: Callable[[], Answer]) -> Answer:
        """Change the collection, in its turn."""
        return await self.service.writer.run(change, self.client)

    async def _turn(
        self,
        lane: Lane,
        job: Callable[[], Answer],
        seconds: float | None = None,
        late: Problem | None = None,
    ) -> Answer:
        now = time.monotonic()
        most = self.limits.answer_seconds
        if self._deadline is None:
            self._deadline = now + most
        future = asyncio.wrap_future(lane.submit(self.client, job))
        gone = asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait(
                (future, gone),
                timeout=self._deadline - now if seconds is None else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if future.done():
                return future.result()
            if gone.done():
                raise ClientDisconnect
            raise late or busy(f"no answer within {most:g} seconds; ask for less, or come again")
        finally:
            future.cancel()  # if it still waits, it is never begun
            gone.cancel()


async def call_of(request: Request) -> Call:
    """Return the call that a request is."""
    # async, because the framework runs other functions in a thread
    call: Call = request.state.call
    return call


Asked = Annotated[Call, Depends(call_of)]
