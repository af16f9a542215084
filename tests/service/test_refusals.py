"""What the service refuses, and who may ask: problems, limits, hosts and tokens."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
import zlib

import pytest
import service_running
from service_data import extractor, fill, picture
from service_running import problem
from serving import asgi, form

from oasis.collection import Collection
from oasis.errors import InputError
from oasis.service import Limits, Settings, Tokens, create_app

server = service_running.server


def test_problems_say_what_is_wrong_and_where(server):
    status, found = problem(server, "POST", "/v1/search", {"words": ["cat"], "k": 0, "mode": "x"})
    assert status == 422
    assert {each["pointer"] for each in found["errors"]} == {"/k", "/mode"}
    status, found = problem(server, "POST", "/v1/search", {"items": [{}, {"text": 3}]})
    assert found["errors"][0]["pointer"] == "/items/1/text"
    cases = [
        ({}, 422),
        ({"words": ["cat"], "like": 1}, 422),
        ({"like": 1.5}, 422),
        ({"like": True}, 422),
        ({"like": "none"}, 404),
        ({"words": ["unheard"]}, 422),
        ({"words": ["cat"], "k": 1001}, 422),
        ({"words": ["cat"], "offset": 10**9}, 422),
        ({"words": ["cat"], "where": {"year": {"near": 1}}}, 422),
        ({"vectors": {"image": [[1, 2], [1]]}}, 422),
        ({"vectors": {"image": []}, "k": 1}, 422),
        ({"items": [{}]}, 422),
        ({"words": ["cat"], "fuse": False}, 422),
        ({"like": "item/1", "fuse": False}, 422),
    ]
    for asked, wanted in cases:
        assert problem(server, "POST", "/v1/search", asked)[0] == wanted, asked
    status, found = problem(server, "POST", "/v1/search", {"like": "item/1", "fuse": False})
    assert "always ranked by codes alone; leave fuse out" in found["detail"]
    assert problem(server, "GET", "/nothing")[0] == 404
    assert problem(server, "GET", "/static/../app.py")[0] == 404
    assert problem(server, "DELETE", "/v1/stats")[0] == 405
    assert problem(server, "POST", "/v1/search", b"{}", kind="text/plain")[0] == 415


def test_a_string_is_never_a_path(server, tmp_path):
    path = tmp_path / "abcd"  # a path that could be base64
    path.write_bytes(picture("sea", 1))
    for text in (str(path), "/etc/hostname", "abcd"):
        status, found = problem(server, "POST", "/v1/search", {"items": [{"image": text}]})
        assert status == 422 and "hostname" not in found["detail"]


def huge_png(side):
    """A PNG that only claims to be large."""

    def part(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", data) + part(b"IEND", b"")


def test_limits_on_sizes(server):
    for side in (7_000, 12_000, 60_000):
        body, kind = form({"items": [{}]}, {"image.0": huge_png(side)})
        status, found = problem(server, "POST", "/v1/search", body, kind=kind)
        assert status == 422 and "pixels" in found["detail"]
        asked = {"items": [{"id": "x", "labels": ["sky"]}]}
        body, kind = form(asked, {"image.0": huge_png(side)})
        status, found = server.json("POST", "/v1/ingest", body, kind=kind)
        assert status == 200 and "pixels" in found["rejected"][0]["reason"]
        body, kind = form({**asked, "strict": True}, {"image.0": huge_png(side)})
        assert problem(server, "POST", "/v1/ingest", body, kind=kind)[0] == 422
    asked = {"items": [{"text": "a"}] * 257}
    assert problem(server, "POST", "/v1/search", asked)[0] == 413
    asked = {"words": ["cat"] * 200, "k": 600}
    assert problem(server, "POST", "/v1/search", asked)[0] == 413
    large = b" " * ((4 << 20) + 1)
    assert problem(server, "POST", "/v1/search", large)[0] == 413
    chunked = (large[: 1 << 20] for _ in range(5))
    assert problem(server, "POST", "/v1/search", chunked)[0] == 413
    assert server.json("GET", "/health/ready")[0] == 200


def test_requests_that_are_ambiguous_or_encoded_are_refused(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n"
        connection.sendall(head + b"Connection: close\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
    for coding, wanted in (("gzip", 415), ("br, gzip", 415), ("identity", 200)):
        headers = {"Content-Encoding": coding}
        asked = ("POST", "/v1/known", {"ids": []})
        assert server.ask(*asked, headers=headers)[0] == wanted


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"[]," * 60_000 + b"[]", "more than 50000 lists and objects"),
        (b"0," * 400_000 + b"0", "more than 300000 values"),
        (b"[" * 150 + b"]" * 150, "more than 100 levels of nesting"),
        (b'"[[[[", ' * 60_000 + b'"\\\\\\"[["', None),
    ],
)
def test_json_is_counted_before_it_is_parsed(server, payload, said):
    items = b'{"items":[{"id":"counted","text":"x","payload":{"a":[' + payload + b"]}}]}"
    patch = b'{"payload":{"a":[' + payload + b"]}}"
    for asked in (("POST", "/v1/ingest", items), ("PATCH", "/v1/item?id=item/1", patch)):
        status, _, content = server.ask(*asked)
        assert (status, status == 413) == ((413, True) if said else (200, False)), content[:300]
        assert said is None or said in json.loads(content)["detail"]


def test_an_update_takes_no_more_than_a_payload_may_have(server):
    large = b'{"payload":{"a":"' + b"x" * (7 << 19) + b'"}}'
    status, found = problem(server, "PATCH", "/v1/item?id=item/1", large)
    assert status == 413 and "3211264 bytes" in found["detail"]


def test_hosts_and_origins_of_others_are_refused(server):
    assert problem(server, "GET", "/v1/stats", headers={"Host": "evil.example"})[0] == 421
    assert server.ask("GET", "/v1/stats", headers={"Host": "LOCALHOST:80"})[0] == 200
    own = f"http://127.0.0.1:{server.port}"
    asked = {"ids": ["none"]}
    for headers, wanted in (
        ({"Origin": own}, 404),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": own, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
    ):
        assert problem(server, "POST", "/v1/delete", asked, headers=headers)[0] == wanted
        status = problem(server, "PATCH", "/v1/item?id=none", {"labels": ["a"]}, headers=headers)[0]
        assert status == wanted


def test_answers_carry_security_headers_and_a_request_id(server):
    for path in ("/", "/v1/stats", "/nothing", "/static/main.js"):
        _, headers, _ = server.ask("GET", path, headers={"X-Request-ID": "mine-1"})
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Request-ID"] == "mine-1"
        assert "server" not in headers
    _, headers, _ = server.ask("GET", "/", headers={"X-Request-ID": 'bad"id'})
    assert headers["X-Request-ID"] != 'bad"id'
    for _ in range(200):  # a file is logged when it was closed, after it has arrived
        told = [each for each in server.entries() if each.get("request_id") == "mine-1"]
        if len(told) == 4:
            break
        time.sleep(0.05)
    assert {each["path"] for each in told} == {"/", "/v1/stats", "/nothing", "/static/main.js"}
    assert all(each["level"] == "info" and each["ms"] > 0 for each in told)


READ, WRITE = "a-token-for-reading", "a-token-for-writing"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({}, {None: (200, 404)}),
        ({"read": READ}, {None: (401, 401), READ: (200, 403), "x": (401, 401)}),
        ({"write": WRITE}, {None: (401, 401), WRITE: (200, 404)}),
        (
            {"read": READ, "write": WRITE},
            {None: (401, 401), READ: (200, 403), WRITE: (200, 404), READ[:-1]: (401, 401)},
        ),
    ],
)
def test_tokens_say_who_may_read_and_write(folder, tokens, expected):
    with Collection.open(fill(folder / "c", 6), extractor=extractor()) as c:
        app = create_app(c, Settings(tokens=Tokens(**tokens)))
        for token, wanted in expected.items():
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            found = (
                asgi(app, "GET", "/v1/stats", None, headers)[0],
                asgi(app, "POST", "/v1/delete", {"ids": ["none"]}, headers)[0],
            )
            assert found == wanted, token
        assert asgi(app, "GET", "/")[0] == asgi(app, "GET", "/health/ready")[0] == 200


def test_tokens_and_limits_that_make_no_sense_are_refused():
    for wrong in ({"read": "short"}, {"read": READ, "write": READ}, {"write": "é" * 20}):
        with pytest.raises(InputError):
            Tokens(**wrong)
    with pytest.raises(InputError, match="ingests"):
        Limits(ingests=0)
    assert READ not in repr(Settings(tokens=Tokens(read=READ)))
    assert Settings.of("0.0.0.0", Tokens(read=READ)).hosts is None


@pytest.mark.slow
def test_other_addresses_need_a_token(folder):
    ran = subprocess.run(
        [sys.executable, "-m", "oasis", "serve", str(folder / "c"), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.endswith("_TOKEN")},
    )
    assert ran.returncode == 1 and "token is needed" in ran.stderr
    assert not (folder / "c").exists()
