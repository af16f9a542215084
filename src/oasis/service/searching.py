"""The search over HTTP: what may be asked, and how it is done beside others.

A search with many queries is done in slices, each a few milliseconds of a thread, so that others
have their turns in between. A search of about a millisecond is done in the event loop, because a
thread would cost more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response

from oasis.collection import Hit
from oasis.collection.records import Explanation, Id, Plane, ToLabel
from oasis.errors import InputError, TooLargeError
from oasis.index import HammingIndex
from oasis.service import shapes
from oasis.service.bodies import FORM, TENSORS, Body, matrices, raw_fields, read_body
from oasis.service.operations import (
    check_batch,
    check_hits,
    check_raw,
    get,
    n_rows,
    post,
)
from oasis.service.problems import at_pointer, busy
from oasis.service.work import PICTURE_COST, Asked, Call

EXPLAINED_COST, SURVEY_COST = 10.0, 500.0  # an item, a look at thousands
_MOST_EXPLAINED = 48
QUERY_COST, HIT_COST, TEXT_COST = 1.0, 0.01, 1e-3  # a query, a hit of one, a byte of its text
_SLICE_COST = 20.0
_WORD_BYTES = 1000
_FEW_RUNNING = 20.0
_FEW_HITS = 100
_FEW_CODES = 200_000
_FEW_NUMBERS = 1 << 15
_FEW_BYTES = 1 << 18


@post(
    "/v1/search",
    shapes.SearchRequest,
    FORM,
    TENSORS,
    results=list[list[Hit]],
    evidence=(list[float] | None, None),
)
async def search(request: Request, call: Asked) -> Response:
    """Search with vectors, with texts and pictures, with words, or for more like an item."""
    limits = call.limits
    body = await read_body(request, call, shapes.SearchRequest, limits.search_json_bytes)
    asked = body.request
    if asked.k > limits.k:
        raise at_pointer("/k", f"at most {limits.k} hits are given a query, got k={asked.k}")
    if asked.k + asked.offset > limits.hits:
        raise at_pointer("/offset", f"k + offset may be at most {limits.hits}")
    if _is_short(call, body):
        with suppress(TooLargeError):
            return shapes.answer(_answer([_Search(call, body).found(0, 1 << 30, _FEW_BYTES)]))
    has_numbers = asked.vectors is not None or any(each.vectors for each in asked.items or ())
    found = await call.decode(lambda: _Search(call, body)) if has_numbers else _Search(call, body)
    call.charge(found.cost)
    parts, left = [], limits.answer_bytes
    slices = list(found.slices())
    turn = call.long if len(slices) == 1 else call.slice
    for start, stop in slices:
        part = await turn(partial(found.found, start, stop, left))
        left = max(1, left - len(part[0]))
        parts.append(part)
    return shapes.answer(_answer(parts))


@post("/v1/find", shapes.FindRequest, FORM, hits=list[Hit])
async def find(request: Request, call: Asked) -> Response:
    """Answer what a person asks: words, a picture, or both; a picture orders what words find."""
    limits = call.limits
    body = await read_body(request, call, shapes.FindRequest, limits.search_json_bytes)
    asked = body.request
    check_hits(call, 1, asked.k + asked.offset)
    picture = body.pictures.get(0, asked.image)
    call.charge(QUERY_COST + _text_cost(call, asked.text, "/text") + PICTURE_COST * bool(picture))
    (query,) = call.service.untrusted([{"image": picture}])

    def found() -> bytes:
        how: dict[str, Any] = {"k": asked.k, "where": asked.where, "offset": asked.offset}
        hits = call.collection.find(asked.text, image=query["image"], **how)
        encoded = shapes.encoded_hits([hits], (*shapes.HIT_FIELDS, "text"), {})
        if len(encoded) > limits.answer_bytes:
            raise TooLargeError(
                f"the hits have more than {limits.answer_bytes} bytes; ask for less"
            )
        return b'{"hits":' + encoded + b"}"

    return shapes.answer(await call.long(found))


@post("/v1/explain", shapes.ExplainRequest, FORM, explanations=list[Explanation])
async def explain(request: Request, call: Asked) -> Response:
    """Tell why items have their scores for a query: which part comes from what."""
    body = await read_body(request, call, shapes.ExplainRequest, call.limits.search_json_bytes)
    asked = body.request
    if len(asked.ids) > _MOST_EXPLAINED:
        raise at_pointer("/ids", f"at most {_MOST_EXPLAINED} items are explained at once")
    picture = body.pictures.get(0, asked.image)
    cost = EXPLAINED_COST + _text_cost(call, asked.text, "/text") + PICTURE_COST * bool(picture)
    call.charge(cost * len(asked.ids))
    found = []
    for each in asked.ids:  # each in a turn of its own
        (query,) = call.service.untrusted([{"text": asked.text, "image": picture}])
        found.append(await call.slice(partial(call.collection.explain, each, query)))
    return shapes.answer({"explanations": [asdict(each) for each in found]})


@get("/v1/next", items=list[ToLabel])
async def next_to_label(
    call: Asked,
    k: Annotated[int, Query(ge=1, le=1000, description="How many items.")] = 10,
) -> Response:
    """Return the unlabelled items whose labels would teach most, the most useful first."""
    call.charge(SURVEY_COST)
    found = await call.slice(lambda: call.collection.next_to_label(k))
    return shapes.answer({"items": [asdict(each) for each in found]})


@get("/v1/plane", of=Plane)
async def plane(
    call: Asked,
    most: Annotated[int, Query(ge=1, le=20_000, description="Beyond it, a sample.")] = 20_000,
    random_state: Annotated[int, Query(ge=0, le=2**31, description="Seed of the sample.")] = 0,
) -> Response:
    """Return the items as points in the plane: id, x, y, label, and whether that is predicted."""
    call.charge(SURVEY_COST)
    return shapes.answer(
        await call.slice(lambda: shapes.encoded(asdict(call.collection.plane(most, random_state))))
    )


@get("/v1/duplicates", groups=list[list[Id]])
async def duplicates(call: Asked) -> Response:
    """Return groups of items that repeat each other; one such request at a time."""
    service = call.service

    def groups() -> bytes:
        if service.comparing:
            raise busy("duplicates are being looked for already", 5.0, status=429)
        service.comparing = True
        try:
            return shapes.encoded({"groups": call.collection.duplicates()})
        finally:
            service.comparing = False

    return shapes.answer(await call.long(groups))


@post("/v1/suggest", shapes.SuggestRequest, text=str | None)
async def suggest(request: Request, call: Asked) -> Response:
    """Return what a text query may have meant: known words, one edit away from unknown ones."""
    limits = call.limits
    body = await read_body(request, call, shapes.SuggestRequest, limits.search_json_bytes)
    text = body.request.text
    call.charge(_text_cost(call, text, "/text"))
    return shapes.answer({"text": await call.long(lambda: call.collection.suggest(text))})


def _text_cost(call: Call, text: str | None, pointer: str) -> float:
    n, most = len((text or "").encode("utf-8", "surrogatepass")), call.limits.query_bytes
    if n > most:
        raise at_pointer(pointer, f"the text of a query may have {most} bytes, this one has {n}")
    return TEXT_COST * n


class _Search:
    """A search whose queries are decoded: what it costs, and its hits by slices."""

    def __init__(self, call: Call, body: Body[shapes.SearchRequest]) -> None:
        self.asked = asked = body.request
        self.collection = call.collection
        self.queries: Any
        self.cost = 0.0
        if asked.words is not None:
            n, self.queries = len(asked.words), asked.words
            if any(len(word) > _WORD_BYTES for word in asked.words):
                raise at_pointer("/words", f"a word has at most {_WORD_BYTES} characters")
            own: Sequence[float] = [0.0] * n
        elif asked.items is not None:
            n = len(asked.items)
            check_raw(call, n)
            raw = raw_fields(body)
            own = [
                _text_cost(call, each["text"], f"/items/{row}/text") for row, each in enumerate(raw)
            ]
            self.queries = call.service.untrusted(raw)
            self.cost += PICTURE_COST * sum(each["image"] is not None for each in raw)
        elif asked.vectors is not None:
            self.queries = matrices(body)
            n = n_rows(self.queries)
            own = [0.0] * n
        else:
            n, own = 1, [0.0]
        check_batch(call, n)
        check_hits(call, n, asked.k + asked.offset)
        self._costs = [QUERY_COST + HIT_COST * (asked.k + asked.offset) + each for each in own]
        self.cost += sum(self._costs)

    def slices(self) -> Iterator[tuple[int, int]]:
        """Yield rows from, to: as many as a slice may cost, at least one."""
        start, cost = 0, 0.0
        for row, each in enumerate(self._costs):
            if row > start and cost + each > _SLICE_COST:
                yield start, row
                start, cost = row, 0.0
            cost += each
        yield start, len(self._costs)  # also of no query at all, which the collection refuses

    def found(self, start: int, stop: int, max_bytes: int) -> tuple[bytes, list[float]]:
        """Return the encoded hits of some queries, and the evidence where it is asked for.

        Hits whose payloads have more bytes together are refused.
        """
        fields = self.asked.wanted()
        try:
            lists, evidence = self._hits(slice(start, stop), "payload" in fields, max_bytes)
        except InputError as error:
            if start:  # it counts from the first of the slice
                raise type(error)(f"of the queries from row {start} on: {error}") from error
            raise
        texts: dict[str | int, str] = {}
        if self.asked.snippet:
            ids = list(dict.fromkeys(hit.id for hits in lists for hit in hits))
            texts = self.collection.snippets(ids, self.asked.snippet)
        return shapes.encoded_hits(lists, fields, texts), evidence

    def _hits(
        self, rows: slice, payload: bool, max_bytes: int
    ) -> tuple[list[list[Hit]], list[float]]:
        collection, asked = self.collection, self.asked
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
            return collection.search_words(self.queries[rows], **how), []
        if asked.like is not None:
            return [collection.more_like(asked.like, **how)], []
        if asked.items is not None:
            queries = self.queries[rows]
            if asked.evidence:
                return collection.search_items_with_evidence(queries, fuse=asked.fuse, **how)
            return collection.search_items(queries, fuse=asked.fuse, **how), []
        X = {name: matrix[rows] for name, matrix in self.queries.items()}
        return collection.search(X, fuse=asked.fuse, **how), []


def _answer(parts: Sequence[tuple[bytes, list[float]]]) -> bytes:
    """Return the answer to a search from its slices."""
    evidence = [each for _, some in parts for each in some]
    told = b',"evidence":' + shapes.encoded(evidence) if evidence else b""
    return b'{"results":[' + b",".join(hits for hits, _ in parts if hits) + b"]" + told + b"}"


def _is_short(call: Call, body: Body[shapes.SearchRequest]) -> bool:
    """Return whether a search is so short that it runs in the event loop.

    Such a search takes about a millisecond, most of it with the interpreter lock held, so that
    threads could not run it in parallel: an id or vectors of few numbers, few codes to scan, few
    hits to fetch, of a client with little else running. Others need a thread: a reader may have to
    load new commits first, codes in Milvus need the network, a filter may scan all items, features
    of raw items are expensive, and fingerprints are read by the first search that compares them.
    """
    asked, collection = body.request, call.collection
    if asked.where or asked.words is not None or asked.items is not None or asked.snippet:
        return False
    if call.service.costs.get(call.client, 0.0) > _FEW_RUNNING:
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


def _compares_features(asked: shapes.SearchRequest) -> bool:
    """Return whether a search by vectors is compared with fingerprints too."""
    is_fused = asked.fuse and asked.mode == "asymmetric" and asked.content != 0
    return asked.vectors is not None and is_fused
