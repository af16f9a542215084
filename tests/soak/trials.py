"""What a row of the soak is given: a place, a seed, a time to stop, and a tally to keep."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from collection_truth import Lost

_SAY_EVERY = 2.0


@dataclass
class Tally:
    """What one row has found.

    Attributes
    ----------
    tried : faults, or requests, or chunks of the long run
    acknowledged : changes that were acknowledged meanwhile
    lost : trials after which something acknowledged was not there
    crashed : processes that ended by a signal nobody sent, and errors that are none of ours
    wrong : answers that differ from the truth, damage that was not noticed, growth
    server_errors : answers with a status of 500 or more
    """

    tried: int = 0
    acknowledged: int = 0
    lost: int = 0
    crashed: int = 0
    wrong: int = 0
    server_errors: int = 0

    @property
    def is_clean(self):
        return not (self.lost or self.crashed or self.wrong or self.server_errors)


class Skipped(Exception):
    """The row cannot run here; the message says why."""


class Failure(Exception):
    """A process that ended where it should not have; counted as a crash."""


class Trials:
    """The trials of one row.

    Parameters
    ----------
    folder : an empty directory
    seed : what every draw depends on
    seconds : how long to go on; at least one trial is made
    """

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.folder, self.seed, self.seconds = folder, seed, seconds
        self.rng = random.Random(seed)
        self.tally = Tally()
        self._began = time.monotonic()
        self._parent = os.getppid()
        self._said = 0.0
        self._numbers = 0

    def go_on(self):
        """Return whether there is time for another trial."""
        is_orphan = os.getppid() != self._parent  # the program was ended
        return not is_orphan and (not self.tally.tried or self.passed() < self.seconds)

    def passed(self):
        return time.monotonic() - self._began

    def number(self):
        """Return a new number, for names and seeds."""
        self._numbers += 1
        return self._numbers

    def place(self):
        """Return a path that is not there yet."""
        return self.folder / f"{self.number()}"

    def count(self, acknowledged=0, tried=1):
        self.tally.tried += tried
        self.tally.acknowledged += acknowledged
        self.say()

    @contextmanager
    def judged(self):
        """Turn what is raised into a count, and print it."""
        try:
            yield
        except Skipped:
            raise
        except Lost:
            self.tally.lost += 1
            self._explain()
        except AssertionError:
            self.tally.wrong += 1
            self._explain()
        except Exception:  # noqa: BLE001 - whatever it is, it is a fault that is counted
            self.tally.crashed += 1
            self._explain()

    def _explain(self):
        sys.stderr.write(f"-- seed {self.seed}, trial {self._numbers}\n{traceback.format_exc()}\n")

    def say(self, always=False):
        """Tell the program how far it is."""
        if always or self.passed() - self._said > _SAY_EVERY:
            self._said = self.passed()
            print(json.dumps(asdict(self.tally)), flush=True)


def in_child(function, seconds=120):
    """Run a function in a forked child and return what it returns as text.

    An error that is not caught, or a signal, is a `Failure`; so is no answer in time.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        import signal

        signal.alarm(seconds)
        try:
            text = function()
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            text = "raised " + traceback.format_exc()
        with os.fdopen(write, "wb") as end:
            end.write(str(text).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as end:
        text = end.read().decode()
    _, status = os.waitpid(child, 0)
    if status:
        raise Failure(f"a child ended with status {os.waitstatus_to_exitcode(status)}: {text}")
    if text.startswith("raised "):
        raise Failure(text)
    return text
