"""Data kept aside: no constant of a model may be chosen on them.

Nothing is downloaded here. Two sets, each made from files that a package manager fetches by name:

``emoji``: 1,911 emoji with a picture (EfficientNet-Lite0), words (name, short names, tags), and
their category and subcategory as labels, 109 classes::

    npm pack emoji-datasource-google@16.0.0 && npm pack emojibase-data@17.0.0
    mkdir emoji && for f in *.tgz; do mkdir emoji/${f%-*} && tar xzf $f -C emoji/${f%-*}; done
    python -m benchmarks.aside emoji emoji emoji.npz

``packages``: Debian's packages with words (name, one line of description), the packages that they
need, and their tags of three facets (field, use, works-with) as labels, 8,000 drawn at random::

    apt-cache dumpavail > packages.txt
    python -m benchmarks.aside packages packages.txt packages.npz

The file can then be named wherever a data set is: ``--data coco79,emoji.npz``.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oasis.datasets import Dataset, npz
from oasis.datasets.dataset import label_indicator
from oasis.datasets.icons import hashed_words
from oasis.features.image import EfficientNetLite0

FACETS = ("field", "use", "works-with")
LEAST_ITEMS = 20
"""Packages that a tag must have to be a label."""

N_PACKAGES = 8000
SEED = 20261119


def emoji(folder: Path) -> Dataset:
    """Return the emoji; the folder holds both packages unpacked, each in a folder of its name."""
    images = folder / "emoji-datasource-google" / "package"
    described = folder / "emojibase-data" / "package" / "en" / "data.json"
    tags = {each["hexcode"]: each.get("tags", []) for each in json.loads(described.read_text())}
    found = json.loads((images / "emoji.json").read_text())
    paths = [images / "img" / "google" / "64" / each["image"] for each in found]
    X, failures = EfficientNetLite0().embed(paths)
    if failures:
        row, reason = next(iter(failures.items()))
        raise ValueError(f"{paths[row]}: {reason}")
    texts = [
        " ".join([str(each["name"]), *each["short_names"], *tags.get(each["unified"], [])]).lower()
        for each in found
    ]
    labels = [_emoji_labels(each) for each in found]
    payload = {"name": np.array([each["short_name"] for each in found])}
    return _dataset("emoji", {"image": X, "text": hashed_words(texts)}, labels, payload)


def _emoji_labels(each: dict[str, str]) -> tuple[str, ...]:
    names = (each["category"], each["subcategory"])
    return tuple(dict.fromkeys(name.lower().replace("-", " ") for name in names))


def packages(path: Path) -> Dataset:
    """Return 8,000 Debian packages that have a tag which enough packages have."""
    found = [each for each in _paragraphs(path) if _tags(each)]
    counts = Counter(tag for each in found for tag in _tags(each))
    often = {tag for tag, n in counts.items() if n >= LEAST_ITEMS}
    found = [each for each in found if often & set(_tags(each))]
    drawn = np.random.default_rng(SEED).permutation(len(found))[:N_PACKAGES]
    found = [found[row] for row in np.sort(drawn)]
    needs = [" ".join(_needed(each)) for each in found]
    texts = [f"{each['Package'].replace('-', ' ')} {each['Description']}" for each in found]
    X = {"text": hashed_words(texts), "needs": hashed_words(needs)}
    labels = [
        tuple(dict.fromkeys(_named(tag) for tag in _tags(each) if tag in often)) for each in found
    ]
    payload = {"name": np.array([each["Package"] for each in found])}
    return _dataset("packages", X, labels, payload)


def _paragraphs(path: Path) -> Iterator[dict[str, str]]:
    """Yield the fields of each package; the first line of a description is its summary."""
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        joined = re.sub(r"\n +", " ", paragraph.strip())
        fields = dict(line.split(": ", 1) for line in joined.split("\n") if ": " in line)
        if {"Package", "Description", "Tag"} <= set(fields):
            yield fields


def _tags(fields: dict[str, str]) -> list[str]:
    tags = fields["Tag"].split(", ")
    return [tag for tag in tags if tag.partition("::")[0] in FACETS and not tag.endswith("TODO")]


def _named(tag: str) -> str:
    """Return a tag as words.

    >>> _named("works-with::music-notation")
    'music notation'
    """
    return re.sub(r"[-:]+", " ", tag.partition("::")[2])


def _needed(fields: dict[str, str]) -> list[str]:
    """Return the names of packages that a package depends on, as single words."""
    named = re.split(r"[,|]", fields.get("Depends", ""))
    return [re.sub(r"\W", "_", each.split()[0]) for each in named if each.strip()]


def _dataset(name: str, X: dict[str, Any], labels: list[Any], payload: dict[str, Any]) -> Dataset:
    classes = tuple(sorted({each for names in labels for each in names}))
    return Dataset(name, X, label_indicator(labels, classes), classes, payload=payload)


MAKERS = {"emoji": emoji, "packages": packages}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in MAKERS:
        print(__doc__, file=sys.stderr)
        return 2
    name, source, target = arguments
    data = MAKERS[name](Path(source))
    npz.write(data, target)
    print(json.dumps(data.describe()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
