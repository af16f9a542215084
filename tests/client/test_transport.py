"""What a client makes of answers that are not those of its own version, or of no service at all."""

import http.server
import json
import socket
import threading
import time

import pytest

import oasis
from oasis.client import Client
from oasis.client.client import REQUEST_BYTES
from oasis.errors import BusyError, InputError, ServiceError, UnreachableError


@pytest.fixture
def answering():
    """Return a function that starts a server in this process which gives one answer to all.

    ``before`` are answers that it gives first, one each.
    """
    servers = []

    def start(status, body, headers=None, before=()):
        answers = list(before)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                number, content, head = answers.pop(0) if answers else (status, body, headers)
                self.send_response(number)
                for name, value in (head or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


VERSION = {"X-Oasis-Version": "9.9.9"}
STATS = {
    "n_items": 1, "n_seen": 1, "n_rounds": 1, "n_classes": 1, "n_bits": 16, "modalities": {},
    "commits": 1, "journal_entries": 0, "extractor": None, "bytes": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        (404, b"<html>\n<h1>Not Found</h1>", {}, "is no oasis service, or a proxy stands before"),
        (502, b"Bad Gateway", {}, "status 502: 'Bad Gateway'"),
        (200, b"<html>hello</html>", {}, "is no oasis service: it answered /v1/stats with '<html>"),
        (200, b"[1, 2]", {}, "is no oasis service"),
        (200, b'{"hello": 1}', {}, "is no oasis service: its answer lacks 'n_items'"),
        (200, b'{"n_items": 1}', VERSION, "runs oasis 9.9.9, this is oasis " + oasis.__version__),
        (301, b"", {"Location": "https://elsewhere"}, "status 301"),
        (200, b"[" * 100_000, {}, "is no oasis service"),
        (502, b'{"a":' * 100_000, {}, "status 502"),
        (503, b'{"retry_after": "soon"}', {}, "status 503"),
        (503, b'{"retry_after": -1}', {}, "status 503"),
        (503, b"{}", {"Retry-After": "9" * 5_000}, "status 503"),
    ],
)
def test_what_is_no_oasis_service_is_told_in_one_line(answering, status, body, headers, said):
    with Client(answering(status, body, headers)) as client, pytest.raises(ServiceError) as caught:
        client.stats()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_fields_that_this_version_does_not_know_are_left_out(answering):
    url = answering(200, json.dumps({**STATS, "mood": "good"}).encode(), VERSION)
    with Client(url) as client:
        assert client.stats().n_bits == 16 and client.stats().keep_text
        with pytest.raises(ServiceError, match="'results'"):
            client.more_like("a")


def busy(status, seconds):
    content = json.dumps({"type": "urn:oasis:problem:busy", "detail": "come again"}).encode()
    return status, content, {"Retry-After": str(seconds)}


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        (lambda client: client.thumbnail("a"), b"a picture"),
        (lambda client: client.preview("a"), b"a picture"),
        (lambda client: client.stats().n_items, json.dumps(STATS).encode()),
    ],
)
def test_a_busy_service_is_asked_again_with_patience(answering, monkeypatch, ask, body):
    pauses, before = [], [busy(503, 2), busy(429, 3)]
    monkeypatch.setattr(time, "sleep", pauses.append)
    with Client(answering(200, body, VERSION, before), patience=30) as client:
        assert ask(client) in (b"a picture", 1)
    assert pauses == [2, 3]
    with Client(answering(*busy(503, 2)), patience=0) as client, pytest.raises(BusyError):
        ask(client)
    assert pauses == [2, 3]


def test_a_change_that_was_not_sent_is_not_in_doubt():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(UnreachableError) as caught:
        client.delete(["x"])
    assert "may or may not" not in str(caught.value)
    assert str(caught.value) == (
        f"http://127.0.0.1:{port} does not answer: connection refused; is `oasis serve` running "
        "there?"
    )


def test_a_token_that_no_header_can_carry_is_refused_without_being_shown():
    for token in ("", "secret\r\nX-Other: 1", "sécret", "sec\0ret"):
        with pytest.raises(InputError) as caught:
            Client("http://127.0.0.1:8000", token)
        assert "sec" not in str(caught.value) and "séc" not in str(caught.value)


def test_as_many_items_as_fit_into_a_request(tmp_path):
    fitting = Client("http://127.0.0.1:8000").fitting
    limits = {"raw_batch": 256, "json_bytes": 1 << 20, "body_bytes": 64 << 20}
    small = [{"id": row, "text": "a boat"} for row in range(300)]
    assert fitting(small, limits) == 256 and fitting(small[:7], limits) == 7
    long = [{"id": row, "text": "x" * 300_000} for row in range(5)]
    assert fitting(long, limits) == 3 and fitting(long, {**limits, "json_bytes": 9999}) == 0
    path = tmp_path / "a.png"
    path.write_bytes(bytes(REQUEST_BYTES // 2 - 5000))
    pictures = [{"id": row, "image": path if row % 2 else path.read_bytes()} for row in range(5)]
    assert fitting(pictures, limits) == 2
    assert fitting(pictures, {**limits, "body_bytes": REQUEST_BYTES // 2}) == 1
    assert fitting(pictures, {**limits, "body_bytes": REQUEST_BYTES // 3}) == 0
    path.write_bytes(bytes(REQUEST_BYTES + 1))
    assert fitting(pictures[1:], limits) == 1  # alone, whatever its size, if the body allows it
    assert fitting([{"id": 1, "image": tmp_path / "missing.png"}], limits) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://127.0.0.1:port",
        "http://host?token=x",
        "https:/host",
        "photos.oasis",
        "http://a..b",
        f"http://{'a' * 64}",
        "http://two words",
        "http://[::1",
    ],
)
def test_addresses_that_cannot_be_asked_are_refused(url):
    with pytest.raises(InputError, match=r"must be like http://127\.0\.0\.1:8000"):
        Client(url)


def test_a_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(InputError) as caught:
        Client("http://me:secret@127.0.0.1:1")
    assert "secret" not in str(caught.value)
