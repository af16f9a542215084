"""Reads besides the search: items, pictures, classes, statistics, health."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal
from zlib import crc32

from fastapi import Depends, Query, Request, Response

from oasis.collection.records import ClassInfo, FieldInfo, Id, Round, Stored
from oasis.service import shapes
from oasis.service.operations import (
    PROBLEMS,
    IdKind,
    ItemId,
    described,
    get,
    item_id,
    post,
    read_ids,
    reading,
    router,
)
from oasis.service.problems import Problem
from oasis.service.settings import Limits
from oasis.service.telemetry import PROMETHEUS
from oasis.service.work import Asked, Call

# -- looking -----------------------------------------------------------------------------------

_None = Annotated[
    Literal["problem", "empty"],
    Query(description="An item without a picture is answered by a 404, or by a 204."),
]


@get("/v1/item", of=Stored)
async def item(call: Asked, id: ItemId, kind: IdKind = "text") -> Response:  # noqa: A002
    """Return an item. Its id is in the query string, because it may contain any character."""
    key = item_id(id, kind)
    return shapes.answer(shapes.as_json(await call.quick(lambda: call.collection.get(key))))


@get("/v1/latest", items=list[Stored])
async def latest(
    call: Asked,
    k: Annotated[int, Query(ge=1, le=100, description="How many items.")] = 24,
) -> Response:
    """Return the latest items, newest first; texts cut to 1,000 characters."""
    limit = call.limits.answer_bytes

    def found() -> bytes:
        items = [shapes.as_json(each) for each in call.collection.latest(k, limit)]
        for each in items:
            each["text"] = each["text"] and each["text"][: shapes.MAX_SNIPPET]
        return shapes.encoded({"items": items})

    return shapes.answer(await call.long(found))


_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {kind: {} for kind in ("image/png", "image/jpeg", "image/gif", "image/webp")},
        "description": "A picture.",
    },
    204: {"description": "There is none, and none=empty."},
    304: {"description": "It is the one that you have."},
    **PROBLEMS,
}


@router.get("/v1/thumbnail", dependencies=[Depends(reading)], responses=_PICTURE)
async def thumbnail_of(
    request: Request,
    call: Asked,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
    none: _None = "problem",
) -> Response:
    """Return the picture that came with an item."""
    key = item_id(id, kind)
    picture = await call.quick(lambda: call.collection.thumbnail(key))
    return _sent(request, id, picture, none)


@router.get("/v1/preview", dependencies=[Depends(reading)], responses=_PICTURE)
async def preview_of(
    request: Request,
    call: Asked,
    id: ItemId,  # noqa: A002
    kind: IdKind = "text",
    none: _None = "problem",
) -> Response:
    """Return the largest picture of an item: the original, its preview, or its thumbnail.

    Originals come from the folder of pictures, if the service was started with one.
    """
    key = item_id(id, kind)
    return _sent(request, id, await call.quick(lambda: _largest(call, key)), none)


def _largest(call: Call, key: str | int) -> bytes | None:
    folder, limits = call.service.settings.pictures, call.limits
    if folder is not None:
        payload = call.collection.get(key).payload
        found = original(folder, key, payload, limits.original_bytes)
        if found is not None:
            return found
    return call.collection.preview(key)


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


@post("/v1/known", shapes.IdsRequest, ids=list[Id])
async def known_ids(request: Request, call: Asked) -> Response:
    """Return those of the given ids that exist."""
    ids = await read_ids(request, call)

    def known() -> bytes:
        found = call.collection.known(ids)
        return shapes.encoded({"ids": [each for each in dict.fromkeys(ids) if each in found]})

    return shapes.answer(await call.quick(known))


async def _listed(call: Call, name: str, records: Callable[[], list[Any]]) -> Response:
    """Answer with the records of a method of the collection."""
    return shapes.answer(
        await call.long(lambda: shapes.encoded({name: [asdict(each) for each in records()]}))
    )


@get("/v1/classes", classes=list[ClassInfo])
async def classes(call: Asked) -> Response:
    """Return the classes in order of arrival."""
    return await _listed(call, "classes", call.collection.classes)


@get("/v1/fields", fields=list[FieldInfo])
async def fields(call: Asked) -> Response:
    """Return the fields of payloads with examples of their values, from a sample of the items."""
    return await _listed(call, "fields", call.collection.fields)


@get("/v1/rounds", rounds=list[Round])
async def rounds(call: Asked) -> Response:
    """Return every chunk ingested, in order, with its quality before it was learned."""
    return await _listed(call, "rounds", call.collection.rounds)


@get("/v1/stats", of=shapes.StatsAnswer)
async def stats(call: Asked) -> Response:
    """Return the collection in numbers."""
    found = asdict(await call.quick(call.collection.stats))
    # callers need not know hosts and paths behind the service
    found["index"] = found["index"] if found["index"] == "local" else "milvus"
    return shapes.answer({**found, "readonly": call.collection.readonly})


@get("/v1/norms", norms=dict[str, float])
async def norms(call: Asked) -> Response:
    """Return the Frobenius norms of what the model has learned, by name."""
    return shapes.answer({"norms": await call.long(call.collection.norms)})


@get("/v1/limits", of=Limits)
async def limits(call: Asked) -> Response:
    """Return what one request, one client, and all requests together may take."""
    return shapes.answer(asdict(call.limits))


# -- watching ----------------------------------------------------------------------------------


@router.get("/health/live", responses=described("/health", {"status": str}))
async def live() -> Response:
    """Say that the process answers."""
    return shapes.answer({"status": "live"})


@router.get("/health/ready", responses=described("/health", {"status": str}))
async def ready(call: Asked) -> Response:
    """Say whether searches and changes are accepted, and Milvus answers if the codes are there."""
    if call.service.writer.stopping:
        raise Problem(503, "stopping", "the service is being stopped")
    await call.quick(lambda: len(call.collection))
    await call.probe()
    return shapes.answer({"status": "ready"})


@router.get(
    "/metrics",
    dependencies=[Depends(reading)],
    responses={200: {"content": {"text/plain": {}}}, **PROBLEMS},
)
async def metrics(call: Asked) -> Response:
    """Return counters, durations and sizes in the text format of Prometheus."""
    found = await call.quick(call.collection.stats)
    gauges = (
        ("oasis_items", "Items in the collection.", found.n_items),
        ("oasis_classes", "Classes so far.", found.n_classes),
        ("oasis_rounds", "Chunks ingested so far.", found.n_rounds),
        ("oasis_disk_bytes", "Bytes of the collection's files.", sum(found.bytes.values())),
        ("oasis_writer_queue", "Changes waiting or running.", len(call.service.writer)),
        ("process_resident_memory_bytes", "Memory that the process holds.", _resident()),
    )
    return Response(call.service.counters.text(gauges), media_type=PROMETHEUS)


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


# -- pictures ----------------------------------------------------------------------------------

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_OTHER = "application/octet-stream"
_FIELDS = ("path", "image", "file")


def media_type(picture: bytes) -> str:
    """Return the media type of a picture that browsers show; for anything else that of bytes.

    >>> media_type(b"GIF89a..."), media_type(b"<svg onload='...'>")
    ('image/gif', 'application/octet-stream')
    """
    for magic, kind in _MAGIC:
        if picture.startswith(magic):
            return kind
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    return _OTHER


def original(
    folder: Path,
    id: str | int,  # noqa: A002
    payload: Mapping[str, Any],
    max_bytes: int,
) -> bytes | None:
    """Return the original picture of an item, or None if the folder does not have it.

    Its path is the item's id, or the field ``path``, ``image`` or ``file`` of its payload, relative
    to the folder or absolute. The resolved path must be a file inside the folder, of a kind that
    browsers show, and of at most ``max_bytes``.
    """
    root = folder.resolve()
    for name in _names(id, payload):
        try:
            path = (root / name).resolve(strict=True)
            if not path.is_relative_to(root) or not path.is_file():
                continue
            content = _content(path, max_bytes)
        except (OSError, ValueError, RuntimeError):  # not there, not readable, no path, a loop
            continue
        if content is not None and media_type(content) != _OTHER:
            return content
    return None


def _names(id: str | int, payload: Mapping[str, Any]) -> Iterator[str]:  # noqa: A002
    for value in (id, *(payload.get(field) for field in _FIELDS)):
        if isinstance(value, str) and value:
            yield value


def _content(path: Path, max_bytes: int) -> bytes | None:
    """Return the content of a file, None if it is too large; a symbolic link is not followed."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        content = file.read(max_bytes + 1)
    return content if len(content) <= max_bytes else None
