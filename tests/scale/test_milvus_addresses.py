"""Addresses, options and schemas of MilvusIndex: what is refused, and what the rest does."""

from __future__ import annotations

import sys
import time

import milvus_engines
import numpy as np
import pytest
from milvus_engines import N_BITS, stored
from pymilvus import DataType, MilvusClient

from oasis.codes import hamming
from oasis.errors import EngineError, InputError, MissingExtraError
from oasis.index.checks import random_codes
from oasis.scale.milvus import MilvusIndex
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
    [("", None, 10), ("?timeout=2.5", None, 2.5), ("?timeout=2.5", 7, 7)],
)
def test_an_address_may_say_the_timeout(faulty, query, timeout, expected):
    with MilvusIndex("milvus://h/x" + query, timeout=timeout):
        assert expected - 1 < faulty.asked[0][1] <= expected


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
    # milvus-lite is reached through the file that the index has open
    link = make()._connection
    schema = MilvusClient.create_schema()
    schema.add_field("key", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=8)
    link._client.create_collection("other", schema=schema)
    with pytest.raises(InputError, match=r"is not one of ours: it has the fields key \(INT64\)"):
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


@pytest.mark.parametrize("consistency", ["Strong", "Session", "Bounded", "Eventually"])
def test_other_consistencies(server, consistency):
    server(16)
    with MilvusIndex(server.uri, 16, name="w16", consistency=consistency) as ix:
        ix.add(np.zeros((1, 2), np.uint8), [5])
        found = ix.search(np.zeros((1, 2), np.uint8), 1).ids.tolist()
        # the looser ones may miss it at first, and must see it soon
        for _ in range(200 if consistency in ("Bounded", "Eventually") else 0):
            if found == [[5]]:
                break
            time.sleep(0.05)
            found = ix.search(np.zeros((1, 2), np.uint8), 1).ids.tolist()
        assert found == [[5]]


def test_range_search_compares_all_lists(server):
    rng = np.random.default_rng(4)
    codes = random_codes(rng, 3000, N_BITS)
    with MilvusIndex(server.uri, name="ivf_range", kind="BIN_IVF_FLAT", timeout=120) as ix:
        ix.add(codes, np.arange(3000))
        offsets, ids, _ = ix.range_search(codes[:5], 24)
    near = hamming(codes[:5], codes) <= 24
    assert np.diff(offsets).tolist() == near.sum(axis=1).tolist()
    assert sorted(ids[: offsets[1]].tolist()) == np.flatnonzero(near[0]).tolist()


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
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'oasis-hash\[scale\]'"):
        MilvusIndex("milvus://127.0.0.1:1/x")


def test_milvus_lite_is_named_where_a_file_needs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "milvus_lite.server_manager", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install 'milvus-lite==2\.5\.1' 'setuptools<81'"
    ):
        MilvusIndex(tmp_path / "x.db")
