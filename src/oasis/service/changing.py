"""Changes of a collection over HTTP: each takes its turn with the one writer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import Request, Response

from oasis.collection.records import Rejected, Stored, Updated
from oasis.errors import InputError
from oasis.service import shapes
from oasis.service.bodies import (
    FORM,
    TENSORS,
    Body,
    matrices,
    raw_fields,
    read_body,
    word_vectors,
)
from oasis.service.operations import (
    IdKind,
    ItemId,
    check_batch,
    check_raw,
    item_id,
    n_rows,
    post,
    read_ids,
)
from oasis.service.problems import at_pointer, busy
from oasis.service.work import PICTURE_COST, ROW_COST, Asked, Call


@post(
    "/v1/ingest",
    shapes.IngestRequest,
    FORM,
    TENSORS,
    writes=True,
    ingested=int,
    rejected=list[Rejected],
    n_items=int,
)
async def ingest(request: Request, call: Asked) -> Response:
    """Learn from a chunk and store its items: all of it, or nothing with an error.

    Raw items that cannot be used are left out and listed, unless ``strict`` is set. With
    ``replace`` the ids must be there, and the items that have them are deleted in the same commit.
    When the answer arrives, the chunk is on disk.
    """
    body = await read_body(request, call, shapes.IngestRequest, call.limits.json_bytes)
    if body.request.items is None:
        X = await call.decode(lambda: matrices(body))
        check_batch(call, n_rows(X))
        for row, names in enumerate(body.request.labels or ()):
            _check_labels(call, f"/labels/{row}", names)
        call.charge(ROW_COST * n_rows(X))
        return shapes.answer(await call.change(lambda: _ingest_vectors(call, body, X)))
    check_raw(call, len(body.request.items))
    items = await call.decode(lambda: raw_fields(body))
    for row, item in enumerate(items):
        _check_labels(call, f"/items/{row}/labels", item["labels"])
        if item["text"] is None and item["image"] is None and not item["vectors"]:
            raise at_pointer(
                f"/items/{row}", f"item {row} has neither a text, a picture nor vectors"
            )
    n_pictures = sum(item["image"] is not None for item in items)
    call.charge(ROW_COST * len(items) + PICTURE_COST * n_pictures)
    return shapes.answer(await call.change(lambda: _ingest_items(call, body, items)))


def _check_labels(call: Call, pointer: str, names: Sequence[str] | None) -> None:
    n, most = len(names or ()), call.limits.labels
    if n > most:
        raise at_pointer(pointer, f"an item has at most {most} labels, this one has {n}")


def _ingest_vectors(
    call: Call, body: Body[shapes.IngestRequest], X: dict[str, Any]
) -> dict[str, Any]:
    asked, start = body.request, time.perf_counter()
    labels = asked.labels
    facts = (asked.payload, asked.thumbnails, asked.texts)
    if not asked.replace:
        call.collection.ingest(X, labels, asked.ids, *facts)
    elif asked.ids is None:
        raise InputError("the ids of the items to replace are missing")
    else:
        call.collection.replace(X, labels, asked.ids, *facts)
    return _ingested(call, n_rows(X), [], start)


def _ingest_items(
    call: Call,
    body: Body[shapes.IngestRequest],
    items: list[dict[str, Any]],
) -> dict[str, Any]:
    start = time.perf_counter()
    given = body.request.thumbnails
    take = call.collection.ingest_items
    if body.request.replace:
        take = call.collection.replace_items
    rejected = take(
        call.service.untrusted(items),
        thumbnails=True if given is None else given,
        strict=body.request.strict,
    )
    return _ingested(call, len(items) - len(rejected), rejected, start)


def _ingested(call: Call, n: int, rejected: list[Any], start: float) -> dict[str, Any]:
    call.service.counters.count("oasis_ingested_items_total", "Items ingested.", n=n)
    call.service.counters.observe(
        "oasis_ingest_seconds", "Time to learn and store a chunk.", time.perf_counter() - start
    )
    return {
        "ingested": n,
        "rejected": [asdict(each) for each in rejected],
        "n_items": len(call.collection),
    }


@post("/v1/item", shapes.UpdateRequest, writes=True, method="PATCH", of=Stored)
async def update(
    request: Request,
    call: Asked,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
) -> Response:
    """Change the labels or the payload of an item, and return the stored item.

    Fields that are left out do not change. Where the features of the item are kept, the model
    learns from its new labels.
    """
    key = item_id(id, kind)
    body = await read_body(request, call, shapes.UpdateRequest, call.limits.update_json_bytes)
    facts = body.request.given()
    _check_labels(call, "/labels", facts.get("labels"))

    def changed() -> dict[str, Any]:
        call.collection.update(key, **facts)
        return shapes.as_json(call.collection.get(key))

    return shapes.answer(await call.change(changed))


@post("/v1/update", shapes.UpdateManyRequest, writes=True, of=Updated)
async def update_many(request: Request, call: Asked) -> Response:
    """Change the labels or the payloads of many items in one commit; every id must exist."""
    body = await read_body(request, call, shapes.UpdateManyRequest, call.limits.json_bytes)
    ids, facts = body.request.ids, body.request.given()
    check_batch(call, len(ids))
    for row, names in enumerate(facts.get("labels") or ()):
        _check_labels(call, f"/labels/{row}", names)
    call.charge(ROW_COST * len(ids))
    return shapes.answer(asdict(await call.change(lambda: call.collection.update(ids, **facts))))


@post("/v1/relabel", shapes.RelabelRequest, writes=True, of=Updated)
async def relabel(request: Request, call: Asked) -> Response:
    """Rename a class, or join it with another one, in one commit."""
    body = await read_body(request, call, shapes.RelabelRequest, call.limits.json_bytes)
    old, new = body.request.old, body.request.new
    done = await call.change(lambda: call.collection.rename_label(old, new))
    return shapes.answer(asdict(done))


@post("/v1/delete", shapes.IdsRequest, writes=True, n=int)
async def delete(request: Request, call: Asked) -> Response:
    """Delete items permanently; every id must exist."""
    ids = await read_ids(request, call)
    return shapes.answer({"n": await call.change(lambda: call.collection.delete(ids))})


@post("/v1/checkpoint", writes=True, n=int)
async def checkpoint(call: Asked) -> Response:
    """Write the whole model and the index, and erase the journal with the features in it."""
    await call.change(call.collection.checkpoint)
    return shapes.answer({"n": len(call.collection)})


@post("/v1/words", shapes.WordsRequest, writes=True, n=int)
async def add_words(request: Request, call: Asked) -> Response:
    """Add vectors of class names to a collection whose label space was made from a mapping."""
    body = await read_body(request, call, shapes.WordsRequest, call.limits.json_bytes)
    vectors = await call.decode(lambda: word_vectors(body.request.vectors))
    await call.change(lambda: call.collection.add_words(vectors))
    return shapes.answer({"n": len(vectors)})


@post("/v1/check", writes=True, findings=list[str])
async def check(call: Asked) -> Response:
    """Read everything and return a list of what is wrong; one check at a time.

    Changes wait meanwhile.
    """
    service = call.service
    if service.checking:
        raise busy("a check is running already; at most one may", 5.0, status=429)
    service.checking = True
    try:
        return shapes.answer({"findings": await call.change(call.collection.check)})
    finally:
        service.checking = False
