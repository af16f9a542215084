"""Files of a HammingIndex: golden bytes, damage and hostile content, exports."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import faiss
import numpy as np
import pytest

from oasis.errors import FormatError, InputError, NewerVersionError, OasisError
from oasis.index import HammingIndex
from oasis.index.checks import (
    BruteForce,
    assert_asymmetric,
    assert_search,
    filled,
    projections,
    tied_codes,
)
from oasis.index.export import export

GOLDEN = Path(__file__).parent / "golden"
HEADER = 512


def golden(name):
    """Return the contents of a golden file: four known indexes, made by plain arithmetic."""
    numbers = np.arange(300, dtype=np.uint64)
    if name == "duplicates-16":
        codes = ((numbers * 7919) % 37).astype("<u2").view(np.uint8).reshape(-1, 2)
        ids = (numbers.astype(np.int64) * 7) % 1009
    elif name == "distinct-64":
        mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        codes = mixed.astype("<u8").view(np.uint8).reshape(-1, 8)
        ids = numbers.astype(np.int64) * 3
    elif name == "grouped-64":
        mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        codes = mixed.astype("<u8").view(np.uint8).reshape(-1, 8).copy()
        codes[:, :4] = (
            ((numbers * np.uint64(7919)) % np.uint64(23))
            .astype("<u4")
            .view(np.uint8)
            .reshape(-1, 4)
        )
        ids = numbers.astype(np.int64) * 3
    else:
        codes, ids = np.empty((0, 16), dtype=np.uint8), np.empty(0, dtype=np.int64)
    return codes, ids


GOLDEN_NAMES = ["duplicates-16", "distinct-64", "grouped-64", "empty-128"]
LABEL_BITS = {"grouped-64": 32}


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_files_of_version_4_open(name):
    codes, ids = golden(name)
    index = HammingIndex.open(GOLDEN / f"index-v4-{name}.oasisidx", verify=True)
    got_codes, got_ids = index.items()
    assert (got_codes == codes).all()
    assert (got_ids == ids).all()
    assert index.n_bits == 8 * codes.shape[1]
    assert index.label_bits == LABEL_BITS.get(name, 0)
    truth = BruteForce(index.n_bits)
    truth.add(codes, ids)
    assert_search(index, truth, codes[:3], 30, "insertion")
    assert_asymmetric(index, truth, projections(np.random.default_rng(0), index.n_bits), 10)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_same_index_gives_the_golden_bytes(name, folder):
    codes, ids = golden(name)
    index = HammingIndex(8 * codes.shape[1], LABEL_BITS.get(name, 0))
    for part in np.array_split(np.arange(len(ids)), 3):
        index.add(codes[part], ids[part])
    index.save(folder / "index")
    expected = (GOLDEN / f"index-v4-{name}.oasisidx").read_bytes()
    assert (folder / "index").read_bytes() == expected


def test_saving_replaces_and_leaves_nothing_behind(folder):
    index, truth, rng = filled(HammingIndex, 16, n=50)
    path = folder / "index"
    index.save(path)
    opened = HammingIndex.open(path)
    opened.remove(list(truth.items)[:5])
    truth.remove(list(truth.items)[:5])
    opened.save(path)
    assert [p.name for p in folder.iterdir()] == ["index"]
    assert_search(opened, truth, tied_codes(rng, 2, 16, 5), 50, "insertion")
    again = HammingIndex.open(path)
    assert_search(again, truth, tied_codes(rng, 2, 16, 5), 50, "insertion")
    assert again.n_codes == len({tuple(bits) for bits in truth.items.values()})
    with pytest.raises(FileNotFoundError):
        HammingIndex.open(folder / "absent")
    with pytest.raises(FileNotFoundError):
        index.save(folder / "no" / "folder")


def use(path, verify):
    """Open a file and do everything with it; only our own errors may come out."""
    try:
        index = HammingIndex.open(path, verify=verify)
    except OasisError:
        return False
    queries = np.zeros((2, index.n_bits // 8), dtype=np.uint8)
    for action in (
        lambda: index.search(queries, 7),
        lambda: index.search(queries[:1], 400),
        lambda: index.search(queries, 3, allow=np.array([0, 7, 21])),
        lambda: index.search_asymmetric(np.ones((1, index.n_bits)), 5),
        lambda: index.range_search(queries, index.n_bits),
        lambda: index.add(queries, [10**6, 10**6 + 1]),
        lambda: index.remove([7]),
        lambda: index.search(queries, 7),
        lambda: index.items(),
        lambda: index.save(path.with_name("again")),
    ):
        try:
            action()
        except OasisError:
            continue
    return True


@pytest.mark.parametrize("name", ["duplicates-16", "distinct-64", "grouped-64"])
def test_truncated_files_are_refused(name, folder):
    whole = (GOLDEN / f"index-v4-{name}.oasisidx").read_bytes()
    path = folder / "index"
    for length in [*range(0, HEADER + 1, 37), *range(HEADER, len(whole), 111), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            HammingIndex.open(path, verify=False)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FormatError):
        HammingIndex.open(path, verify=False)


@pytest.mark.parametrize("name", ["duplicates-16", "distinct-64", "grouped-64"])
def test_flipped_bytes_are_refused_or_harmless(name, folder):
    whole = (GOLDEN / f"index-v4-{name}.oasisidx").read_bytes()
    path = folder / "index"
    rng = np.random.default_rng(18)
    for at in [*range(0, HEADER, 16), *rng.integers(HEADER, len(whole), 150).tolist()]:
        damaged = bytearray(whole)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        usable = use(path, verify=False)
        if at < HEADER:
            assert not usable
        elif damaged[at] != whole[at] and not padding(whole, at):
            with pytest.raises(FormatError):
                HammingIndex.open(path)


def sections(whole):
    entries = [struct.unpack_from("<QQII", whole, 48 + 24 * i) for i in range(6)]
    return [(offset, nbytes) for offset, nbytes, _, present in entries if present]


def padding(whole, at):
    return not any(offset <= at < offset + nbytes for offset, nbytes in sections(whole))


@pytest.mark.parametrize("name", ["duplicates-16", "grouped-64"])
def test_hostile_sections_are_refused_or_harmless(name, folder):
    whole = (GOLDEN / f"index-v4-{name}.oasisidx").read_bytes()
    path = folder / "index"
    rng = np.random.default_rng(19)
    for offset, nbytes in sections(whole):
        for fill in (b"\0", b"\xff", b"\x7f", b"\x80", None):
            damaged = bytearray(whole)
            content = rng.bytes(nbytes) if fill is None else fill * nbytes
            damaged[offset : offset + nbytes] = content
            if damaged == whole:
                continue
            path.write_bytes(damaged)
            use(path, verify=False)
            with pytest.raises(FormatError):
                HammingIndex.open(path)


@pytest.mark.parametrize("name", ["duplicates-16", "grouped-64"])
def test_hostile_headers_are_refused(name, folder):
    # a header with a right checksum and wrong numbers
    whole = (GOLDEN / f"index-v4-{name}.oasisidx").read_bytes()
    path = folder / "index"
    rng = np.random.default_rng(20)
    n_opened = 0
    for _ in range(300):
        damaged = bytearray(whole)
        at = int(rng.integers(8, 48 + 6 * 24))
        damaged[at] = int(rng.integers(0, 256))
        if rng.random() < 0.3:
            struct.pack_into("<Q", damaged, 24 + 8 * int(rng.integers(0, 17)), 2**63 - 1)
        struct.pack_into("<I", damaged, HEADER - 4, zlib.crc32(damaged[: HEADER - 4]))
        path.write_bytes(damaged)
        n_opened += use(path, verify=False)
    # numbers that no check can tell from right ones, such as checksums of content
    assert n_opened < 100


def test_foreign_and_newer_files(folder):
    path = folder / "index"
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    with pytest.raises(FormatError, match="not an index file"):
        HammingIndex.open(path)
    whole = bytearray((GOLDEN / "index-v4-empty-128.oasisidx").read_bytes())
    struct.pack_into("<I", whole, 8, 5)
    path.write_bytes(whole)
    with pytest.raises(NewerVersionError, match="format version 5, this oasis reads 4"):
        HammingIndex.open(path)
    struct.pack_into("<I", whole, 8, 3)
    path.write_bytes(whole)
    with pytest.raises(FormatError, match="format version 3, this oasis reads 4; build"):
        HammingIndex.open(path)


@pytest.mark.parametrize("n", [0, 60])
def test_exports_hold_the_items(n, folder):
    index, truth = HammingIndex(16), BruteForce(16)
    if n:
        index, truth, _ = filled(HammingIndex, 16, n=n)
        gone = list(truth.items)[3:7]
        index.remove(gone)
        truth.remove(gone)
    codes, ids = index.items()

    export(index, folder / "x.npz", "numpy")
    with np.load(folder / "x.npz") as stored:
        assert (stored["codes"] == codes).all()
        assert (stored["ids"] == ids).all()
        assert int(stored["n_bits"]) == 16
        assert str(stored["bit_order"]) == "little"

    export(index, folder / "x.faiss", "faiss")
    mapped = faiss.read_index_binary(str(folder / "x.faiss"))
    assert mapped.ntotal == len(truth.items)
    if n:
        distances, _ = mapped.search(codes[:5], 9)
        assert (distances == index.search(codes[:5], 9).distances).all()
        nearest = mapped.search(codes, 1)[1].ravel()
        assert [truth.items[int(i)] for i in nearest] == [truth.bits(code) for code in codes]

    parquet = pytest.importorskip("pyarrow.parquet")
    export(index, folder / "x.parquet", "parquet")
    table = parquet.read_table(folder / "x.parquet")
    assert table["id"].to_pylist() == ids.tolist()
    assert table["code"].to_pylist() == [code.tobytes() for code in codes]
    assert table.schema.metadata == {b"n_bits": b"16", b"bit_order": b"little"}


def test_export_refuses_an_unknown_format(folder):
    with pytest.raises(InputError, match="unknown export format 'csv'"):
        export(HammingIndex(8), folder / "x", "csv")
    assert not list(folder.iterdir())


@pytest.mark.parametrize("small", [True, False])
def test_a_file_that_others_truncate_does_not_end_the_process(folder, monkeypatch, small):
    if not small:
        monkeypatch.setattr("oasis.index.file._SMALL", 0)
    index, truth, rng = filled(HammingIndex, 16, n=500)
    index.save(folder / "index")
    opened = HammingIndex.open(folder / "index")
    os.truncate(folder / "index", 0)
    queries = tied_codes(rng, 2, 16, 5)
    if small:  # a copy in memory
        assert_search(opened, truth, queries, 50, "insertion")
        return
    for ask in (
        lambda: opened.search(queries, 5),
        lambda: opened.search_asymmetric(np.ones((1, 16)), 5),
        lambda: opened.range_search(queries, 3),
    ):
        with pytest.raises(FormatError, match="truncated while it was open"):
            ask()
