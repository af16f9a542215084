"""A collection whose codes are in Milvus: stored, found, moved and served as ever."""

import itertools
import json
import threading

import collection_in_milvus
import numpy as np
import pytest
from collection_in_milvus import (
    abandon,
    assert_best,
    assert_found,
    assert_is,
    failing,
    make,
    on_the_server,
)
from collection_truth import Truth, assert_hits, toy_model
from collection_writer import apply
from serving import serving
from toy import chunk

from oasis.client import Client, transport
from oasis.collection import Collection
from oasis.collection.replica import milvus, replica
from oasis.errors import CollectionError, EngineError, InputError
from oasis.scale.milvus import MilvusIndex
from oasis.scale.milvus.engine import protocol

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


# -- as any collection -----------------------------------------------------------------------------


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
        assert_hits(c.search(X, 200, mode, where_to_look), expected)
        for hits, wanted in zip(c.search(X, 3, mode, where_to_look), expected, strict=True):
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


@on_the_server
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


def test_more_hits_than_milvus_gives_are_refused_with_the_limit(folder, lite, monkeypatch):
    c, truth = make(folder, lite(), steps=6)
    monkeypatch.setattr("oasis.scale.milvus.index.MOST", 60)
    monkeypatch.setattr(milvus.MilvusReplica, "most", 60)
    X, _ = chunk(1, seed=6)
    assert len(truth.items) > 61
    for mode in ("hamming", "asymmetric"):
        assert len(c.search(X, 60, mode)[0]) == 60
        with pytest.raises(InputError, match="k must be at most 60 on Milvus, got 61"):
            c.search(X, 31, mode, offset=30)
    c.close()


@on_the_server
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
                wrong.extend(hit for hit in hits if hit.score != 1 - 2 * hit.distance / 16)

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


# -- moving ----------------------------------------------------------------------------------------


def test_codes_move_between_memory_and_milvus(folder, lite):
    first, second = lite(), lite()
    truth = Truth()
    with Collection.open(folder / "c", model=toy_model()) as c:
        for number in range(8):
            apply(c, number)
            apply(truth, number)
    assert list(c.path.glob("index-*"))
    reader = Collection.open(c.path, readonly=True)
    number = 8
    for where in (first, second, "local", first, first):
        with Collection.open(c.path, index=where) as c:
            assert c.stats().index == where
            assert_is(c, truth)
            apply(c, number)
            apply(truth, number)
            assert_is(c, truth)
            assert_is(reader, truth)
            assert reader.stats().index == where
            number += 1
        assert bool(list(c.path.glob("index-*"))) == (where == "local")
    with pytest.raises(InputError, match="a reader cannot move"):
        Collection.open(c.path, readonly=True, index="local")
    with Collection.open(c.path, readonly=True, index=first) as again:
        assert_is(again, truth)
    reader.close()


def test_items_of_another_collection_are_left_alone(folder, lite):
    where = lite()
    c, truth = make(folder, where, steps=3)
    with pytest.raises(CollectionError, match="is not of this collection: it says"):
        Collection.open(folder / "new", model=toy_model(), index=where)
    with pytest.raises(InputError, match="holds codes of 16 bits"):
        Collection.open(folder / "another", 64, index=where)
    with Collection.open(folder / "other", model=toy_model()) as other:
        apply(other, 0)
    with pytest.raises(CollectionError, match="not of this collection"):
        Collection.open(folder / "other", index=where)
    with Collection.open(folder / "other") as other:
        assert other.stats().index == "local"
        assert other.check() == []
    assert_is(c, truth)
    c.close()
    # one that says nothing of its owner is judged by what it holds
    by_hand = lite()
    with MilvusIndex(by_hand, 16) as ix:
        ix.add(np.zeros((2, 2), np.uint8), [1, 2])
    with pytest.raises(CollectionError, match=r"holds 2 items that are not of this collection"):
        Collection.open(folder / "other", index=by_hand)
    with MilvusIndex(by_hand, 16) as ix:
        ix.remove([1, 2])
    with Collection.open(folder / "other", index=by_hand) as other:
        assert other.check() == []


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
        request = protocol().milvus.DropCollectionRequest(collection_name=ix.name)
        ix._connection.call("DropCollection", request)


def test_a_move_that_failed_is_taken_up_again(folder, lite, monkeypatch):
    where = lite()
    truth = Truth()
    with Collection.open(folder / "c", model=toy_model()) as c:
        for number in range(5):
            apply(c, number)
            apply(truth, number)
    with monkeypatch.context() as patch:
        patch.setattr(milvus, "_BLOCK", 20)
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, after=2, sends=0.5))
        with pytest.raises(EngineError):
            Collection.open(c.path, index=where)
    with Collection.open(c.path) as c:
        assert c.stats().index == "local"
        apply(c, 6)
        apply(truth, 6)
    with Collection.open(c.path, index=where) as c:
        assert_is(c, truth)


def test_codes_of_a_chunk_that_was_never_committed_do_not_stay(folder, lite, monkeypatch):
    where = lite()
    c, truth = make(folder, where, steps=4)
    X, y = chunk(40, seed=70)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "add", failing(MilvusIndex.add, sends=1.0))
        with pytest.raises(EngineError):
            c.ingest(X, y, [f"x{n}" for n in range(40)])
    abandon(c)
    # other items get the keys that Milvus has seen, while nobody tells it
    X, y = chunk(40, seed=71)
    with Collection.open(c.path, index="local") as c:
        for target in (c, truth):
            target.ingest(X, y, [f"y{n}" for n in range(40)])
    with Collection.open(c.path, index=where) as c:
        assert_is(c, truth)


# -- the command line ------------------------------------------------------------------------------


def test_the_command_line_names_an_index(folder, lite, oasis):
    where, path, data = lite(), folder / "c", folder / "items.jsonl"
    words = ["boat", "cat"] * 4
    rows = [{"id": n, "text": f"a {word}", "labels": [word]} for n, word in enumerate(words)]
    data.write_text("\n".join(map(json.dumps, rows)))
    fill = ("ingest", path, data, "--image-extractor", "none", "--json")
    assert oasis(*fill, "--index", where)[0] == 0
    code, out, _ = oasis("info", path, "--json")
    assert (code, json.loads(out)["index"]) == (0, where)
    code, out, _ = oasis("search", path, "--text", "boat", "--json", "-k", 3)
    assert code == 0
    code, _, error = oasis(*fill, "--index", "nonsense")
    assert code == 1
    assert "milvus://HOST:PORT/NAME" in error


# -- the service -----------------------------------------------------------------------------------


def test_a_server_over_milvus_answers_as_the_collection_does(folder, lite):
    pytest.importorskip("fastapi", reason="needs the extra service")
    c, truth = make(folder, lite(), steps=3)
    c.close()
    with serving(c.path) as server, Client(server.url) as client:
        assert_found(client, truth)
        for number in range(3, 7):
            apply(client, number)
            apply(truth, number)
        assert_found(client, truth)
        X, _ = chunk(2, seed=8)
        found = client.search(X, 200, "hamming", {"step": 3})
        passes = truth.search(
            truth.model.project(X), 200, "hamming", lambda payload, _: payload["step"] == 3
        )
        assert_hits(found, passes)
    with Collection.open(c.path) as c:
        assert_is(c, truth)


def test_a_client_is_told_that_milvus_is_away():
    problems = pytest.importorskip("oasis.service.http.problems", reason="needs the extra service")
    told = problems.Problem.of(EngineError("Milvus is away"))
    assert (told.status, told.kind) == (503, "engine")
    assert transport._KINDS[told.kind] is EngineError
