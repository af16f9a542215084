"""A stream of changes, and a process that makes them until it is killed.

As a program it waits for lines of JSON, ``[name of a function, directory, first step]``, on its
standard input, forks a child for each and prints the child's number. The child calls the function,
which writes what it has to say into the file ``<directory>.log``. When the child has ended, one way
or the other, the program prints its status. It is single-threaded, so that forking is safe, and
spares every child the imports.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from collection_truth import toy_model
from toy import NAMES, chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.collection.backup import backup
from oasis.collection.milvus import MilvusReplica
from oasis.errors import CollectionError, StorageError
from oasis.scale.milvus import MilvusIndex

SIZES = (34, 3, 1, 40, 2, 6, 1, 33, 5)


def step(number):
    """Return the changes of a step, as (method, arguments)."""
    n = SIZES[number % len(SIZES)]
    bare = 1.0 if number % 11 == 5 else 0.2 * (number % 3)
    X, y = chunk(n, seed=number, bare=bare, classes=NAMES[: 3 + min(7, number)])
    if number == 0:
        y[0] = ["sky"]
    ids = [f"{number}/{row}" if row % 2 else 1000 * number + row for row in range(n)]
    if number % 7 == 6:
        return "delete", ([1000 * old for old in (number - 3, number - 5) if old % 13 != 12],)
    if number % 13 == 12:
        return "checkpoint", ()
    payload = [{"step": number, "row": row} for row in range(n)]
    if number % 7 == 2 and number > 2:
        return "update", (1000 * (number - 2 if number % 13 == 0 else number - 1),)
    if number % 14 == 11:
        old = number - 4 if number % 13 == 0 else number - 1
        ids = step(old)[1][2]
        X, y = chunk(len(ids), seed=number, bare=0.3)
        return "replace", (X, y, ids, [{"step": number, "row": row} for row in range(len(ids))])
    return "ingest", (X, y, ids, payload)


def new_facts(number, learns):
    """Return what an update gives an item: labels, one of which may be new, or payload.

    What ``learns`` from labels needs a vector for each.
    """
    facts = {}
    if number % 3 != 1:
        facts["labels"] = [
            NAMES[number % 10],
            NAMES[number % 7] if learns else f"given in {number}",
        ]
        facts["labels"] = facts["labels"][: 1 + number % 2]
    if number % 3 != 0:
        facts["payload"] = {"step": number, "row": -1}
    return facts


def texts(number, n):
    """Return the texts of a step's items; some have none."""
    words = ["dogs", "a dog", "red bus", "double decker", "黒い猫", "the who"]
    return [
        f"{words[(number + row) % 6]} {words[row % 5]} no. {row}" if row % 4 else None
        for row in range(n)
    ]


def apply(target, number):
    method, arguments = step(number)
    options = {}
    if method in ("ingest", "replace") and hasattr(target, "keep_text"):
        options["texts"] = texts(number, len(arguments[2]))
    elif method == "update":
        setup = getattr(target, "_setup", None)
        learns = setup.keep_features if setup else getattr(target, "kept", None) is not None
        options = new_facts(number, learns)
    if hasattr(target, method):
        getattr(target, method)(*arguments, **options)


def make_changes(directory, first, keeps=None):
    """Make the changes from step ``first`` on, and note each one that was acknowledged."""
    writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 20, 4
    with (
        Path(f"{directory}.log").open("a", buffering=1) as log,
        Collection.open(directory, model=toy_model(), keep_features=keeps, timeout=10) as c,
    ):
        for number in range(first, first + 400):
            apply(c, number)
            log.write(f"{number}\n")


def make_changes_on_a_small_disk(directory, first):
    """Make changes while no file may grow past a number of bytes, then without that limit.

    The number is in ``<directory>.limit``. Beyond it the system refuses to write, to SQLite too.
    """
    writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 20, 4
    limit = int(Path(f"{directory}.limit").read_text())
    with Path(f"{directory}.log").open("a", buffering=1) as log:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            c = Collection.open(directory, model=toy_model(), timeout=10)
        except StorageError:
            return
        for number in range(first, first + 60):
            try:
                apply(c, number)
            except StorageError:
                resource.setrlimit(
                    resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
                )
                try:
                    apply(c, number)
                except CollectionError:  # it wants to be opened again
                    return
            log.write(f"{number}\n")
        c.close()


def trained_model(number=0):
    """Return one of five models that have learned a chunk."""
    return toy_model().partial_fit(*chunk(50, seed=5 + number % 5))


def create_trained(directory, _):
    """Make a collection with a trained model, and note when it is made."""
    with Path(f"{directory}.log").open("a", buffering=1) as log:
        c = Collection.open(directory, model=trained_model(), timeout=10)
        log.write("0\n")
        c.close()


def save_often(directory, first):
    """Save one model after the other to one file, and note each that is saved."""
    models = [trained_model(number) for number in range(5)]
    with Path(f"{directory}.log").open("a", buffering=1) as log:
        for number in range(first, first + 2000):
            models[number % 5].save(Path(directory))
            log.write(f"{number}\n")


def back_up_often(directory, first):
    """Copy a collection again and again, and note each copy that is made."""
    with Path(f"{directory}.log").open("a", buffering=1) as log:
        for number in range(first, first + 400):
            backup(directory, f"{directory}-copy{number}")
            log.write(f"{number}\n")


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_half_sent(index, codes, ids):
    half = len(ids) // 2
    send(index, codes[:half], ids[:half])
    die()


def die_sent(index, codes, ids):
    send(index, codes, ids)
    die()


send = MilvusIndex.add
KILL_POINTS = {
    "half sent": ("ingest", MilvusIndex, "add", die_half_sent),
    "sent": ("ingest", MilvusIndex, "add", die_sent),
    "committed": ("ingest", MilvusReplica, "after_commit", die),
    "deletion committed": ("delete", MilvusReplica, "forget", die),
    "replacement committed": ("replace", MilvusReplica, "forget", die),
}
"""Moments in a change of a collection whose codes are in Milvus: which change passes them, and what
is replaced to die there."""


def change_and_die(point, directory, number):
    """Open, make one step, and die at a point of it."""
    with Collection.open(directory, timeout=10) as c:
        _, owner, name, function = KILL_POINTS[point]
        setattr(owner, name, function)
        apply(c, number)


def read_as_nobody(directory, _):
    """Try to write and to read as a user who may only read."""
    with Path(f"{directory}.log").open("w", buffering=1) as log:
        os.setgid(65534)
        os.setuid(65534)
        try:
            Collection.open(directory)
        except StorageError as error:
            log.write(f"refused: {error}\n")
        with Collection.open(directory, readonly=True) as c:
            log.write(f"found {len(c.search(chunk(1)[0], 3)[0])} {c.check()}\n")


FUNCTIONS = {
    "change": make_changes,
    "change and keep": partial(make_changes, keeps=True),
    "fill": make_changes_on_a_small_disk,
    "create": create_trained,
    "save": save_often,
    "back up": back_up_often,
    "read": read_as_nobody,
} | {f"die {point}": partial(change_and_die, point) for point in KILL_POINTS}


def main():
    make_ready()
    for line in sys.stdin:
        name, directory, first = json.loads(line)
        child = os.fork()
        if not child:
            try:
                FUNCTIONS[name](directory, first)
            except BaseException as error:  # noqa: BLE001 - a child must not go on as its parent
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def make_ready():
    """Do once what every child would have to do: lazy imports inside the libraries."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Collection.open(f"{folder}/c", model=toy_model()) as c,
    ):
        c.ingest(*chunk(3))
        c.search(chunk(1)[0])


if __name__ == "__main__":
    main()
