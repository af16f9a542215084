"""The API but for the search: what can be asked, and what is answered."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal
from zlib import crc32

from fastapi import APIRouter, Query, Request, Response

from oasis.errors import InputError
from oasis.service.api import wire
from oasis.service.api.bodies import (
    FORM,
    TENSORS,
    Body,
    matrices,
    raw_fields,
    read_body,
    word_vectors,
)
from oasis.service.api.operations import (
    PROBLEMS,
    READ,
    WRITE,
    check_batch,
    check_raw,
    gives,
    n_rows,
    takes,
)
from oasis.service.api.pictures import media_type, original
from oasis.service.api.served import Served, Service
from oasis.service.http.counters import MEDIA_TYPE as PROMETHEUS
from oasis.service.http.problems import Problem, at_pointer

router = APIRouter()

# -- changing ----------------------------------------------------------------------------------


@router.post(
    "/v1/ingest",
    dependencies=WRITE,
    responses=gives(wire.IngestAnswer),
    openapi_extra=takes(wire.IngestRequest, FORM, TENSORS),
)
async def ingest(request: Request, service: Served) -> Response:
    """Learn from a chunk and store its items: all of it, or nothing with an error.

    Raw items that cannot be used are left out and listed, unless ``strict`` is set. When the answer
    arrives, the chunk is on disk.
    """
    body = await read_body(request, service, wire.IngestRequest, service.settings.limits.json_bytes)
    if body.request.items is None:
        X = await service.read(lambda: matrices(body))
        check_batch(service, n_rows(X))
        return wire.answer(await service.change(lambda: _ingest_vectors(service, body, X)))
    check_raw(service, len(body.request.items))
    items = await service.read(lambda: raw_fields(body))
    for row, item in enumerate(items):
        if item["text"] is None and item["image"] is None and not item["vectors"]:
            raise at_pointer(
                f"/items/{row}", f"item {row} has neither a text, a picture nor vectors"
            )
    return wire.answer(await service.change(lambda: _ingest_items(service, body, items)))


def _ingest_vectors(
    service: Service, body: Body[wire.IngestRequest], X: dict[str, Any]
) -> dict[str, Any]:
    asked, start = body.request, time.perf_counter()
    labels = asked.labels
    if labels is None:
        raise InputError("the labels are missing; write null for a sample without")
    service.collection.ingest(
        X, labels, asked.ids, asked.payload, asked.thumbnails, texts=asked.texts
    )
    return _ingested(service, n_rows(X), [], start)


def _ingest_items(
    service: Service,
    body: Body[wire.IngestRequest],
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    start = time.perf_counter()
    given = body.request.thumbnails
    rejected = service.collection.ingest_items(
        service.untrusted(items),
        thumbnails=True if given is None else given,
        strict=body.request.strict,
    )
    return _ingested(service, len(items) - len(rejected), rejected, start)


def _ingested(service: Service, n: int, rejected: list[Any], start: float) -> dict[str, Any]:
    service.counters.count("oasis_ingested_items_total", "Items ingested.", n=n)
    service.counters.observe(
        "oasis_ingest_seconds", "Time to learn and store a chunk.", time.perf_counter() - start
    )
    return {
        "ingested": n,
        "rejected": [wire.rejected(each) for each in rejected],
        "n_items": len(service.collection),
    }


async def _ids(request: Request, service: Service) -> list[str | int]:
    limits = service.settings.limits
    body = await read_body(request, service, wire.IdsRequest, limits.ids_bytes)
    check_batch(service, len(body.request.ids))
    return body.request.ids


@router.post(
    "/v1/delete",
    dependencies=WRITE,
    responses=gives(wire.CountAnswer),
    openapi_extra=takes(wire.IdsRequest),
)
async def delete(request: Request, service: Served) -> Response:
    """Delete items for ever; every id must be there."""
    ids = await _ids(request, service)
    return wire.answer({"n": await service.change(lambda: service.collection.delete(ids))})


@router.post("/v1/checkpoint", dependencies=WRITE, responses=gives(wire.CountAnswer))
async def checkpoint(service: Served) -> Response:
    """Write the whole model and the index, and erase the journal with the features in it."""
    await service.change(service.collection.checkpoint)
    return wire.answer({"n": len(service.collection)})


@router.post(
    "/v1/words",
    dependencies=WRITE,
    responses=gives(wire.CountAnswer),
    openapi_extra=takes(wire.WordsRequest),
)
async def add_words(request: Request, service: Served) -> Response:
    """Add vectors of class names to a collection whose label space was made from a mapping."""
    body = await read_body(request, service, wire.WordsRequest, service.settings.limits.json_bytes)
    vectors = await service.read(lambda: word_vectors(body.request.vectors))
    await service.change(lambda: service.collection.add_words(vectors))
    return wire.answer({"n": len(vectors)})


# -- looking -----------------------------------------------------------------------------------

_Id = Annotated[str, Query(min_length=1, max_length=1024, description="The id of an item.")]
_Kind = Annotated[
    Literal["text", "number"], Query(description="Whether the id is a text or a whole number.")
]

_None = Annotated[
    Literal["problem", "empty"],
    Query(description="An item without a picture is answered by a 404, or by a 204."),
]


def _id(text: str, kind: str) -> str | int:
    if kind == "text":
        return text
    try:
        return int(text)
    except ValueError:
        raise at_pointer("/id", f"the id {text[:100]!r} is no whole number") from None


@router.get("/v1/item", dependencies=READ, responses=gives(wire.StoredAnswer))
async def get(service: Served, id: _Id, kind: _Kind = "text") -> Response:  # noqa: A002
    """Return an item as it is stored. The id stands in the query, as it may hold anything."""
    key = _id(id, kind)
    return wire.answer(wire.stored(await service.read(lambda: service.collection.get(key))))


@router.get("/v1/latest", dependencies=READ, responses=gives(wire.LatestAnswer))
async def latest(
    service: Served,
    k: Annotated[int, Query(ge=1, le=100, description="How many items.")] = 24,
) -> Response:
    """Return the items that came last, the newest first."""
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
    id: _Id,  # noqa: A002
    kind: _Kind = "text",
    none: _None = "problem",
) -> Response:
    """Return the picture that came with an item."""
    key = _id(id, kind)
    picture = await service.read(lambda: service.collection.thumbnail(key))
    return _sent(request, id, picture, none)


@router.get("/v1/preview", dependencies=READ, responses=_PICTURE)
async def preview_of(
    request: Request,
    service: Served,
    id: _Id,  # noqa: A002
    kind: _Kind = "text",
    none: _None = "problem",
) -> Response:
    """Return the largest picture of an item: the original, its preview, or its thumbnail.

    Originals are sent from the folder that the service was told about, if it was.
    """
    key = _id(id, kind)
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
    responses=gives(wire.IdsAnswer),
    openapi_extra=takes(wire.IdsRequest),
)
async def known_ids(request: Request, service: Served) -> Response:
    """Return those of the ids that items have."""
    ids = await _ids(request, service)

    def known() -> bytes:
        found = service.collection.known(ids)
        return wire.encoded({"ids": [each for each in dict.fromkeys(ids) if each in found]})

    return wire.answer(await service.read(known))


@router.get("/v1/classes", dependencies=READ, responses=gives(wire.ClassesAnswer))
async def classes(service: Served) -> Response:
    """Return the classes in order of arrival."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"classes": [asdict(e) for e in service.collection.classes()]})
        )
    )


@router.get("/v1/fields", dependencies=READ, responses=gives(wire.FieldsAnswer))
async def fields(service: Served) -> Response:
    """Return the fields of payloads with examples of their values, from a sample of the items."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"fields": [asdict(e) for e in service.collection.fields()]})
        )
    )


@router.get("/v1/field-names", dependencies=READ, responses=gives(wire.NamesAnswer))
async def field_names(service: Served) -> Response:
    """Return the names of all fields that payloads have at their top level; reads all payloads."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"names": sorted(service.collection.field_names())})
        )
    )


@router.get("/v1/rounds", dependencies=READ, responses=gives(wire.RoundsAnswer))
async def rounds(service: Served) -> Response:
    """Return every chunk ingested, in order, with its quality before it was learned."""
    return wire.answer(
        await service.read(
            lambda: wire.encoded({"rounds": [asdict(e) for e in service.collection.rounds()]})
        )
    )


@router.get("/v1/stats", dependencies=READ, responses=gives(wire.StatsAnswer))
async def stats(service: Served) -> Response:
    """Return the collection in numbers."""
    found = await service.read(service.collection.stats)
    return wire.answer(wire.stats(found, readonly=service.collection.readonly))


@router.get("/v1/norms", dependencies=READ, responses=gives(wire.NormsAnswer))
async def norms(service: Served) -> Response:
    """Return the Frobenius norms of what the model has learned, by name."""
    return wire.answer({"norms": await service.read(service.collection.norms)})


@router.get("/v1/limits", dependencies=READ, responses=gives(wire.LimitsAnswer))
async def limits(service: Served) -> Response:
    """Return what one request may take."""
    found = asdict(service.settings.limits)
    return wire.answer({name: found[name] for name in wire.LimitsAnswer.model_fields})


@router.post("/v1/check", dependencies=WRITE, responses=gives(wire.FindingsAnswer))
async def check(service: Served) -> Response:
    """Read everything and return what is wrong with it, in words; one check at a time.

    Changes wait meanwhile.
    """
    return wire.answer({"findings": await service.check()})


# -- watching ----------------------------------------------------------------------------------


@router.get("/health/live", responses={200: {"model": wire.HealthAnswer}, 421: PROBLEMS[421]})
async def live() -> Response:
    """Say that the process answers."""
    return wire.answer({"status": "live"})


@router.get("/health/ready", responses=gives(wire.HealthAnswer))
async def ready(service: Served) -> Response:
    """Say whether searches and changes are taken; codes that are elsewhere are asked for there."""
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
    return int(pages.read_text().split()[1]) * 4096 if pages.exists() else 0
