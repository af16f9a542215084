"""Indexes in milvus-lite and on the real server, and a stand-in for one that fails."""

from __future__ import annotations

from concurrent import futures

import pytest

from oasis.errors import MissingExtraError
from oasis.scale.milvus import MilvusIndex

pymilvus = pytest.importorskip("pymilvus", reason="pip install 'oasis-hash[scale]'")
grpc = pytest.importorskip("grpc")

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
    """Stands in for `MilvusClient`: a collection that is there, and answers to upserts as told.

    An answer is a code and a message of Milvus, a code of gRPC by name, or what is called before
    the connection fails.
    """

    def __init__(self):
        self.answers = []
        self.asked = []

    def __call__(self, uri, **options):
        return self

    def describe_collection(self, name, timeout):
        fields = [
            {"name": "id", "type": pymilvus.DataType.INT64, "is_primary": True},
            {
                "name": "code",
                "type": pymilvus.DataType.BINARY_VECTOR,
                "params": {"dim": 64},
                "description": "64 bits, 1 copies",
            },
            {"name": "bits0", "type": pymilvus.DataType.INT64},
        ]
        return {"fields": fields, "description": ""}

    def list_indexes(self, name, timeout):
        return ["code"]

    def describe_index(self, name, index, timeout):
        return {"index_type": "BIN_FLAT", "metric_type": "HAMMING"}

    def load_collection(self, name, timeout):
        self.asked.append(("load", timeout))

    def upsert(self, name, rows, timeout):
        self.asked.append(("upsert", timeout))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer()
            answer = "UNAVAILABLE"
        if isinstance(answer, str):

            class Failed(grpc.RpcError):
                def code(self):
                    return grpc.StatusCode[answer]

                def details(self):
                    return "as told"

            raise Failed
        if answer[0]:
            raise pymilvus.MilvusException(*answer)

    def close(self):
        pass


@pytest.fixture
def faulty(monkeypatch):
    made = Faulty()
    monkeypatch.setattr(pymilvus, "MilvusClient", made)
    return made
