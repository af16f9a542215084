"""Fixtures for all tests."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path):
    """An empty directory, in memory where the system has such a place: fsync costs nothing."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def milvus_server():
    """The one real Milvus server of a test run; its tests are in the xdist group "milvus"."""
    from milvus_server import NoServer, running

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running(quick=True))
        except NoServer as reason:
            pytest.skip(str(reason))
        yield server
