"""What one caller can cost: errors, bodies and answers are bounded, and nothing inside is told."""

import asyncio
import json
import logging
import threading

import numpy as np
import pytest
from pydantic import ValidationError
from serving import asgi, asgi_async
from toy import chunk, class_vectors

from oasis.collection import Collection
from oasis.errors import FormatError, LockedError, StorageError
from oasis.features.extractor import Extractor
from oasis.model import OASIS
from oasis.service import Limits, Settings, Tokens, create_app, shapes
from oasis.service.telemetry import LOG

MANY = 100_000


@pytest.fixture
def collection(tmp_path):
    X, y = chunk(30)
    model = OASIS(16, labels=class_vectors(), random_state=0)
    with Collection.open(tmp_path / "c.oasis", model=model) as c:
        c.ingest(X, y, ids=range(30), payload=[{"big": "x" * 20_000}] * 30)
        yield c


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (shapes.IdsRequest, {"ids": [None] * MANY}),
        (shapes.IdsRequest, {f"k{n}": 0 for n in range(MANY)}),
        (shapes.SearchRequest, {"words": [1] * MANY}),
        (shapes.SearchRequest, {"items": [{"text": 1}] * MANY}),
        (shapes.SearchRequest, {"items": [{f"k{n}": 0 for n in range(MANY)}]}),
        (shapes.SearchRequest, {"fields": ["x"] * MANY}),
        (shapes.SearchRequest, {"vectors": {f"k{n}": "x" for n in range(MANY)}}),
        (shapes.IngestRequest, {"labels": [[1] * 10] * MANY}),
        (shapes.IngestRequest, {"labels": [[1] * MANY]}),
        (shapes.IngestRequest, {"payload": [1] * MANY}),
        (shapes.IngestRequest, {"thumbnails": [1] * MANY}),
        (shapes.IngestRequest, {"texts": [1] * MANY}),
        (shapes.UpdateRequest, {"labels": [1] * MANY}),
        (shapes.UpdateRequest, {f"k{n}": 0 for n in range(MANY)}),
        (shapes.UpdateManyRequest, {"ids": [None] * MANY, "labels": []}),
        (shapes.UpdateManyRequest, {"ids": [], "labels": [[1]] * MANY, "payload": [1] * MANY}),
        (shapes.RelabelRequest, {f"k{n}": 0 for n in range(MANY)}),
        (shapes.IngestRequest, {"items": [{}] * MANY}),
        (
            shapes.IngestRequest,
            {"items": [{"id": 1, "vectors": {f"k{n}": 0 for n in range(MANY)}}]},
        ),
        (shapes.IngestRequest, {"items": [{"id": 1, "labels": [1] * MANY}]}),
        (shapes.WordsRequest, {"vectors": {f"k{n}": "x" for n in range(MANY)}}),
    ],
)
def test_a_body_full_of_errors_gives_few(form, body):
    with pytest.raises(ValidationError) as found:
        form.model_validate_json(json.dumps(body))
    assert found.value.error_count() <= 10


def test_every_route_takes_what_it_needs(collection):
    app = create_app(collection)
    three = {"ids": ["x" * 1000] * 3000}
    status, headers, found = asgi_headers(app, "POST", "/v1/known", three)
    assert (status, found["type"]) == (413, "urn:oasis:problem:too-large")
    assert headers["connection"] == "close"
    assert asgi(app, "POST", "/v1/delete", three)[0] == 413
    for n, wanted in ((17 << 20, 413), (3 << 20, 422)):
        large = {"payload": {"big": "x" * n}}
        status, _, found = asgi(app, "PATCH", "/v1/item?id=3&kind=number", large)
        assert status == wanted
    assert "at most 1048576 are kept" in found["detail"]
    assert asgi(app, "POST", "/v1/search", {"words": ["x" * 1000] * 5000})[0] == 413
    assert asgi(app, "POST", "/v1/ingest", {"payload": [{"x": "x" * 1000}] * 5000})[0] == 422
    app = create_app(collection, Settings(Limits(batch=5)))
    assert asgi(app, "POST", "/v1/known", {"ids": list(range(6))})[0] == 413


def test_an_update_takes_the_largest_payload_however_it_is_escaped(collection):
    app, large = create_app(collection), {"big": "ж" * ((1 << 19) - 5)}
    status, _, found = asgi(app, "PATCH", "/v1/item?id=3&kind=number", {"payload": large})
    assert (status, found["payload"]) == (200, large)


def asgi_headers(app, *request):
    return asyncio.run(asgi_async(app, *request))


def test_a_body_that_is_too_large_is_not_read_to_its_end(collection):
    app, left = create_app(collection), [100]

    async def receive():
        left[0] -= 1
        return {"type": "http.request", "body": b" " * (1 << 20), "more_body": left[0] > 0}

    sent = asyncio.run(_ask(app, "/v1/known", receive))
    assert sent[0]["status"] == 413
    assert left[0] >= 96


async def _ask(app, path, receive):
    sent = []

    async def send(message):
        sent.append(message)

    head = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": head,
        "client": None,
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    return sent


def test_numbers_are_checked_where_they_stand(collection):
    app = create_app(collection)
    for rows, pointer in (
        ([[1.0, True]], "/vectors/image/0"),
        ([[1.0], ["x"]], "/vectors/image/1"),
        ([[1.0], [1.0, 2.0]], "/vectors/image"),
        ("x", "/vectors/image"),
        ([10**400], "/vectors/image/0"),
        ([[10**400]], "/vectors/image/0"),
    ):
        status, found = asgi(app, "POST", "/v1/search", {"vectors": {"image": rows}})[::2]
        assert (status, found["errors"][0]["pointer"]) == (422, pointer)
    status, found = asgi(app, "POST", "/v1/words", {"vectors": {"sky": [None]}})[::2]
    assert (status, found["errors"][0]["pointer"]) == (422, "/vectors/sky")


def test_answers_are_bounded_and_fields_are_chosen(collection):
    app = create_app(collection, Settings(Limits(answer_bytes=250_000)))
    asked = {"words": ["sky", "sky"], "k": 6}
    status, found = asgi(app, "POST", "/v1/search", {**asked, "k": 7})[::2]
    assert (status, found["type"]) == (413, "urn:oasis:problem:answer-too-large")
    whole = asgi(app, "POST", "/v1/search", asked)[2]["results"]
    assert [len(hits) for hits in whole] == [6, 6] and len(whole[0][0]["payload"]["big"]) == 20_000
    bare = asgi(app, "POST", "/v1/search", {**asked, "k": 30, "payload": False})[2]["results"]
    assert list(bare[0][0]) == ["id", "score", "distance", "labels", "tied", "weak", "predicted"]
    assert [hit["id"] for hit in bare[1][:6]] == [hit["id"] for hit in whole[1]]
    few = asgi(app, "POST", "/v1/search", {**asked, "k": 30, "fields": ["score", "id"]})[2]
    assert few["results"][0] == [{"id": hit["id"], "score": hit["score"]} for hit in bare[0]]
    assert asgi(app, "POST", "/v1/search", {**asked, "fields": ["code"]})[0] == 422


@pytest.mark.parametrize("asked", [{"words": ["sky"] * 20}, {"items": [{"text": "a"}] * 20}])
def test_hits_of_a_request_are_bounded_however_it_asks(tmp_path, asked):
    _, y = chunk(30)
    model = OASIS(16, labels=class_vectors(), random_state=0)
    embedders = Extractor.of(image="none", text="words")
    items = [{"id": row, "text": f"a word{row}", "labels": names} for row, names in enumerate(y)]
    with Collection.open(tmp_path / "c", model=model, extractor=embedders) as c:
        c.ingest_items(items)
        app = create_app(c, Settings(Limits(hits=50)))
        assert asgi(app, "POST", "/v1/search", {**asked, "k": 2})[0] == 200
        for how in ({"k": 3}, {"k": 1, "offset": 2}, {"k": 30}):
            status, _, found = asgi(app, "POST", "/v1/search", {**asked, **how})
            assert (status, found["type"]) == (413, "urn:oasis:problem:too-large")
            assert "at most 50 hits" in found["detail"]
        app.state.service.close()


def test_large_answers_are_made_beside_the_loop(collection, monkeypatch):
    app, names, make = create_app(collection), [], shapes.encoded_hits

    def encoded_hits(*arguments):
        names.append(threading.current_thread().name)
        return make(*arguments)

    monkeypatch.setattr(shapes, "encoded_hits", encoded_hits)
    for k in (5, 20):  # 100 kB and 400 kB
        assert asgi(app, "POST", "/v1/search", {"like": 3, "k": k})[0] == 200
    assert names[0] == threading.current_thread().name
    assert names[1].startswith("oasis-search")


def test_a_check_is_for_who_may_write_one_at_a_time(collection, monkeypatch):
    tokens = Tokens(read="r" * 16, write="w" * 16)
    app = create_app(collection, Settings(tokens=tokens))
    write, read = ({"authorization": f"Bearer {each * 16}"} for each in "wr")
    assert asgi(app, "GET", "/v1/check", headers=write)[0] == 405
    assert asgi(app, "POST", "/v1/check", headers=read)[0] == 403
    foreign = {**write, "sec-fetch-site": "cross-site"}
    assert asgi(app, "POST", "/v1/check", headers=foreign)[0] == 403
    going = threading.Event()
    monkeypatch.setattr(collection, "check", lambda: going.wait(60) and [])

    async def two():
        first = asyncio.create_task(asgi_async(app, "POST", "/v1/check", headers=write))
        await asyncio.sleep(0)
        while not app.state.service.checking:
            await asyncio.sleep(0.01)
        second = await asgi_async(app, "POST", "/v1/check", headers=write)
        going.set()
        return await first, second

    first, second = asyncio.run(two())
    assert (first[0], second[0]) == (200, 429)
    assert "retry-after" in second[1]


@pytest.mark.parametrize("error", [StorageError, FormatError, LockedError, OSError, RuntimeError])
def test_faults_do_not_tell_paths(collection, monkeypatch, error):
    def fail(*_, **__):
        raise error(f"cannot write {collection.path}/model-7.safetensors")

    monkeypatch.setattr(collection, "ingest", fail)
    app = create_app(collection)
    X, y = chunk(1)
    body = {"vectors": {name: np.asarray(m).tolist() for name, m in X.items()}, "labels": y}
    status, _, found = asgi_headers(app, "POST", "/v1/ingest", body)
    assert status in (500, 503, 507)
    assert str(collection.path) not in json.dumps(found) and "model-7" not in json.dumps(found)


def test_a_caller_who_hangs_up_is_no_fault(collection, caplog):
    app = create_app(collection)
    messages = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    with caplog.at_level(logging.INFO, LOG.name):
        assert asyncio.run(_ask(app, "/v1/search", receive)) == []
    (record,) = caplog.records
    assert (record.levelname, record.facts["status"]) == ("INFO", 499)
