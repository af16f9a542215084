"""Fixtures for all tests."""

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
