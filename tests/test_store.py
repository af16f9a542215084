"""A file is replaced whole or not at all."""

import zlib

import pytest

from oasis.store import append, checksum, replacing


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
