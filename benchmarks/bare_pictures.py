"""Words that ask a collection for pictures without a text.

``python -m benchmarks bare_pictures [--captions FOLDER] [--photos FOLDER]``

Neither folder is in the repository. ``--captions``: pictures in ``images/`` and, in
``captions.txt``, lines ``file,caption`` with two captions of each picture or more (1,000 of
Flickr8k are in the public repository quantumnaan/sic_translator, folder ``data``). A picture is
asked for by a caption; 300 of them then have their other caption. ``--photos``: a photograph of
each ImageNet class in class order (EliSchwartz/imagenet-sample-images), asked for by words; a hit
is right if its class is of that kind by `oasis.features.looks.class_names`.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oasis import Collection
from oasis.features.extractor import Extractor
from oasis.features.looks import class_names

WORDS = (
    *("dog", "bird", "car", "snake", "guitar", "cat", "boat"),
    *("fruit", "insect", "monkey", "fish", "ball", "bottle", "truck"),
)
CHUNK, N_CAPTIONED, SEED, K = 100, 300, 20264, 10


def found(
    folder: str, items: Sequence[dict[str, Any]], asked: dict[int, str], **options: Any
) -> float:
    """Return the share of texts that find the item of their id among ten of a new collection."""
    with Collection.open(folder, extractor=Extractor.default(), **options) as c:
        for start in range(0, len(items), CHUNK):
            c.ingest_items(items[start : start + CHUNK])
        lists = c.search_items([{"text": text} for text in asked.values()], k=K)
        hits = [any(hit.id == id_ for hit in each) for id_, each in zip(asked, lists, strict=True)]
        return float(np.mean(hits))


def by_captions(folder: Path) -> None:
    captions = defaultdict(list)
    with (folder / "captions.txt").open(newline="") as file:
        for name, caption, *_ in csv.reader(file):
            captions[name].append(caption)
    paths = [path for path in sorted((folder / "images").iterdir()) if len(captions[path.name]) > 1]
    X, _ = Extractor.of(text="none").extract([{"image": path} for path in paths])
    bare = [{"id": row, "vectors": {"image": x}} for row, x in enumerate(X["image"])]
    told, asked = zip(*(captions[path.name][:2] for path in paths), strict=True)
    print(f"{len(paths)} pictures of {folder}, among ten (chance {K / len(paths):.3f}):")
    with tempfile.TemporaryDirectory() as made:
        for name, texts in (("first", told), ("second", asked)):
            share = found(f"{made}/{name}", bare, dict(enumerate(texts)))
            print(f"  without any text, by the {name} caption: {share:.3f}")
        order = np.random.default_rng(SEED).permutation(len(paths)).tolist()
        first, later = order[:N_CAPTIONED], order[N_CAPTIONED:]
        captioned = [{**bare[row], "text": told[row]} for row in first]
        rest = [bare[row] for row in later]
        queries = {row: asked[row] for row in later}
        for name, items, options in (
            ("the guess alone", [bare[row] for row in order], {}),
            ("captions alone", captioned + rest, {"picture_meaning": False}),
            ("both", captioned + rest, {}),
        ):
            share = found(f"{made}/{name}", items, queries, **options)
            print(f"  {len(later)} after {N_CAPTIONED} with a caption, {name}: {share:.3f}")


def by_words(folder: Path) -> None:
    paths, kinds = sorted(folder.glob("*.JPEG")), class_names()
    X, _ = Extractor.of(text="none").extract([{"image": path} for path in paths])
    bare = [{"id": row, "vectors": {"image": x}} for row, x in enumerate(X["image"])]
    extractor = Extractor.default()
    with tempfile.TemporaryDirectory() as made, Collection.open(made, extractor=extractor) as c:
        for start in range(0, len(bare), CHUNK):
            c.ingest_items(bare[start : start + CHUNK])
        right = {
            word: np.mean([word in kinds[int(hit.id)] for hit in c.find(word, k=K)])
            for word in WORDS
        }
    print(f"{len(paths)} photographs of {folder}, right among ten by a word:")
    print("  " + ", ".join(f"{word} {share:.1f}" for word, share in right.items()))
    print(f"  mean {np.mean(list(right.values())):.3f}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks bare_pictures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--captions", type=Path)
    parser.add_argument("--photos", type=Path)
    given = parser.parse_args(arguments)
    if given.captions is None and given.photos is None:
        parser.error("name a folder: --captions or --photos")
    if given.captions is not None:
        by_captions(given.captions)
    if given.photos is not None:
        by_words(given.photos)
    return 0
