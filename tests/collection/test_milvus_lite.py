"""A collection whose codes are in milvus-lite: moved, served and named on the command line."""

import json

import collection_in_milvus
import pytest
from collection_in_milvus import (
    abandon,
    assert_found,
    assert_is,
    failing,
    make,
)
from collection_truth import Truth, assert_hits, toy_model
from collection_writer import apply
from serving import serving
from toy import chunk

from oasis.client import Client, transport
from oasis.collection import Collection, milvus
from oasis.errors import CollectionError, EngineError, InputError
from oasis.scale.milvus import MilvusIndex

pytestmark = pytest.mark.scale
small_limits = collection_in_milvus.small_limits
lite = collection_in_milvus.lite


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
    by_hand = lite()
    MilvusIndex(by_hand, 16).close()
    with pytest.raises(CollectionError, match="not of this collection: it says ''"):
        Collection.open(folder / "other", index=by_hand)


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
    problems = pytest.importorskip("oasis.service.problems", reason="needs the extra service")
    told = problems.Problem.of(EngineError("Milvus is away"))
    assert (told.status, told.kind) == (503, "engine")
    assert transport._KINDS[told.kind] is EngineError
