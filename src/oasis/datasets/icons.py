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

from oasis.datasets.dataset import (
    Dataset,
    Source,
    label_indicator,
)
from oasis.errors import DataError, InputError, MissingExtraError
from oasis.features.gradients import CELL, gradients

_FONTS = {
    "solid": "fa-solid-900.ttf",
    "regular": "fa-regular-400.ttf",
    "brands": "fa-brands-400.ttf",
}
_WORD = r"(?u)\b\w+\b"  # letters and digits alone are words too: some icons show them
_FINAL = 1 << 16  # sorts a release after its betas


@dataclass(frozen=True)
class Icon:
    """One icon: its key, title, glyph (style and code point), categories, terms and release."""

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
    releases. The payload has the icon's name, title, release, style and terms. Takes a second.
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
        label_indicator([icon.categories for icon in found], classes),
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
    if size < 2 * CELL or size % CELL:
        raise InputError(f"size must be a multiple of {CELL} and at least {2 * CELL}, got {size}")
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


def hashed_words(texts: Sequence[str], n_features: int = 2048) -> sp.csr_array:
    """Return the words of each text hashed into ``n_features`` signed counts, rows of unit length.

    >>> hashed_words(["sun weather", ""], 64).shape
    (2, 64)
    """
    from sklearn.feature_extraction.text import HashingVectorizer  # takes seconds to import

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
