"""A file is replaced whole or not at all."""

import pytest

from oasis.store import replacing


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
