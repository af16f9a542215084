"""A file is replaced whole or not at all."""

import json
import os
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from oasis.errors import FormatError, MissingFileError
from oasis.model.gram import LowerTriangle
from oasis.store import (
    checksum,
    disk,
    folded_crc32,
    read_arrays,
    recorded_checksum,
    replacing,
    write_arrays,
)


def test_replacing_puts_the_new_file_in_place(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_leaves_the_old_file_when_the_block_raises(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_replacing_leaves_the_mode_to_the_umask(tmp_path):
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "file") as temporary:
        temporary.touch()
        temporary.chmod(0o600)
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_large_file_is_gone_at_once_and_no_descriptor_stays_open(tmp_path):
    target = tmp_path / "large"
    target.write_bytes(bytes(9 << 20))
    before = set(threading.enumerate())
    disk.remove(target)
    disk.remove(target)
    assert not target.exists()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
    assert not [name for name in opened if name.startswith(str(target))]


def test_a_link_to_a_large_file_is_removed_alone(tmp_path):
    target, link = tmp_path / "large", tmp_path / "link"
    target.write_bytes(bytes(9 << 20))
    link.symlink_to(target)
    disk.remove(link)
    assert target.exists() and not link.is_symlink()


def test_checksum_is_length_and_crc_of_the_content(tmp_path):
    path = tmp_path / "file"
    content = bytes(range(256)) * 9000
    path.write_bytes(content)
    assert checksum(path) == (len(content), zlib.crc32(content))


def test_a_temporary_file_does_not_follow_a_link(tmp_path, monkeypatch):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    names = iter(["taken", "free"])
    monkeypatch.setattr("secrets.token_hex", lambda _: next(names))
    (tmp_path / ".file.taken.tmp").symlink_to(victim)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert victim.read_text() == "precious" and path.read_text() == "new"


def test_two_threads_that_save_to_one_path_do_not_meet(tmp_path):
    path, both = tmp_path / "file", threading.Barrier(2, timeout=30)
    failures = []

    def save(letter):
        try:
            with replacing(path) as temporary:
                temporary.write_text(letter * 1000)
                both.wait()
        except Exception as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=save, args=(letter,)) for letter in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert list(tmp_path.iterdir()) == [path]


ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b/c": np.empty(0, np.int64), "é": np.ones(3, bool)}


def accept(metadata):
    assert metadata == {"kind": "test", "text": "ä"}


def test_arrays_come_back_as_they_were(tmp_path):
    path = tmp_path / "arrays"
    write_arrays(path, ARRAYS | {"t": np.arange(6).reshape(2, 3).T}, {"kind": "test", "text": "ä"})
    metadata, arrays = read_arrays(path, accept)
    assert metadata == {"kind": "test", "text": "ä"}
    assert arrays.keys() == ARRAYS.keys() | {"t"}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    n_bytes, crc = recorded_checksum(path)
    assert n_bytes == path.stat().st_size
    write_arrays(path, ARRAYS, {"kind": "test", "text": "ä"})
    assert recorded_checksum(path)[1] != crc


@pytest.mark.parametrize("d", [1, 64, 300])
def test_the_file_is_one_of_safetensors_and_a_triangle_is_one_array(tmp_path, d):
    rng = np.random.default_rng(0)
    matrix = np.asfortranarray(rng.random((d, d)))
    columns = np.concatenate([matrix[j:, j] for j in range(d)])
    matrix[np.triu_indices(d, 1)] = np.nan  # never read
    arrays = {
        np.dtype(kind).name: (100 * rng.random((2, 3))).astype(kind)
        for kind in ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", ">f8", ">i4")
    }
    wanted = ARRAYS | arrays | {"number": np.array(7.0), "whole": columns}
    write_arrays(tmp_path / "whole", wanted, {"text": "ä"})
    triangle = LowerTriangle(matrix)
    write_arrays(tmp_path / "triangle", wanted | {"whole": triangle}, {"text": "ä"})
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "triangle").read_bytes()
    found = safetensors.numpy.load_file(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("=")
        assert found[name].shape == array.shape
    assert np.array_equal(triangle, columns)
    with pytest.raises(ValueError, match="copy"):
        np.array(triangle, copy=False)


def literal_seal(arrays, metadata):
    """The checksum of a file by its definition."""
    value = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        value = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), value)
        value = literal_folded_crc32(array.tobytes(), value)
    return value


@pytest.mark.parametrize("arrays", [{}, ARRAYS, {"b": np.arange(150_000.0), "a": np.ones(9, "u1")}])
def test_the_recorded_checksum_is_that_of_its_definition(tmp_path, arrays):
    metadata = {"kind": "test", "text": "ä"}
    write_arrays(tmp_path / "arrays", arrays, metadata)
    assert recorded_checksum(tmp_path / "arrays")[1] == literal_seal(arrays, metadata)
    assert read_arrays(tmp_path / "arrays", accept)[0] == metadata


def test_any_changed_byte_of_arrays_is_noticed(tmp_path):
    path = tmp_path / "arrays"
    write_arrays(path, ARRAYS, {"kind": "test", "text": "ä"})
    whole = path.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for at in range(len(whole)):
        if 8 <= at < 8 + length and chr(whole[at]) in " ":
            continue  # padding of the header
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(FormatError):
            read_arrays(path, lambda _: None)
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError):
        read_arrays(path, accept)
    path.unlink()
    with pytest.raises(MissingFileError):
        read_arrays(path, accept)
    with pytest.raises(MissingFileError):
        recorded_checksum(path)


def literal_folded_crc32(content, value=0):
    """The checksum by its definition, word by word."""
    group = 16 * 1021
    words = [int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), 8)]
    n = len(content) // (8 * group)
    for start in range(0, n * group, group):
        sums = [sum(words[start + column : start + group : 1021]) % 2**64 for column in range(1021)]
        value = zlib.crc32(b"".join(each.to_bytes(8, "little") for each in sums), value)
    return zlib.crc32(content[n * group * 8 :], value)


@pytest.mark.parametrize("n_bytes", [0, 5, 130_687, 130_688, 130_693, 700_000, 1_200_001])
def test_checksum_is_that_of_its_definition_however_the_bytes_lie(n_bytes):
    rng = np.random.default_rng(n_bytes)
    content = rng.bytes(n_bytes)
    cuts = np.sort(rng.integers(0, n_bytes + 1, 20))
    parts = [part.tobytes() for part in np.split(np.frombuffer(content, np.uint8), cuts)]
    expected = literal_folded_crc32(content)
    assert folded_crc32([content]) == folded_crc32(parts) == expected
    assert folded_crc32([content], 7) != expected


def test_checksum_tells_flipped_bits_and_moved_cut_and_overwritten_blocks():
    rng = np.random.default_rng(0)
    whole = np.frombuffer(rng.random(120_000).tobytes(), np.uint8)
    expected = folded_crc32([whole.data])

    def differs(changed):
        return folded_crc32([changed.data]) != expected

    for _ in range(200):
        at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        changed = whole.copy()
        changed[at] ^= 1 << bit
        assert differs(changed)
        changed[int(rng.integers(len(whole)))] ^= 1 << bit  # a second one
        assert differs(changed)
    for size in (8, 512, 4096, 65536):
        starts = np.arange(0, len(whole) - size, size)
        for _ in range(100):
            one, other = rng.choice(starts, 2, replace=False)
            swapped, zeroed, copied = whole.copy(), whole.copy(), whole.copy()
            swapped[one : one + size] = whole[other : other + size]
            swapped[other : other + size] = whole[one : one + size]
            zeroed[one : one + size] = 0
            copied[one : one + size] = whole[other : other + size]
            assert differs(swapped) and differs(zeroed) and differs(copied)
    for n in (1, 8, 4096, 500_000):
        assert differs(whole[:-n]) and differs(np.concatenate([whole, np.zeros(n, np.uint8)]))
