"""Fixtures for all tests."""

import contextlib
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

# no test is about time: an example may take as long as a busy machine needs
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

with warnings.catch_warnings():
    # the bindings of faiss before 1.14 warn while they load, and crash where that is an error
    warnings.simplefilter("ignore")
    import faiss  # noqa: F401


@pytest.fixture
def folder(tmp_path):
    """An empty directory, in memory where the system has such a place: fsync costs nothing."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def oasis(monkeypatch, capsys):
    """Run a command in this process: exit code, standard output, standard error."""

    from oasis.cli import main

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["oasis", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def milvus_server():
    """The one real Milvus server of a test run, see `_on_the_server`."""
    from milvus_server import NoServer, running

    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running(quick=True))
        except NoServer as reason:
            pytest.skip(str(reason))
        yield server


# fixtures that start a process or take seconds: whoever uses one is slow
SLOW_FIXTURES = {"server", "pair", "browser", "milvus_server", "demo", "report"}


def pytest_collection_modifyitems(config, items):
    for item in items:
        guide = item.path.suffix == ".md"  # runs as one, for seconds
        if guide or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
    if hasattr(config, "workerinput"):  # a worker of xdist
        _long_files_first(items)


def _on_the_server(path):
    """Return whether tests of a file may use the Milvus server: all of Milvus but milvus-lite."""
    return "milvus" in Path(path).name and "lite" not in Path(path).name


def _long_files_first(items):
    """Put the tests of Milvus and of files with slow tests first, so that no worker ends late."""
    slow = {item.path for item in items if any(map(item.get_closest_marker, ("slow", "scale")))}
    n_tests = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (
            not _on_the_server(item.path),
            "milvus" not in item.path.name,
            item.path not in slow,
            -n_tests[item.path],
            str(item.path),
        )
    )


_quick = False  # whether the test that runs now belongs to the quick part


def _refuse_processes(event, args):
    # libraries may ask a tool of the system, as matplotlib asks fc-list for fonts
    python = event == "subprocess.Popen" and os.fspath(args[0] or "") == sys.executable
    if _quick and (python or event == "os.fork"):
        raise RuntimeError("this test starts a process: give it the mark 'slow'")


sys.addaudithook(_refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Keep the quick part quick: a test without the mark ``slow`` starts no process."""
    global _quick
    _quick = not any(item.get_closest_marker(each) for each in ("slow", "scale"))
    try:
        return (yield)
    finally:
        _quick = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One worker more than cores where tests of Milvus run: they mostly wait for its server."""
    return len(os.sched_getaffinity(0)) + ("not scale" not in config.option.markexpr)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give workers whole files of tests, in the order of `_long_files_first`, and single doctests.

    So a fixture of a module is made once. All tests that use the Milvus server are on one worker,
    as there is one such server on a machine.
    """
    from xdist.scheduler import LoadScopeScheduling

    class WholeFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            if _on_the_server(path):
                return "milvus"
            return path if path.startswith("tests/") else nodeid

    config.option.loadscopereorder = False  # the order of collection
    return WholeFiles(config, log)
