"""Features that are there already: tables and files of vectors, against ready matrices."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from oasis import OASIS, Collection
from oasis.errors import DataError, InputError
from oasis.features.extractor import Extractor
from oasis.features.meaning import Meaning
from oasis.items import Item

N = 60
RNG = np.random.default_rng(7)
IMAGE = RNG.normal(size=(N, 6)).astype(np.float16)
TEXT = RNG.normal(size=(N, 4)).astype(np.float32)
LABELS = [["sky"] if row % 3 else ["sea", "boat"] for row in range(N)]
IDS = [f"item {row}" for row in range(N)]
PAYLOAD = [{"year": 2000 + row} for row in range(N)]
COLUMNS = {"image": "clip_image", "text": "clip_text"}


def model() -> OASIS:
    return OASIS(16, random_state=0)


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """The codes and hits of the same chunks, given as matrices."""
    path = tmp_path_factory.mktemp("truth") / "c"
    with Collection.open(path, model=model()) as c:
        for start in range(0, N, 25):
            rows = slice(start, start + 25)
            c.ingest(
                {"image": IMAGE[rows], "text": TEXT[rows]}, LABELS[rows], IDS[rows], PAYLOAD[rows]
            )
        return [(each.id, each.code, each.labels, each.payload) for each in c.items()]


def tables(folder):
    """The same table in every form that is taken."""
    columns = {
        "id": IDS,
        "labels": LABELS,
        "year": [each["year"] for each in PAYLOAD],
        "clip_image": IMAGE,
        "clip_text": TEXT,
    }
    yield columns
    yield {**columns, "clip_image": list(IMAGE), "labels": [";".join(each) for each in LABELS]}
    table = pa.table(
        {
            **columns,
            "clip_image": pa.FixedSizeListArray.from_arrays(pa.array(IMAGE.ravel()), 6),
            "clip_text": pa.array(TEXT.tolist(), pa.list_(pa.float32())),
        }
    )
    yield table
    parquet.write_table(table, folder / "e.parquet")
    yield folder / "e.parquet"
    np.savez(
        folder / "e.npz",
        **{
            **columns,
            "id": np.array(IDS),
            "labels": np.array([";".join(each) for each in LABELS]),
        },
    )
    yield str(folder / "e.npz")
    pandas = pytest.importorskip("pandas")
    yield pandas.DataFrame({**columns, "clip_image": list(IMAGE), "clip_text": list(TEXT)})


@pytest.mark.slow
def test_tables_give_the_codes_of_ready_matrices(folder, truth):
    for number, table in enumerate(tables(folder)):
        with Collection.open(folder / f"c{number}", model=model()) as c:
            done = []
            rejected = c.ingest_table(
                table, COLUMNS, payload=("year",), batch=25, progress=done.append
            )
            assert (rejected, done) == ([], [25, 25, 10])
            found = [(each.id, each.code, each.labels, each.payload) for each in c.items()]
            assert found == truth, number
            assert c.stats().extractor == {
                "image": {"field": "image", "embedder": "given-6", "n_features": 6},
                "text": {"field": "text", "embedder": "given-4", "n_features": 4},
            }
            query = {"vectors": {"image": IMAGE[7].tolist()}}
            assert c.search_items([query], k=5) == c.search({"image": IMAGE[7:8]}, k=5)
            assert c.check() == []


def test_bad_rows_are_left_out_and_said(folder):
    image = [row.astype(np.float64) for row in IMAGE]
    image[3], image[30] = image[3][:5], np.full(6, np.nan)
    image[31] = None
    table = {"id": IDS, "labels": LABELS, "clip": image}
    with Collection.open(folder / "c", model=model()) as c:
        with pytest.raises(InputError, match="row 3: 'clip' has 5 values, expected 6"):
            c.ingest_table(table, {"image": "clip"}, strict=True)
        assert len(c) == 0
        rejected = c.ingest_table(table, {"image": "clip"}, batch=20)
        assert [(each.row, each.id) for each in rejected] == [(at, IDS[at]) for at in (3, 30, 31)]
        assert len(c) == N - 3
        again = c.ingest_table(table, {"image": "clip"}, batch=20)
        assert len(again) == N and len(c) == N - 3
        assert again[5].reason == f"id {IDS[5]!r} is in the collection already"


def test_tables_that_do_not_fit_change_nothing(folder):
    table = {"id": IDS, "labels": LABELS, "clip": IMAGE}
    with Collection.open(folder / "c", model=model()) as c:
        empty = c.stats()
        for wrong, columns, error, message in (
            (table, {"image": "clop"}, InputError, r"no column 'clop'; its columns are \['id'"),
            (table, {}, InputError, "names no column"),
            ({**table, "clip": IMAGE[:5]}, {"image": "clip"}, InputError, "different lengths"),
            ({**table, "clip": ["a"] * N}, {"image": "clip"}, DataError, "no row that can be used"),
            (5, {"image": "clip"}, InputError, "a mapping of columns, got int"),
            (folder / "none.npz", {"image": "clip"}, DataError, "there is no file"),
            (folder / "none.csv", {"image": "clip"}, DataError, "cannot hold vectors"),
        ):
            with pytest.raises(error, match=message):
                c.ingest_table(wrong, columns)
        assert c.stats() == empty
        c.ingest_table(table, {"image": "clip"})
        before = c.stats()
        narrow = {"id": [1], "labels": [["sky"]], "clip": IMAGE[:1, :5]}
        with pytest.raises(InputError, match="vectors of 'image' have 5 values, expected 6"):
            c.ingest_table(narrow, {"image": "clip"})
        with pytest.raises(InputError, match=r"vectors of 'text', expected some of \['image'\]"):
            c.ingest_table({**narrow, "clip": IMAGE[:1]}, {"text": "clip"})
        assert c.stats() == before
        with pytest.raises(InputError, match="the vector has 5 values, expected 6"):
            c.search_items([{"vectors": {"image": IMAGE[0, :5]}}])


def test_vectors_and_raw_values_of_one_modality_meet(folder):
    """Vectors made elsewhere by the embedder that a collection records are as good as its own."""
    texts = [f"{'boat sea' if row % 2 else 'cat dog'} {row}" for row in range(20)]
    made, _ = Meaning().embed(texts)
    extractor = Extractor({"text": ("text", Meaning())})
    labels = [["water"] if row % 2 else ["animal"] for row in range(20)]
    codes = []
    for name, items in (
        ("raw", [Item(row, text=texts[row], labels=tuple(labels[row])) for row in range(20)]),
        (
            "given",
            [{"id": r, "labels": labels[r], "vectors": {"text": made[r]}} for r in range(20)],
        ),
    ):
        with Collection.open(folder / name, model=model(), extractor=extractor) as c:
            assert c.ingest_items(items) == []
            codes.append([each.code for each in c.items()])
    assert codes[0] == codes[1]
    # a collection of given vectors can be searched with raw texts, through what made them
    with Collection.open(folder / "table", model=model()) as c:
        c.ingest_table({"clip": made, "labels": labels}, {"text": "clip"})
    with Collection.open(folder / "table", extractor=extractor) as c:
        found = c.search_items([{"text": texts[3]}], k=3, fuse=False)
        assert found == c.search({"text": made[3:4]}, k=3, fuse=False)
    with (
        Collection.open(folder / "table", readonly=True) as c,
        pytest.raises(InputError, match="expected a vector of 256 values, got str"),
    ):
        c.search_items([{"text": "a boat"}])


MODULE = """
import numpy as np

def letters():
    return lambda texts: np.array([[text.count(c) for c in "aeiou"] for text in texts], float)
"""


def test_an_embedder_is_found_again_by_its_name(folder, monkeypatch):
    name = "embedder_of_a_collection_test"
    (folder / f"{name}.py").write_text(MODULE)
    texts = [("oo boot" if row % 2 else "aa cat") + " e" * (row % 5) for row in range(20)]
    items = [{"id": r, "text": t, "labels": ["o" if r % 2 else "a"]} for r, t in enumerate(texts)]
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        extractor = Extractor.of(image="none", text=f"{name}:letters")
        with Collection.open(folder / "c", model=model(), extractor=extractor) as c:
            c.ingest_items(items)
        with Collection.open(folder / "c", readonly=True, trust_embedders=True) as c:
            hits = c.search_items([{"text": "oooo"}], k=3)
            assert all("o" in hit.labels for hit in hits[0])
    sys.modules.pop(name)
    with pytest.raises(InputError, match="trust_embedders must be True or False"):
        Collection.open(folder / "c", trust_embedders="no")
    with Collection.open(folder / "c", readonly=True, trust_embedders=True) as c:
        assert c.stats().extractor["text"]["embedder"] == f"{name}:letters"
        with pytest.raises(InputError, match=f"No module named '{name}'; install") as caught:
            c.search_items([{"text": "oooo"}])
        assert "\n" not in str(caught.value)


def test_a_recorded_embedder_is_imported_only_if_named_or_trusted(folder, monkeypatch):
    name = "embedder_of_a_stranger"
    (folder / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    items = [{"id": r, "text": "oo" if r % 2 else "aa", "labels": ["ao"[r % 2]]} for r in range(8)]
    extractor = Extractor.of(image="none", text=f"{name}:letters")
    with Collection.open(folder / "c", model=model(), extractor=extractor) as c:
        c.ingest_items(items)
    del sys.modules[name]
    with Collection.open(folder / "c") as c:
        assert c.check() == [] and c.get(1).labels == ("o",)
        assert [hit.id for hit in c.more_like(1, k=3)] and c.search_words(["o"])[0]
        for ask in (
            lambda: c.search_items([{"text": "oo"}]),
            lambda: c.find("oo"),
            lambda: c.ingest_items([{"id": 9, "text": "oo"}]),
        ):
            with pytest.raises(InputError, match=f"asks to run '{name}:letters'.*trust_embedders"):
                ask()
        c.update(1, labels=["a"])
        c.delete([0])
        assert len(c) == 7 and name not in sys.modules
    with Collection.open(folder / "c", extractor=Extractor.of("none", f"{name}:letters")) as c:
        assert c.find("oo")
    assert name in sys.modules
    with Collection.open(folder / "c", trust_embedders=True) as c:
        assert c.ingest_items([{"id": 9, "text": "oo"}]) == []


def test_items_with_vectors_begin_a_collection_of_such_vectors(tmp_path):
    items = [
        {"id": each, "vectors": {"clip": row.tolist()}, "labels": names, "payload": payload}
        for each, row, names, payload in zip(IDS, TEXT, LABELS, PAYLOAD, strict=True)
    ]
    with Collection.open(tmp_path / "c", model=model()) as c:
        assert c.ingest_items(items) == []
        assert c.stats().modalities == {"clip": 4}
        hits = c.search_items([{"vectors": {"clip": TEXT[0]}}], 9)
    with Collection.open(tmp_path / "truth", model=model()) as truth:
        truth.ingest({"clip": TEXT}, LABELS, IDS, PAYLOAD)
        assert hits == truth.search({"clip": TEXT[:1]}, 9)
        with Collection.open(tmp_path / "c") as c:
            assert [each.code for each in c.items()] == [each.code for each in truth.items()]
