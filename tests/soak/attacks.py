"""Hostile requests and pictures: no status of 500 or more, and the service goes on."""

from __future__ import annotations

import io
import json
import time

from attackers import attacking, use
from PIL import Image
from service_data import fill, picture, vectors
from serving import form, serving

from tests.service.test_faults import (
    ITEM,
    JSON,
    POSTS,
    TENSORS,
    broken_bodies,
    broken_pictures,
    method_of,
)
from tests.soak.trials import Failure

PATHS = (*POSTS, ITEM, "check")
CHECK_EVERY = 40


def mutated(content, rng):
    """Return a body with some bytes changed, doubled or left out."""
    content = bytearray(content)
    for _ in range(rng.choice([0, 1, 1, 3, 20])):
        if not content:
            break
        at = rng.randrange(len(content))
        how = rng.randrange(4)
        if how == 0:
            content[at] = rng.randrange(256)
        elif how == 1:
            del content[at : at + rng.randrange(1, 9)]
        elif how == 2:
            content[at:at] = content[at : at + rng.randrange(1, 99)]
        else:
            content[at:at] = rng.choice([b"[", b"{", b'"', b"\\ud800", b"1e999", b"null", b"\0"])
    return bytes(content)


def well_formed():
    """Yield requests as they should be, with their type, to be changed."""
    X, _ = vectors(2)
    few = {name: matrix[:1].tolist() for name, matrix in X.items()}
    yield json.dumps({"vectors": few, "k": 3}).encode(), JSON
    yield json.dumps({"words": ["sky"], "k": 3, "where": {"year": {"gte": 2010}}}).encode(), JSON
    yield json.dumps({"like": "item/1", "k": 5, "offset": 2, "payload": False}).encode(), JSON
    yield json.dumps({"items": [{"id": "n", "text": "fur", "labels": ["cat"]}]}).encode(), JSON
    yield json.dumps({"ids": ["item/1", "no"]}).encode(), JSON
    yield json.dumps({"labels": ["cat", "new"], "payload": {"year": 2020}}).encode(), JSON


def attack(trials, server, bodies):
    """Send bodies until the time is over, and look whether the service still answers as before."""
    question = {"words": ["sky"], "k": 3, "where": {"year": {"lt": 2100}}}
    expected = server.json("POST", "/v1/search", question)
    assert expected[0] == 200, expected
    sent = 0
    while trials.go_on():
        with trials.judged():
            trials.number()
            body, kind, path = bodies(trials.rng)
            try:
                status, _, content = server.ask(method_of(path), f"/v1/{path}", body, kind=kind)
            except OSError as error:
                if server.process.poll() is None:
                    raise AssertionError(f"no answer to {path} with {kind}: {error!r}") from error
                raise Failure(f"the service ended with {server.process.returncode}") from error
            sent += 1
            trials.count(acknowledged=status < 300)
            if status >= 500:
                trials.tally.server_errors += 1
                print(f"-- {status} for {path}, {kind}: {content[:300]!r}", flush=True)
            assert b"Traceback" not in content
            if sent % CHECK_EVERY == 0:
                assert server.json("GET", "/health/ready")[0] == 200
                found = server.json("POST", "/v1/search", question)
                assert found[0] == 200 and len(found[1]["results"][0]) == 3, found
    with trials.judged():
        lines = list(server.log)
        strange = [line for line in lines if not is_entry(line)]
        assert not strange, f"lines of the log that are no JSON: {strange[:20]}"
        entries = [json.loads(line) for line in lines]
        bad = [each for each in entries if each["level"] in ("error", "critical")]
        assert not bad, bad[:3]


def is_entry(line):
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def requests(trials):
    known = [*broken_bodies(), *(each for each in well_formed() for _ in range(12))]
    known = [(body, kind) for body, kind in known if len(body) < 1 << 20]

    def bodies(rng):
        body, kind = rng.choice(known)
        kind = kind if rng.random() < 0.9 else rng.choice([JSON, TENSORS, "text/plain"])
        return (
            mutated(body, rng),
            kind,
            rng.choice((*POSTS, ITEM) if rng.random() < 0.95 else PATHS),
        )

    with serving(fill(trials.place()), "--max-body", "16") as server:
        attack(trials, server, bodies)


def pictures(trials):
    broken = [each for each in broken_pictures() if len(each) < 1 << 20]
    whole = [
        picture("sky", seed, form=form) for seed in range(3) for form in ("PNG", "JPEG", "GIF")
    ]
    for kind in ("WEBP", "BMP", "TIFF"):
        out = io.BytesIO()
        Image.open(io.BytesIO(whole[0])).save(out, kind)
        whole.append(out.getvalue())

    def bodies(rng):
        content = rng.choice(broken) if rng.random() < 0.2 else mutated(rng.choice(whole), rng)
        item = {"id": f"hostile {rng.randrange(50)}", "labels": ["sky"]}
        path = rng.choice(["search", "ingest"])
        request = {"items": [item if path == "ingest" else {}], "k": 3}
        if path == "ingest":
            del request["k"]
        return (*form(request, {"image.0": content}), path)

    with serving(fill(trials.place()), "--max-body", "16") as server:
        attack(trials, server, bodies)


def pressure(trials, name):
    """Attack with lawful requests, and measure what others feel; too slow an answer is wrong."""
    with serving(fill(trials.place())) as server:
        use(server.port, 2)
        before = server.resident()
        seconds = max(20.0, trials.seconds - trials.passed() - 65)
        with attacking(server.port, name, seconds):
            felt = use(server.port, seconds)
        peak = server.resident()
        time.sleep(60)
        with trials.judged():
            trials.number()
            trials.count(acknowledged=True)
            told = {kind: round(felt.quantile(kind, 0.99), 3) for kind in felt.seconds}
            later = server.resident()
            print(f"-- {name}: p99 {told} s, {peak >> 20} MB, then {later >> 20} MB", flush=True)
            assert not felt.refused, felt.refused[:3]
            assert told["text"] <= 1 and told["item"] <= 0.25 and told["health"] <= 0.1, told
            assert peak <= 1 << 30 and later - before <= 200 << 20, (before, peak, later)
