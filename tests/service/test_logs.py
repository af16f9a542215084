"""The log of a service: lines of JSON on standard error."""

import json
import logging
import math
import signal
import socket
import subprocess
import sys

import pytest
from service_data import fill
from serving import serving

from oasis.service.telemetry import JsonFormatter

BEGIN = """
import asyncio, gc, logging, threading, warnings
from oasis.service.telemetry import LOG, log_as_json
log_as_json()
"""


def logged(program, code=0, begin=BEGIN):
    """What a process logs that logs as JSON; a line that is no JSON fails here."""
    run = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, timeout=60)
    assert run.returncode == code, run.stderr
    return [json.loads(line) for line in run.stderr.splitlines()]


WRITERS = {
    "a record of another logger": """logging.getLogger("asyncio").error("not\\nours: found me")""",
    "a warning": """warnings.warn("found me")""",
    "an exception of a thread": """
def fail(): raise ValueError("found me")
thread = threading.Thread(target=fail); thread.start(); thread.join()""",
    "a task whose exception nobody asked for": """
async def fail(): raise ValueError("found me")
async def main():
    task = asyncio.ensure_future(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()
asyncio.run(main())""",
    "arguments that do not fit a message": """LOG.error("found %d me", "x")""",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", WRITERS.values(), ids=WRITERS)
def test_what_is_logged_is_json(program):
    entries = logged(program)
    assert entries and all({"time", "level", "event"} <= set(each) for each in entries)
    told = json.dumps(entries)
    assert ("found" in told and "me" in told) or "not formatted" in told


@pytest.mark.slow
def test_an_exception_that_ends_the_process_is_json_too():
    (entry,) = logged("raise ValueError('found me')", code=1)
    assert entry["level"] == "critical" and "found me" in entry["exception"]


def record(message="event", args=(), **facts):
    made = logging.makeLogRecord({"name": "oasis.service", "levelname": "INFO", "msg": message})
    made.args, made.facts = args, facts
    return made


class Unspeakable:
    def __str__(self):
        raise RuntimeError("no")

    __repr__ = __str__


def test_a_record_that_cannot_be_formatted_is_told_so():
    loop = []
    loop.append(loop)
    for bad in (
        record("%d", ("x",)),
        record(value=Unspeakable()),
        record(value=math.nan),
        record(value=loop),
    ):
        told = json.loads(JsonFormatter().format(bad))
        assert told["event"] == "not formatted" and told["reason"]
    told = json.loads(JsonFormatter().format(record("a\nb\u2028\ud800", value={1: {2}})))
    assert told["event"] == "a\nb\u2028\ud800" and told["value"] == {"1": "{2}"}


@pytest.mark.slow
def test_a_service_logs_json_whatever_it_is_sent_and_however_it_ends(folder):
    with serving(fill(folder / "c")) as server:
        for head in (b"no http\r\n\r\n", b"\x16\x03\x01", b"GET / HTTP/9.9\r\n\r\n", b"POST"):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(100)
        assert server.ask("GET", "/v1/item?id=%ff%00%0a%22")[0] == 404
        assert server.stop(signal.SIGINT) == 0
    events = [each["event"] for each in server.entries()]
    assert events[-1] == "stopped" and any("Invalid HTTP" in each for each in events)


@pytest.mark.slow
def test_a_service_that_cannot_start_says_so_in_one_plain_line(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "oasis", "serve", str(folder / "c"), "--port", port]
        run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr.startswith("error: cannot listen on") and run.stderr.count("\n") == 1
    assert not (folder / "c").exists()


@pytest.mark.slow
def test_an_error_after_the_start_is_json_and_exit_code_1(folder):
    program = """
import sys
from oasis.service import server
from oasis.errors import StorageError
def run(opened, listening, settings, ready):
    ready()
    raise StorageError("the disk is full")
server.run = run
from oasis.cli import main
sys.argv = ["oasis", "serve", "PATH", "--port", "0"]
main()
""".replace("PATH", str(folder / "c"))
    entries = logged(program, code=1, begin="")
    assert [each["event"] for each in entries] == ["ended by an error"]
    assert "the disk is full" in entries[0]["exception"]
