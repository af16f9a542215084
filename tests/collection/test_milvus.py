"""A collection whose codes are in Milvus: stored and found as ever, whoever else writes there."""

import itertools
import json
import threading

import collection_in_milvus
import numpy as np
import pytest
from collection_in_milvus import (
    assert_best,
    assert_is,
    make,
)
from collection_truth import assert_hits, toy_model
from collection_writer import apply
from toy import chunk

from oasis.collection import Collection, replica
from oasis.errors import CollectionError, InputError
from oasis.scale.milvus import MilvusIndex

pytestmark = pytest.mark.scale
small_limits = collection_in_milvus.small_limits
lite = collection_in_milvus.lite
remote = collection_in_milvus.remote
address = collection_in_milvus.address


ODD = [
    {"n": 2**70, "m": -(2**63), "x": 1e-320, "y": 0.1 + 0.2},
    {"": None, 'a "b"\\': "\x00\u2028\U0001f408", "$meta": {"labels": [1]}, "id": "id"},
    {"deep": json.loads("[" * 60 + "]" * 60), "true": True},
    {"long": "\u00e9" * 200_000},
    {},
]
"""Payloads that a collection takes, one of which Milvus would not."""


def test_a_stream_is_stored_and_found_as_ever(folder, address):
    where = address()
    c, truth = make(folder, where)
    assert c.stats().index == where
    assert_is(c, truth)
    X, _ = chunk(3, seed=77)
    projections = truth.model.project(X)
    for mode, where_to_look, passes in (
        ("hamming", {"step": 3}, lambda payload, _: payload["step"] == 3),
        ("asymmetric", {"row": {"gte": 30}}, lambda payload, _: payload["row"] >= 30),
        ("asymmetric", {"$labels": {"has": "cat"}}, lambda _, labels: "cat" in labels),
        (
            "hamming",
            {"row": {"lt": 4}, "$labels": {"has": "sky"}},
            lambda payload, labels: payload["row"] < 4 and "sky" in labels,
        ),
        (
            "asymmetric",
            {"$any": [{"row": {"not": {"gte": 4}}}, {"$labels": {"has": "sky"}}]},
            lambda payload, labels: payload["row"] < 4 or "sky" in labels,
        ),
        ("hamming", {"$labels": {"exists": False}}, lambda _, labels: not labels),
    ):
        expected = truth.search(projections, 200, mode, passes)
        assert_hits(c.search(X, 200, mode, where_to_look, fuse=False), expected)
        for hits, wanted in zip(
            c.search(X, 3, mode, where_to_look, fuse=False), expected, strict=True
        ):
            assert_best(hits, wanted, 3)
    like = truth.items[5][0]
    assert like not in [hit.id for hit in c.more_like(like, 10)]
    c.close()
    # it is recorded, and a reader beside sees what is committed
    with (
        Collection.open(c.path, readonly=True) as reader,
        Collection.open(c.path, model=toy_model()) as c,
    ):
        assert_is(c, truth)
        assert reader.stats().index == where
        X, y = chunk(len(ODD), seed=99)
        ids = [f"odd {n}" for n in range(len(ODD))]
        for target in (c, truth):
            target.ingest(X, y, ids, ODD)
            target.delete(["odd 1"])
        assert_is(reader, truth)


@pytest.mark.parametrize(
    "index", ["Local", "", "milvus://", "milvus://host:19530", "http://host:1/a", "codes", 7]
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(folder, index):
    with pytest.raises(InputError, match=r"milvus://HOST:PORT/NAME"):
        Collection.open(folder / "c", index=index)
    assert not (folder / "c").exists()


def test_credentials_in_an_address_are_refused_and_not_shown(folder):
    for index in ("milvus://me:secret@host/x", "http://me:secret@host/x"):
        with pytest.raises(InputError) as caught:
            Collection.open(folder / "c", index=index)
        assert "secret" not in str(caught.value)


def test_the_timeout_is_recorded_and_another_one_is_no_move(folder, remote, monkeypatch):
    where = remote()
    c, truth = make(folder, f"{where}?timeout=20", steps=3)
    assert c.stats().index == f"{where}?timeout=20"
    assert c.index._connection.timeout == 20
    c.close()
    monkeypatch.setattr(replica, "_fill", None)
    with Collection.open(c.path, index=f"{where}?timeout=30") as c:
        assert c.index._connection.timeout == 30
        assert_is(c, truth)
    with Collection.open(c.path, index=where) as c:
        assert c.index._connection.timeout == 10
    with Collection.open(c.path) as c:
        assert c.stats().index == where


def test_searches_beside_a_writer_show_committed_items_only(folder, remote):
    c, truth = make(folder, remote(), steps=2)
    reader = Collection.open(c.path, readonly=True)
    X, _ = chunk(2, seed=3)
    stop, wrong, looks = threading.Event(), [], itertools.count()

    def look(target):
        while not stop.is_set():
            next(looks)
            for hits in target.search(X, 20, "hamming"):
                if len({hit.id for hit in hits}) < 20:
                    wrong.append(hits)
                # the score is of the code in Milvus, the distance of that in the catalog
                agreed = [max(0, 1 - 2 * hit.distance / 16) ** 0.5 for hit in hits]
                sure = hits[0].score / agreed[0] if agreed[0] else 0
                wrong.extend(
                    hit
                    for hit, part in zip(hits, agreed, strict=True)
                    if not np.isclose(hit.score, sure * part)
                )

    threads = [threading.Thread(target=look, args=(each,)) for each in (c, reader)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2, 14):
            apply(c, number)
            apply(truth, number)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert next(looks) > 4
    assert_is(reader, truth)
    reader.close()
    c.close()


def test_an_address_is_known_again_by_its_owner(folder, address):
    where, other = address(), address()
    c, truth = make(folder, where, steps=3)
    c.close()
    # it leaves, the place is dropped, and another one settles there
    with Collection.open(c.path, index=other) as c:
        pass
    drop(where)
    second, other_truth = make(folder, where, steps=2)
    second.close()
    with pytest.raises(CollectionError, match="is not of this collection"):
        Collection.open(c.path, index=where)
    with Collection.open(c.path, readonly=True) as reader:
        assert_is(reader, truth)
    drop(other)
    third, _ = make(folder, other, steps=2)
    third.close()
    for readonly in (False, True):
        with (
            pytest.raises(CollectionError, match="is not of this collection"),
            Collection.open(c.path, readonly=readonly) as again,
        ):
            again.search(chunk(1)[0], 3)
    with Collection.open(second.path) as second:
        assert_is(second, other_truth)


def drop(where):
    """Drop the Milvus collection at an address."""
    with MilvusIndex(where, 16) as ix:
        ix._connection.call("drop_collection")
