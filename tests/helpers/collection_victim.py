"""A process that changes a collection, and is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent


class Victim:
    """Runs `collection_writer` and kills its children."""

    def __init__(self):
        path = os.pathsep.join([str(TESTS), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "collection_writer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def start(self, name, directory, first=0):
        self.process.stdin.write(json.dumps([name, str(directory), first]) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        assert child > 1, f"{child} is no process of its own"
        return child

    @staticmethod
    def kill(child):
        """Kill a child; one that has ended already tells its status all the same."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def status(self):
        """Wait for the child that was started, and return its status."""
        return int(self.process.stdout.readline())

    def run(self, name, directory, first=0, seconds=None):
        """Let a child run to its end, or for so many seconds; return its status."""
        child = self.start(name, directory, first)
        if seconds is not None:
            time.sleep(seconds)
            self.kill(child)
        return self.status()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
