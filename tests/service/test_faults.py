"""Bad input and killed servers: nothing but refusals, nothing half-done."""

import io
import json
import os
import random
import signal
import socket
import struct
import threading
import zipfile
import zlib

import numpy as np
import pytest
import safetensors.numpy
from collection_truth import assert_nothing_lost
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from service_data import fill, picture, vectors
from serving import Serving, form, serving

from oasis.client import Client
from oasis.errors import BusyError, ServiceError, UnreachableError

pytestmark = pytest.mark.slow  # every test asks a service in another process

TENSORS = "application/x-safetensors"
JSON = "application/json"
POSTS = ("search", "suggest", "ingest", "delete", "known", "words")
ITEM = "item?id=item/1"
"""What is patched."""
FUZZING = settings(
    max_examples=40,  # `tests.soak` sends thousands
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(fill(tmp_path_factory.mktemp("faults") / "c"), "--max-body", "16") as running:
        yield running
        bad = [each for each in running.entries() if each["level"] in ("error", "critical")]
        assert not bad


def method_of(path):
    return "PATCH" if path.startswith("item") else "POST"


def refused(server, path, body, kind=JSON, allowed=range(200, 500)):
    status, _, content = server.ask(method_of(path), f"/v1/{path}", body, kind=kind)
    assert status in allowed, (status, content[:500])
    assert b"Traceback" not in content
    return status


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["item/1", 4, "cat", "sky", "asymmetric", "image", "text", "$labels"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["image", "text", "id", "labels", "payload", "gte", "in", "has", "x"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
names = st.sampled_from(
    [
        "vectors",
        "items",
        "words",
        "like",
        "k",
        "offset",
        "mode",
        "where",
        "labels",
        "ids",
        "payload",
        "thumbnails",
        "texts",
        "content",
        "fields",
        "strict",
        "replace",
    ]
)


@pytest.mark.parametrize("path", [*POSTS, ITEM, "item?id=4&kind=number"])
def test_requests_of_any_shape_are_answered_or_refused(server, path):
    @FUZZING
    @given(st.dictionaries(names, values, max_size=4) | values)
    def fuzz(asked):
        refused(server, path, json.dumps(asked).encode())

    fuzz()


KEYS = ["$any", "$all", "$not", "$labels", "$text", "title", "any", "all", "not", "in", "lt"]
KEYS += ["contains", "exists", "has", "predicted"]
FILTERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=10,
)


def test_filters_of_any_shape_are_answered_or_refused(server):
    @FUZZING
    @given(st.dictionaries(st.sampled_from(KEYS), FILTERS, max_size=3))
    def fuzz(where):
        refused(server, "search", json.dumps({"words": ["cat"], "where": where}).encode())

    fuzz()


def broken_bodies():
    """Bodies that make decoders stumble, with their type."""
    X, y = vectors(2)
    tensors = safetensors.numpy.save(X, {"request": json.dumps({"labels": y})})
    head = struct.unpack("<Q", tensors[:8])[0]
    yield b"", JSON
    yield b"null", JSON
    yield b"\xff\xfe\x00", JSON
    yield b"[" * 200_000, JSON
    yield b'{"where":' * 50_000 + b"1" + b"}" * 50_000, JSON
    yield b'{"words":["cat"],"where":' + b'{"a":' * 90 + b"1" + b"}" * 91, JSON
    yield b'{"words":["cat"],"where":' + b'{"$any":[' * 60 + b"{}" + b"]}" * 60 + b"}", JSON
    yield json.dumps({"words": ["cat"], "where": {"$any": [{"a": 1}] * 50_000}}).encode(), JSON
    yield json.dumps({"words": ["cat"], "where": {"a": {"in": [1] * 200_000}}}).encode(), JSON
    yield json.dumps({"items": [{"text": "a" * 10_000_000}]}).encode(), JSON
    yield b'{"like": ' + b"9" * 100_000 + b"}", JSON
    yield b'{"vectors": {"image": [[1e999, -1e999, NaN, Infinity]]}}', JSON
    yield b'{"vectors": {"image": [[' + b"1e308," * 899 + b"1e308]]}}", JSON
    yield b'{"words": ["\\ud800"]}', JSON
    yield b'{"ids": ["\\u0000", "' + b"a" * 2000 + b'"]}', JSON
    yield b'{"items": [{"image": "!!!"}, {"image": "aGk="}]}', JSON
    yield b'{"items": [{"id": 1, "vectors": {"image": [1e999, null, "x"]}}]}', JSON
    yield b'{"items": [{"id": 1, "vectors": {"image": [[1], [2]], "none": []}}]}', JSON
    yield b'{"items": [{"id": 1, "vectors": {"image": [' + b"1," * 50_000 + b"1]}}]}", JSON
    yield b'{"words": ["cat"], "where": {"$text": {"contains": "\\" OR * NEAR( -"}}}', JSON
    yield (
        b'{"words": ["cat"], "where": {"$text": {"contains": ' + b"[" * 50 + b"]" * 50 + b"}}}",
        JSON,
    )
    yield json.dumps({"items": [{"text": "a " * 1_900_000}]}).encode(), JSON
    yield json.dumps({"words": ["cat"] * 100_000}).encode(), JSON
    yield tensors[: head // 2], TENSORS
    yield tensors[:-5], TENSORS
    yield b"\xff" * 64, TENSORS
    yield struct.pack("<Q", 2**62) + b"{}", TENSORS
    yield struct.pack("<Q", 2) + b"[]", TENSORS
    yield safetensors.numpy.save({"image": np.full((1, 900), np.nan)}), TENSORS
    yield safetensors.numpy.save({"image": np.zeros((0, 900), np.float32)}), TENSORS
    yield safetensors.numpy.save({"image": np.zeros((3, 0), np.float32)}), TENSORS
    yield safetensors.numpy.save({"image": np.zeros(900, np.float16)}), TENSORS
    yield safetensors.numpy.save({"image": np.zeros((2, 900), bool)}), TENSORS
    yield safetensors.numpy.save({"image": np.zeros((1, 900), np.complex64)}), TENSORS
    lying = {"a:data": np.ones(2), "a:indices": np.array([0, 10**9]), "a:indptr": np.array([0, 2])}
    for widths in ('{"a": 5}', '{"a": -1}', '{"a": 1e99}', '{"b": 3}', "[]", "x", '{"a": null}'):
        yield safetensors.numpy.save(lying, {"sparse": widths}), TENSORS
    wide = {"text:data": np.ones(1), "text:indices": np.zeros(1, int), "text:indptr": [0, 1]}
    wide["text:indptr"] = np.array([0, 1])
    yield safetensors.numpy.save(wide, {"sparse": json.dumps({"text": 2**62})}), TENSORS
    yield safetensors.numpy.save(wide, {"request": "[" * 100_000}), TENSORS
    yield safetensors.numpy.save(wide, {"request": "[1]", "sparse": '{"text": 2048}'}), TENSORS
    whole, kind = form({"items": [{"id": "x"}]}, {"image.0": picture("sky")})
    for cut in (0, 10, 60, 130, len(whole) // 2, len(whole) - 4):
        yield whole[:cut], kind
    yield whole, "multipart/form-data"
    yield whole, "multipart/form-data; boundary="
    yield whole, "multipart/form-data; boundary=other"
    yield whole.replace(b"form-data; name", b"form-data; nome"), kind
    yield whole.replace(b"image.0", b"image.99"), kind
    yield whole.replace(b"image.0", b"../../etc"), kind
    yield b"--7f3a\r\n" * 10_000, kind
    yield form({"items": [{}]}, {f"image.{row}": b"" for row in range(300)})
    yield whole, "text/html"
    yield whole, "\xe4/\xf6"
    for picture_file in broken_pictures():
        yield form({"items": [{"id": "broken", "labels": ["sky"]}]}, {"image.0": picture_file})
        yield form({"items": [{}]}, {"image.0": picture_file})


def broken_pictures():
    whole = picture("sky", form="JPEG", side=200)
    yield whole[:-1]
    yield whole[: len(whole) // 2]
    yield whole[:3]
    yield b""
    yield b"GIF89a" + b"\xff" * 100
    yield b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"
    yield b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    # 64 MB of zeros, squeezed a thousandfold, that claims to be small, and 38 MB that do not
    yield png(9, 9, zlib.compress(b"\0" * (1 << 26), 9))
    yield png(20_000, 1_900, zlib.compress(b"\0" * 20_001 * 1_900, 9)[:-9])
    yield png(6_000, 6_000, b"no data")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("zeros", b"\0" * 10_000_000)
    yield archive.getvalue()


def png(width, height, data):
    def part(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b"")


def test_broken_bodies_are_refused_and_memory_comes_back(server):
    bodies = list(broken_bodies())

    def throw():
        for body, kind in bodies:
            for path in ("search", "ingest"):
                refused(server, path, body, kind)
            refused(server, "delete", body, kind, range(400, 500))
            refused(server, ITEM, body, kind, range(400, 500))

    # the allocator keeps up to about a large picture for each thread that has met one, and after a
    # few throws most of them have; a picture of 38 MB that stayed at each throw would be seen
    levels = []
    for _ in range(3):
        throw()
        levels.append(server.resident())
    for _ in range(4):
        throw()
    n_threads = max(4, 2 * (os.cpu_count() or 1)) + 1
    assert server.resident() < max(levels) + n_threads * (20 << 20)
    assert server.json("POST", "/v1/known", {"ids": ["x"]})[1]["ids"] == []


def test_a_hundred_megabytes_of_nothing_do_not_stay(server):
    level = server.resident()
    nothing = (b"\0" * (1 << 20) for _ in range(100))
    assert refused(server, "ingest", nothing) == 413
    assert refused(server, "ingest", b"\0" * (100 << 20)) == 413
    assert server.resident() < level + (48 << 20)
    assert server.json("GET", "/health/ready")[0] == 200


def test_what_is_no_http_does_no_harm(server):
    for content in (
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\nshort",
        b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/item?id=%00%ff&kind=number HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            try:
                answered = connection.recv(4096)
            except ConnectionResetError:
                answered = b""
            assert not answered.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5"))
    assert server.json("GET", "/health/ready")[0] == 200


def test_the_described_api_answers_as_described(server):
    """Every operation under schemathesis: no 5xx, only the answers that are described."""
    schemathesis = pytest.importorskip("schemathesis")
    checks_of = pytest.importorskip("schemathesis.specs.openapi.checks")
    schema = schemathesis.openapi.from_dict(server.json("GET", "/openapi.json")[1])
    checks = [
        schemathesis.checks.not_a_server_error,
        checks_of.status_code_conformance,
        checks_of.content_type_conformance,
        checks_of.response_schema_conformance,
    ]
    tried = set()
    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(FUZZING, max_examples=12)
        @given(case=operation.as_strategy())
        def ask(case):
            tried.add((case.method, case.path))
            case.call_and_validate(base_url=server.url, checks=checks, timeout=60)

        ask()
    assert len(tried) >= 14


# -- killed under load -------------------------------------------------------------------------

CHUNK = 6


def load_until_killed(server, seed):
    """Write and search, and kill the server meanwhile; return what was acknowledged, and tried."""
    acknowledged, tried = [], []
    ended = threading.Event()

    def write(number):
        with Client(server.url, timeout=30, patience=0) as client:
            for at in range(1000):
                ids = [f"{seed}/{number}/{at}/{row}" for row in range(CHUNK)]
                tried.append(ids)
                X, y = vectors(CHUNK, seed=1000 * number + at)
                try:
                    client.ingest(X, y, ids)
                except BusyError:
                    continue
                except UnreachableError:
                    return
                acknowledged.append(ids)

    def search():
        X, _ = vectors(1)
        with Client(server.url, timeout=30) as client:
            while not ended.is_set():
                try:
                    assert client.search(X, 3)
                except ServiceError:
                    return

    threads = [threading.Thread(target=write, args=(each,)) for each in range(2)]
    threads.append(threading.Thread(target=search))
    for thread in threads:
        thread.start()
    while len(acknowledged) < 2:  # it is at work
        ended.wait(0.01)
    ended.wait(random.Random(seed).uniform(0, 0.4))
    code = server.stop(signal.SIGKILL)
    ended.set()
    for thread in threads:
        thread.join()
    assert code == -signal.SIGKILL
    return acknowledged, tried


def check_after_kill(server, acknowledged, tried):
    with Client(server.url) as client:
        there = client.known(each for ids in tried for each in ids)
        assert_nothing_lost([each for ids in acknowledged for each in ids], there)
        for ids in tried:  # all of a chunk, or nothing of it
            assert len(there.intersection(ids)) in (0, CHUNK)
        assert client.check() == []
        found = client.more_like(acknowledged[-1][0], 3)
        assert len(found) == 3 and client.get(acknowledged[-1][-1]).code


def run_kills(path, seeds):
    fill(path)
    acknowledged, tried = [], []
    for seed in seeds:
        server = Serving(path)
        if tried:
            check_after_kill(server, acknowledged, tried)
        some, all_of_them = load_until_killed(server, seed)
        acknowledged += some
        tried += all_of_them
    with serving(path) as server:
        check_after_kill(server, acknowledged, tried)
    return len(acknowledged)


def test_three_kills_lose_nothing_acknowledged(folder):
    run_kills(folder / "c", range(3))
