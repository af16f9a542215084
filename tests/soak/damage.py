"""Files with changed bytes: every answer is the old one, or a clear error."""

from __future__ import annotations

import shutil
import sqlite3
import warnings

import numpy as np
import scipy.io
import scipy.sparse as sp
from collection_truth import toy_model
from collection_writer import apply
from toy import chunk

from oasis.collection import Collection
from oasis.collection import writing as writer
from oasis.datasets import npz
from oasis.datasets.matfile import open_mat
from oasis.errors import OasisError
from oasis.index import HammingIndex
from oasis.model import OASIS
from tests.soak.trials import in_child


def damaged(content, rng):
    """Return other bytes: changed, zeroed, cut, exchanged or longer."""
    content = bytearray(content)
    at = rng.randrange(len(content))
    how = rng.choice(["byte", "byte", "bit", "bit", "zeros", "ones", "cut", "swap", "longer"])
    if how == "byte":
        content[at] = rng.choice([0, 1, 15, 255, rng.randrange(256)])
    elif how == "bit":
        content[at] ^= 1 << rng.randrange(8)
    elif how in ("zeros", "ones"):
        size = min(rng.choice([4, 64, 512, 4096]), len(content) - at)
        content[at : at + size] = (b"\0" if how == "zeros" else b"\xff") * size
    elif how == "cut":
        del content[at:]
    elif how == "swap":
        size = rng.choice([8, 64, 512])
        other = rng.randrange(len(content))
        a, b = content[at : at + size], content[other : other + size]
        if len(a) == len(b):
            content[at : at + size], content[other : other + size] = b, a
    else:
        content += rng.randbytes(rng.choice([1, 100, 5000]))
    return bytes(content)


QUERIES, _ = chunk(3, seed=1234)
ALONE = (
    lambda c: [(each.id, each.labels, each.payload, each.text) for each in c.items()],
    lambda c: [
        [(h.id, h.score, h.payload, h.labels) for h in hits] for hits in c.search(QUERIES, 5)
    ],
    lambda c: [[(h.id, h.distance) for h in hits] for hits in c.search(QUERIES, 50, "hamming")],
    lambda c: [[h.id for h in hits] for hits in c.search_words(["sky", "sea"], 5)],
    lambda c: c.model.encode(QUERIES).tobytes(),
    len,
)
"""Questions each of which tells damage by itself."""
TOGETHER = (
    *ALONE,
    lambda c: [[h.id for h in hits] for hits in c.search(QUERIES, 5, where={"step": {"gte": 4}})],
    lambda c: [
        [h.id for h in hits] for hits in c.search(QUERIES, 5, where={"$labels": {"has": "sky"}})
    ],
    lambda c: c.get("1/1").payload,
    lambda c: list(c.model.classes_),
)
"""All questions: after those above, damage is told."""


def answers(path, readonly=True, questions=TOGETHER):
    """Return what a collection answers to some questions."""
    with Collection.open(path, readonly=readonly) as c:
        return [question(c) for question in questions]


def outcome(read, expected):
    """Return whether a damaged file was refused, gave the old answers, or other ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read()
        except OasisError:
            return "refused"
    return "same" if found == expected else f"other answers: {difference(found, expected)}"


def difference(found, expected):
    """Return the first place where two nested answers differ, in words."""
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return f"{len(found)} instead of {len(expected)}: {str(found)[:300]}"
        for at, (a, b) in enumerate(zip(found, expected, strict=True)):
            if a != b:
                return f"[{at}]{difference(a, b)}"
    return f" is {str(found)[:300]}, was {str(expected)[:300]}"


def pristine(trials):
    """Make a collection with a model, an index, a journal and a catalog without its -wal file."""
    writer.INDEX_ROWS, writer.JOURNAL_ENTRIES = 20, 4
    path = trials.place()
    c = Collection.open(path, model=toy_model())
    for number in range(16):
        apply(c, number)
    c.checkpoint()
    for number in range(2):
        c.ingest(*chunk(2, seed=900 + number), [f"e{number}", f"f{number}"])
    c._catalog.close()  # as the death of its process would; the journal stays
    c._lock.release()
    with sqlite3.connect(path / "catalog.sqlite") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def of_a_collection(trials, pattern):
    """Damage the files of a collection that a pattern names, one at a time."""
    source = pristine(trials)
    # each by itself, and all of them
    asked = [*((question,) for question in ALONE), *[TOGETHER] * len(ALONE)]
    expected = [answers(source, questions=questions) for questions in asked]
    assert list(source.glob(pattern)), pattern
    while trials.go_on():
        with trials.judged():
            path = trials.place()
            shutil.copytree(source, path)
            file = trials.rng.choice(sorted(path.glob(pattern)))
            file.write_bytes(damaged(file.read_bytes(), trials.rng))
            readonly, number = trials.rng.random() < 0.5, trials.rng.randrange(len(asked))
            text = in_child(
                lambda path=path, r=readonly, n=number: outcome(
                    lambda: answers(path, r, asked[n]), expected[n]
                )
            )
            trials.count()
            shutil.rmtree(path)
            assert text in ("refused", "same"), f"{file.name}: {text}"


def catalog(trials):
    of_a_collection(trials, "catalog.sqlite")


def collection_model(trials):
    of_a_collection(trials, "model-*.safetensors")


def collection_index(trials):
    of_a_collection(trials, "index-*")


def of_a_file(trials, make, read, compare=True):
    """Damage a file of its own."""
    path = trials.place()
    source = make(path)
    content = source.read_bytes()
    expected = read(source)
    while trials.go_on():
        with trials.judged():
            source.write_bytes(damaged(content, trials.rng))
            text = in_child(lambda: outcome(lambda: read(source), expected))
            trials.count()
            if compare:
                assert text in ("refused", "same"), text


def model(trials):
    def make(path):
        toy_model().partial_fit(*chunk(50)).save(path)
        return path

    def read(path):
        loaded = OASIS.load(path)
        again = loaded.partial_fit(*chunk(9, seed=3))
        return loaded.encode(chunk(5, seed=1)[0]).tobytes(), again.codes_.tobytes()

    of_a_file(trials, make, read)


def index(trials):
    codes = np.random.default_rng(0).integers(0, 256, (500, 8), dtype=np.uint8)

    def make(path):
        ix = HammingIndex(64)
        ix.add(codes, np.arange(500) * 3)
        ix.remove([3, 30, 300])
        ix.save(path)
        return path

    def read(path):
        ix = HammingIndex.open(path)
        found = ix.search(codes[:7], 20)
        return found.ids.tolist(), found.distances.tolist(), len(ix)

    of_a_file(trials, make, read)


def mat(trials):
    """MAT 5 has no checksums: whatever is read is an array, and nothing ends the process."""
    content = {
        "A": np.arange(12, dtype=np.float32).reshape(4, 3),
        "S": sp.csc_array(np.eye(4)),
        "names": np.array(["ab", "cde"]),
        "cells": np.array(["sky", "sea wave", ""], dtype=object),
    }

    def make(path):
        path = path.with_suffix(".mat")
        scipy.io.savemat(path, content, do_compression=trials.rng.random() < 0.5)
        return path

    def read(path):
        with open_mat(path) as file:
            for name in file.shapes():
                for use in (lambda n: list(file.blocks(n)), file.strings):
                    try:
                        use(name)
                    except OasisError:
                        continue

    of_a_file(trials, make, read, compare=False)


def npz_file(trials):
    rng = np.random.default_rng(0)

    def make(path):
        path = path.with_suffix(".npz")
        np.savez(
            path,
            image=rng.random((9, 4), dtype=np.float32),
            text_data=np.ones(9, np.float32),
            text_indices=np.arange(9) % 5,
            text_indptr=np.arange(10),
            text_shape=np.array([9, 5]),
            labels=(rng.random((9, 3)) < 0.4).astype(np.uint8),
            label_names=np.array(["sky", "sea", "dog"]),
        )
        return path

    def read(path):
        data = npz.read(path)
        X = data.take(np.arange(9))
        return X["image"].tobytes(), X["text"].toarray().tobytes(), data.L.tobytes(), data.classes

    of_a_file(trials, make, read)
