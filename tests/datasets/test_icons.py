"""The icons as a data set, and their gradients."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from oasis.datasets import Dataset, icons, load
from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.gradients import gradients


@pytest.fixture(scope="module")
def icon_set() -> Dataset:
    return load("icons")


def test_icons_are_as_described(icon_set: Dataset) -> None:
    assert icon_set.n_samples == 1_446
    assert len(icon_set.classes) == 68
    assert icon_set.widths == {"image": 900, "text": 2048}
    assert icon_set.L.sum() / 1_446 == pytest.approx(2.0, abs=0.05)
    assert icon_set.L.any(axis=1).all()
    at = icon_set.payload["name"].tolist().index("dog")
    assert "animals" in icon_set.labels([at])[0]
    assert icon_set.payload["title"][at] == "Dog"
    assert icon_set.payload["release"][at] == "5.4.0"
    n_terms = [len(icon.terms) for icon in icons.icons()]
    assert np.mean(n_terms) == pytest.approx(6.5, abs=0.05)


def test_icon_arrival_follows_the_releases(icon_set: Dataset) -> None:
    assert icon_set.arrival is not None
    order = np.argsort(icon_set.arrival, kind="stable")
    keys = [icons.release_order(r) for r in icon_set.payload["release"][order]]
    assert keys == sorted(keys)
    assert icon_set.arrival.min() == 0
    with pytest.raises(DataError, match="release 'new' is not of the form"):
        icons.release_order("new")


def test_icon_glyphs_are_drawn_inside_and_centred() -> None:
    glyphs = icons.render(icons.icons(), 48)
    assert glyphs.shape == (1_446, 48, 48)
    ink = glyphs > 64
    assert ink.any(axis=(1, 2)).all(), "every glyph is there"
    assert not ink[:, [0, -1]].any(), "none touches the border"
    assert not ink[:, :, [0, -1]].any()
    for axis in (1, 2):
        line = ink.any(axis=axis)
        before, after = line.argmax(axis=1), line[:, ::-1].argmax(axis=1)
        # by advance and baseline, so a half star stays a half: most ink is in the middle
        assert (np.abs(before - after) <= 2).mean() > 0.95
    assert len(np.unique(glyphs.reshape(1_446, -1), axis=0)) > 1_400
    with pytest.raises(InputError, match="size must be a multiple of 8"):
        icons.render([], 50)


def slow_gradients(image: np.ndarray) -> np.ndarray:
    """The histogram of oriented gradients of one image, pixel by pixel."""
    size = len(image)
    cells = np.zeros((size // 8, size // 8, 9))
    value = image.astype(float) / 255
    for y in range(size):
        for x in range(size):
            dy = value[y + 1, x] - value[y - 1, x] if 0 < y < size - 1 else 0.0
            dx = value[y, x + 1] - value[y, x - 1] if 0 < x < size - 1 else 0.0
            place = (np.arctan2(dy, dx) % np.pi) / (np.pi / 9)
            low = int(np.floor(place))
            strength = np.hypot(dx, dy)
            cells[y // 8, x // 8, low % 9] += strength * (1 - (place - low))
            cells[y // 8, x // 8, (low + 1) % 9] += strength * (place - low)
    blocks = []
    for r in range(size // 8 - 1):
        for c in range(size // 8 - 1):
            block = np.concatenate(
                [cells[r, c], cells[r, c + 1], cells[r + 1, c], cells[r + 1, c + 1]]
            )
            blocks.append(block / (np.linalg.norm(block) + 1e-3))
    flat = np.concatenate(blocks)
    return flat / np.linalg.norm(flat)


def test_gradients_equal_the_loop_over_pixels() -> None:
    image = np.random.default_rng(0).integers(256, size=(2, 24, 24)).astype(np.uint8)
    found = gradients(image)
    assert found.dtype == np.float32
    for i in range(2):
        np.testing.assert_allclose(found[i], slow_gradients(image[i]), atol=1e-5)
    edge = np.zeros((1, 16, 16), np.uint8)
    edge[:, :, 8:] = 255
    only = gradients(edge)[0].reshape(4, 9)
    assert (only[:, 0] > 0).all(), "a vertical edge has a horizontal gradient, the first bin"
    assert (only[:, 1:] == 0).all()
    assert not gradients(np.zeros((1, 16, 16), np.uint8)).any()
    assert gradients(np.zeros((0, 16, 16), np.uint8)).shape == (0, 36)


def test_icons_without_the_extra_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasis.datasets.icons.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"fontawesomefree.*oasis-hash\[demo\]"):
        load("icons")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"PyYAML.*oasis-hash\[demo\]"):
        icons.icons()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"Pillow.*oasis-hash\[demo\]"):
        icons.render([], 48)
