"""The word vectors against those that the package wordllama gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oasis import wordllama
from oasis.errors import DataError
from oasis.wordllama import word_vectors

TEXTS = [
    "a red double decker bus in London",
    "Cat",
    "cat",
    "",
    "   ",
    "猫",
    "naïve café 🐱 ❤",
    "word " * 3000,
    "\n\t\x00",
]


def test_vectors_equal_those_of_the_package() -> None:
    from wordllama import WordLlama

    folder = Path(wordllama.find_spec("wordllama").origin).parent  # type: ignore[union-attr,arg-type]
    model = WordLlama.load(cache_dir=folder, disable_download=True)
    X = word_vectors().embed(TEXTS)
    assert (X.shape, X.dtype) == ((len(TEXTS), 256), np.float32)
    for row, text in enumerate(TEXTS):
        truth = model.embed(text)[0]
        np.testing.assert_allclose(X[row], truth, rtol=0, atol=2e-6 * np.abs(truth).max() + 1e-12)
        assert word_vectors().embed([text])[0].tobytes() == X[row].tobytes()
    assert not X[3].any()
    assert word_vectors().embed([]).shape == (0, 256)


def test_vectors_are_loaded_once() -> None:
    assert word_vectors() is word_vectors()


def test_missing_files_and_a_missing_package_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> bytes:
        raise FileNotFoundError(2, "No such file", str(path))

    load: Any = word_vectors.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", missing)
        with pytest.raises(DataError, match=r"wordllama are missing .*safetensors.*pip install"):
            load()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wordllama, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install wordllama"):
        load()
