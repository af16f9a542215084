"""Disks that are full, interrupts and forks: a change is there whole, or it did not happen."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

from collection_truth import Truth, assert_nothing_lost, contents, toy_model
from collection_writer import apply
from toy import chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.errors import CollectionError
from tests.collection.test_faults import assert_is, check_what_is_left
from tests.soak.kills import a_victim
from tests.soak.trials import Failure, in_child


def full(trials):
    """No file may grow past a size: SQLite, model, index and journal meet it at any moment."""
    with a_victim() as victim:
        while trials.go_on():
            with trials.judged():
                directory, truth, done = trials.place(), Truth(), 0
                for _ in range(4):
                    limit = int(10 ** trials.rng.uniform(3.5, 5.7))
                    Path(f"{directory}.limit").write_text(str(limit))
                    status = victim.run("fill", directory, done)
                    if status:
                        raise Failure(f"a writer on a full disk ended with status {status}")
                    log = Path(f"{directory}.log")
                    lines = log.read_text().split() if log.exists() else []
                    acknowledged = int(lines[-1]) + 1 if lines else 0
                    trials.count(acknowledged=acknowledged - done)
                    done = check_what_is_left(directory, truth, done, acknowledged)
                    log.write_text(f"{done - 1}\n" if done else "")


def interrupted(seconds, function):
    """Call a function, with a KeyboardInterrupt after so many seconds; return whether it came."""

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            function()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGALRM, before)
    return False


def interrupts(trials):
    """A writer is interrupted at random moments, in changes and in searches, and goes on."""
    writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 20, 4
    typical = 0.03
    while trials.go_on():
        with trials.judged():
            directory, truth, number = trials.place(), Truth(), 0
            c = Collection.open(directory, model=toy_model())
            while number < 40 and trials.go_on():
                # about half of the steps end before it comes
                seconds = trials.rng.uniform(0, 2 * typical)
                number, came = interrupted_step(seconds, c, truth, number)
                typical *= 1.1 if came else 0.9
                trials.count(acknowledged=not came)
                try:
                    if truth.items:
                        search = partial(c.search, chunk(1)[0], 3)
                        interrupted(trials.rng.uniform(0, 0.01), search)
                        sweep(c, truth)
                        assert_is(c, truth)
                except CollectionError as error:
                    if "open it again" not in str(error):
                        raise
                    c.close()
                    c = Collection.open(directory)
                    assert_is(c, truth)
            c.close()


def interrupted_step(seconds, c, truth, number):
    """Make a step that is interrupted; return the next one, and whether the interrupt came."""
    came = interrupted(seconds, partial(apply, c, number))
    if came and contents(c) == truth.items:
        return number, True
    before = [item[0] for item in truth.items]
    apply(truth, number)
    there = {item[0] for item in truth.items}
    assert_nothing_lost(there.intersection(before), [item[0] for item in contents(c)])
    return number + 1, came


def sweep(c, truth):
    """Change something: a file that an interrupt has left goes with the next commit."""
    for target in (c, truth):
        target.ingest(*chunk(1, seed=8), ["one more"])
        target.delete(["one more"])


def forks(trials):
    """Forked children use and close what they have inherited; the parent goes on."""
    while trials.go_on():
        with trials.judged():
            truth = Truth()
            with Collection.open(trials.place(), model=toy_model()) as c:
                apply(c, 0)
                apply(truth, 0)
                for number in range(1, 12):
                    use = trials.rng.choice(
                        [
                            c.close,
                            c.checkpoint,
                            lambda: c.delete([1]),
                            lambda: c.ingest(*chunk(3, seed=9)),
                            lambda: c.search(chunk(1)[0]),
                        ]
                    )

                    def child(use=use):
                        try:
                            return use()
                        except CollectionError as error:
                            return error

                    text = in_child(child)
                    assert "before it forked" in text or (use == c.close and text == "None"), text
                    apply(c, number)
                    apply(truth, number)
                    trials.count(acknowledged=1)
                assert_is(c, truth)
            with Collection.open(c.path) as c:
                assert_is(c, truth)
