"""The search over HTTP: what may be asked, and when it is worth a thread."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from oasis.collection import Hit
from oasis.errors import TooLargeError
from oasis.index import HammingIndex
from oasis.service.api import described, wire
from oasis.service.api.bodies import FORM, TENSORS, Body, matrices, raw_fields, read_body
from oasis.service.api.operations import (
    READ,
    bearer,
    check_batch,
    check_raw,
    gives,
    n_rows,
    reading,
    takes,
)
from oasis.service.api.served import Served, Service
from oasis.service.http.problems import at_pointer

router = APIRouter()

_FEW_HITS = 100
_FEW_CODES = 200_000
_FEW_NUMBERS = 1 << 15
_FEW_BYTES = 1 << 18


@router.post(
    "/v1/search",
    dependencies=READ,
    responses=gives(described.SearchAnswer),
    openapi_extra=takes(wire.SearchRequest, FORM, TENSORS),
)
async def search(request: Request, service: Served) -> Response:
    """Search with vectors, with texts and pictures, with words, or for more like an item."""
    limits = service.settings.limits
    body = await read_body(request, service, wire.SearchRequest, limits.search_json_bytes)
    asked = body.request
    if asked.k > limits.k:
        raise at_pointer("/k", f"at most {limits.k} hits are given a query, got k={asked.k}")
    if asked.k + asked.offset > limits.hits:
        raise at_pointer("/offset", f"k + offset may be at most {limits.hits}")
    if _is_short(service, body):
        with suppress(TooLargeError):
            return wire.answer(_search(service, body, _FEW_BYTES))
    return wire.answer(await service.read(lambda: _search(service, body, limits.answer_bytes)))


@router.post(
    "/v1/suggest",
    dependencies=READ,
    responses=gives(described.SuggestAnswer),
    openapi_extra=takes(wire.SuggestRequest),
)
async def suggest(request: Request, service: Served) -> Response:
    """Return what a text query may have meant: known words, one edit away from unknown ones."""
    limit = service.settings.limits.search_json_bytes
    body = await read_body(request, service, wire.SuggestRequest, limit)
    text = body.request.text
    return wire.answer({"text": await service.read(lambda: service.collection.suggest(text))})


async def search_directly(request: Request, service: Service) -> Response:
    """Answer a search as its route does; for `oasis.service.api.direct`."""
    await reading(service, await bearer(request))
    return await search(request, service)


def search_route() -> APIRoute:
    """Return the route of the search."""
    return next(
        route for route in router.routes if isinstance(route, APIRoute) and route.endpoint is search
    )


def _is_short(service: Service, body: Body[wire.SearchRequest]) -> bool:
    """Return whether a search is so short that it runs in the event loop.

    Such a search takes about a millisecond, most of it with the interpreter lock held, so that
    threads could not run it in parallel: an id or vectors of few numbers, few codes to scan, few
    hits to fetch. Others need a thread: a reader may have to load new commits first, codes in
    Milvus need the network, a filter may scan all items, features of raw items are expensive, and
    fingerprints are read by the first search that compares them.
    """
    asked, collection = body.request, service.collection
    if asked.where or asked.words is not None or asked.items is not None or asked.snippet:
        return False
    # before the index is used, which may load a commit or connect and so block the event loop
    if collection.readonly or not collection.codes_are_here:
        return False
    if _compares_features(asked) and not collection.fingerprints_are_here:
        return False
    # the values in lists of numbers are validated later
    lists: list[list[Any]] = [
        rows for rows in (asked.vectors or {}).values() if isinstance(rows, list)
    ]
    n = 1 if asked.like is not None else max([n_rows(body.vectors), *map(len, lists)])
    if n * (asked.k + asked.offset) > _FEW_HITS:
        return False
    numbers = sum(matrix.size for matrix in body.vectors.values())
    numbers += sum(len(row) for rows in lists for row in rows if isinstance(row, list))
    index = collection.index
    return (
        numbers <= _FEW_NUMBERS
        and isinstance(index, HammingIndex)
        and n * index.n_codes <= _FEW_CODES
    )


def _compares_features(asked: wire.SearchRequest) -> bool:
    """Return whether a search by vectors is compared with fingerprints too."""
    is_fused = asked.fuse and asked.mode == "asymmetric" and asked.content != 0
    return asked.vectors is not None and is_fused


def _search(service: Service, body: Body[wire.SearchRequest], max_bytes: int) -> bytes:
    """Return the encoded answer; one whose payloads have more bytes together is refused."""
    fields = body.request.wanted()
    lists, evidence = _hits(service, body, "payload" in fields, max_bytes)
    texts: dict[str | int, str] = {}
    if body.request.snippet:
        ids = list(dict.fromkeys(hit.id for hits in lists for hit in hits))
        texts = service.collection.snippets(ids, body.request.snippet)
    return wire.encoded_hits(lists, fields, texts, evidence)


def _hits(
    service: Service, body: Body[wire.SearchRequest], payload: bool, max_bytes: int
) -> tuple[list[list[Hit]], list[float] | None]:
    """Return the hits of each query, and the evidence where it is asked for."""
    collection, asked = service.collection, body.request
    how: dict[str, Any] = {
        "k": asked.k,
        "mode": asked.mode,
        "where": asked.where,
        "offset": asked.offset,
        "content": asked.content,
        "payload": payload,
        "max_bytes": max_bytes,
    }
    if asked.words is not None:
        check_batch(service, len(asked.words), asked)
        return collection.search_words(asked.words, **how), None
    if asked.like is not None:
        return [collection.more_like(asked.like, **how)], None
    if asked.items is not None:
        check_raw(service, len(asked.items))
        check_batch(service, len(asked.items), asked)
        queries = service.untrusted(raw_fields(body))
        if asked.evidence:
            return collection.search_items_with_evidence(queries, fuse=asked.fuse, **how)
        return collection.search_items(queries, fuse=asked.fuse, **how), None
    X = matrices(body)
    check_batch(service, n_rows(X), asked)
    return collection.search(X, fuse=asked.fuse, **how), None
