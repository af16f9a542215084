"""Icons: 1,446 labelled glyphs of Font Awesome Free, a small real stream that installs with pip.

Each icon has about 2 of 68 categories, 6.5 search terms, and the release in which it arrived.
The two modalities need no network and no neural network: a histogram of oriented gradients of the
glyph, and the hashed words of its name and search terms. Needs the extra ``demo``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

from oasis.datasets.dataset import Dataset, Source, indicator
from oasis.errors import DataError, InputError, MissingExtraError

_FONTS = {
    "solid": "fa-solid-900.ttf",
    "regular": "fa-regular-400.ttf",
    "brands": "fa-brands-400.ttf",
}
_WORD = r"(?u)\b\w+\b"  # letters and digits alone are words too: some icons show them
_CELL = 8
_N_ORIENTATIONS = 9
_FINAL = 1 << 16  # sorts a release after its betas


@dataclass(frozen=True)
class Icon:
    """One icon: its key, its title, where its glyph is, what it is about and when it arrived."""

    name: str
    title: str
    style: str
    character: str
    terms: tuple[str, ...]
    categories: tuple[str, ...]
    release: str


def load(*, size: int = 48, n_words: int = 2048) -> Dataset:
    """Return the icons as a data set with modalities ``image`` and ``text``.

    Parameters
    ----------
    size : int
        Side of the rendered glyph in pixels, a multiple of 8; 48 gives 900 features.
    n_words : int
        Number of features that the words are hashed into.

    Notes
    -----
    Class names are category keys with spaces for hyphens (``"food beverage"``). ``arrival`` counts
    releases. The payload has the icon's name, title, release, style and terms. About a second.
    """
    found = icons()
    classes = tuple(sorted({name for icon in found for name in icon.categories}))
    releases = sorted({icon.release for icon in found}, key=release_order)
    number = {release: i for i, release in enumerate(releases)}
    words = [f"{icon.name} {' '.join(icon.terms)}" for icon in found]
    metadata = _folder() / "metadata"
    return Dataset(
        "icons",
        {"image": gradients(render(found, size)), "text": hashed_words(words, n_words)},
        indicator([icon.categories for icon in found], classes),
        classes,
        arrival=np.array([number[icon.release] for icon in found], dtype=np.int64),
        payload={
            "name": np.array([icon.name for icon in found]),
            "title": np.array([icon.title for icon in found]),
            "release": np.array([icon.release for icon in found]),
            "style": np.array([icon.style for icon in found]),
            "terms": np.array([", ".join(icon.terms) for icon in found]),
        },
        sources=tuple(Source.of(metadata / file) for file in ("icons.json", "categories.yml")),
        recipe={"size": size, "n_words": n_words},
    )


def icons() -> list[Icon]:
    """Return every icon that has a category, sorted by name."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("PyYAML", extra="demo", what="reading the icons") from error
    metadata = _folder() / "metadata"
    described: dict[str, Any] = json.loads((metadata / "icons.json").read_text("utf-8"))
    listed = yaml.safe_load((metadata / "categories.yml").read_text("utf-8"))
    categories: dict[str, list[str]] = {}
    for key, category in listed.items():
        for name in category["icons"]:
            categories.setdefault(name, []).append(key.replace("-", " "))
    found = []
    for name in sorted(categories):
        if name not in described:
            raise DataError(f"icon {name!r} has categories but no entry in {metadata}/icons.json")
        entry = described[name]
        style = "solid" if "solid" in entry["free"] else entry["free"][0]
        found.append(
            Icon(
                name=name,
                title=entry["label"],
                style=style,
                character=chr(int(entry["unicode"], 16)),
                terms=tuple(str(term) for term in entry["search"]["terms"]),
                categories=tuple(sorted(categories[name])),
                release=entry["changes"][0],
            )
        )
    return found


def render(drawn: Sequence[Icon], size: int) -> npt.NDArray[np.uint8]:
    """Draw glyphs white on black, centred, with a margin of an eighth: (n, size, size) uint8.

    All are set at one font size; a glyph that is too wide or too high for it is shrunk to fit.
    """
    if size < 2 * _CELL or size % _CELL:
        raise InputError(f"size must be a multiple of {_CELL} and at least {2 * _CELL}, got {size}")
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise MissingExtraError("Pillow", extra="demo", what="drawing the icons") from error
    folder = _folder() / "webfonts"
    room = size - 2 * (size // 8)
    fonts: dict[tuple[str, int], ImageFont.FreeTypeFont] = {}

    def font(style: str, height: int) -> ImageFont.FreeTypeFont:
        if (style, height) not in fonts:
            fonts[style, height] = ImageFont.truetype(str(folder / _FONTS[style]), height)
        return fonts[style, height]

    out = np.zeros((len(drawn), size, size), dtype=np.uint8)
    for i, icon in enumerate(drawn):
        image = Image.new("L", (size, size))
        draw = ImageDraw.Draw(image)
        height = room
        left, top, right, bottom = draw.textbbox((0, 0), icon.character, font(icon.style, height))
        extent = max(right - left, bottom - top)
        if extent > room:
            height = max(1, int(height * room / extent))
            box = draw.textbbox((0, 0), icon.character, font(icon.style, height))
            left, top, right, bottom = box
        corner = ((size - left - right) / 2, (size - top - bottom) / 2)
        draw.text(corner, icon.character, fill=255, font=font(icon.style, height))
        out[i] = np.asarray(image)
    return out


def gradients(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return a histogram of oriented gradients per (size, size) image, unit length.

    Gradients vote, by magnitude and shared between the two nearest of 9 unsigned orientations, in
    cells of 8 x 8 pixels; every 2 x 2 cells form a block that is scaled to unit length. Shape
    (n, 36 (size/8 - 1)^2) float32. An empty image gives zeros.

    >>> import numpy as np
    >>> gradients(np.zeros((1, 48, 48), dtype=np.uint8)).shape
    (1, 900)
    """
    n, height, width = images.shape
    pixels = images.astype(np.float32) / 255.0
    dy, dx = np.zeros_like(pixels), np.zeros_like(pixels)
    dy[:, 1:-1] = pixels[:, 2:] - pixels[:, :-2]
    dx[:, :, 1:-1] = pixels[:, :, 2:] - pixels[:, :, :-2]
    magnitude = np.hypot(dx, dy)
    angle = np.mod(np.arctan2(dy, dx), np.pi) * (_N_ORIENTATIONS / np.pi)  # in bins
    low = np.floor(angle)
    upper_share = angle - low
    low_bin = low.astype(np.int64) % _N_ORIENTATIONS
    rows, columns = height // _CELL, width // _CELL
    cells = np.zeros((n, rows, columns, _N_ORIENTATIONS), dtype=np.float32)
    for orientation in range(_N_ORIENTATIONS):
        vote = np.where(low_bin == orientation, magnitude * (1 - upper_share), 0)
        previous = (orientation - 1) % _N_ORIENTATIONS
        vote += np.where(low_bin == previous, magnitude * upper_share, 0)
        grid = vote.reshape(n, rows, _CELL, columns, _CELL)
        cells[..., orientation] = grid.sum(axis=(2, 4))
    corners = [cells[:, a : rows - 1 + a, b : columns - 1 + b] for a in (0, 1) for b in (0, 1)]
    blocks = np.concatenate(corners, axis=3)
    blocks /= np.linalg.norm(blocks, axis=3, keepdims=True) + 1e-3  # faint blocks stay faint
    flat: npt.NDArray[np.float32] = blocks.reshape(n, -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    flat /= np.where(norms > 0, norms, 1)
    return flat


def hashed_words(texts: Sequence[str], n_features: int = 2048) -> sp.csr_array:
    """Return the words of each text hashed into ``n_features`` signed counts, rows of unit length.

    >>> hashed_words(["sun weather", ""], 64).shape
    (2, 64)
    """
    vectorizer = HashingVectorizer(
        n_features=n_features, token_pattern=_WORD, norm="l2", dtype=np.float32
    )
    return sp.csr_array(vectorizer.transform(texts))


def release_order(release: str) -> tuple[int, int, int, int]:
    """Return a key that sorts releases in time: betas come before their release.

    >>> sorted(["6.0.0", "5.13.1", "6.0.0-beta2", "5.2.0"], key=release_order)
    ['5.2.0', '5.13.1', '6.0.0-beta2', '6.0.0']
    """
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:-beta(\d+))?", release)
    if match is None:
        raise DataError(f"release {release!r} is not of the form 6.0.0 or 6.0.0-beta1")
    major, minor, patch, beta = match.groups()
    return int(major), int(minor), int(patch), _FINAL if beta is None else int(beta)


def _folder() -> Path:
    spec = find_spec("fontawesomefree")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("fontawesomefree", extra="demo", what="loading the icons")
    return Path(spec.submodule_search_locations[0]) / "static" / "fontawesomefree"
