"""Standard error of a service holds lines of JSON, whoever writes there, and however."""

import io
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from service_data import fill
from serving import serving

from oasis.service.http.logs import JsonFormatter, LineHandler

BEGIN = """
import asyncio, ctypes, faulthandler, gc, logging, os, signal, subprocess, sys, threading, warnings
from oasis.service.http.logs import LOG, JsonOnStderr
log = JsonOnStderr()
"""


def logged(program, code=0, begin=BEGIN):
    """What a process logs that begins with `JsonOnStderr`; a line that is no JSON fails here."""
    run = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, timeout=60)
    assert run.returncode == code, run.stderr
    return [json.loads(line) for line in run.stderr.splitlines()]


WRITERS = {
    "a record of another logger": """logging.getLogger("asyncio").error("not\\nours: found me")""",
    "a warning": """warnings.warn("found me")""",
    "a warning after the function that prints them was put back": """
log.restore()
with warnings.catch_warnings():
    log = JsonOnStderr()
warnings.warn("found me")""",
    "an exception of a thread": """
def fail(): raise ValueError("found me")
thread = threading.Thread(target=fail); thread.start(); thread.join()""",
    "an exception of a destructor": """
class Failing:
    def __del__(self): raise ValueError("found me")
Failing()""",
    "a task whose exception nobody asked for": """
async def fail(): raise ValueError("found me")
async def main():
    task = asyncio.ensure_future(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()
asyncio.run(main())""",
    "a logger with a handler of its own": """
own = logging.getLogger("own"); own.propagate = False
own.addHandler(logging.StreamHandler()); own.error("found me")""",
    "arguments that do not fit a message": """LOG.error("found %d me", "x")""",
    "a print without an end": """print("found me", end="", file=sys.stderr)""",
    "a library of C": """os.write(2, b"found \\xff me\\n")""",
    "a child process": """
subprocess.run([sys.executable, "-c", "import os; os.write(2, b'found me')"])""",
    "the interpreter's own dump": """
def found_me(): faulthandler.dump_traceback()
found_me()""",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", WRITERS.values(), ids=WRITERS)
def test_whoever_writes_to_standard_error_writes_json(program):
    entries = logged(program)
    assert entries and all({"time", "level", "event"} <= set(each) for each in entries)
    told = json.dumps(entries)
    assert ("found" in told and "me" in told) or "not formatted" in told


@pytest.mark.slow
def test_an_exception_that_ends_the_process_is_json_too():
    (entry,) = logged("raise ValueError('found me')", code=1)
    assert entry["level"] == "critical" and "found me" in entry["exception"]


@pytest.mark.slow
def test_what_is_torn_down_last_is_json_too():
    (entry,) = logged("""
class Failing:
    def __del__(self): raise ValueError("found me")
keep = Failing()
keep.itself = keep""")
    assert entry["level"] == "error" and "found me" in entry["exception"]


@pytest.mark.slow
def test_a_library_that_floods_standard_error_stops_nothing():
    entries = logged("""
write = ctypes.PyDLL(None).write  # keeps the lock of the interpreter, as an extension may
write(2, b"x" * 1_000_000 + b"\\n", 1_000_001)
LOG.info("done")""")
    assert entries[-1]["event"] == "done" or entries[0]["event"] == "done"
    assert all(len(each.get("text", "")) <= 1 << 17 for each in entries)


@pytest.mark.slow
def test_long_lines_of_many_threads_are_whole_where_the_reader_is_slow():
    program = """
os.set_blocking(log._stderr, False)  # as a parent may have done to the pipe it gave us
def write(letter):
    for _ in range(5):
        LOG.info("line", extra={"facts": {"text": letter * 200_000}})
threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
for each in threads: each.start()
for each in threads: each.join()
"""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN + program], stderr=subprocess.PIPE, bufsize=0
    ) as run:
        found = b""
        while block := run.stderr.read(5_000):  # a tenth of what the pipe holds
            found += block
    assert run.returncode == 0
    texts = sorted(json.loads(line)["text"] for line in found.splitlines())
    assert texts == sorted(letter * 200_000 for letter in "abcd" for _ in range(5))


@pytest.mark.slow
def test_a_log_that_nobody_reads_any_more_stops_nothing():
    reading, writing = os.pipe()
    os.close(reading)
    program = "LOG.info('lost'); os.write(2, b'lost'); print('done')"
    run = subprocess.run(
        [sys.executable, "-c", BEGIN + program], stdout=subprocess.PIPE, stderr=writing, timeout=60
    )
    os.close(writing)
    assert (run.returncode, run.stdout) == (0, b"done\n")


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


def test_a_line_is_written_to_its_end_before_the_next_one(monkeypatch):
    written = io.BytesIO()

    def write(_, data):  # as an interrupted write does: a part, which other threads then follow
        return written.write(bytes(data[:7]))

    monkeypatch.setattr(os, "write", write)
    handler = LineHandler(99)
    threads = [
        threading.Thread(target=lambda: [handler.handle(record("x" * 50)) for _ in range(20)])
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    lines = written.getvalue().splitlines()
    assert len(lines) == 80 and {json.loads(line)["event"] for line in lines} == {"x" * 50}


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
