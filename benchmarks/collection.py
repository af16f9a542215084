"""Collection: what durability costs a round, one item at a time, and a million items.

Features are drawn at the shapes of the paper's data sets; learning and ingest take turns on the
same chunks, so their ratio holds on a busy machine too, most of all that of processor time. Codes
of the million come from the label sets of `benchmarks.search`. Seeds are fixed.

Texts are made of syllables, frequent words first as in captions, and their classes are named in
them.

Run it with ``python -m benchmarks collection`` (about four minutes, 2 GB of disk).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from benchmarks.search import label_set_stream
from benchmarks.timing import Row, best_of, row_of
from oasis.collection import Collection
from oasis.features.extractor import Extractor
from oasis.model import OASIS
from oasis.store import folded_crc32

SHAPES: dict[str, tuple[int, dict[str, int], int, float]] = {
    "MIRFlickr, 2,000 x (4,096 + 1,386)": (2_000, {"image": 4096, "text": 1386}, 24, 1.15),
    "NUS-WIDE, 10,000 x (500 + 1,000)": (10_000, {"image": 500, "text": 1000}, 21, 1.25),
}
"""Name -> samples a chunk, features by modality, classes, goal of a round with durability."""

ITEMS = 1_000_000
TEXTS = 100_000
ROUNDS = 4
ONE_BY_ONE = 40
LOADS = 30
SEED = 20261

_CHECKSUM = 1.1
_OPEN_SECONDS = 1.0
_SEARCH_MS = 5.0
_TEXT_MS = 3.0
_ITEM_BYTES = 120.0
_CHUNK = 25_000
_CLASSES = 79
_WIDTH = 64
_QUERIES = 50

Measured = dict[str, Any]


def label_sets(n: int, n_classes: int, rng: np.random.Generator) -> list[list[str]]:
    """Return label sets of one to five classes, frequent ones first."""
    weight = 1 / np.arange(1, n_classes + 1)
    drawn = rng.random((n, n_classes)) * weight
    order = np.argsort(-drawn, axis=1)
    sizes = rng.integers(1, 6, n)
    return [
        [f"class {number}" for number in order[row, :size]]
        for row, size in enumerate(sizes.tolist())
    ]


def paper_chunk(
    n: int, widths: dict[str, int], n_classes: int, rng: np.random.Generator
) -> tuple[dict[str, Any], list[list[str]]]:
    """Return dense pictures and 0/1 texts of four words in a hundred, as float32."""
    X: dict[str, Any] = {
        name: np.maximum(rng.standard_normal((n, width), dtype=np.float32), 0)
        if name == "image"
        else (rng.random((n, width), dtype=np.float32) < 0.04).astype(np.float32)
        for name, width in widths.items()
    }
    return X, label_sets(n, n_classes, rng)


def seconds(call: Callable[..., object], *arguments: Any, **options: Any) -> float:
    """Return how long a call takes."""
    return spent(call, *arguments, **options)[0]


def spent(call: Callable[..., object], *arguments: Any, **options: Any) -> tuple[float, float]:
    """Return how long a call takes, by the clock and of the processor."""
    start, busy = time.perf_counter(), time.process_time()
    call(*arguments, **options)
    return time.perf_counter() - start, time.process_time() - busy


def bytes_written() -> int:
    """Return what this process has sent to the medium so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def measure_rounds(folder: Path) -> Iterator[Measured]:
    """Yield the time of a round with durability over that without."""
    for shape, (n, widths, n_classes, goal) in SHAPES.items():
        rng = np.random.default_rng(SEED)
        plain, learned, ingested = OASIS(random_state=0), [], []
        with Collection.open(folder / shape[:4], model=OASIS(random_state=0)) as c:
            for number in range(ROUNDS + 1):
                X, y = paper_chunk(n, widths, n_classes, rng)
                ids = [f"im{number * n + row}.jpg" for row in range(n)]
                payload = [{"year": 2000 + row % 25, "place": "Bergen"} for row in range(n)]
                learned.append(spent(plain.partial_fit, X, y))
                ingested.append(spent(c.ingest, X, y, ids, payload))
            written = c.rounds()[-1].bytes
        for column, kind in enumerate(("", ", processor")):
            # the first round has no base to ask and loads what is loaded once
            ours, peer = (np.array(each)[1:, column] for each in (ingested, learned))
            yield {
                "shape": shape,
                "measure": f"round with durability{kind}",
                "value": float(np.median(ours)),
                "unit": "s",
                "peer": float(np.median(peer)),
                "ratio": float(np.median(ours / peer)),
                "goal": f"<= {goal}",
            }
        yield {
            "shape": shape,
            "measure": "files written a round",
            "value": written / 1e6,
            "unit": "MB",
        }


def measure_one_by_one(folder: Path) -> Iterator[Measured]:
    """Yield the cost of single items at the shape of raw pictures with text."""
    shape, widths = "one item, 1,280 + 2,048 sparse", {"image": 1280, "text": 2048}
    rng = np.random.default_rng(SEED)
    plain, learned, ingested = OASIS(random_state=0), [], []

    def chunk(n: int) -> tuple[dict[str, Any], list[list[str]]]:
        X, y = paper_chunk(n, widths, 40, rng)
        X["text"] = sp.csr_array(X["text"] * (rng.random((n, 2048)) < 0.1))
        return X, y

    with Collection.open(folder / "one", model=OASIS(random_state=0)) as c:
        X, y = chunk(3000)
        c.ingest(X, y)
        plain.partial_fit(X, y)
        before = bytes_written()
        for _ in range(ONE_BY_ONE):
            X, y = chunk(1)
            learned.append(spent(plain.partial_fit, X, y))
            ingested.append(spent(c.ingest, X, y))
        written = (bytes_written() - before) / ONE_BY_ONE
        entries = c.stats().journal_entries
        checkpoint = seconds(c.checkpoint)
    for column, kind in enumerate(("", ", processor")):
        ours, peer = (np.array(each)[:, column] for each in (ingested, learned))
        yield {
            "shape": shape,
            "measure": f"ingest{kind}",
            "value": 1e3 * float(np.median(ours)),
            "unit": "ms",
            "peer": 1e3 * float(np.median(peer)),
            "ratio": float(np.median(ours / peer)),
        }
    yield {"shape": shape, "measure": "written an item", "value": written / 1e3, "unit": "kB"}
    yield {
        "shape": shape,
        "measure": f"checkpoint of {entries} items",
        "value": 1e3 * checkpoint,
        "unit": "ms",
    }


def measure_loading(folder: Path) -> Iterator[Measured]:
    """Yield the time to load a model, over the same without comparing its checksum."""
    rng = np.random.default_rng(SEED)
    path = folder / "model.safetensors"
    X, y = paper_chunk(1000, {"image": 1280, "text": 2048}, 40, rng)
    OASIS(random_state=0).partial_fit(X, y).save(path)
    content = path.read_bytes()
    best = best_of(
        LOADS,
        {"load": lambda: OASIS.load(path), "checksum": lambda: folded_crc32([content])},
    )
    yield {
        "shape": f"{len(content) / 1e6:.0f} MB, 1,280 + 2,048 features",
        "measure": "load a model",
        "value": 1e3 * best["load"],
        "unit": "ms",
        "peer": 1e3 * (best["load"] - best["checksum"]),
        "ratio": best["load"] / (best["load"] - best["checksum"]),
        "goal": f"<= {_CHECKSUM}",
    }


def fill(path: Path, n: int) -> int:
    """Fill a collection with n items of small payloads; return the bytes of ids and payloads."""
    rng = np.random.default_rng(SEED)
    numbers = label_set_stream(n, rng)
    sets = label_sets(int(numbers.max()) + 1, _CLASSES, rng)
    means = rng.standard_normal((_CLASSES, _WIDTH)).astype(np.float32)
    centres = np.stack([sum(means[int(name.split()[1])] for name in names) for names in sets])
    given = 0
    model = OASIS(labels="orthogonal", random_state=0)
    with Collection.open(path, model=model) as c:
        for start in range(0, n, _CHUNK):
            part = numbers[start : start + _CHUNK]
            noise = rng.standard_normal((len(part), _WIDTH), dtype=np.float32)
            ids = [f"im{row:07d}.jpg" for row in range(start, start + len(part))]
            payload = [{"year": 2000 + row % 25} for row in range(len(part))]
            c.ingest({"image": centres[part] + 0.3 * noise}, [sets[i] for i in part], ids, payload)
            given += sum(map(len, ids)) + len('{"year":2000}') * len(part)
    return given


def measure_large(folder: Path, n: int) -> Iterator[Measured]:
    """Yield size, opening and searching of a collection of n items."""
    path, shape = folder / "large", f"{n:,} items, 64 bits"
    given = fill(path, n)
    total = sum(file.stat().st_size for file in path.iterdir())
    yield {
        "shape": shape,
        "measure": "an item beyond id and payload",
        "value": (total - given) / n,
        "unit": "bytes",
        "bar": _ITEM_BYTES,
    }
    opened = [seconds(lambda: Collection.open(path).close()) for _ in range(5)]
    yield {
        "shape": shape,
        "measure": "open and close",
        "value": float(np.median(opened)),
        "unit": "s",
        "bar": _OPEN_SECONDS,
    }
    rng = np.random.default_rng(SEED + 1)
    with Collection.open(path, readonly=True) as c:
        for mode in ("asymmetric", "hamming"):
            yield _search_row(c, shape, mode, rng)
        for where in ({"year": 2024}, {"year": 1999}):
            passing = f"where {where}"
            for use in ("first", "second"):
                value = seconds(c.search, _query(rng), 10, where=where)
                measure = f"search {passing}, {use} time"
                yield {"shape": shape, "measure": measure, "value": 1e3 * value, "unit": "ms"}


def _query(rng: np.random.Generator) -> dict[str, npt.NDArray[np.float32]]:
    return {"image": rng.standard_normal((1, _WIDTH), dtype=np.float32)}


def _search_row(c: Collection, shape: str, mode: Any, rng: np.random.Generator) -> Measured:
    """Return one query end to end, beside the same search of the index alone."""
    whole, alone = [], []
    model, index = c.model, c.index
    for _ in range(_QUERIES):
        X = _query(rng)
        whole.append(seconds(c.search, X, 10, mode))
        if mode == "asymmetric":
            alone.append(seconds(index.search_asymmetric, model.project(X), 10))
        else:
            alone.append(seconds(index.search, model.encode(X), 10))
    return {
        "shape": shape,
        "measure": f"{mode} search, beyond the index's own time",
        "value": 1e3 * float(np.median(np.subtract(whole, alone))),
        "unit": "ms",
        "peer": 1e3 * float(np.median(alone)),
        "bar": _SEARCH_MS,
    }


def captions(n: int, rng: np.random.Generator) -> tuple[list[str], list[list[str]]]:
    """Return texts of 4 to 12 words and their classes, each the name of a class in the text."""
    syllables = [a + b for a in "bdfgklmnprstv" for b in "aeiou"]
    vocabulary = list(
        dict.fromkeys("".join(rng.choice(syllables, size)) for size in rng.integers(2, 5, 6000))
    )
    classes = set(vocabulary[20 : 20 + _CLASSES])
    weight = 1 / np.arange(5, 5 + len(vocabulary))
    sizes = rng.integers(4, 13, n)
    drawn = rng.choice(len(vocabulary), int(sizes.sum()), p=weight / weight.sum())
    words = np.split(np.array(vocabulary)[drawn], np.cumsum(sizes)[:-1])
    return [" ".join(each) for each in words], [
        sorted(classes.intersection(each.tolist())) for each in words
    ]


def measure_texts(folder: Path, n: int) -> Iterator[Measured]:
    """Yield text searches by words and codes together, beside those by codes alone."""
    for keep_text in (True, False):
        rng = np.random.default_rng(SEED)
        texts, labels = captions(n, rng)
        shape = f"{n:,} texts {'kept' if keep_text else 'not kept'}, 256 bits"
        model, extractor = OASIS.for_search(256, random_state=0), Extractor.of(image="none")
        with Collection.open(
            folder / shape[-22:], model=model, extractor=extractor, keep_text=keep_text
        ) as c:
            for start in range(0, n, 5000):
                stop = min(start + 5000, n)
                c.ingest_items(
                    [
                        {"id": row, "text": texts[row], "labels": labels[row]}
                        for row in range(start, stop)
                    ]
                )
            asked = [texts[row] for row in rng.integers(0, n, 4 * _QUERIES)]
            asked[::2] = [" ".join(text.split()[:3]) for text in asked[::2]]
            whole, alone = [], []
            for text in asked:
                query = [{"text": text}]
                alone.append(seconds(c.search_items, query, fuse=False))
                whole.append(seconds(c.search_items, query))
        yield {
            "shape": shape,
            "measure": "text search by words and codes, over codes alone",
            "value": 1e3 * float(np.median(whole)),
            "unit": "ms",
            "peer": 1e3 * float(np.median(alone)),
            "ratio": float(np.median(np.divide(whole, alone))),
            "bar": _TEXT_MS,
        }


def run(n_items: int = ITEMS) -> list[Row]:
    """Return one row for each measurement."""
    # not in memory: what durability costs is a question to the disk
    folder = Path(tempfile.mkdtemp(prefix=".benchmark-", dir=Path.cwd()))
    try:
        measured = [
            *measure_rounds(folder),
            *measure_one_by_one(folder),
            *measure_loading(folder),
            *measure_large(folder, n_items),
            *measure_texts(folder, min(n_items, TEXTS)),
        ]
        return [row_of(each, f"{each['measure']}, {each['shape']}") for each in measured]
    finally:
        shutil.rmtree(folder)
