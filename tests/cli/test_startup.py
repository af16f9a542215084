"""What a short command imports: nothing that takes longer than the command."""

import json
import subprocess
import sys

import pytest

from oasis.collection import Collection
from oasis.features.extractor import Extractor
from oasis.features.text import HashedText

pytestmark = pytest.mark.slow  # every test starts an interpreter

HEAVY = ("scipy", "sklearn", "pandas", "joblib", "pymilvus", "grpc", "wordllama", "pyarrow")


def imported(code: str) -> set[str]:
    """Return the modules that a fresh process has loaded after some code."""
    report = "import sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_a_client_loads_the_standard_library_alone():
    loaded = imported("from oasis import Client; Client('http://127.0.0.1:8000')")
    packages = {name.partition(".")[0] for name in loaded - imported("pass")}
    assert packages - set(sys.stdlib_module_names) == {"oasis"}


def test_help_loads_neither_numpy_nor_rich():
    run = "import sys; from oasis.cli.app import application; sys.argv = ['oasis', '--help']\n"
    run += (
        "try:\n    application()()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
    )
    assert not imported(run) & {*HEAVY, "numpy", "scipy", "faiss", "rich"}


def test_the_names_of_a_grid_are_checked_before_scikit_learn_is_loaded():
    run = "import sys; from oasis.cli.app import application; from oasis.errors import InputError\n"
    run += "sys.argv = ['oasis', 'reproduce', '--dataset', 'synthetic@300', '--method', 'oassis']\n"
    run += "try:\n    application()()\nexcept InputError as error:\n    pass\n"
    assert not imported(run) & {"sklearn", "pandas", "pyarrow"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("startup") / "small.oasis"
    items = [
        {"id": i, "text": f"a {colour} boat number {i}", "labels": [colour]}
        for i, colour in enumerate(["red", "green", "blue"] * 100)
    ]
    with Collection.open(path, 128, extractor=Extractor({"text": ("text", HashedText())})) as c:
        c.ingest_items(items)
        c.checkpoint()
    return path


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["info"], {"faiss", "numpy.ma"}),
        (["search", "--text", "red"], {"numpy.ma"}),
        (["search", "--like", "7"], {"numpy.ma"}),
    ],
)
def test_reading_a_collection_loads_no_module_that_it_does_not_use(path, command, more):
    words = [command[0], str(path), *command[1:], "--json"]
    run = (
        f"import sys; sys.argv = ['oasis', *{json.dumps(words)}]\n"
        "from oasis.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
    )
    assert not imported(run) & {*HEAVY, *more}
