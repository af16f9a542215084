"""A file is replaced whole or not at all."""

import threading
import zlib

import numpy as np
import pytest
import safetensors.numpy

from oasis.arrays import Pieces
from oasis.errors import FormatError, MissingFileError
from oasis.store import (
    append,
    checksum,
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


def test_append_cuts_what_was_past_the_offset(tmp_path):
    path = tmp_path / "file"
    append(path, 0, b"first")
    append(path, 5, b" and garbage")
    append(path, 5, b" second")
    assert path.read_bytes() == b"first second"


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


def test_the_file_is_one_of_safetensors_and_pieces_are_one_array(tmp_path):
    rng = np.random.default_rng(0)
    parts = [rng.random(n) for n in (3, 0, 40_000, 1)]
    arrays = {
        np.dtype(kind).name: (100 * rng.random((2, 3))).astype(kind)
        for kind in ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", ">f8", ">i4")
    }
    wanted = ARRAYS | arrays | {"number": np.array(7.0), "whole": np.concatenate(parts)}
    write_arrays(tmp_path / "whole", wanted, {"text": "ä"})
    write_arrays(tmp_path / "pieces", wanted | {"whole": Pieces(parts)}, {"text": "ä"})
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "pieces").read_bytes()
    found = safetensors.numpy.load_file(tmp_path / "whole")
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("=")
        assert found[name].shape == array.shape
    assert np.array_equal(Pieces(parts), wanted["whole"])
    with pytest.raises(ValueError, match="copy"):
        np.array(Pieces(parts), copy=False)


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
