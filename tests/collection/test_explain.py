"""Why a hit was found, what to label next, the map, and what a notebook shows."""

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from collection_toy import open_toy
from toy import chunk

from oasis.collection import Collection, filters
from oasis.errors import InputError, UnknownIdError
from oasis.model import OASIS

TEXTS = [
    ("a red boat on the sea", ["boat"]),
    ("two dogs run over green grass", ["dog"]),
    ("a black cat on a sofa", ["cat"]),
    ("an old red car in the street", ["car"]),
]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    with Collection.open(tmp_path_factory.mktemp("explain") / "c") as c:
        items = [
            {"id": row, "text": f"{TEXTS[row % 4][0]} number {row}", "labels": TEXTS[row % 4][1]}
            for row in range(80)
        ]
        c.ingest_items([*items, {"id": "bare", "text": "a dog and a cat"}])
        yield c


def sums_up(found):
    """Whether parts sum to the log-odds of the score."""
    assert found.base + sum(part.log_odds for part in found.parts) == pytest.approx(found.log_odds)
    assert not found.parts or sum(part.share for part in found.parts) == pytest.approx(1)
    assert all(part.log_odds > 0 for part in found.parts)
    score = min(max(found.score, 0.001), 0.999)
    assert found.log_odds == pytest.approx(math.log(score / (1 - score)))


@pytest.mark.parametrize(
    "asked", ["red boat", "dogs", "a red boat on the sea number 4", "feline", "xqzvbb", "sofa"]
)
def test_parts_sum_to_the_log_odds_of_the_score_of_every_hit(texts, asked):
    hits = texts.find(asked, k=20)
    for hit in hits:
        found = texts.explain(hit.id, asked)
        assert found.score == pytest.approx(hit.score, abs=1e-6)
        sums_up(found)
    sums_up(texts.explain("bare", asked))


def test_parts_name_classes_and_words(texts):
    parts = {(part.source, part.what): part.share for part in texts.explain(0, "boat").parts}
    assert ("class", "boat") in parts and ("words", "boat") in parts
    assert not any(what == "car" for _, what in parts)
    two = {part.what for part in texts.explain(3, "red car").parts if part.source == "words"}
    assert two == {"red", "car"}
    same = texts.explain(0, TEXTS[0][0] + " number 0")
    assert same.score == 1 and ("words", TEXTS[0][0] + " number 0") == same.parts[0][:2]


def test_an_item_with_the_features_of_a_query_is_the_same(tmp_path):
    with Collection.open(tmp_path / "c", n_bits=64, keep_text=False) as c:
        c.ingest_items([{"id": row, "text": TEXTS[row][0]} for row in range(4)])
        found = c.explain(1, {"text": TEXTS[1][0]})
        sums_up(found)
        assert ("same", "") in [part[:2] for part in found.parts]
        assert "same" not in [part.source for part in c.explain(2, TEXTS[1][0]).parts]


def test_what_cannot_be_explained_is_refused(texts):
    with pytest.raises(UnknownIdError):
        texts.explain("nobody", "boat")
    with pytest.raises(InputError, match="takes a text, or the fields of a query, got int"):
        texts.explain(0, 7)


@pytest.mark.parametrize("keep_features", [False, True])
def test_items_to_label_have_no_label_and_differ(folder, keep_features):
    X, y = chunk(200, seed=0)
    with open_toy(folder / "c", keep_features=keep_features) as c:
        assert c.next_to_label() == []
        c.ingest(X, [names if row < 40 else () for row, names in enumerate(y)], range(200))
        found = c.next_to_label(12)
        ids = [each.id for each in found]
        assert len(set(ids)) == 12 and min(ids) >= 40
        for each in found:
            assert len(each.classes) == len(each.chances) <= 5
            assert list(each.chances) == sorted(each.chances, reverse=True)
            assert all(0 <= chance <= 1 for chance in each.chances)
        assert ids == [each.id for each in c.next_to_label(12)]
        c.update(ids, labels=[y[each] for each in ids])
        assert not {each.id for each in c.next_to_label(12)} & set(ids)
        assert len(c.next_to_label(500)) == 200 - 40 - 12
        with pytest.raises(InputError, match="k must be"):
            c.next_to_label(0)


def test_labels_that_are_chosen_cover_clusters_that_chance_may_miss(folder):
    """One item in fifty is of a rare kind: the choice has it, and is unsure of nothing else."""
    rng = np.random.default_rng(0)
    centres = np.repeat(np.eye(6, 20), [60, 60, 60, 60, 56, 4], axis=0)
    X = {"image": (centres + 0.1 * rng.standard_normal(centres.shape)).astype(np.float32)}
    labels = [[f"kind {row}"] for row in centres.argmax(axis=1)]
    with Collection.open(folder / "c", model=OASIS(64), keep_features=True) as c:
        first = [each if row % 60 < 3 and row < 240 else () for row, each in enumerate(labels)]
        c.ingest(X, first, range(300))
        kinds = {labels[each.id][0] for each in c.next_to_label(12)}
        assert {"kind 4", "kind 5"} <= kinds


def test_points_of_a_class_are_near_each_other(folder):
    X, y = chunk(300, seed=0)
    y = [names[:1] for names in y]
    with open_toy(folder / "c") as c:
        assert c.plane().points == ()
        c.ingest(X, [names if row % 3 else () for row, names in enumerate(y)], range(300))
        found = c.plane()
        assert [point.id for point in found.points] == list(range(300)) and found.n_items == 300
        places = np.array([point[1:3] for point in found.points])
        assert places.min() == 0 and places.max() == 1
        assert all(
            point.label == (y[point.id] or [None])[0] for point in found.points if point.id % 3
        )
        assert all(point.predicted == (point.id % 3 == 0) for point in found.points if point.label)
        names = np.array([point.label for point in found.points])
        apart = np.linalg.norm(places[:, None] - places[None], axis=2)
        same = (names[:, None] == names[None]) & ~np.eye(300, dtype=bool)
        assert apart[same].mean() < 0.6 * apart[names[:, None] != names[None]].mean()
        some = c.plane(50)
        assert len(some.points) == 50 and some == c.plane(50) != c.plane(50, random_state=1)


def test_a_notebook_shows_hits_and_the_map_without_script(texts, folder):
    shown = texts.find("<b>boat</b>", k=3)._repr_html_() + texts._repr_html_()
    root = ET.fromstring(f"<r>{shown.replace('<br>', ' ')}</r>")
    assert len(root.findall(".//figure")) == 3 and "81 items" in shown
    assert len(re.findall("<circle", shown)) == 81 and "<script" not in shown
    assert isinstance(texts.find("boat"), list) and texts.find("boat")[:2] == texts.find(
        "boat", k=2
    )


def test_a_field_that_is_filtered_often_gets_an_index(folder, monkeypatch):
    monkeypatch.setattr(filters, "LEAST_INDEXED", 60)
    X, y = chunk(60, seed=0)
    one = {name: matrix[:1] for name, matrix in X.items()}
    with open_toy(folder / "c") as c:
        c.ingest(X, y, range(60), [{"year": row, "title": f"t {row}"} for row in range(60)])

        def indexed():
            with c._catalog.reading() as connection:
                rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
                return {bytes.fromhex(name[6:]).decode() for (name,) in rows if "field_" in name}

        def found(least):
            where = {"year": {"gte": least}, "title": {"contains": "t"}}
            return [hit.id for hit in c.search(one, 60, where=where)[0]]

        before = [found(least) for least in (50, 55)]
        assert not indexed()
        assert len(found(58)) == 2 and indexed() == {"year"}
        assert [found(least) for least in (50, 55)] == before and c.check() == []
