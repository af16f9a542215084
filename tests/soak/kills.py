"""Processes that are killed: nothing that was acknowledged is lost, nothing is half done."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from collection_truth import Lost, Truth, assert_nothing_lost, assert_same_model, contents
from collection_victim import Victim
from collection_writer import apply, trained_model
from toy import chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.model import OASIS
from tests.collection.test_faults import check_what_is_left, kill_often
from tests.soak.trials import Failure, Skipped


@contextmanager
def a_victim():
    victim = Victim()
    try:
        yield victim
    finally:
        victim.close()


def killed(victim, name, directory, first, seconds):
    """Run a function of the victim and kill it; return the numbers that it has noted."""
    status = victim.run(name, directory, first, seconds)
    if status not in (0, -signal.SIGKILL):
        raise Failure(f"{name} ended with status {status}")
    log = Path(f"{directory}.log")
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def measured_pace(victim, directory):
    """Return how many times longer than 0.1 s a writer takes for its first ten changes."""
    child = victim.start("change", directory)
    began = time.monotonic()
    log = Path(f"{directory}.log")
    while not log.exists() or len(log.read_text().split()) < 10:
        time.sleep(0.005)
        if time.monotonic() > began + 60:
            break
    pace = (time.monotonic() - began) / 0.1
    victim.kill(child)
    victim.status()
    return max(1.0, pace)


def collection(trials):
    """A writer is killed at random moments."""
    with a_victim() as victim:
        pace = measured_pace(victim, trials.place())
        while trials.go_on():
            with trials.judged():
                folder = trials.place()
                folder.mkdir()
                seed = trials.seed * 1000 + trials.number()
                kill_often(victim, folder, 9, seed, pace=pace, count=trials.count)


def creation(trials):
    """A process that makes a collection with a trained model is killed."""
    model = trained_model()
    with a_victim() as victim:
        pace = measured_pace(victim, trials.place())
        while trials.go_on():
            with trials.judged():
                directory = trials.place()
                made = killed(victim, "create", directory, 0, pace * trials.rng.uniform(0, 0.08))
                trials.count(acknowledged=len(made))
                if made and not list(directory.glob("model-*")):
                    raise Lost("a collection that was made has no model")
                with Collection.open(directory, model=model) as c:
                    assert c.stats().n_seen == 50
                    assert_same_model(c.model, model)
                    c.ingest(*chunk(4, seed=6))
                    assert c.check() == []


def saving(trials):
    """A process that saves models to one file is killed."""
    models = [trained_model(number) for number in range(5)]
    with a_victim() as victim:
        pace = measured_pace(victim, trials.place())
        while trials.go_on():
            with trials.judged():
                path, done = trials.place(), 0
                for _ in range(10):
                    seconds = pace * trials.rng.uniform(0.05, 0.25)
                    noted = killed(victim, "save", path, done, seconds)
                    acknowledged = noted[-1] + 1 if noted else 0
                    trials.count(acknowledged=acknowledged - done)
                    if not path.exists():
                        assert_nothing_lost(noted, [])
                        continue
                    loaded = OASIS.load(path)
                    numbers = [acknowledged - 1, acknowledged]
                    found = [n for n in numbers if n >= 0 and same(loaded, models[n % 5])]
                    if not found:
                        raise Lost("the file holds neither the model saved last nor the next")
                    done = found[-1] + 1
                    Path(f"{path}.log").write_text(f"{done - 1}\n")


def same(a, b):
    try:
        assert_same_model(a, b)
    except AssertionError:
        return False
    return True


def backups(trials):
    """A process that copies a collection is killed."""
    with a_victim() as victim:
        pace = measured_pace(victim, trials.place())
        while trials.go_on():
            with trials.judged():
                directory = trials.place()
                with Collection.open(directory, model=trained_model()) as c:
                    for number in range(12):
                        apply(c, number)
                    items = contents(c)
                    for kill in range(4):
                        seconds = pace * trials.rng.uniform(0, 0.2)
                        noted = killed(victim, "back up", directory, 1000 * kill, seconds)
                        mine = [n for n in noted if n >= 1000 * kill]
                        trials.count(acknowledged=len(mine))
                        copies = list(directory.parent.glob(f"{directory.name}-copy*"))
                        names = {copy.name.rpartition("copy")[2] for copy in copies}
                        assert_nothing_lost(map(str, noted), names)
                        for copy in copies[-3:]:
                            with Collection.open(copy, readonly=True) as copied:
                                assert copied.check() == []
                                assert contents(copied) == items


N_LINES = 2000


def command_line(trials):
    """`oasis ingest` is killed, and given again until it is done."""
    words = ["sky", "sea", "boat", "wave", "anchor", "bird", "cloud", "fur", "paw", "whisker"]
    lines = trials.folder / "items.jsonl"
    with lines.open("w") as file:
        for number in range(N_LINES):
            text = " ".join(words[(number * step) % 10] for step in (1, 3, 7))
            row = {"id": number, "text": text, "labels": [words[number % 4]]}
            file.write(json.dumps(row) + "\n")
    began = time.monotonic()
    whole = oasis_ingest(trials.place(), lines)
    if whole.wait():
        raise Failure(f"oasis ingest ended with {whole.returncode}: {whole.stderr.read()}")
    whole.stderr.close()
    seconds = time.monotonic() - began
    while trials.go_on():
        with trials.judged():
            directory, seen = trials.place(), set()
            while len(seen) < N_LINES and trials.go_on():
                process = oasis_ingest(directory, lines)
                try:
                    process.wait(seconds * trials.rng.uniform(0.2, 1))
                except subprocess.TimeoutExpired:
                    process.kill()
                code, said = process.wait(), process.stderr.read().decode()
                process.stderr.close()
                if code not in (0, -signal.SIGKILL):
                    raise Failure(f"oasis ingest ended with {code}: {said[-2000:]}")
                there = ids_of(directory)
                trials.count(acknowledged=len(there - seen))
                assert_nothing_lost(seen, there)
                assert len(there) % 256 == 0 or len(there) == N_LINES
                assert code or len(there) == N_LINES
                seen = there


def oasis_ingest(directory, lines):
    return subprocess.Popen(
        [sys.executable, "-m", "oasis", "ingest", str(directory), str(lines), "--bits", "32",
         "--text-extractor", "words"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def ids_of(directory):
    if not (directory / "catalog.sqlite").exists():
        return set()
    try:
        with Collection.open(directory, readonly=True) as c:
            assert c.check() == []
            return {item.id for item in c.items()}
    except Exception as error:
        if "only just being made" in str(error):  # killed before there was anything
            return set()
        raise


def service(trials):
    """`oasis serve` is killed under load."""
    from tests.service.test_faults import run_kills

    while trials.go_on():
        with trials.judged():
            first = trials.seed * 10_000 + 10 * trials.number()
            trials.count(run_kills(trials.place(), range(first, first + 3)), tried=3)


def milvus(trials):
    """The Milvus server is killed while an index, and a collection, write to it."""
    from milvus_server import NoServer, running

    from tests.collection.test_milvus_faults import kill_the_server_often
    from tests.scale.test_milvus_faults import killed_while_ingesting

    writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 20, 4
    try:
        with running(quick=True) as server:
            while trials.go_on():
                with trials.judged():
                    number = trials.number()
                    address = f"{server.uri}/soak_{os.getpid()}_{number}"
                    seed = trials.seed * 1000 + number
                    folder = trials.place()
                    folder.mkdir()
                    done = kill_the_server_often(folder, server, address, 1, seed)
                    trials.count(done)
                    trials.count(killed_while_ingesting(server, f"soak_{number}", 1, seed))
    except NoServer as reason:
        raise Skipped(str(reason)) from None


def snapshots(trials):
    """A writer is stopped, its directory copied, and the copy opened."""
    with a_victim() as victim:
        while trials.go_on():
            with trials.judged():
                directory, truth, done = trials.place(), Truth(), 0
                child = victim.start("change", directory)
                try:
                    for number in range(12):
                        time.sleep(trials.rng.uniform(0, 0.15))
                        copy = directory.with_name(f"{directory.name}-{number}")
                        acknowledged = copy_of_stopped(child, directory, copy)
                        trials.count(acknowledged=acknowledged - done)
                        while done < acknowledged:
                            apply(truth, done)
                            done += 1
                        if copy.exists():
                            check_what_is_left(copy, truth.copied(), done, done)
                            shutil.rmtree(copy)
                except ProcessLookupError:
                    pass  # it has made all of its changes
                finally:
                    victim.kill(child)
                    victim.status()


def copy_of_stopped(child, directory, copy):
    """Stop a process, copy its directory, let it go on; return how many changes it had noted."""
    os.kill(child, signal.SIGSTOP)
    try:
        log = Path(f"{directory}.log")
        lines = log.read_text().split() if log.exists() else []
        if directory.exists():
            shutil.copytree(directory, copy)
        return int(lines[-1]) + 1 if lines else 0
    finally:
        os.kill(child, signal.SIGCONT)
