"""What the requests of one application share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from oasis.collection import Collection
from oasis.features.pictures import DeferredPicture
from oasis.service.api.writing import WriterQueue
from oasis.service.decoding import DecodingBudget, DecodingProcesses
from oasis.service.http.counters import Counters
from oasis.service.http.problems import Problem, busy
from oasis.service.settings import Settings

Answer = TypeVar("Answer")

PROBE_SECONDS = 2.0
"""Seconds within which Milvus must answer for the service to report that it is ready."""


def _threads(settings: Settings) -> int:
    return settings.limits.search_threads or max(4, 2 * (os.cpu_count() or 1))


@dataclass
class Service:
    """A collection with the threads that search it, the one that writes to it, and counters."""

    collection: Collection
    settings: Settings
    queue: WriterQueue = field(init=False)
    counters: Counters = field(init=False, default_factory=Counters)
    _decoding: DecodingProcesses = field(init=False)
    _checking: bool = field(init=False, default=False)
    _pool: ThreadPoolExecutor = field(init=False)
    _probing: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self.queue = WriterQueue(self.settings.limits.ingests)
        self._pool = ThreadPoolExecutor(_threads(self.settings), thread_name_prefix="oasis-search")
        limits = self.settings.limits
        self._decoding = DecodingProcesses(
            limits.picture_processes, limits.picture_seconds, limits.pixels
        )
        # one thread of its own, so that probes of an absent engine take none from searches
        self._probing = ThreadPoolExecutor(1, thread_name_prefix="oasis-probe")

    async def read(self, ask: Callable[[], Answer]) -> Answer:
        """Call a method of the collection in a thread, for at most ``answer_seconds``."""
        seconds = self.settings.limits.answer_seconds
        problem = busy(f"no answer within {seconds:g} seconds; ask for less, or come again")
        return await _within(seconds, self._pool, ask, problem)

    async def probe(self) -> None:
        """Check that codes can be searched, also if they are in an external engine."""
        if not self.collection.codes_are_here:
            problem = busy("the engine that searches the codes does not answer in time")
            await _within(PROBE_SECONDS, self._probing, lambda: len(self.collection.index), problem)

    async def change(self, make: Callable[[], Answer]) -> Answer:
        """Change the collection, after the changes that wait."""
        return await self.queue.run(make)

    def untrusted(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the raw items of a request, their pictures to be decoded in other processes."""
        budget = DecodingBudget(self._decoding, self.settings.limits.answer_seconds)
        return [
            item
            if item["image"] is None
            else {**item, "image": DeferredPicture.of(item["image"], budget.decode)}
            for item in items
        ]

    async def check(self) -> list[str]:
        """Check the collection, in turn with changes; a second check at once is refused."""
        if self._checking:
            raise busy("a check is running already; at most one may", 5.0, status=429)
        self._checking = True
        try:
            return await self.change(self.collection.check)
        finally:
            self._checking = False

    def stop(self) -> None:
        """Take no more changes, and give up pictures that are being decoded; does not wait."""
        self.queue.stop()
        self._decoding.close()

    def close(self) -> None:
        """Wait for the running change and the running searches; pictures are given up."""
        self._decoding.close()
        self.queue.close()
        for pool in (self._pool, self._probing):
            pool.shutdown(wait=True, cancel_futures=True)


async def _within(
    seconds: float, pool: ThreadPoolExecutor, ask: Callable[[], Answer], otherwise: Problem
) -> Answer:
    """Return what a thread of the pool answers, or raise the problem when the time is up."""
    future = asyncio.get_running_loop().run_in_executor(pool, ask)
    done, _ = await asyncio.wait([future], timeout=seconds)
    if not done:
        future.cancel()
        raise otherwise
    return future.result()


async def service_of(request: Request) -> Service:
    """Return the service that a request is for."""
    # async, because the framework runs other functions in a thread
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
