"""A small collection of drawn shapes with words, as the service's tests serve it."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageDraw
from toy import class_vectors

from oasis.collection import Collection
from oasis.features.extractor import Extractor
from oasis.model import OASIS

KINDS = {"sky": "cloud sun bird", "sea": "boat wave anchor", "cat": "fur paw whisker"}
N = 48


def extractor():
    """What makes features of the drawings and their words; it needs no net and no file."""
    return Extractor.of(image="gradients", text="words")


def picture(kind, seed=0, side=64, form="PNG"):
    """The bytes of a picture: a circle, a bar or a cross, a little different every time."""
    rng = np.random.default_rng([11, seed])
    image = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(image)
    a, b = (int(each) for each in rng.integers(4, 12, 2))
    if kind == "sky":
        draw.ellipse((a, b, side - a, side - b), fill="black")
    elif kind == "sea":
        draw.rectangle((0, side // 2 - a, side, side // 2 + b), fill="black")
    else:
        draw.line((a, b, side - a, side - b), fill="black", width=8)
        draw.line((side - a, b, a, side - b), fill="black", width=8)
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def item(number):
    kind = list(KINDS)[number % 3]
    words = KINDS[kind].split()
    return {
        "id": f"item/{number}" if number % 4 else number,
        "text": f"{words[number % 2]} {words[2]}",
        "image": picture(kind, number),
        "labels": [kind],
        "payload": {"title": f"{kind} {number}", "year": 2000 + number},
    }


def fill(path, n=N, more_names=()):
    """Make the collection at a path, in two chunks; its label space has ``more_names`` too."""
    vectors = class_vectors()
    rng = np.random.default_rng(5)
    vectors |= {name: rng.standard_normal(len(vectors["cat"])) for name in more_names}
    model = OASIS(32, labels=vectors, random_state=0)
    items = [item(number) for number in range(n)]
    with Collection.open(path, model=model, extractor=extractor()) as c:
        for part in (items[: n // 2], items[n // 2 :]):
            assert not c.ingest_items(part, thumbnails=[each["image"] for each in part])
    return path


ALIKE = [
    "anchor", "boat", "cloud", "bird", "fur", "lamp", "mountain", "needle", "orange", "piano",
    "river", "stone", "tower", "umbrella", "violin", "window",
]  # fmt: skip


def fill_alike(path):
    """Make a collection with content bits of words that all have one label; ids are rows."""
    items = [{"id": row, "text": word, "labels": ["sea"]} for row, word in enumerate(ALIKE)]
    model = OASIS.for_search(128, labels=class_vectors(), random_state=0)
    with Collection.open(path, model=model, extractor=extractor()) as c:
        assert not c.ingest_items(items)
    return path


def vectors(n, seed=0):
    """Features and labels in the shape of the collection's."""
    rng = np.random.default_rng([13, seed])
    X = {
        "image": rng.random((n, 900), dtype=np.float32),
        "text": (rng.random((n, 2048)) < 0.01).astype(np.float32),
    }
    return X, [[list(KINDS)[row % 3]] for row in range(n)]
