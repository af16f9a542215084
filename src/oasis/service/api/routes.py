"""Reads besides the search: items, pictures, classes, statistics, health."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal
from zlib import crc32

from fastapi import APIRouter, Query, Request, Response

from oasis.service.api import described, wire
from oasis.service.api.operations import (
    PROBLEMS,
    READ,
    WRITE,
    IdKind,
    ItemId,
    gives,
    item_id,
    read_ids,
    takes,
)
from oasis.service.api.pictures import media_type, original
from oasis.service.api.served import Served, Service
from oasis.service.http.counters import MEDIA_TYPE as PROMETHEUS
from oasis.service.http.problems import Problem

router = APIRouter()

# -- looking -----------------------------------------------------------------------------------

_None = Annotated[
    Literal["problem", "empty"],
    Query(description="An item without a picture is answered by a 404, or by a 204."),
]


@router.get("/v1/item", dependencies=READ, responses=gives(described.StoredAnswer))
async def get(service: Served, id: ItemId, kind: IdKind = "text") -> Response:  # noqa: A002
    """Return an item. Its id is in the query string, because it may contain any character."""
    key = item_id(id, kind)
    return wire.answer(wire.stored(await service.read(lambda: service.collection.get(key))))


@router.get("/v1/latest", dependencies=READ, responses=gives(described.LatestAnswer))
async def latest(
    service: Served,
    k: Annotated[int, Query(ge=1, le=100, description="How many items.")] = 24,
) -> Response:
    """Return the latest items, newest first."""
    limit = service.settings.limits.answer_bytes

    def found() -> bytes:
        items = [wire.stored(each) for each in service.collection.latest(k, limit)]
        for each in items:
            each["text"] = each["text"] and each["text"][: wire.MAX_SNIPPET]
        return wire.encoded({"items": items})

    return wire.answer(await service.read(found))


_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {kind: {} for kind in ("image/png", "image/jpeg", "image/gif", "image/webp")},
        "description": "A picture.",
    },
    204: {"description": "There is none, and none=empty."},
    304: {"description": "It is the one that you have."},
    **PROBLEMS,
}


@router.get("/v1/thumbnail", dependencies=READ, responses=_PICTURE)
async def thumbnail_of(
    request: Request,
    service: Served,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
    none: _None = "problem",
) -> Response:
    """Return the picture that came with an item."""
    key = item_id(id, kind)
    picture = await service.read(lambda: service.collection.thumbnail(key))
    return _sent(request, id, picture, none)


@router.get("/v1/preview", dependencies=READ, responses=_PICTURE)
async def preview_of(
    request: Request,
    service: Served,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
    none: _None = "problem",
) -> Response:
    """Return the largest picture of an item: the original, its preview, or its thumbnail.

    Originals come from the folder of pictures, if the service was started with one.
    """
    key = item_id(id, kind)
    return _sent(request, id, await service.read(lambda: _largest(service, key)), none)


def _largest(service: Service, key: str | int) -> bytes | None:
    folder, limits = service.settings.pictures, service.settings.limits
    if folder is not None:
        payload = service.collection.get(key).payload
        found = original(folder, key, payload, limits.original_bytes)
        if found is not None:
            return found
    return service.collection.preview(key)


def _sent(request: Request, id: str, picture: bytes | None, none: str) -> Response:  # noqa: A002
    if picture is None and none == "empty":
        return Response(status_code=204)
    if picture is None:
        raise Problem(404, "no-picture", f"the item {id[:100]!r} has no picture")
    tag = f'"{crc32(picture):08x}"'
    headers = {"Cache-Control": "private, no-cache", "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type=media_type(picture), headers=headers)


@router.post(
    "/v1/known",
    dependencies=READ,
    responses=gives(described.IdsAnswer),
    openapi_extra=takes(wire.IdsRequest),
)
async def known_ids(request: Request, service: Served) -> Response:
    """Return those of the given ids that exist."""
    ids = await read_ids(request, service)

    def known() -> bytes:
        found = service.collection.known(ids)
        return wire.encoded({"ids": [each for each in dict.fromkeys(ids) if each in found]})

    return wire.answer(await service.read(known))


@router.get("/v1/classes", dependencies=READ, responses=gives(described.ClassesAnswer))
async def classes(service: Served) -> Response:
    """Return the classes in order of arrival."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"classes": [asdict(e) for e in service.collection.classes()]})
        )
    )


@router.get("/v1/fields", dependencies=READ, responses=gives(described.FieldsAnswer))
async def fields(service: Served) -> Response:
    """Return the fields of payloads with examples of their values, from a sample of the items."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"fields": [asdict(e) for e in service.collection.fields()]})
        )
    )


@router.get("/v1/rounds", dependencies=READ, responses=gives(described.RoundsAnswer))
async def rounds(service: Served) -> Response:
    """Return every chunk ingested, in order, with its quality before it was learned."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"rounds": [asdict(e) for e in service.collection.rounds()]})
        )
    )


@router.get("/v1/stats", dependencies=READ, responses=gives(described.StatsAnswer))
async def stats(service: Served) -> Response:
    """Return the collection in numbers."""
    found = await service.read(service.collection.stats)
    return wire.answer(wire.stats(found, readonly=service.collection.readonly))


@router.get("/v1/norms", dependencies=READ, responses=gives(described.NormsAnswer))
async def norms(service: Served) -> Response:
    """Return the Frobenius norms of what the model has learned, by name."""
    return wire.answer({"norms": await service.read(service.collection.norms)})


@router.get("/v1/limits", dependencies=READ, responses=gives(described.LimitsAnswer))
async def limits(service: Served) -> Response:
    """Return what one request may take."""
    found = asdict(service.settings.limits)
    return wire.answer({name: found[name] for name in described.LimitsAnswer.model_fields})


@router.post("/v1/check", dependencies=WRITE, responses=gives(described.FindingsAnswer))
async def check(service: Served) -> Response:
    """Read everything and return a list of what is wrong; one check at a time.

    Changes wait meanwhile.
    """
    return wire.answer({"findings": await service.check()})


# -- watching ----------------------------------------------------------------------------------


@router.get("/health/live", responses={200: {"model": described.HealthAnswer}, 421: PROBLEMS[421]})
async def live() -> Response:
    """Say that the process answers."""
    return wire.answer({"status": "live"})


@router.get("/health/ready", responses=gives(described.HealthAnswer))
async def ready(service: Served) -> Response:
    """Say whether searches and changes are accepted, and Milvus answers if the codes are there."""
    if service.queue.stopping:
        raise Problem(503, "stopping", "the service is being stopped")
    await service.read(lambda: len(service.collection))
    await service.probe()
    return wire.answer({"status": "ready"})


@router.get(
    "/metrics",
    dependencies=READ,
    responses={200: {"content": {"text/plain": {}}}, **PROBLEMS},
)
async def metrics(service: Served) -> Response:
    """Return counters, durations and sizes in the text format of Prometheus."""
    found = await service.read(service.collection.stats)
    gauges = (
        ("oasis_items", "Items in the collection.", found.n_items),
        ("oasis_classes", "Classes so far.", found.n_classes),
        ("oasis_rounds", "Chunks ingested so far.", found.n_rounds),
        ("oasis_disk_bytes", "Bytes of the collection's files.", sum(found.bytes.values())),
        ("oasis_writer_queue", "Changes waiting or running.", len(service.queue)),
        ("process_resident_memory_bytes", "Memory that the process holds.", _resident()),
    )
    return Response(service.counters.text(gauges), media_type=PROMETHEUS)


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0
