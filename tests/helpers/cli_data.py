"""Items for the command line, and a collection that `oasis ingest` has made of them."""

import json
import shutil
import sys

import pytest

TEXT_ONLY = ("--image-extractor", "none", "--text-extractor", "hashed-text-64-tf@3")
WORDS = {"sea": "boat wave anchor", "sky": "cloud sun bird", "town": "street house car"}


def row(number):
    kind = list(WORDS)[number % 3]
    words = WORDS[kind].split()
    return {
        "id": f"item-{number}",
        "text": f"{words[number % 2]} {words[2]} number{number}",
        "labels": [kind],
        "payload": {"year": 2000 + number},
    }


def write_jsonl(path, rows):
    path.write_text(
        "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in rows)
    )
    return path


@pytest.fixture(scope="session")
def ingested(tmp_path_factory):
    """A folder with 60 items and their collection, to be copied and left as it is."""
    from oasis.cli import main

    folder = tmp_path_factory.mktemp("ingested")
    source = write_jsonl(folder / "items.jsonl", [row(number) for number in range(60)])
    command = ["oasis", "ingest", folder / "c.oasis", source, *TEXT_ONLY, "--batch", 40]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", list(map(str, command)))
        try:
            main()
        except SystemExit as stop:
            assert not stop.code
    return folder


@pytest.fixture
def filled(ingested, tmp_path):
    """A collection of 60 items, of this test alone; items.jsonl is beside it."""
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    return tmp_path / "c.oasis"
