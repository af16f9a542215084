"""Ways to ask a service: a process of `oasis serve` on a port of its own choice, or none at all."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Serving:
    """A process that serves a collection, and what it has logged."""

    def __init__(self, path, *options, env=None):
        self.path = path
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "oasis", "serve", str(path), "--port", "0",
             *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "400", "OMP_NUM_THREADS": "1",
                 "OPENBLAS_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
        self.log = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        line = self.process.stdout.readline()
        found = re.search(r"http://(\S+):(\d+)/", line)
        if found is None:
            self.process.kill()
            self._end()
            raise RuntimeError(f"it did not start: {line!r} {''.join(self.log)}")
        self.port = int(found[2])
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)

    def _end(self):
        code = self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def stop(self, number=signal.SIGTERM):
        """Send a signal to this process, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self._end() if not self.process.stdout.closed else self.process.returncode

    def entries(self):
        """What was logged; a line that is no JSON fails here."""
        entries = []
        for line in list(self.log):
            try:
                entries.append(json.loads(line))
            except ValueError:
                raise AssertionError(f"logged, and no JSON: {line!r}") from None
        return entries

    def ask(self, method, path, body=None, headers=None, kind="application/json"):
        """Status, headers and content of one request on a connection of its own."""
        if body is not None and not isinstance(body, (bytes, Iterator)):
            body = json.dumps(body).encode()
        sent = {} if body is None else {"Content-Type": kind}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
                connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None, kind="application/json"):
        status, _, content = self.ask(method, path, body, headers, kind)
        return status, json.loads(content)

    def resident(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096


@contextmanager
def serving(path, *options, env=None):
    server = Serving(path, *options, env=env)
    try:
        yield server
    finally:
        server.stop()


def form(request, files, boundary="7f3a"):
    """A multipart body with its type: the request as JSON, and files by name."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="request"\r\n\r\n'.encode()
        + json.dumps(request).encode()
    ]
    parts += [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="x"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + content
        for name, content in files.items()
    ]
    body = b"\r\n".join([*parts, f"--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def asgi(app, method, path, body=None, headers=None):
    """Ask an application without a server: status and content."""
    return asyncio.run(asgi_async(app, method, path, body, headers))


async def asgi_async(app, method, path, body=None, headers=None):
    sent, head = [], {"host": "localhost", "content-type": "application/json", **(headers or {})}
    if not isinstance(body, bytes):
        body = json.dumps(body).encode() if body else b""
    messages = [{"type": "http.request", "body": body}]

    async def receive():
        if messages:
            return messages.pop(0)
        return await asyncio.Event().wait()  # the caller stays

    async def send(message):
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in head.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    content = b"".join(each.get("body", b"") for each in sent)
    heads = {k.decode(): v.decode() for k, v in start["headers"]}
    return start["status"], heads, json.loads(content) if content[:1] == b"{" else content
