"""Untrusted pictures cannot keep the service: they are decoded in processes that are killed."""

import io
import json
import os
import resource
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image
from service_data import fill, picture
from serving import form, serving

from oasis.errors import DataError
from oasis.features.pictures import DeferredPicture, open_picture
from oasis.service.decoding import DecodingProcesses

pytestmark = pytest.mark.slow


def progressive(n_scans, side=3000):
    """A JPEG whose last scan comes again and again: each is a pass over all coefficients."""
    out = io.BytesIO()
    Image.new("L", (side, side), 77).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    last, end = content.rindex(b"\xff\xda"), len(content) - 2
    return content[:end] + content[last:end] * n_scans + content[end:]


@pytest.fixture
def processes():
    made = DecodingProcesses(2, seconds=1.0, max_pixels=10_000_000)
    yield made
    made.close()


def modes():
    rng = np.random.default_rng(1)
    rgb = rng.integers(0, 255, (40, 60, 3), dtype=np.uint8)
    yield Image.fromarray(rgb)
    yield Image.fromarray(np.dstack([rgb, rgb[..., :1]]))  # transparent
    yield Image.fromarray(rng.integers(0, 60_000, (40, 60)).astype(np.uint16))
    yield Image.fromarray(rgb[..., 0])


def test_pixels_are_those_of_decoding_here(processes):
    for image in modes():
        out = io.BytesIO()
        image.save(out, "PNG")
        deferred = DeferredPicture.of(out.getvalue(), processes.within(60))
        there, here = open_picture(deferred), open_picture(out.getvalue())
        np.testing.assert_array_equal(there.square(224), here.square(224))
        assert there.fitted(30).tobytes() == here.fitted(30).tobytes()


def test_what_cannot_be_decoded_is_refused_with_the_same_words(processes):
    for content in (b"", b"no picture", picture("sky")[:100]):
        with pytest.raises(DataError) as here:
            open_picture(content)
        with pytest.raises(DataError) as there:
            processes.decode(content, 10**9, 60)
        assert str(there.value) == str(here.value)
    with pytest.raises(DataError, match="4000 x 4000 pixels, at most 10000000"):
        processes.decode(_png(4000), 10**9, 60)


def _png(side):
    out = io.BytesIO()
    Image.new("L", (side, side)).save(out, "PNG")
    return out.getvalue()


def test_a_hostile_picture_is_killed_and_the_next_one_decoded(processes):
    hostile = progressive(6000)
    assert len(hostile) < 1_000_000
    for _ in range(2):
        with pytest.raises(DataError, match="took more than 1 seconds"):
            processes.decode(hostile, 10**9, 60)
        assert processes.decode(picture("sea"), 10**9, 60).square(8).shape == (8, 8, 3)
    assert len(processes._running) <= 2


def test_the_pictures_of_a_request_share_their_time(processes):
    decode = processes.within(1.5)
    hostile, refused = progressive(6000), []
    for _ in range(6):
        with pytest.raises(DataError) as error:
            decode(hostile, 10**9)
        refused.append(str(error.value))
    assert refused[-1].startswith("the picture is refused: those before it took all of the 1.5")


@pytest.fixture
def many_files():
    """Every descriptor below 1100 is taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] < 1100:
        taken.append(os.dup(taken[0]))
    yield
    for each in taken:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_pictures_are_decoded_beside_many_open_files(processes, many_files):
    processes.seconds = 60.0
    assert processes.decode(picture("sea"), 10**9, 60).square(8).shape == (8, 8, 3)


def test_a_process_whose_answer_was_not_read_is_ended(processes, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(json, "loads", interrupted)
        processes.decode(picture("sky", side=64), 10**9, 60)
    there = processes.decode(picture("sea", side=32), 10**9, 60)
    np.testing.assert_array_equal(there.square(8), open_picture(picture("sea", side=32)).square(8))


def test_closing_gives_up_what_is_being_decoded(processes):
    found = []

    def decode():
        try:
            processes.decode(progressive(6000), 10**9, 60)
        except DataError as error:
            found.append(error)

    processes.seconds = 60.0
    thread = threading.Thread(target=decode)
    thread.start()
    while not processes._running:
        time.sleep(0.01)
    processes.close()
    thread.join()
    assert len(found) == 1
    with pytest.raises(DataError, match="being stopped"):
        processes.decode(picture("sea"), 10**9, 60)


def test_the_service_answers_beside_hostile_pictures_and_stops_when_told(tmp_path):
    """Four such requests stopped it for minutes, and its end too."""
    body, kind = form({"items": [{}]}, {"image.0": progressive(6000)})
    with serving(fill(tmp_path / "c")) as server:
        statuses = []

        def ask():
            statuses.append(server.ask("POST", "/v1/search", body, kind=kind)[0])

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            assert server.json("POST", "/v1/search", {"like": "item/1"})[0] == 200
            assert server.json("POST", "/v1/search", {"items": [{"text": "anchor"}]})[0] == 200
        for thread in threads:
            thread.join()
        assert set(statuses) == {422}
        assert server.stop() == 0
        assert all(each["level"] == "info" for each in server.entries())


def test_memory_of_a_decoder_is_bounded(processes):
    """A TIFF of one strip declares an allowed size; what it claims to hold is not allocated."""
    head = struct.pack("<2sHI", b"II", 42, 8)
    tags = [(256, 4, 1, 3000), (257, 4, 1, 3000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    tags += [(273, 4, 1, 8), (278, 4, 1, 3000), (279, 4, 1, 2**32 - 1)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    broken = head + struct.pack("<H", len(tags)) + entries + struct.pack("<I", 0)
    with pytest.raises(DataError):
        processes.decode(broken, 10**9, 60)
    assert processes.decode(picture("sea"), 10**9, 60).square(8).shape == (8, 8, 3)


@pytest.mark.parametrize("busy", ["change", "search"])
def test_the_process_ends_in_time_whatever_runs(tmp_path, busy):
    """A change, or a search, that takes a minute does not hold up SIGTERM."""
    program = f"""
import signal, socket, sys, threading, time
from oasis.collection import Collection
from oasis.service import Settings, server
server.STOP_SECONDS = 1.0
with Collection.open({str(tmp_path / "c")!r}) as c, server.listen("127.0.0.1", 0) as listening:
    going = threading.Event()
    def slow():
        going.set()
        time.sleep(60)
    if {busy!r} == "change":
        c.checkpoint, asked = slow, b"POST /v1/checkpoint"
    else:
        c.classes, asked = slow, b"GET /v1/classes"
    def ask():
        with socket.create_connection(listening.getsockname()[:2]) as caller:
            caller.sendall(asked + b" HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
            going.wait()
            signal.raise_signal(signal.SIGTERM)
            time.sleep(60)
    server.run(c, listening, Settings(), threading.Thread(target=ask, daemon=True).start)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=40, capture_output=True)
    assert done.returncode == 1, done.stderr
