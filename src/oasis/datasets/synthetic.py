"""Synthetic multi-modal, multi-label data with realistic structure, in the paper's shapes.

A sample belongs to a scene, which makes some classes more likely. The number of labels per sample
is distributed as in coco79. The image is a rectified random mixture of the labels, the scene and
noise; the text is a bag of words for some of the labels, for the scene, or unrelated ones. Each
modality alone therefore lacks labels that the other one shows.

Classes, their frequencies and the numbers of labels are those of coco79; shapes with fewer classes
keep the numbers of labels and the skew of the class frequencies.

All labels are drawn at once (a few megabytes). The features of a row depend only on the seed and
the row number, so any rows can be generated, in any order, without the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Array, Rows
from oasis.datasets.coco import LABEL_COUNTS, N_SAMPLES, SUPER_CATEGORIES
from oasis.datasets.dataset import Dataset
from oasis.datasets.mat import MIRFLICKR, NUSWIDE, MatLayout
from oasis.errors import InputError

_N_SCENES = 40
_FITTING_SAMPLES = 8_000
_FITTING_ROUNDS = 12
_BLOCK = 16_384
_CLUTTER_DIMENSIONS = 48
_WORDS_PER_CLASS = np.array([0.4, 0.2, 0.15, 0.1, 0.1, 0.05])  # how often each of them is used
_WORDS_PER_SCENE = 24
_SCENE_SHARE = 0.25


_THEMES = (
    ("animal",),
    ("vehicle", "outdoor"),
    ("sports", "accessory"),
    ("kitchen", "food", "furniture", "electronic", "appliance", "indoor"),
)
"""Super-categories whose classes tend to occur together."""


@dataclass(frozen=True)
class Shape:
    """Sizes and statistics of a synthetic data set.

    Attributes
    ----------
    name : str
    n_samples, image_features, text_features : int
    text_nonzeros : float
        Mean number of words per sample; the number varies by 28 %, as in captions.
    classes : tuple of str
    frequencies : (c,) tuple
        The share of samples that carry each class; sums to the mean number of labels.
    themes : (c,) tuple of int
        Classes of one theme tend to occur together.
    taste, leak : float
        How much scenes of one theme differ in their classes (standard deviation of the log
        weight), and the weight of a class outside its theme. They determine the number of distinct
        label sets.
    clutter : float
        Standard deviation of the noise in an image, relative to a label's signal of length 1.
    mention : float
        Share of a text's words that name one of its labels.
    """

    name: str
    n_samples: int
    image_features: int
    text_features: int
    text_nonzeros: float
    classes: tuple[str, ...]
    frequencies: tuple[float, ...]
    themes: tuple[int, ...]
    taste: float
    leak: float
    clutter: float
    mention: float

    def __post_init__(self) -> None:
        c = len(self.classes)
        if c < 2 or len(self.frequencies) != c or len(self.themes) != c:
            raise InputError(
                f"shape {self.name!r}: {c} classes, {len(self.frequencies)} frequencies and "
                f"{len(self.themes)} themes; expected at least 2 and as many of each"
            )
        if min(self.n_samples, self.image_features, self.text_features) < 1:
            raise InputError(f"shape {self.name!r}: sizes must be positive")
        if not 1 <= self.text_nonzeros <= self.text_features / 4:
            raise InputError(
                f"shape {self.name!r}: text_nonzeros is {self.text_nonzeros}, expected 1 to a "
                f"quarter of the {self.text_features} text features"
            )


def _coco79() -> Shape:
    themes = [
        {k: n for key in theme for k, n in SUPER_CATEGORIES[key].items()} for theme in _THEMES
    ]
    return Shape(
        name="coco79",
        n_samples=N_SAMPLES,
        image_features=1280,
        text_features=1025,
        text_nonzeros=4.78,
        classes=tuple(name for theme in themes for name in theme),
        frequencies=tuple(n / N_SAMPLES for theme in themes for n in theme.values()),
        themes=tuple(i for i, theme in enumerate(themes) for _ in theme),
        taste=3.0,
        leak=0.04,
        clutter=0.3,
        mention=0.34,
    )


def _skew(n_classes: int) -> npt.NDArray[np.float64]:
    """The falling frequency curve of coco79, resampled to other numbers of classes."""
    curve = np.sort(COCO79.frequencies)[::-1]
    at = (np.arange(n_classes) + 0.5) / n_classes * len(curve) - 0.5
    sampled = np.interp(at, np.arange(len(curve)), curve)
    return np.asarray(sampled * (curve.sum() / sampled.sum()))


def _paper(layout: MatLayout, frequencies: npt.NDArray[np.float64], **more: float) -> Shape:
    """Return the shape of one of the paper's data sets, with classes in four themes."""
    return Shape(
        name=layout.name,
        n_samples=layout.n_samples,
        image_features=layout.image_features,
        text_features=layout.text_features,
        classes=layout.classes,
        frequencies=tuple(frequencies.tolist()),
        themes=tuple(i % 4 for i in range(len(layout.classes))),
        taste=1.0,
        leak=0.3,
        **more,
    )


COCO79 = _coco79()
# MIRFlickr's names are in alphabetical order; 7 is coprime to 24, so this scatters frequent ones
_MIRFLICKR = _paper(
    MIRFLICKR, _skew(24)[7 * np.arange(24) % 24], text_nonzeros=16.0, clutter=0.45, mention=0.09
)
_NUSWIDE = _paper(NUSWIDE, _skew(21), text_nonzeros=8.0, clutter=0.6, mention=0.15)
SHAPES = {shape.name: shape for shape in (_MIRFLICKR, _NUSWIDE, COCO79)}


def generate(
    shape: str | Shape = "coco79",
    *,
    n_samples: int | None = None,
    seed: int = 0,
    lazy: bool = False,
) -> Dataset:
    """Return a synthetic data set, the same for the same shape, size and seed.

    Parameters
    ----------
    shape : "mirflickr", "nuswide", "coco79" or a `Shape`
        Sizes, class names and statistics.
    n_samples : int, optional
        Fewer (or more) samples than the shape has.
    seed : int
    lazy : bool
        Generate features on demand, when rows are taken. NUS-WIDE's image features alone would
        take 3.2 GB. A row costs about 0.1 ms.

    Examples
    --------
    >>> data = generate("coco79", n_samples=100, seed=1, lazy=True)
    >>> X = data.take([5, 3])
    >>> X["image"].shape, X["text"].shape, data.L.shape
    ((2, 1280), (2, 1025), (100, 79))
    """
    if isinstance(shape, str):
        if shape not in SHAPES:
            raise InputError(f"unknown shape {shape!r}; known are {', '.join(SHAPES)}")
        shape = SHAPES[shape]
    if n_samples is not None:
        shape = replace(shape, n_samples=n_samples)
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    streams = np.random.SeedSequence(seed).spawn(4)
    L, scenes = _draw_labels(shape, np.random.default_rng(streams[0]))
    image = _Images(shape, L, scenes, streams[1])
    text = _Texts(shape, L, scenes, streams[2])
    everything = np.arange(shape.n_samples)
    return Dataset(
        f"synthetic-{shape.name}",
        {"image": image, "text": text}
        if lazy
        else {"image": image[everything], "text": text[everything]},
        L,
        shape.classes,
        recipe={"shape": shape.name, "n_samples": shape.n_samples, "seed": seed},
    )


def _draw_labels(
    shape: Shape, rng: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Draw the (n, c) label indicator and the scene of each sample.

    The weight of a class in a scene is its popularity times a random factor of the scene. The
    popularities are fitted on trial draws to give the class frequencies of the shape.
    """
    wanted = np.asarray(shape.frequencies)
    theme = np.asarray(shape.themes)
    mass = np.bincount(theme, weights=wanted)
    per_theme = np.maximum(1, np.round(_N_SCENES * mass / mass.sum()).astype(int))
    scene_theme = np.repeat(np.arange(len(mass)), per_theme)
    prior = (mass / per_theme)[scene_theme]
    prior /= prior.sum()
    taste = np.exp(shape.taste * rng.standard_normal((len(prior), len(wanted))))
    taste *= np.where(scene_theme[:, None] == theme, 1.0, shape.leak)
    weight = (taste * wanted).astype(np.float32)
    for _ in range(_FITTING_ROUNDS):
        trial, _ = _draw(_FITTING_SAMPLES, prior, weight, rng)
        seen = (trial.sum(axis=0, dtype=np.int64) + 0.5) / _FITTING_SAMPLES
        weight *= ((wanted / seen) ** 0.8).astype(np.float32)
    parts = [
        _draw(min(_BLOCK, shape.n_samples - start), prior, weight, rng)
        for start in range(0, shape.n_samples, _BLOCK)
    ]
    return np.concatenate([L for L, _ in parts]), np.concatenate([scenes for _, scenes in parts])


def _draw(
    n: int, prior: Array, weight: npt.NDArray[np.float32], rng: np.random.Generator
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Draw n samples: a scene each, and k classes without replacement by the scene's weights."""
    c = weight.shape[1]
    share = np.asarray(LABEL_COUNTS[:c], dtype=np.float64)
    scenes = rng.choice(len(prior), size=n, p=prior)
    k = 1 + rng.choice(len(share), size=n, p=share / share.sum())
    # weighted draw without replacement: the k smallest of exponential variables with these rates
    clocks = rng.standard_exponential((n, c), dtype=np.float32) / weight[scenes]
    order = np.argsort(clocks, axis=1)
    L = np.zeros((n, c), dtype=np.uint8)
    np.put_along_axis(L, order, (np.arange(c) < k[:, None]).astype(np.uint8), axis=1)
    return L, scenes


def _row_generator(key: int, row: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[key, row]))


class _Images:
    """Image features: a rectified random mixture, made row by row."""

    def __init__(
        self,
        shape: Shape,
        L: npt.NDArray[np.uint8],
        scenes: npt.NDArray[np.int64],
        stream: np.random.SeedSequence,
    ) -> None:
        rng = np.random.default_rng(stream)
        c, d = len(shape.classes), shape.image_features
        q = c + _CLUTTER_DIMENSIONS
        self.shape, self.L, self.scenes, self.clutter = (len(L), d), L, scenes, shape.clutter
        self.marks = rng.standard_normal((c, q), dtype=np.float32)  # what a class looks like
        self.marks /= np.linalg.norm(self.marks, axis=1, keepdims=True)
        self.backdrops = rng.standard_normal((int(scenes.max()) + 1, q), dtype=np.float32)
        self.backdrops *= 0.5 / np.sqrt(q)
        # the mixture has variance about 1 for any clutter
        variance = 1.3 * sum(shape.frequencies) + 0.25 + shape.clutter**2 * q
        mixture = rng.standard_normal((q, d), dtype=np.float32)
        self.mixture = mixture / np.float32(np.sqrt(variance))
        self.bias = 0.3 + 0.25 * rng.standard_normal(d, dtype=np.float32)
        self.key = int(stream.generate_state(1, np.uint64)[0])

    def __getitem__(self, rows: Rows) -> npt.NDArray[np.float32]:
        (c, q), d = self.marks.shape, self.shape[1]
        out = np.empty((len(rows), d), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK // 16):
            at = rows[start : start + _BLOCK // 16]
            draws = np.empty((len(at), c + q + d), dtype=np.float32)
            for draw, row in zip(draws, at, strict=True):
                _row_generator(self.key, int(row)).standard_normal(out=draw, dtype=np.float32)
            # a label may be small or hidden: its strength varies around one and can vanish
            strength = self.L[at] * np.maximum(0.0, 1.0 + 0.6 * draws[:, :c])
            hidden = strength @ self.marks + self.backdrops[self.scenes[at]]  # (n, q)
            hidden += self.clutter * draws[:, c : c + q]
            mixed = hidden @ self.mixture + self.bias + 0.3 * draws[:, c + q :]
            np.maximum(mixed, 0.0, out=mixed)
            # the power 1.5 gives the long tail of pooled CNN features, the factor their mean
            np.multiply(mixed, 0.4 * np.sqrt(mixed), out=out[start : start + len(at)])
        return out


class _Texts:
    """Bags of words: binary CSR rows with the drawn number of words."""

    def __init__(
        self,
        shape: Shape,
        L: npt.NDArray[np.uint8],
        scenes: npt.NDArray[np.int64],
        stream: np.random.SeedSequence,
    ) -> None:
        rng = np.random.default_rng(stream)
        c, d = len(shape.classes), shape.text_features
        size = (c, len(_WORDS_PER_CLASS))
        self.shape, self.L, self.scenes = (len(L), d), L, scenes
        # classes have different words if the vocabulary is large enough
        self.class_words = rng.permutation(max(d, c * size[1]))[: c * size[1]].reshape(size) % d
        self.scene_words = rng.integers(d, size=(int(scenes.max()) + 1, _WORDS_PER_SCENE))
        zipf = 1.0 / (np.arange(d) + 3.0)
        self.common_words = rng.permutation(d)  # the most frequent first
        self.common_share = np.cumsum(zipf / zipf.sum())
        self.n_words, self.mention = shape.text_nonzeros, shape.mention
        self.key = int(stream.generate_state(1, np.uint64)[0])

    def __getitem__(self, rows: Rows) -> sp.csr_array:
        starts = range(0, max(1, len(rows)), _BLOCK)
        parts = [self._block(rows[start : start + _BLOCK]) for start in starts]
        return parts[0] if len(parts) == 1 else sp.csr_array(sp.vstack(parts, format="csr"))

    def _block(self, rows: Rows) -> sp.csr_array:
        n = len(rows)
        # more candidates than words, because repeated ones are dropped
        n_candidates = 12 + int(4 * self.n_words)
        uniform = np.empty((n, 3 * n_candidates))
        count = np.empty(n)
        for i, row in enumerate(rows):
            rng = _row_generator(self.key, int(row))
            count[i] = rng.standard_normal()
            rng.random(out=uniform[i])
        count = np.clip(np.round(self.n_words * (1 + 0.28 * count)), 1, 2 * self.n_words)
        source, which, place = np.split(uniform, 3, axis=1)
        words = self.common_words[self._common(place)]
        at_scene = self.scenes[rows][:, None]
        from_scene = source < self.mention + _SCENE_SHARE
        scene_place = (place * self.scene_words.shape[1]).astype(np.int64)
        words = np.where(from_scene, self.scene_words[at_scene, scene_place], words)
        from_label = source < self.mention
        label = _pick_label(self.L[rows], which)
        label_place = np.searchsorted(np.cumsum(_WORDS_PER_CLASS)[:-1], place, side="right")
        words = np.where(from_label, self.class_words[label, label_place], words)
        keep = _first_distinct(words, count)
        indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        indices = words[keep]
        matrix = sp.csr_array(
            (np.ones(len(indices), dtype=np.float32), indices.astype(np.int32), indptr),
            shape=(n, self.shape[1]),
        )
        matrix.sort_indices()
        return matrix

    def _common(self, place: Array) -> npt.NDArray[np.int64]:
        at = np.searchsorted(self.common_share, place, side="right")
        return np.minimum(at, self.shape[1] - 1)


def _pick_label(L: npt.NDArray[np.uint8], which: Array) -> npt.NDArray[np.int64]:
    """Return the column of one of a row's labels for each uniform number."""
    n_labels = L.sum(axis=1, dtype=np.int64)[:, None]
    columns = np.argsort(1 - L, axis=1, kind="stable")  # a row's labels first
    return np.take_along_axis(columns, (which * n_labels).astype(np.int64), axis=1)


def _first_distinct(words: npt.NDArray[np.int64], count: Array) -> npt.NDArray[np.bool_]:
    """Mark, in each row, the first ``count`` distinct words in order of appearance."""
    order = np.argsort(words, axis=1, kind="stable")
    ordered = np.take_along_axis(words, order, axis=1)
    first = np.ones(words.shape, dtype=np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    distinct = np.empty_like(first)
    np.put_along_axis(distinct, order, first, axis=1)
    return distinct & (np.cumsum(distinct, axis=1) <= count[:, None])
