"""Features of raw items: CPU time of texts, pictures as ratios to the net alone.

Pictures run in a process of their own, bound to one core and then to two. The ratio of a whole
extraction to the net alone says how much decoding, resizing and thumbnails add. The net alone uses
all cores, so work on them is not free: nothing waits if the ratio of the features is that of the
net plus that of decoding.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from benchmarks.timing import Row, best_of, row
from oasis.features.extractor import Extractor
from oasis.features.image import EfficientNetLite0
from oasis.features.meaning import Meaning
from oasis.features.pictures import BATCH, open_picture
from oasis.features.text import HashedText
from oasis.items import Item

N_TEXTS = 4_000
N_PICTURES = 96
REPEATS = 5
BAR_TEXT = 0.5
"""Milliseconds an item for words and meaning together."""


def run() -> list[Row]:
    rows = _texts()
    for n_cores in (1, 2):
        if n_cores > len(os.sched_getaffinity(0)):
            continue
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context, _bind, (n_cores,)) as pool:
            times = pool.submit(_pictures, n_cores).result()
        net = times["net alone"]
        rows += [
            row(
                f"pictures, {n_cores} cores: {name}",
                N_PICTURES / taken,
                taken / net,
                unit="items/s",
            )
            for name, taken in times.items()
        ]
    return rows


def _texts() -> list[Row]:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(5_000)]
    items = [{"text": " ".join(rng.choice(words, 11))} for _ in range(N_TEXTS)]
    ways = {
        "words": Extractor({"text": ("text", HashedText())}),
        "meaning": Extractor({"meaning": ("text", Meaning())}),
        "words and meaning": Extractor.of(image="none"),
    }
    for extractor in ways.values():
        extractor.extract(items[:1])
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(REPEATS):
        for name, extractor in ways.items():
            start = time.process_time()
            extractor.extract(items)
            best[name] = min(best[name], time.process_time() - start)
    return [
        row(
            f"texts of 11 words: {name}",
            1e3 * taken / N_TEXTS,
            note=f"bar {BAR_TEXT:g} ms" if name == "words and meaning" else "",
            unit="ms/item",
        )
        for name, taken in best.items()
    ]


def _bind(n_cores: int) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_cores])


def _pictures(n_threads: int) -> dict[str, float]:
    """Return the seconds that each way takes for all pictures."""
    net = EfficientNetLite0(n_threads=n_threads)
    extractor = Extractor({"image": ("image", net)})
    pictures = _photographs()
    items = [Item(number, image=picture) for number, picture in enumerate(pictures)]
    pixels = [open_picture(picture).square(224) for picture in pictures]
    net.embed(pictures[:1])
    size = BATCH

    def decode() -> None:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(lambda picture: open_picture(picture).square(224), pictures))

    return best_of(
        REPEATS,
        {
            "net alone": lambda: [
                net.embed_prepared(pixels[start : start + size])
                for start in range(0, N_PICTURES, size)
            ],
            "decoding alone": decode,
            "features": lambda: extractor.extract(items),
            "features and thumbnails": lambda: extractor.extract_with_thumbnails(items),
        },
    )


def _photographs() -> list[bytes]:
    """Return JPEGs of 640 x 480 pixels with the detail of photographs."""
    from PIL import Image

    rng = np.random.default_rng(0)
    files = []
    for _ in range(N_PICTURES):
        coarse = Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files
