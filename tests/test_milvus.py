"""MilvusIndex on milvus-lite, on the real server, and on a stand-in that fails on purpose."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from concurrent import futures
from types import SimpleNamespace

import index_checks
import numpy as np
import pytest
from index_checks import BruteForce, assert_search, filled, projections, random_codes, tied_codes
from milvus_server import free_ports

from oasis.codes import hamming, unpack
from oasis.errors import EngineError, InputError, MissingExtraError
from oasis.index import HammingIndex
from oasis.scale.milvus import MilvusIndex, connection, engine, index, schema
from oasis.scale.milvus.address import Address
from oasis.scale.milvus.expressions import pieces
from oasis.scale.milvus.extras import encode_extras

pytestmark = pytest.mark.scale

N_BITS = 64


class Maker:
    """Makes empty indexes in one engine; one of the same width is emptied and used again."""

    def __init__(self, uri):
        self.uri = uri
        self._made = {}

    def __call__(self, n_bits=N_BITS):
        if n_bits not in self._made:
            self._made[n_bits] = MilvusIndex(self.uri, n_bits, name=f"w{n_bits}", timeout=30)
        self._made[n_bits].discard_from(0)
        return self._made[n_bits]

    def close(self):
        for each in self._made.values():
            each.close()


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    pytest.importorskip("pymilvus", reason="pip install 'oasis-hash[scale]'")
    try:
        maker = Maker(tmp_path_factory.mktemp("lite") / "codes.db")
        maker()
    except MissingExtraError as reason:
        pytest.skip(str(reason))
    yield maker
    maker.close()


@pytest.fixture(scope="module")
def server(milvus_server):
    maker = Maker(milvus_server.uri)
    with futures.ThreadPoolExecutor() as pool:
        # a server takes seconds to make a collection, but several at once
        list(pool.map(maker, (8, 16, 32, 64, 128)))
    yield maker
    maker.close()


@pytest.fixture(params=["lite", "server"])
def make(request):
    return request.getfixturevalue(request.param)


def stored(ix):
    """All that an index holds, as a dict."""
    codes, ids = ix.items()
    return dict(zip(ids.tolist(), map(bytes, codes), strict=True))


# -- the checks of every index -------------------------------------------------------------------


@pytest.mark.parametrize("check", index_checks.CHECKS, ids=lambda f: f.__name__)
def test_index_passes(check, make):
    check(make, "any")


def test_asymmetric_search_equals_brute_force_where_all_are_candidates(make):
    ix, truth, rng = filled(make, N_BITS, seed=3)
    queries = projections(rng, N_BITS)
    ids = np.array(list(truth.items))
    for k, allow in ((1, None), (60, None), (170, None), (12, rng.permutation(ids)[:70])):
        got = ix.search_asymmetric(queries, k, allow=allow)
        assert got.ids.dtype == np.int64 and got.scores.dtype == np.float32
        admitted = index_checks.allowed_set(allow)
        for query, row, scores in zip(queries, got.ids.tolist(), got.scores.tolist(), strict=True):
            expected = sorted((-score, item) for score, item in truth.scores(query, admitted))[:k]
            padding = k - len(expected)
            assert row == [item for _, item in expected] + [-1] * padding
            assert scores == [-score for score, _ in expected] + [-np.inf] * padding


def test_asymmetric_search_refuses_what_the_other_index_refuses(make):
    index_checks.check_asymmetric_bad_input(make, "any")


def test_asymmetric_recall_against_exact(make):
    """At ten candidates for one hit, some of the best are missed; docs/scale.md says how many."""
    rng = np.random.default_rng(8)
    n, k = 8000, 100
    codes = random_codes(rng, n, N_BITS)
    ix = make()
    ix.add(codes, np.arange(n))
    exact = HammingIndex(N_BITS)
    exact.add(codes, np.arange(n))
    queries = rng.standard_normal((20, N_BITS)).astype(np.float32)
    got, best = ix.search_asymmetric(queries, k), exact.search_asymmetric(queries, k)
    found = [len(set(a) & set(b)) / k for a, b in zip(got.ids, best.ids, strict=True)]
    assert np.mean(found) > 0.85
    signs = unpack(codes[got.ids.ravel()]).reshape(20, k, N_BITS)
    scores = np.einsum("qb,qkb->qk", queries.astype(np.float64), signs.astype(np.float64))
    np.testing.assert_allclose(got.scores, scores, rtol=1e-6)


# -- items ---------------------------------------------------------------------------------------


def test_sending_again_changes_nothing(make):
    rng = np.random.default_rng(0)
    codes, ids = random_codes(rng, 300, N_BITS), rng.permutation(1000)[:300]
    ix = make()
    ix.add(codes[:150], ids[:150])
    for _ in range(2):
        ix.add(codes, ids)
    assert len(ix) == 300
    assert stored(ix) == dict(zip(ids.tolist(), map(bytes, codes), strict=True))
    found = ix.search(codes[:20], 300)
    assert all(len(set(row)) == 300 for row in found.ids.tolist())


def test_a_known_id_is_replaced(make):
    ix = make()
    zero, one = np.zeros((1, 8), np.uint8), np.full((1, 8), 255, np.uint8)
    ix.add(zero, [7], [("old",)], [{"year": 1}])
    ix.add(one, [7], [("new",)], [{"year": 2}])
    assert ix.codes_of([7]).tolist() == one.tolist()
    assert ix.search(one, 1, where='json_contains(labels, "old")').ids.tolist() == [[-1]]
    assert ix.search(one, 1, where='payload["year"] == 2').ids.tolist() == [[7]]


def test_ids_codes_and_items(make, monkeypatch):
    monkeypatch.setattr(index, "MOST", 100)
    rng = np.random.default_rng(1)
    codes, ids = random_codes(rng, 250, N_BITS), rng.permutation(10**6)[:250]
    ix = make()
    assert list(ix.ids()) == []
    assert [part.shape for part in ix.items()] == [(0, 8), (0,)]
    ix.add(codes, ids)
    blocks = list(ix.ids())
    assert [len(block) for block in blocks] == [100, 100, 50]
    assert np.concatenate(blocks).tolist() == sorted(ids.tolist())
    assert blocks[0].dtype == np.int64
    again = np.concatenate([ids[::-1], ids[:3]])
    assert (ix.codes_of(again) == np.concatenate([codes[::-1], codes[:3]])).all()
    assert int(ids[0]) in ix and 10**7 not in ix and "a" not in ix
    with pytest.raises(InputError, match="id 5000000 is not in the index"):
        ix.codes_of([int(ids[0]), 5_000_000])


def test_remove_discard_and_discard_from(make):
    ix = make()
    ix.add(np.zeros((10, 8), np.uint8), np.arange(10))
    with pytest.raises(InputError, match="id 11 and 1 more is not in the index"):
        ix.remove([1, 11, 12])
    assert len(ix) == 10
    ix.remove([1, 2])
    ix.discard([2, 3, 77])
    ix.discard([])
    assert stored(ix).keys() == {0, 4, 5, 6, 7, 8, 9}
    ix.discard_from(6)
    assert stored(ix).keys() == {0, 4, 5}
    with pytest.raises(InputError):
        ix.discard_from(-1)


# -- filters -------------------------------------------------------------------------------------


def test_where_filters_by_labels_and_payload(make):
    rng = np.random.default_rng(2)
    codes = tied_codes(rng, 120, N_BITS, 30)
    labels = [("sky", "sea") if i % 3 == 0 else ("sky",) for i in range(120)]
    payload = [{"year": 1990 + i, "kind": 'día "x"'} for i in range(120)]
    ix, truth = make(), BruteForce(N_BITS)
    ix.add(codes, np.arange(120), labels, payload)
    ix.add(codes[:40], 1000 + np.arange(40))  # without either: no filter admits them
    truth.add(codes, np.arange(120))
    queries = tied_codes(rng, 3, N_BITS, 8)
    cases = {
        'json_contains(labels, "sea")': [i for i in range(120) if i % 3 == 0],
        'payload["year"] >= 2000 and payload["year"] < 2010': range(10, 20),
        'json_contains(labels, "sea") and payload["year"] >= 2000': range(12, 120, 3),
        'json_contains(labels, "fire")': [],
    }
    for where, admitted in cases.items():
        got = ix.search(queries, 15, where=where)
        for query, row, distances in zip(queries, got.ids, got.distances.tolist(), strict=True):
            every = truth.distances(query, set(admitted))
            expected = sorted(every)[:15]
            assert distances == [d for d, _ in expected] + [-1] * (15 - len(expected))
            assert set(row[row >= 0].tolist()) <= set(admitted)
    both = ix.search(queries, 120, allow=np.arange(50), where='json_contains(labels, "sea")')
    assert {int(i) for i in both.ids[0] if i >= 0} == set(range(0, 50, 3))
    scored = ix.search_asymmetric(unpack(queries), 120, where='payload["year"] < 1995')
    assert {int(i) for i in scored.ids[0] if i >= 0} == set(range(5))


def test_long_allow_lists_are_exact(make, monkeypatch):
    monkeypatch.setattr("oasis.scale.milvus.expressions.IDS_AT_ONCE", 16)
    ix, truth, rng = filled(make, 16, seed=5)
    queries = tied_codes(rng, 3, 16, 8)
    ids = np.array(sorted(truth.items))
    for allow in (ids[::2], ids, np.ones(ids.max() + 1, dtype=np.bool_)):
        for k in (1, 20, 160):
            assert_search(ix, truth, queries, k, "any", allow=allow)


def test_pieces_admit_each_id_once():
    rng = np.random.default_rng(0)
    ids = np.unique(np.concatenate([rng.integers(0, 10**5, 20_000), np.arange(300_000, 320_000)]))
    expressions = list(pieces(ids))
    assert len(expressions) == 4
    assert expressions[0] == "id >= 300000 and id <= 319999"
    listed = [int(i) for text in expressions[1:] for i in text[len("id in [") : -1].split(",")]
    assert listed == ids[ids < 300_000].tolist()
    assert list(pieces(np.empty(0, np.int64))) == []


def test_bad_filters_are_refused(make):
    ix = make()
    code = np.zeros((1, 8), np.uint8)
    with pytest.raises(InputError, match="does not understand the expression"):
        ix.search(code, 1, where="bogus ===")
    for where in (3, "", " "):
        with pytest.raises(InputError, match="where must be a Milvus expression"):
            ix.search(code, 1, where=where)


@pytest.mark.parametrize(
    ("labels", "payload", "message"),
    [
        (["sky"], None, "must be a tuple of str"),
        ([(1,)], None, "must be a tuple of str"),
        ("sky", None, "one tuple of labels per item"),
        ([(), ()], None, "got 1 ids and 2 labels"),
        (None, [3], "must be a dict"),
        (None, {}, "one dict per item"),
        (None, [{"x": float("nan")}], "no JSON"),
        (None, [{"x": object()}], "no JSON"),
        (None, [{"x": "y" * 70_000}], "at most 65,536"),
    ],
)
def test_bad_labels_and_payloads_are_refused(labels, payload, message):
    with pytest.raises(InputError, match=message):
        encode_extras(np.array([7]), labels, payload)


# -- limits --------------------------------------------------------------------------------------


def test_k_has_a_limit(make):
    ix = make()
    ix.add(np.zeros((1, 8), np.uint8), [1])
    assert ix.search(np.zeros((1, 8), np.uint8), 16_384).ids.shape == (1, 16_384)
    for search, query in (
        (ix.search, np.zeros((1, 8), np.uint8)),
        (ix.search_asymmetric, np.zeros((1, 64))),
    ):
        with pytest.raises(InputError, match="k must be at most 16,384 on Milvus, got 16,385"):
            search(query, 16_385)


def test_range_search_returns_more_than_one_answer_holds(make):
    n = 40_000
    codes = np.zeros((n, 8), np.uint8)
    codes[:, 0] = np.arange(n) % 4
    ids = np.random.default_rng(3).permutation(3 * n)[:n]
    ix = make()
    ix.add(codes, ids)
    queries = np.stack([codes[0], codes[3], np.full(8, 255, np.uint8)])
    offsets, found, distances = ix.range_search(queries, 1)
    truth = hamming(queries, codes)
    assert np.diff(offsets).tolist() == (truth <= 1).sum(axis=1).tolist() == [30_000, 30_000, 0]
    for row in range(2):
        part = slice(offsets[row], offsets[row + 1])
        expected = sorted(zip(truth[row], ids, strict=True))[:30_000]
        assert found[part].tolist() == [item for _, item in expected]
        assert distances[part].tolist() == [d for d, _ in expected]


def test_batches_are_bounded_by_rows_and_bytes():
    assert list(index._batches(0, 8, None)) == []
    parts = list(index._batches(45_000, 8, None))
    assert [(part.start, part.stop) for part in parts] == [
        (0, 20_000),
        (20_000, 40_000),
        (40_000, 45_000),
    ]
    extras = [b"x" * 60_000] * 500
    parts = list(index._batches(500, 8, extras))
    assert sum(part.stop - part.start for part in parts) == 500
    assert all(part.stop - part.start <= (1 << 23) // 60_000 for part in parts)


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
        ("milvus://me:secret@host:19530/x", "without authentication and without TLS"),
        ("http://me@host", "without authentication and without TLS"),
        ("milvus://host/x#part", "has a fragment, 'part'"),
        ("milvus://host/x?secure=true", r"expected nothing, or .* \?timeout=60"),
        ("milvus://host/x?timeout=60&secure=true", "expected nothing, or"),
        ("milvus://host/x?timeout=0", "above 0"),
        ("milvus://host/x?timeout=nan", "above 0"),
        ("milvus://host/x?timeout=inf", "above 0"),
        ("milvus://host/x?timeout", "above 0"),
    ],
)
def test_parts_of_an_address_that_could_not_be_kept_are_refused(uri, message):
    with pytest.raises(InputError, match=message) as caught:
        Address.parse(uri, "oasis")
    assert "secret" not in str(caught.value)


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
    with MilvusIndex(server.uri, name="ivf", kind="BIN_IVF_FLAT", timeout=30) as ix:
        ix.add(codes, np.arange(3000))
        found = ix.search(codes[:50], 1)
    assert (found.ids.ravel() == np.arange(50)).mean() > 0.9


def requests_of(monkeypatch, name):
    """Return a list that grows by every request of one kind."""
    made, real = [], getattr(index, name)

    def note(*arguments, **options):
        made.append(real(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(index, name, note)
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
        assert sent[0].guarantee_timestamp == (ix._written if guarantee is None else guarantee)
        assert ix._written > 2


def test_the_newest_write_counts_whichever_thread_is_last(lite, monkeypatch):
    ix = lite()

    class Slow(int):
        def __lt__(self, other):
            if threading.current_thread() is threading.main_thread():
                later.start()
                later.join(0.2)  # with a lock it is still waiting then
            return int(self) < other

        __gt__ = None

    monkeypatch.setattr(ix, "_call", lambda _, stamp: SimpleNamespace(timestamp=stamp))
    monkeypatch.setattr(ix, "_written", Slow(1))
    later = threading.Thread(target=ix._write, args=("Upsert", 9))
    ix._write("Upsert", 5)
    later.join()
    assert ix._written == 9


def test_range_search_compares_all_lists(server, monkeypatch):
    rng = np.random.default_rng(4)
    codes = random_codes(rng, 3000, N_BITS)
    sent = requests_of(monkeypatch, "search_request")
    with MilvusIndex(server.uri, name="ivf_range", kind="BIN_IVF_FLAT", timeout=30) as ix:
        ix.add(codes, np.arange(3000))
        offsets, ids, _ = ix.range_search(codes[:5], 24)
    near = hamming(codes[:5], codes) <= 24
    assert np.diff(offsets).tolist() == near.sum(axis=1).tolist()
    assert sorted(ids[: offsets[1]].tolist()) == np.flatnonzero(near[0]).tolist()
    (params,) = (json.loads(p.value) for p in sent[-1].search_params if p.key == "params")
    assert params == {"nprobe": 128, "radius": 25.0}


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


# -- faults, with a stand-in ---------------------------------------------------------------------


class Faulty:
    """A server that has one empty collection and answers each request as told."""

    def __init__(self):
        wire = engine.protocol()
        self.answers = []
        self.asked = 0
        outer = self

        class Service(wire.service.MilvusServiceServicer):
            def DescribeCollection(self, request, context):
                schema = wire.schema.CollectionSchema(name="x", enable_dynamic_field=True)
                schema.fields.add(name="id", data_type=wire.schema.Int64, is_primary_key=True)
                code = schema.fields.add(name="code", data_type=wire.schema.BinaryVector)
                code.type_params.add(key="dim", value="64")
                return wire.milvus.DescribeCollectionResponse(schema=schema)

            def DescribeIndex(self, request, context):
                answer = wire.milvus.DescribeIndexResponse()
                held = answer.index_descriptions.add(field_name="code")
                held.params.add(key="index_type", value="BIN_FLAT")
                held.params.add(key="metric_type", value="HAMMING")
                return answer

            def LoadCollection(self, request, context):
                return wire.common.Status()

            def GetLoadingProgress(self, request, context):
                return wire.milvus.GetLoadingProgressResponse(progress=100)

            def Upsert(self, request, context):
                outer.asked += 1
                code, reason = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                status = wire.common.Status(code=code, reason=reason, error_code=int(code > 0))
                return wire.milvus.MutationResult(status=status)

        self._server = wire.grpc.server(futures.ThreadPoolExecutor(4))
        wire.service.add_MilvusServiceServicer_to_server(Service(), self._server)
        (port,) = free_ports(1)
        self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()
        self.uri = f"milvus://127.0.0.1:{port}/x"

    def close(self):
        self._server.stop(None).wait()


@pytest.fixture
def faulty():
    pytest.importorskip("pymilvus", reason="pip install 'oasis-hash[scale]'")
    made = Faulty()
    yield made
    made.close()


def add_one(ix):
    ix.add(np.zeros((1, 8), np.uint8), [1])


def test_faults_that_pass_are_waited_for(faulty):
    faulty.answers = [(8, "rate limit"), (101, "collection not loaded"), (65535, "node"), (0, "")]
    with MilvusIndex(faulty.uri, timeout=20) as ix:
        add_one(ix)
    assert faulty.asked == 4


def test_a_full_server_is_named_as_such(faulty):
    faulty.answers = [(9, "quota exceeded[reason=disk quota]")]
    message = r"127\.0\.0\.1:\d+ is full: quota exceeded.*disk"
    with (
        MilvusIndex(faulty.uri, timeout=0.5) as ix,
        pytest.raises(EngineError, match=message),
    ):
        add_one(ix)
    assert faulty.asked > 2


def test_what_cannot_pass_is_not_repeated(faulty):
    with MilvusIndex(faulty.uri, timeout=20) as ix:
        for answer, message in (
            ((1100, "bad"), "refused the request: bad"),
            ((100, "gone"), "has no collection 'x' any more"),
        ):
            faulty.answers = [answer]
            with pytest.raises(EngineError, match=message):
                add_one(ix)
    assert faulty.asked == 2


def test_an_absent_server_is_an_error_that_names_it():
    (port,) = free_ports(1)
    with pytest.raises(EngineError, match=rf"no Milvus answered at 127\.0\.0\.1:{port} for 0\.5 s"):
        MilvusIndex(f"milvus://127.0.0.1:{port}/x", timeout=0.5)


class Clock:
    """A clock that stands in for the module ``time``: it goes when somebody sleeps."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        for module in (connection, schema):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Script:
    """Stands in for the stub of a connection: answers by name, each of which takes some seconds.

    An answer is a code of gRPC by name, or what `answers` gives for the message.
    """

    def __init__(self, clock, *, takes=0.0, **answers):
        self.clock, self.takes, self.answers = clock, takes, answers
        self.asked = []

    def __getattr__(self, method):
        def send(request, timeout):
            began = self.clock.now
            self.asked.append((method, began, timeout))
            self.clock.now += min(self.takes, timeout)
            answer = self.answers[method]
            answer = answer.pop(0) if isinstance(answer, list) and len(answer) > 1 else answer
            answer = answer[0] if isinstance(answer, list) else answer
            if self.takes > timeout:
                answer = "DEADLINE_EXCEEDED"
            if not isinstance(answer, str):
                return answer() if callable(answer) else answer
            wire = engine.protocol()

            class Failed(wire.grpc.RpcError):
                def code(self):
                    return wire.grpc.StatusCode[answer]

                def details(self):
                    return "as told"

            raise Failed

        return send


def scripted(clock, timeout, **answers):
    pytest.importorskip("pymilvus", reason="pip install 'oasis-hash[scale]'")
    link = connection.Connection(Address.parse("milvus://127.0.0.1:1/x", "x"), timeout)
    link._stub = Script(clock, **answers)
    return link, link._stub


def test_a_request_is_repeated_with_growing_pauses_until_the_timeout(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 2.0, Query="UNAVAILABLE")
    with pytest.raises(EngineError, match="no Milvus answered"):
        link.call("Query", None)
    moments = [began - 1000 for _, began, _ in script.asked]
    np.testing.assert_allclose(moments, [0, 0.05, 0.15, 0.35, 0.75, 1.55])
    np.testing.assert_allclose([left for *_, left in script.asked], 2.0 - np.array(moments))
    assert clock.now <= 1002
    link.close()


def test_a_slow_answer_is_given_up_at_the_timeout(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 2.0, takes=5.0, Query="UNAVAILABLE")
    with pytest.raises(EngineError, match="gave no answer within 2 s"):
        link.call("Query", None)
    assert script.asked == [("Query", 1000.0, 2.0)]
    assert clock.now == 1002
    link.close()


@pytest.mark.parametrize("code", ["UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"])
def test_what_the_transport_refuses_is_not_repeated(monkeypatch, code):
    link, script = scripted(Clock(monkeypatch), 10.0, Query=code)
    with pytest.raises(EngineError, match=code):
        link.call("Query", None)
    assert len(script.asked) == 1
    link.close()


def test_loading_again_has_the_time_that_is_left(monkeypatch):
    clock = Clock(monkeypatch)
    wire = engine.protocol()
    status = wire.common.Status(code=101, reason="collection not loaded")
    progress = wire.milvus.GetLoadingProgressResponse
    link, script = scripted(
        clock,
        3.0,
        Query=wire.milvus.QueryResults(status=status),
        LoadCollection=wire.common.Status(),
        GetLoadingProgress=progress(progress=40),
        takes=0.125,
    )
    held = schema.Schema(link, 64, "BIN_FLAT", "")
    with pytest.raises(EngineError, match=r"has loaded 40 % of 'x' in 2\.9 s"):
        link.call("Query", None, reload=held.load)
    assert clock.now <= 1003
    assert script.asked[:2] == [("Query", 1000.0, 3.0), ("LoadCollection", 1000.125, 2.875)]
    assert script.asked[-1][0] == "GetLoadingProgress"
    link.close()


def test_a_request_is_sent_once_more_after_loading(monkeypatch):
    clock = Clock(monkeypatch)
    wire = engine.protocol()
    status = wire.common.Status(code=101, reason="collection not loaded")
    link, script = scripted(
        clock,
        1.5,
        Query=[wire.milvus.QueryResults(status=status), wire.milvus.QueryResults()],
        LoadCollection=wire.common.Status(),
        GetLoadingProgress=wire.milvus.GetLoadingProgressResponse(progress=100),
        takes=0.49,
    )
    held = schema.Schema(link, 64, "BIN_FLAT", "")
    # loading is done 0.03 s before the end
    assert link.call("Query", None, reload=held.load) == wire.milvus.QueryResults()
    assert [method for method, *_ in script.asked] == [
        "Query",
        "LoadCollection",
        "GetLoadingProgress",
        "Query",
    ]
    assert script.asked[-1][2] == 1.0
    link.close()


def test_a_connection_closed_by_another_thread_says_so(monkeypatch):
    clock = Clock(monkeypatch)
    link, script = scripted(clock, 10.0, Query="UNAVAILABLE")

    def sleep(seconds):
        clock.now += seconds
        link.close()

    monkeypatch.setattr(clock, "sleep", sleep)
    with pytest.raises(EngineError, match="is closed; open another"):
        link.call("Query", None)
    assert len(script.asked) == 1

    def closed_meanwhile():
        link.close()
        raise ValueError("Cannot invoke RPC on closed channel!")

    for answer, error in ((closed_meanwhile, EngineError), (lambda: int("x"), ValueError)):
        link, script = scripted(clock, 10.0, Query=answer)
        with pytest.raises(error, match="is closed; open another" if error is EngineError else "x"):
            link.call("Query", None)
        link.close()


# -- faults, with the real server ----------------------------------------------------------------


def test_a_slow_server_is_an_error_that_names_the_timeout(server, milvus_server):
    server()
    with MilvusIndex(server.uri, name="w64", timeout=2) as ix:
        ix.add(np.zeros((3, 8), np.uint8), [1, 2, 3])
        os.kill(milvus_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(EngineError, match="gave no answer within 2 s"):
                ix.search(np.zeros((1, 8), np.uint8), 1)
        finally:
            os.kill(milvus_server.pid, signal.SIGCONT)
        assert len(ix) == 3


def killed_while_ingesting(milvus_server, name, kills, seed):
    """Ingest chunks while the server is killed at random moments, and compare after each kill.

    A chunk that was not acknowledged is sent again; all that was acknowledged must be there.
    """
    rng = np.random.default_rng(seed)
    uri = f"{milvus_server.uri}/{name}"
    ix = MilvusIndex(uri, timeout=60)
    # gives up soon, as the server does not come back by itself
    hasty = MilvusIndex(uri, timeout=1)
    truth = {}
    for _ in range(kills):
        killer = threading.Timer(float(rng.random()), milvus_server.kill)
        killer.start()
        alive = True
        while alive:
            codes = random_codes(rng, 400, N_BITS)
            # some new, some to be replaced: what was acknowledged last counts
            ids = rng.permutation(len(truth) + 400)[:400]
            try:
                hasty.add(codes, ids)
            except EngineError:
                alive = False
                killer.join()
                milvus_server.start()
                ix.add(codes, ids)
            truth.update(zip(ids.tolist(), map(bytes, codes), strict=True))
        assert len(ix) == len(truth)
        assert stored(ix) == truth
    query = random_codes(rng, 1, N_BITS)
    found = ix.search(query, 50)
    keys = np.array(list(truth))
    codes = np.frombuffer(b"".join(truth.values()), np.uint8).reshape(-1, 8)
    distances = hamming(query, codes)[0]
    assert found.distances[0].tolist() == np.sort(distances)[:50].tolist()
    at = dict(zip(keys.tolist(), distances.tolist(), strict=True))
    assert [at[i] for i in found.ids[0].tolist()] == found.distances[0].tolist()
    ix.close()
    hasty.close()


def test_a_server_killed_while_ingesting_loses_nothing(milvus_server):
    killed_while_ingesting(milvus_server, "killed", kills=3, seed=0)


@pytest.mark.soak
def test_a_server_killed_twenty_times_loses_nothing(milvus_server):
    killed_while_ingesting(milvus_server, "soak", kills=20, seed=1)


def test_a_search_survives_a_restart(milvus_server):
    codes = random_codes(np.random.default_rng(6), 500, N_BITS)
    uri = f"{milvus_server.uri}/lost"
    with MilvusIndex(uri, timeout=60) as ix, MilvusIndex(uri, timeout=1) as hasty:
        ix.add(codes, np.arange(500))
        before = ix.search(codes[:5], 3)
        milvus_server.kill()
        with pytest.raises(EngineError, match="no Milvus answered"):
            hasty.search(codes[:5], 3)
        # the search begins while the server is coming up
        starting = threading.Thread(target=milvus_server.start)
        starting.start()
        after = ix.search(codes[:5], 3)
        starting.join()
        assert after.distances.tolist() == before.distances.tolist()
        assert len(ix) == 500
