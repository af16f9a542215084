"""Indexes in milvus-lite and on the real server, and a stand-in for one that fails."""

from __future__ import annotations

from concurrent import futures

import pytest
from milvus_server import free_ports

from oasis.errors import MissingExtraError
from oasis.scale.milvus import MilvusIndex, engine

N_BITS = 64


class Maker:
    """Makes empty indexes in one engine; one of the same width is emptied and used again."""

    def __init__(self, uri):
        self.uri = uri
        self._made = {}

    def __call__(self, n_bits=N_BITS):
        if n_bits not in self._made:
            self._made[n_bits] = MilvusIndex(self.uri, n_bits, name=f"w{n_bits}", timeout=120)
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
def server(milvus_server, request):
    maker = Maker(milvus_server.uri)
    with futures.ThreadPoolExecutor() as pool:
        # a server takes seconds to make a collection, but several at once
        list(pool.map(maker, getattr(request.module, "WIDTHS", [N_BITS])))
    yield maker
    maker.close()


@pytest.fixture(params=["lite", "server"])
def make(request):
    return request.getfixturevalue(request.param)


def stored(ix):
    """All that an index holds, as a dict."""
    codes, ids = ix.items()
    return dict(zip(ids.tolist(), map(bytes, codes), strict=True))


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
