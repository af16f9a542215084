"""Changes of a collection over HTTP: each takes its turn with the one writer."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from oasis.errors import InputError
from oasis.service.api import described, wire
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
    WRITE,
    IdKind,
    ItemId,
    check_batch,
    check_raw,
    gives,
    item_id,
    n_rows,
    read_ids,
    takes,
)
from oasis.service.api.served import Served, Service
from oasis.service.http.problems import at_pointer

router = APIRouter()


@router.post(
    "/v1/ingest",
    dependencies=WRITE,
    responses=gives(described.IngestAnswer),
    openapi_extra=takes(wire.IngestRequest, FORM, TENSORS),
)
async def ingest(request: Request, service: Served) -> Response:
    """Learn from a chunk and store its items: all of it, or nothing with an error.

    Raw items that cannot be used are left out and listed, unless ``strict`` is set. With
    ``replace`` the ids must be there, and the items that have them are deleted in the same commit.
    When the answer arrives, the chunk is on disk.
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
    facts = (asked.payload, asked.thumbnails, asked.texts)
    if not asked.replace:
        service.collection.ingest(X, labels, asked.ids, *facts)
    elif asked.ids is None:
        raise InputError("the ids of the items to replace are missing")
    else:
        service.collection.replace(X, labels, asked.ids, *facts)
    return _ingested(service, n_rows(X), [], start)


def _ingest_items(
    service: Service,
    body: Body[wire.IngestRequest],
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    start = time.perf_counter()
    given = body.request.thumbnails
    take = service.collection.ingest_items
    if body.request.replace:
        take = service.collection.replace_items
    rejected = take(
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


@router.patch(
    "/v1/item",
    dependencies=WRITE,
    responses=gives(described.StoredAnswer),
    openapi_extra=takes(wire.UpdateRequest),
)
async def update(
    request: Request,
    service: Served,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
) -> Response:
    """Change the labels or the payload of an item, and return the stored item.

    Fields that are left out do not change. The code does not change, and nothing is learned.
    """
    key = item_id(id, kind)
    # escaped, a payload of 1 MiB has up to 3 MiB
    limit = service.settings.limits.json_bytes
    body = await read_body(request, service, wire.UpdateRequest, limit)
    facts = body.request.given()

    def changed() -> dict[str, Any]:
        service.collection.update(key, **facts)
        return wire.stored(service.collection.get(key))

    return wire.answer(await service.change(changed))


@router.post(
    "/v1/delete",
    dependencies=WRITE,
    responses=gives(described.CountAnswer),
    openapi_extra=takes(wire.IdsRequest),
)
async def delete(request: Request, service: Served) -> Response:
    """Delete items permanently; every id must exist."""
    ids = await read_ids(request, service)
    return wire.answer({"n": await service.change(lambda: service.collection.delete(ids))})


@router.post("/v1/checkpoint", dependencies=WRITE, responses=gives(described.CountAnswer))
async def checkpoint(service: Served) -> Response:
    """Write the whole model and the index, and erase the journal with the features in it."""
    await service.change(service.collection.checkpoint)
    return wire.answer({"n": len(service.collection)})


@router.post(
    "/v1/words",
    dependencies=WRITE,
    responses=gives(described.CountAnswer),
    openapi_extra=takes(wire.WordsRequest),
)
async def add_words(request: Request, service: Served) -> Response:
    """Add vectors of class names to a collection whose label space was made from a mapping."""
    body = await read_body(request, service, wire.WordsRequest, service.settings.limits.json_bytes)
    vectors = await service.read(lambda: word_vectors(body.request.vectors))
    await service.change(lambda: service.collection.add_words(vectors))
    return wire.answer({"n": len(vectors)})
