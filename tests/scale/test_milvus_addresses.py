"""Addresses, options and schemas of MilvusIndex: what is refused, and what the rest does."""

from __future__ import annotations

import json
import sys
import threading
import time
from types import SimpleNamespace

import milvus_engines
import numpy as np
import pytest
from milvus_engines import N_BITS, stored

from oasis.codes import hamming
from oasis.errors import EngineError, InputError, MissingExtraError
from oasis.index.checks import random_codes
from oasis.scale.milvus import MilvusIndex, connection, engine, table
from oasis.scale.milvus.address import Address

pytestmark = pytest.mark.scale
lite = milvus_engines.lite
server = milvus_engines.server
make = milvus_engines.make
faulty = milvus_engines.faulty


# -- addresses, schemas --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    ["ftp://host/x", "milvus://", "milvus://host:port", "", None, 3, "milvus://h/a-b", "/x y"],
)
def test_bad_addresses_are_refused(uri):
    with pytest.raises(InputError):
        Address.parse(uri, "oasis")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("milvus://host/x#part", "has a fragment"),
        ("milvus://host/x?secure=true", r"expected nothing after the name, or .*timeout=SECONDS"),
        ("milvus://host/x?timeout=60&secure=true", "expected nothing after the name"),
        ("milvus://host/x?timeout=0", "above 0"),
        ("milvus://host/x?timeout=nan", "above 0"),
        ("milvus://host/x?timeout=inf", "above 0"),
        ("milvus://host/x?timeout", "expected nothing after the name"),
    ],
)
def test_parts_of_an_address_that_could_not_be_kept_are_refused(uri, message):
    with pytest.raises(InputError, match=message):
        Address.parse(uri, "oasis")


@pytest.mark.parametrize(
    ("query", "timeout", "expected"),
    [("", None, 10.0), ("?timeout=2.5", None, 2.5), ("?timeout=2.5", 7, 7.0)],
)
def test_an_address_may_say_the_timeout(faulty, query, timeout, expected):
    with MilvusIndex(faulty.uri + query, timeout=timeout) as ix:
        assert ix._connection.timeout == expected


@pytest.mark.parametrize(
    "options",
    [
        {"n_bits": 12},
        {"timeout": 0},
        {"timeout": "x"},
        {"consistency": "strong"},
        {"kind": "HNSW"},
        {"kind": "BIN_IVF_FLAT"},
        {"oversample": 0},
        {"copies": 0},
        {"copies": 65},
        {"copies": 1.5},
        {"name": "1"},
    ],
)
def test_bad_options_are_refused(options, tmp_path):
    with pytest.raises(InputError):
        MilvusIndex(tmp_path / "x.db", **options)
    assert list(tmp_path.iterdir()) == []


def test_another_width_or_schema_is_refused(make):
    make(16)
    with pytest.raises(InputError, match="holds codes of 16 bits, expected 64"):
        MilvusIndex(make.uri, 64, name="w16")
    wire = engine.protocol()
    schema = wire.schema.CollectionSchema(name="other")
    schema.fields.add(name="key", data_type=wire.schema.Int64, is_primary_key=True)
    vector = schema.fields.add(name="vector", data_type=wire.schema.FloatVector)
    vector.type_params.add(key="dim", value="8")
    link = connection.Connection(Address.parse(make.uri, "other"), 10.0)
    request = wire.milvus.CreateCollectionRequest(
        collection_name="other", schema=schema.SerializeToString()
    )
    link.call("CreateCollection", request)
    link.close()
    with pytest.raises(InputError, match=r"is not one of ours: it has the fields key \(Int64\)"):
        MilvusIndex(make.uri, name="other")


def test_another_kind_of_index_is_refused(server):
    server()
    with pytest.raises(InputError, match="of kind BIN_FLAT by HAMMING, expected BIN_IVF_FLAT"):
        MilvusIndex(server.uri, name="w64", kind="BIN_IVF_FLAT")


def test_inverted_lists_on_a_server(server):
    rng = np.random.default_rng(4)
    codes = random_codes(rng, 3000, N_BITS)
    with MilvusIndex(server.uri, name="ivf", kind="BIN_IVF_FLAT", timeout=120) as ix:
        ix.add(codes, np.arange(3000))
        found = ix.search(codes[:50], 1)
    assert (found.ids.ravel() == np.arange(50)).mean() > 0.9


def requests_of(monkeypatch, name):
    """Return a list that grows by every request of one kind."""
    made, real = [], getattr(table, name)

    def note(*arguments, **options):
        made.append(real(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(table, name, note)
    return made


@pytest.mark.parametrize(
    ("consistency", "guarantee"),
    [("Strong", 0), ("Session", None), ("Bounded", 2), ("Eventually", 1)],
)
def test_other_consistencies(server, consistency, guarantee, monkeypatch):
    server(16)
    sent = requests_of(monkeypatch, "search_request")
    with MilvusIndex(server.uri, 16, name="w16", consistency=consistency) as ix:
        ix.add(np.zeros((1, 2), np.uint8), [5])
        found = [[-1]]
        # the looser ones may miss it at first, and must see it soon
        while found == [[-1]] and len(sent) < (200 if guarantee in (1, 2) else 1):
            found = ix.search(np.zeros((1, 2), np.uint8), 1).ids.tolist()
            time.sleep(0 if found == [[5]] else 0.05)
        assert found == [[5]]
        levels = engine.protocol().common.ConsistencyLevel
        assert sent[0].consistency_level == levels.Value(consistency)
        assert sent[0].guarantee_timestamp == (
            ix._table.written if guarantee is None else guarantee
        )
        assert ix._table.written > 2


def test_the_newest_write_counts_whichever_thread_is_last(lite, monkeypatch):
    ix = lite()

    class Slow(int):
        def __lt__(self, other):
            if threading.current_thread() is threading.main_thread():
                later.start()
                later.join(0.2)  # with a lock it is still waiting then
            return int(self) < other

        __gt__ = None

    monkeypatch.setattr(ix._table, "_call", lambda _, stamp: SimpleNamespace(timestamp=stamp))
    monkeypatch.setattr(ix._table, "written", Slow(1))
    later = threading.Thread(target=ix._table._write, args=("Upsert", 9))
    ix._table._write("Upsert", 5)
    later.join()
    assert ix._table.written == 9


def test_range_search_compares_all_lists(server, monkeypatch):
    rng = np.random.default_rng(4)
    codes = random_codes(rng, 3000, N_BITS)
    sent = requests_of(monkeypatch, "search_request")
    with MilvusIndex(server.uri, name="ivf_range", kind="BIN_IVF_FLAT", timeout=120) as ix:
        ix.add(codes, np.arange(3000))
        offsets, ids, _ = ix.range_search(codes[:5], 24)
    near = hamming(codes[:5], codes) <= 24
    assert np.diff(offsets).tolist() == near.sum(axis=1).tolist()
    assert sorted(ids[: offsets[1]].tolist()) == np.flatnonzero(near[0]).tolist()
    (params,) = (json.loads(p.value) for p in sent[-1].search_params if p.key == "params")
    assert params == {"nprobe": 128, "radius": 24.0 * ix.copies + 1}


def test_a_file_keeps_its_items(tmp_path, lite):
    path = tmp_path / "kept.db"
    with MilvusIndex(path, 16) as ix:
        assert repr(ix) == f"<MilvusIndex: 'oasis' at {path}, codes of 16 bits>"
        with MilvusIndex(path, 16) as second:
            second.add(np.ones((2, 2), np.uint8), [1, 2])
        assert len(ix) == 2
    ix.close()
    with pytest.raises(EngineError, match="is closed"):
        len(ix)
    with MilvusIndex(path, 16) as ix:
        assert stored(ix) == {1: b"\1\1", 2: b"\1\1"}


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="folder does not exist"):
        MilvusIndex(tmp_path / "no" / "x.db")


def test_a_missing_extra_is_named(monkeypatch):
    engine.protocol.cache_clear()
    monkeypatch.setitem(sys.modules, "pymilvus.grpc_gen", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'oasis-hash\[scale\]'"):
        MilvusIndex("milvus://127.0.0.1:1/x")


def test_milvus_lite_is_named_where_a_file_needs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "milvus_lite.server_manager", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'milvus-lite==2\.5\.1' 'setuptools<81'"
    ):
        MilvusIndex(tmp_path / "x.db")
