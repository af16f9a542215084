"""Learning and encoding on a Dask cluster against the same work in one piece."""

import copy
import itertools
import os
import signal
import sys
import weakref

import hasher_checks
import numpy as np
import pytest
import scipy.sparse as sp
import toy

from oasis.datasets.synthetic import generate
from oasis.errors import FormatError, InputError, MissingExtraError, NotFittedError
from oasis.index import HammingIndex
from oasis.labels import LabelSpace
from oasis.model import OASIS

pytest.importorskip("distributed", reason="the extra 'scale' is not installed")

import dask
import dask.array as da
import distributed
import pyarrow.parquet as pq
from distributed.protocol import pickle as distributed_pickle

from oasis.scale.dask import encode, partial_fit

pytestmark = pytest.mark.scale

R = hasher_checks.N_BITS
VECTORS = toy.class_vectors(10)
MAKERS = {
    "default": lambda: OASIS(R, labels=LabelSpace(VECTORS, axes=0.5), random_state=0),
    "orthogonal": lambda: OASIS(R, labels="orthogonal", random_state=0),
    "paper": lambda: OASIS.paper(R, labels=VECTORS, random_state=0),
    "content": lambda: OASIS(R, content=8, labels="orthogonal", random_state=0),
    "content alone": lambda: OASIS(R, content=R, labels="orthogonal", random_state=0),
}


@pytest.fixture(scope="module")
def client():
    """Two worker processes of one thread each, on the loopback interface."""
    distributed_pickle.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with (
        dask.config.set(
            {
                # it holds on to frames, and so to a block, a little longer than they live
                "distributed.worker.profile.enabled": False,
                # after it, a cluster gives up a worker that has been killed twice within this time
                "distributed.deploy.lost-worker-timeout": "1h",
            }
        ),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def cut(X, sizes):
    """Delayed blocks of these sizes."""
    starts = np.cumsum([0, *sizes])
    return [
        dask.delayed({name: matrix[a:b] for name, matrix in X.items()}, traverse=False)
        for a, b in itertools.pairwise(starts)
    ]


def arrays(X, rows):
    return {name: da.from_array(x, chunks=(rows, x.shape[1])) for name, x in X.items()}


def even(n, k):
    return [len(part) for part in np.array_split(np.arange(n), k)]


def assert_same(one, other, rtol=1e-8, relaxed=("GV", "VV")):
    """Two models agree: codes and draws exactly, sums to rounding."""
    assert np.array_equal(one.codes_, other.codes_)
    (facts, arrays_), (facts_, others) = one.described(), other.described()
    assert facts == facts_ and arrays_.keys() == others.keys()
    for name in one.state_.ridges:
        p, q = one.state_.ridges[name].gram(), other.state_.ridges[name].gram()
        assert np.allclose(p, q, rtol=0, atol=rtol * max(1.0, np.abs(q).max(initial=0.0)))
    for name, p in arrays_.items():
        key = name.rsplit("/", 1)[-1]
        # how a Gram matrix is kept depends on the path by which it was summed
        if key in ("base", "tail", "half", "single") or (
            key not in relaxed and key in ("GV", "VV")
        ):
            continue
        q = others[name]
        assert np.allclose(p, q, rtol=0, atol=rtol * max(1.0, np.abs(q).max(initial=0.0))), name


def stream(dtype=np.float64, bare=0.1):
    """Chunks with new classes, rows without labels and rows without a modality."""
    for number, n in enumerate((150, 40, 9, 90)):
        X, y = toy.chunk(
            n,
            [4, number],
            classes=toy.NAMES[: 6 + number],
            dtype=dtype,
            sparse=("text",),
            bare=bare,
        )
        X["image"][::7] = 0
        text = X["text"].toarray()
        text[3::7] = 0
        yield {**X, "text": sp.csr_array(text)}, y


@pytest.mark.parametrize("name", MAKERS)
def test_a_stream_in_blocks_equals_the_stream_in_one_piece(client, name):
    model, alone = MAKERS[name](), MAKERS[name]()
    for number, (X, y) in enumerate(stream()):
        alone.partial_fit(X, y)
        assert partial_fit(model, cut(X, even(len(y), 3 + number)), y) is model
        assert_same(model, alone)
    X, y = toy.chunk(60, 77, sparse=("text",))
    assert np.allclose(model.project(X), alone.project(X), rtol=1e-5, atol=1e-6)
    assert_same(model.partial_fit(X, y), alone.partial_fit(X, y))


@pytest.mark.parametrize("sizes", [[90], [89, 1], [1, 44, 45], [30, 0, 30, 30], [4] * 20 + [10]])
@pytest.mark.parametrize("name", ["default", "paper"])
def test_any_blocks_give_the_same_codes(client, name, sizes):
    X, y = toy.chunk(90, 5)
    assert_same(
        partial_fit(MAKERS[name](), cut(X, sizes), y, sizes=sizes), MAKERS[name]().partial_fit(X, y)
    )


@pytest.mark.parametrize("n", [1, 2, R, R + 1])
def test_a_chunk_of_fewer_rows_than_bits_equals_one_piece(client, n):
    X, y = toy.chunk(n + 40, 6)
    for name in ("default", "paper"):
        start = MAKERS[name]().partial_fit({k: x[n:] for k, x in X.items()}, y[n:])
        few = {k: x[:n] for k, x in X.items()}
        alone = copy.deepcopy(start).partial_fit(few, y[:n])
        # two rows with one label set leave V short of rank n - 1, and which directions of V'V stay
        # empty is then for rounding to say, in one piece as well
        assert_same(partial_fit(start, cut(few, [1] * n), y[:n]), alone, relaxed=())


@pytest.mark.parametrize("name", ["default", "paper"])
def test_a_chunk_without_labels_equals_one_piece(client, name):
    X, y = toy.chunk(60, 9)
    model, alone = MAKERS[name](), MAKERS[name]()
    for labels in (y, [()] * 60):
        alone.partial_fit(X, labels)
        assert_same(partial_fit(model, cut(X, [25, 35]), labels), alone)


def test_v_is_feasible_where_blocks_have_few_label_sets(client):
    # three label sets for 16 bits: V has to be completed by noise
    X, _ = toy.chunk(120, 8)
    y = [["sky"], ["sea"], ["cat"]] * 40
    model, alone = MAKERS["paper"](), MAKERS["paper"]().partial_fit(X, y)
    partial_fit(model, cut(X, even(120, 11)), y)
    assert np.array_equal(model.codes_, alone.codes_)
    assert np.allclose(model.state_.sums.VV, 120 * np.eye(R), atol=1e-8)
    assert np.allclose(model.state_.sums.GV.sum(axis=0), alone.state_.sums.GV.sum(axis=0))


@pytest.mark.parametrize("kind", ["default", "paper"])
def test_realistic_features_in_float32_give_the_same_codes(client, kind):
    data = generate("coco79", n_samples=2000, seed=2)
    X, y = data.take(np.arange(2000)), data.labels()
    make = OASIS if kind == "default" else OASIS.paper
    model, alone = (make(64, labels="orthogonal", random_state=3) for _ in range(2))
    for a, b in ((0, 1200), (1200, 2000)):
        part = {name: matrix[a:b] for name, matrix in X.items()}
        alone.partial_fit(part, y[a:b])
        partial_fit(model, cut(part, even(b - a, 3)), y[a:b])
        assert_same(model, alone, rtol=2e-5)
    assert model.state_.ridges["image"].single == alone.state_.ridges["image"].single


def test_dask_arrays_are_cut_by_rows_and_persisted_ones_are_used_where_they_are(client):
    X, y = toy.chunk(90, 5)
    alone = MAKERS["default"]().partial_fit(X, y)
    by_rows = arrays(X, 25)
    assert_same(partial_fit(MAKERS["default"](), by_rows, y), alone)
    askew = {"image": by_rows["image"].rechunk((30, 7)), "text": by_rows["text"]}
    assert_same(partial_fit(MAKERS["default"](), askew, y, client=client), alone)
    persisted = {name: array.persist() for name, array in by_rows.items()}
    assert_same(partial_fit(MAKERS["default"](), persisted, y), alone)
    sparse = {**by_rows, "text": by_rows["text"].map_blocks(sp.csr_array)}
    assert_same(partial_fit(MAKERS["default"](), sparse, y), alone)
    futures = client.scatter([{name: x[a : a + 45] for name, x in X.items()} for a in (0, 45)])
    assert_same(partial_fit(MAKERS["default"](), futures, y), alone)


def test_the_same_blocks_give_the_same_bits_again(client):
    X, y = toy.chunk(90, 5, dtype=np.float32, bare=0.1)
    one, other = (partial_fit(MAKERS["paper"](), cut(X, even(90, 12)), y) for _ in range(2))
    assert np.array_equal(one.state_.sums.GV, other.state_.sums.GV)
    for name, ridge in one.state_.ridges.items():
        assert np.array_equal(ridge.W, other.state_.ridges[name].W)


def spoilt(X, how):
    X = {name: matrix.copy() for name, matrix in X.items()}
    if how == "nan":
        X["image"][61, 3] = np.nan
    elif how == "narrow":
        X["text"] = X["text"][:, :5]
    elif how == "lacking":
        del X["text"]
    elif how == "foreign":
        X["sound"] = X.pop("text")
    return X


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("nan", "'image' holds nan at row 61, column 3"),
        ("narrow", "'text' has 5 features, this model learned 14"),
        ("lacking", "lacks modality 'text'"),
        ("foreign", "modality 'sound' is unknown"),
    ],
)
@pytest.mark.parametrize("given", ["arrays", "delayed"])
def test_a_refused_chunk_leaves_the_model_as_it_was(client, how, text, given):
    X, y = toy.chunk(90, 5)
    model = MAKERS["paper"]().partial_fit(X, y)
    state, codes = model.state_, model.codes_
    bad = spoilt(X, how)
    blocks = arrays(bad, 40) if given == "arrays" else cut(bad, [40, 50])
    with pytest.raises(InputError, match=text):
        partial_fit(model, blocks, y)
    assert model.state_ is state
    assert model.codes_ is codes
    fresh = MAKERS["paper"]()
    if how == "nan":
        with pytest.raises(InputError, match="row 61"):
            partial_fit(fresh, blocks, y)
        assert not hasattr(fresh, "state_")


def test_other_bad_input_is_refused_with_the_way_out(client):
    X, y = toy.chunk(30, 5)
    blocks = cut(X, [10, 20])
    for call, text in (
        (lambda: partial_fit(MAKERS["paper"](), X, y), "'image' is a ndarray, expected a dask"),
        (lambda: partial_fit(MAKERS["paper"](), [], y), "sequence of delayed blocks"),
        (lambda: partial_fit(MAKERS["paper"](), {}, y), "no modality"),
        (lambda: partial_fit(MAKERS["paper"](), [X], y), "block 0 is a dict"),
        (lambda: partial_fit(MAKERS["paper"](), blocks, y[:29]), "29 samples, but features for 30"),
        (lambda: partial_fit(MAKERS["paper"](), blocks, y, sizes=[10]), "sizes of 1 blocks"),
        (
            lambda: partial_fit(MAKERS["paper"](), blocks, y, sizes=[20, 10]),
            r"block \d has \d\d rows, expected \d\d",
        ),
        (lambda: partial_fit(MAKERS["paper"](), cut(X, [0]), []), "chunk is empty"),
        (lambda: partial_fit(MAKERS["paper"](), blocks, [["zebra"]] * 30), "zebra"),
        (
            lambda: partial_fit(OASIS(12, labels="orthogonal"), arrays(X, 10), y),
            "n_bits must be a positive multiple of 8",
        ),
        (
            lambda: partial_fit(
                MAKERS["paper"](),
                {"image": arrays(X, 10)["image"], "text": arrays(X, 10)["text"][:20]},
                y,
            ),
            "modalities differ in their number of samples",
        ),
    ):
        with pytest.raises(InputError, match=text):
            call()
    unknown = arrays(X, 10)["image"][da.from_array(np.ones(30, bool), chunks=10)]
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        partial_fit(MAKERS["paper"](), {"image": unknown}, y)
    with pytest.raises(FileNotFoundError):
        partial_fit(MAKERS["paper"](), [dask.delayed(np.load)("/nowhere.npz")], y)


def test_without_a_client_or_without_dask_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr(distributed, "get_client", refuse)
    with pytest.raises(InputError, match="no Dask client is running"):
        partial_fit(MAKERS["paper"](), {}, [])
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'oasis-hash\[scale\]'"):
        partial_fit(MAKERS["paper"](), {}, [])


def refuse():
    raise ValueError("no clients")


def read_and_die(folder, number, deaths):
    """Read a block; the reads whose count is among ``deaths`` kill the worker, for good."""
    reads = len(list(folder.glob("read-*")))
    (folder / f"read-{reads}-{os.getpid()}-{number}").touch()
    if reads in deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    with np.load(folder / f"{number}.npz") as file:
        return dict(file)


@pytest.mark.parametrize(("name", "deaths"), [("default", (2,)), ("paper", (9,))])
def test_a_worker_that_is_killed_changes_nothing(client, tmp_path, name, deaths):
    X, y = toy.chunk(90, 5, bare=0.1)
    sizes = even(90, 4)
    for number, start in enumerate(np.cumsum([0, *sizes[:-1]])):
        part = slice(start, start + sizes[number])
        np.savez(tmp_path / f"{number}.npz", **{name: x[part] for name, x in X.items()})
    blocks = [dask.delayed(read_and_die)(tmp_path, number, deaths) for number in range(4)]
    model = partial_fit(MAKERS[name](), blocks, y, sizes=sizes)
    assert len(list(tmp_path.glob("read-*"))) > max(deaths)  # they did happen
    assert_same(model, MAKERS[name]().partial_fit(X, y))
    client.wait_for_workers(2, timeout=30)


@pytest.mark.parametrize("n_iter", [1, 2, 4])
def test_the_published_round_reads_features_once_an_iteration(client, tmp_path, n_iter):
    X, y = toy.chunk(90, 5)
    np.savez(tmp_path / "0.npz", **X)
    model, alone = (MAKERS["paper"]().set_params(n_iter=n_iter) for _ in range(2))
    for _ in range(2):
        blocks = [dask.delayed(read_and_die)(tmp_path, 0, ())]
        assert_same(partial_fit(model, blocks, y, sizes=[90]), alone.partial_fit(X, y))
    # and once more at the beginning, to see how wide the modalities are
    assert len(list(tmp_path.glob("read-*"))) == 1 + 2 * n_iter


def read_alone(n, d, seed):
    """Make a block, or raise if this worker still holds another one."""
    worker = distributed.get_worker()
    held = [ref for ref in getattr(worker, "blocks_read", []) if ref() is not None]
    if held:
        raise RuntimeError(f"{len(held)} blocks are held beside this one")
    block = np.random.default_rng(seed).random((n, d))
    worker.blocks_read = [weakref.ref(block)]
    return {"image": block}


@pytest.mark.parametrize("name", ["default", "paper"])
def test_a_worker_never_holds_two_blocks(client, name, tmp_path):
    blocks = [dask.delayed(read_alone)(50, 30, seed) for seed in range(8)]
    y = toy.chunk(400, 1)[1]
    y[7] = y[222] = []
    model = partial_fit(MAKERS[name](), blocks, y)
    assert encode(model, blocks, tmp_path / "codes") == 400


def test_encode_writes_parquet_in_order_and_goes_on_where_it_stopped(client, tmp_path):
    X, y = toy.chunk(90, 5, sparse=("text",))
    model = MAKERS["default"]().partial_fit(X, y)
    blocks, done = cut(X, even(90, 7)), []
    folder = tmp_path / "codes"
    assert encode(model, blocks, folder, progress=done.append) == 90
    assert done == even(90, 7)
    table = pq.read_table(folder)
    assert table["id"].to_pylist() == list(range(90))
    expected = [code.tobytes() for code in model.encode(X)]
    assert table["code"].to_pylist() == expected
    files = sorted(folder.iterdir())
    files[2].unlink()
    files[6].unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert encode(model, blocks, folder) == 90
    assert sorted(folder.iterdir()) == files
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert pq.read_table(folder)["code"].to_pylist() == expected

    with pytest.raises(FormatError, match="another model, or by this one before it learned more"):
        encode(MAKERS["default"]().partial_fit(X, y).partial_fit(X, y), blocks, folder)
    with pytest.raises(InputError, match="encode into an empty directory"):
        encode(model, arrays({"image": X["image"]}, 12), folder)
    files[0].write_bytes(b"no Parquet")
    with pytest.raises(FormatError, match="is no Parquet file"):
        encode(model, blocks, folder)


def test_encode_goes_on_only_with_the_same_rows_and_ids(client, tmp_path):
    X, y = toy.chunk(40, 5)
    model = MAKERS["default"]().partial_fit(X, y)
    encode(model, cut(X, [20, 20]), tmp_path)
    (tmp_path / "codes-00000001.parquet").unlink()
    for blocks, ids, message in (
        (cut(X, [10, 30]), None, "block 0 has 10 rows, but 20 are in"),
        (cut(X, [20, 20]), range(1, 41), "the codes of block 0 in .* have other ids"),
        (cut(X, [20, 20]), [f"item {n}" for n in range(40)], "have other ids than 'item 0'"),
    ):
        with pytest.raises(InputError, match=message):
            encode(model, blocks, tmp_path, ids=ids)
    assert encode(model, cut(X, [20, 20]), tmp_path) == 40
    with pytest.raises(InputError, match="the codes of block 1, which this corpus does not have"):
        encode(model, cut({name: x[:20] for name, x in X.items()}, [20]), tmp_path)


def test_encode_feeds_an_index_with_the_given_ids_and_any_modality(client, tmp_path):
    X, y = toy.chunk(90, 5)
    model = MAKERS["paper"]().partial_fit(X, y)
    index, ids = HammingIndex(R), np.arange(90)[::-1] * 10
    assert encode(model, arrays({"text": X["text"]}, 32), index, ids=ids) == 90
    codes, stored = index.items()
    assert np.array_equal(stored, ids)
    assert np.array_equal(codes, model.encode({"text": X["text"]}))
    index = HammingIndex(R)
    assert encode(model, cut(X, [40, 0, 50]), index) == 90
    assert np.array_equal(index.items()[0], model.encode(X))
    names = [f"item {row}" for row in range(90)]
    encode(model, arrays(X, 32), str(tmp_path), ids=names)
    assert pq.read_table(tmp_path)["id"].to_pylist() == names


def test_encode_refuses_what_does_not_fit(client, tmp_path):
    X, y = toy.chunk(90, 5)
    model = MAKERS["paper"]().partial_fit(X, y)
    blocks = cut(X, [40, 50])
    with pytest.raises(NotFittedError):
        encode(MAKERS["paper"](), blocks, HammingIndex(R))
    with pytest.raises(InputError, match="got 89 ids for 90 rows"):
        encode(model, arrays(X, 30), HammingIndex(R), ids=range(89))
    with pytest.raises(InputError, match="got 89 ids, but more rows: 90"):
        encode(model, blocks, HammingIndex(R), ids=np.arange(89))
    with pytest.raises(InputError, match="got 91 ids for 90 rows"):
        encode(model, blocks, HammingIndex(R), ids=range(91))
    with pytest.raises(InputError, match="to a directory or to an index"):
        encode(model, blocks, 3)
    bad = spoilt(X, "nan")
    with pytest.raises(InputError, match="'image' holds nan"):
        encode(model, cut(bad, [40, 50]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["codes-00000000.parquet"]
