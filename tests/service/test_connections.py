"""Connections that never finish their request's head, or never end it, stop nobody."""

import asyncio
import socket

import pytest
from service_data import fill
from serving import serving

from oasis.service import Limits, Settings
from oasis.service.server import protocol_of

HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"


async def _app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"served"})


def with_server(limits, ask, proxies=frozenset(), most=1000, app=_app):
    """Run a coroutine function of a port beside a server of these limits."""
    import uvicorn

    async def both():
        config = uvicorn.Config(
            app,
            http=protocol_of(Settings(limits, proxies=proxies), most),
            lifespan="off",
            log_config=None,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        listening = socket.create_server(("127.0.0.1", 0))
        await server.startup([listening])
        try:
            return await ask(listening.getsockname()[1])
        finally:
            server.should_exit = True
            await server.shutdown([listening])
            listening.close()

    return asyncio.run(both())


async def exchange(port, *parts):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", HEAD, b"GET"])
def test_a_head_that_does_not_end_is_given_up(sent):
    async def ask(port):
        return await exchange(port, sent)

    found = with_server(Limits(head_seconds=0.1), ask)
    assert found.startswith(b"HTTP/1.1 408") and b"problem+json" in found


def test_a_head_without_end_is_cut_off():
    async def ask(port):
        whole = HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n"
        endless = await exchange(port, HEAD + b"X: ", *[b"x" * 10_000] * 1000)
        return await exchange(port, whole), endless

    whole, endless = with_server(Limits(), ask)
    assert whole.startswith(b"HTTP/1.1 431") and b"served" not in whole
    assert endless[:12] in (b"HTTP/1.1 431", b"")  # it may be reset while more is being sent


def test_heads_of_many_requests_on_one_connection_do_not_add_up():
    async def ask(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5):  # 100 kB in all, more than one head may have
            writer.write(HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n")
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.close()
        return True

    assert with_server(Limits(), ask)


@pytest.mark.parametrize("n", [1, 16, 17, 5000])
def test_few_requests_wait_on_a_connection(n):
    async def ask(port):
        answered = await exchange(port, (HEAD + b"\r\n") * n + HEAD + b"Connection: close\r\n\r\n")
        if n <= 16:
            return answered
        try:
            return await exchange(port, HEAD + b"Connection: close\r\n\r\n")
        except ConnectionError:
            return b""

    found = with_server(Limits(), ask)
    # one is answered while so many wait; who sends more is shut out for a second
    assert found.count(b"HTTP/1.1 200") == (n + 1 if n <= 16 else 0)


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (b"http://localhost/health/live", 200),
        (b"http://LOCALHOST/health/live", 200),
        (b"http://evil.example/health/live", 400),
        (b"http://localhost:99/health/live", 400),
        (b"http://[/", 400),
    ],
)
def test_an_absolute_address_must_be_that_of_the_host(url, status):
    async def ask(port):
        return await exchange(
            port, b"GET " + url + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )

    assert with_server(Limits(), ask).startswith(b"HTTP/1.1 %d" % status)


def test_a_caller_who_takes_no_answer_is_cut_off():
    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
        ended.append("sent")

    ended = []

    async def ask(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(HEAD + b"\r\n")
        while not ended:  # it ends without an answer being taken
            await asyncio.sleep(0.01)
        writer.transport.abort()
        return reader

    with_server(Limits(body_seconds=0.1), ask, app=large)
    assert ended


@pytest.mark.parametrize(("proxies", "most"), [((), 1000), (("127.0.0.1",), 1000), ((), 3)])
def test_connections_of_an_address_are_counted(proxies, most):
    async def ask(port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await asyncio.sleep(0)
        one = await exchange(port, HEAD + b"Connection: close\r\n\r\n")
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        again = b""
        while not again.startswith(b"HTTP/1.1 200"):  # the server learns of each end on its own
            again = await exchange(port, HEAD + b"Connection: close\r\n\r\n")
        return one

    limits = Limits(connections=5 if most > 3 else 100)
    found = with_server(limits, ask, frozenset(proxies), most)
    assert found.startswith(b"HTTP/1.1 200" if proxies else b"HTTP/1.1 503")


@pytest.mark.slow
def test_forwarded_addresses_are_believed_where_told(tmp_path):
    path = fill(tmp_path / "c")
    forwarded = {"X-Forwarded-For": "192.0.2.7"}
    for options, expected in (((), "127.0.0.1"), (("--proxy", "127.0.0.1"), "192.0.2.7")):
        with serving(path, *options, env={"FORWARDED_ALLOW_IPS": "*"}) as server:
            assert server.ask("GET", "/health/live", headers=forwarded)[0] == 200
            server.stop()
            (client,) = [e["client"] for e in server.entries() if e["event"] == "request"]
            assert client == expected
