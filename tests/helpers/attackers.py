"""Lawful requests that keep a service busy, and what its other users feel meanwhile.

``python tests/helpers/attackers.py PORT NAME SECONDS`` attacks a service on loopback from the
address 127.0.0.2, in a process of its own: `attacking` starts it. Users come from 127.0.0.1.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

SOURCE = "127.0.0.2"
N = 12
JSON = {"Content-Type": "application/json"}


def call(port, method, path, body=None, headers=JSON, source="127.0.0.1", read=True, timeout=40):
    """One request on a connection of its own: its status, or 0 where there was no answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout, source_address=(source, 0))
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
            connection.request(method, path, body, headers)
        if not read:
            time.sleep(3)
            return 0
        response = connection.getresponse()
        response.read()
        return response.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


# -- attacks -----------------------------------------------------------------------------------

WORDS = " ".join(f"word{n} boat" for n in range(20_000))


def _search(**asked):
    return "POST", "/v1/search", json.dumps(asked).encode(), JSON


def _ingest(payload):
    body = b'{"items":[{"id":"n","text":"x","payload":{"a":[' + payload + b"]}}]}"
    return "POST", "/v1/ingest", body, JSON


def _patch(payload):
    return "PATCH", "/v1/item?id=item/1", b'{"payload":{"a":[' + payload + b"]}}", JSON


def _picture(content):
    head = b'--b\r\nContent-Disposition: form-data; name="%s"; filename="x"\r\n\r\n%s\r\n'
    body = head.replace(b'; filename="x"', b"") % (b"request", b'{"items": [{}]}')
    body += head % (b"image.0", content) + b"--b--\r\n"
    return "POST", "/v1/search", body, {"Content-Type": "multipart/form-data; boundary=b"}


def _bomb(side=6000):
    from PIL import Image

    out = io.BytesIO()
    Image.new("L", (side, side), 77).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    last, end = content.rindex(b"\xff\xda"), len(content) - 2
    return content[:end] + content[last:end] * 3000 + content[end:]


def _vectors(n, k):
    rows = ",".join("[" + ",".join(["0.25"] * 900) + "]" for _ in range(n))
    body = f'{{"vectors": {{"image": [{rows}]}}, "k": {k}}}'
    return "POST", "/v1/search", body.encode(), JSON


REQUESTS = {
    "words": lambda: [
        _search(words=["sky"] * 100, k=1000),
        _search(words=["sky"] * 100, k=100),
        _search(words=["sky"] * 10, k=1000),
    ],
    "texts": lambda: [
        _search(items=[{"text": "boat wave"}] * 100, k=1000),
        _search(items=[{"text": "boat wave"}] * 100, k=100),
        _search(items=[{"text": WORDS[:14_000]}] * 250, k=40),
    ],
    "long texts": lambda: [
        ("POST", "/v1/suggest", json.dumps({"text": "x" * (1 << 20)}).encode(), JSON),
        ("POST", "/v1/suggest", json.dumps({"text": WORDS[:65_000]}).encode(), JSON),
        _search(items=[{"text": WORDS[:130_000] * 8}] * 3),
        _search(items=[{"text": WORDS[:65_000]}] * 60),
    ],
    "lists": lambda: [_ingest(b",".join([b"[]"] * 4_000_000)), _ingest(b"0," * 7_999_999 + b"0")],
    "updates": lambda: [
        _patch(b",".join([b"[]"] * 4_000_000)),
        _patch(b",".join([b"[]"] * 90_000)),
        _patch(b"0," * 500_000 + b"0"),
    ],
    "labels": lambda: [
        (
            "POST",
            "/v1/ingest",
            json.dumps({"items": [{"id": "n", "text": "x", "labels": [""] * 900_000}]}).encode(),
            JSON,
        )
    ],
    "vectors": lambda: [_vectors(500, 20), _vectors(400, 25), _vectors(100, 100)],
    "pictures": lambda: [_picture(_bomb())],
    "filters": lambda: [
        _search(words=["sky"], where={"year": {"in": list(range(500_000))}}),
        _search(words=["sky"], where={"$any": [{"year": {"lt": n}} for n in range(30)]}, k=1000),
    ],
}
"""Requests that N connections send one after the other."""


def _repeat(port, until, read=True):
    def attack(requests):
        def one(number):
            while time.time() < until:
                for at in range(len(requests)):
                    request = requests[(at + number) % len(requests)]
                    call(port, *request, source=SOURCE, read=read)

        _in_threads(one, N)

    return attack


def _in_threads(work, n):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(n)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def unread(port, until):
    """Searches whose answers nobody takes, 40 connections at a time."""
    body = json.dumps({"words": ["sky"] * 100, "k": 100}).encode()
    head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def one(_):
        while time.time() < until:
            held = []
            for _ in range(10):
                with suppress(OSError):
                    held.append(_connected(port, SOURCE))
                    held[-1].sendall(request * 3)
            time.sleep(2)
            for each in held:
                each.close()

    _in_threads(one, 4)


def slow_heads(port, until):
    """Connections whose requests never end."""
    held = []
    while time.time() < until:
        with suppress(OSError):
            held.append(_connected(port, SOURCE))
            held[-1].sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nX-")
        time.sleep(0.005)
        if len(held) > 600:
            held.pop(0).close()
    for each in held:
        each.close()


def held_bodies(port, until):
    """Bodies of which the last byte never comes."""
    head = b"POST /v1/ingest HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/x-safetensors\r\nContent-Length: %d\r\n\r\n" % (60 << 20)

    def one(_):
        while time.time() < until:
            with suppress(OSError), _connected(port, SOURCE) as held:
                held.sendall(head)
                for _ in range(59):
                    held.sendall(b"\0" * (1 << 20))
                time.sleep(max(0.0, min(3.0, until - time.time())))

    _in_threads(one, 8)


def pipelined(port, until):
    """Thousands of requests sent at once on each of many connections, from six addresses."""
    flood = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20_000

    def one(number):
        while time.time() < until:
            with suppress(OSError), _connected(port, f"127.0.0.{60 + number}") as held:
                held.sendall(flood)

    _in_threads(one, 6)


def _connected(port, source):
    return socket.create_connection(("127.0.0.1", port), 3, source_address=(source, 0))


HELD = {
    "unread": unread,
    "slow heads": slow_heads,
    "held bodies": held_bodies,
    "pipelined": pipelined,
}
NAMES = (*REQUESTS, *HELD)


def attack(port, name, seconds):
    until = time.time() + seconds
    if name in HELD:
        HELD[name](port, until)
    else:
        _repeat(port, until)(REQUESTS[name]())


@contextmanager
def attacking(port, name, seconds):
    """A process that attacks; it is ended at the latest at the end."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(port), name, str(seconds)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# -- users -------------------------------------------------------------------------------------


@dataclass
class Felt:
    """What users felt: seconds by kind of request, and statuses other than 200."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: list[tuple[str, int]] = field(default_factory=list)

    def quantile(self, kind, share):
        times = sorted(self.seconds[kind])
        return times[min(len(times) - 1, int(share * len(times)))]


ASKED = {
    "text": ("POST", "/v1/search", b'{"items": [{"text": "boat wave"}], "k": 10}'),
    "item": ("GET", "/v1/item?id=item/1", None),
    "like": ("POST", "/v1/search", b'{"like": "item/1", "k": 10}'),
    "health": ("GET", "/health/live", None),
}


def use(port, seconds, n_users=6, pause=0.1):
    """Ask as people do, for some seconds; each user in turn searches, opens an item, and so on."""
    felt, until = Felt({kind: [] for kind in ASKED}), time.time() + seconds
    kinds = ("text", "item", "text", "like")

    def one(number):
        own = kinds if number < n_users else ("health",)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        at = number
        while time.time() < until:
            kind = own[at % len(own)]
            at += 1
            began = time.perf_counter()
            try:
                connection.request(*ASKED[kind][:2], ASKED[kind][2], JSON)
                response = connection.getresponse()
                response.read()
                status = response.status
            except (OSError, http.client.HTTPException):
                connection.close()
                status = 0
            felt.seconds[kind].append(time.perf_counter() - began)
            if status != 200:
                felt.refused.append((kind, status))
            time.sleep(pause if number < n_users else pause / 5)
        connection.close()

    _in_threads(one, n_users + 1)
    return felt


if __name__ == "__main__":
    attack(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
