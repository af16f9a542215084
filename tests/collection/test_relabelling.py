"""Labels given later teach: the model is what it would be if they had been right at ingest."""

import numpy as np
import pytest
import scipy.sparse as sp
from collection_toy import open_toy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from toy import chunk

from oasis import OASIS, Collection
from oasis.arrays import unit_rows
from oasis.codes import unpack
from oasis.collection.kept_features import halved, packed_features, unpacked_features
from oasis.errors import DataError, DuplicateIdError, InputError, UnknownIdError

VALUES = st.sampled_from([0.0, 0.5, -2.0, 3.25, 1e-7, 70_000.0, 0.1])


def clusters(n, seed, n_classes=5):
    """Return samples around the means of their classes, which are far from each other."""
    rng = np.random.default_rng(seed)
    means = np.random.default_rng(99).standard_normal((n_classes, 24))
    kinds = rng.integers(n_classes, size=n)
    X = {"image": (means[kinds] + 0.8 * rng.standard_normal((n, 24))).astype(np.float32)}
    return X, [[f"class {kind}"] for kind in kinds]


def opened(path, **options):
    options = {"keep_features": True, **options}
    return Collection.open(path, model=OASIS(128, content=64, random_state=0), **options)


def precision(c, seed=5):
    X, y = clusters(80, seed)
    right = [
        len({*labels}.intersection(hit.labels)) > 0
        for labels, hits in zip(y, c.search(X, 10, fuse=False), strict=True)
        for hit in hits
    ]
    return float(np.mean(right))


def assert_same_sums(one, other, X):
    """Two models predict the same, up to the rounding of sums."""
    assert one.classes_ == other.classes_
    np.testing.assert_allclose(one.predict_labels(X), other.predict_labels(X), atol=1e-4)


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 4), st.just(6)), elements=VALUES.map(np.float32)
    ),
    hnp.arrays(np.float64, st.tuples(st.just(4), st.integers(1, 5)), elements=VALUES),
)
def test_kept_features_are_those_that_were_learned(single, double):
    X = {"a": single, "b": double[: len(single)], "c": sp.csr_array(single)}
    for learned in (X, halved(X)):
        n = {name: matrix.shape[1] for name, matrix in learned.items()}
        found = unpacked_features(packed_features(learned), n)
        for name, matrix in learned.items():
            expected = matrix.toarray() if sp.issparse(matrix) else matrix
            kept = found[name].toarray() if sp.issparse(found[name]) else found[name]
            np.testing.assert_array_equal(kept, expected)


def test_labels_given_later_are_as_good_as_labels_at_ingest(folder):
    X, y = clusters(400, seed=1)
    first, later = {"image": X["image"][:40]}, {"image": X["image"][40:]}
    with opened(folder / "at once") as at_once, opened(folder / "later") as c:
        for target, labels in ((at_once, y), (c, [[] for _ in y])):
            target.ingest(first, y[:40], [f"i{row}" for row in range(40)])
            target.ingest(later, labels[40:], [f"i{row}" for row in range(40, 400)])
        before = precision(c)
        done = c.update([f"i{row}" for row in range(40, 400)], labels=y[40:])
        assert (done.changed, done.learned, done.unlearned) == (360, 360, 0)
        assert precision(c) >= 0.95 * precision(at_once)
        assert precision(c) > before + 0.1
        assert c.check() == at_once.check() == []
        assert_same_sums(c.model, at_once.model, X)


@pytest.mark.parametrize("n", [3, 60])  # by the journal, by a new model file
def test_wrong_labels_that_are_corrected_leave_the_model_as_if_they_had_been_right(folder, n):
    X, y = clusters(200, seed=2)
    wrong = [["class 0"]] * n + y[n:]
    ids = [f"i{row}" for row in range(200)]
    with opened(folder / "right") as right, opened(folder / "c") as c:
        right.ingest(X, y, ids)
        c.ingest(X, y, ids)
        c.update(ids[:n], labels=wrong[:n])
        others = {each: c.get(each).code for each in ids[n:]}
        c.update(ids[:n], labels=y[:n])
        assert (c.stats().journal_entries > 0) == (n < 32)
        assert_same_sums(c.model, right.model, X)
        assert {each: c.get(each).code for each in ids[n:]} == others
        assert [c.get(each).code for each in ids] == [right.get(each).code for each in ids]
        with opened(c.path, readonly=True) as reader:
            assert_same_sums(reader.model, c.model, X)
            assert reader.check() == []
    with opened(folder / "c") as c:
        assert_same_sums(c.model, right_model(folder), X)
        assert c.check() == []


def right_model(folder):
    with Collection.open(folder / "right", readonly=True) as right:
        return right.model


@pytest.mark.parametrize("how", ["delete", "replace"])
def test_what_goes_is_subtracted_and_in_no_file(folder, how):
    X, y = clusters(120, seed=3)
    rest = {"image": X["image"][:100]}
    ids = [f"i{row}" for row in range(120)]
    with opened(folder / "c") as c, opened(folder / "rest") as truth:
        c.ingest(rest, y[:100], ids[:100])
        truth.ingest(rest, y[:100], ids[:100])
        c.ingest({"image": X["image"][100:]}, y[100:], ids[100:])
        if how == "replace":
            new = clusters(20, seed=4)
            c.replace(*new, ids[100:])
            truth.ingest(*new, ids[100:])
        else:
            assert c.stats().n_features_kept == 120
            c.delete(ids[100:])
            assert c.stats().n_features_kept == 100
        assert_same_sums(c.model, truth.model, X)
        assert c.check() == []
        mark = halved(X)["image"][110].astype("<f2").tobytes()
        if how == "delete":
            for path in c.path.iterdir():
                assert mark not in path.read_bytes(), path.name


def test_without_kept_features_an_item_is_found_under_its_new_label(folder, caplog):
    X, y = clusters(300, seed=6)
    with opened(folder / "c", keep_features=False) as c:
        c.ingest(X, y, list(range(300)))
        before, model = c.get(7).code, c.model
        name = next(name for name in model.classes_ if [name] != y[7])
        done = c.update(7, labels=[name])
        assert (done.changed, done.learned, done.unlearned) == (1, 0, 1)
        assert "features were not kept" in caplog.text and "keep_features=True" in caplog.text
        assert_same_sums(c.model, model, X)
        twin = next(c.get(row).code for row in range(300) if row != 7 and y[row] == [name])
        n_label = model.n_label_bits // 8
        assert c.get(7).code == twin[:n_label] + before[n_label:]
        assert c.stats().n_features_kept == 0
        assert c.check() == []


def test_one_id_many_ids_and_their_labels(folder):
    with open_toy(folder / "c") as c:
        c.ingest(*chunk(4), ids=["ab", "a", "b", 7])
        c.update("ab", labels=["sky"])
        c.update(["a", 7], labels=["cat", "dog"], payload=[{"n": 1}, None])
        c.update(["b", "ab"], labels=[["tree"], None], payload={"n": 2})
        found = {each: (c.get(each).labels, c.get(each).payload) for each in ("ab", "a", "b", 7)}
        assert found == {
            "ab": ((), {"n": 2}),
            "a": (("cat", "dog"), {"n": 1}),
            "b": (("tree",), {"n": 2}),
            7: (("cat", "dog"), {}),
        }
        before = c.stats().commits
        for ids, facts, error in (
            (["a", "a"], {"labels": ["sky"]}, DuplicateIdError),
            (["a", "none"], {"labels": ["sky"]}, UnknownIdError),
            (["a", "b"], {"labels": [["sky"]]}, InputError),
            (["a", "b"], {"labels": "sky"}, InputError),
            ("a", {"labels": "sky"}, InputError),
            (["a"], {"labels": [[f"l{n}" for n in range(1001)]]}, InputError),
        ):
            with pytest.raises(error):
                c.update(ids, **facts)
        assert c.stats().commits == before


def test_features_of_raw_items_are_kept_unless_asked_otherwise(folder):
    items = [{"id": row, "text": f"a boat {row}", "labels": ["boat"]} for row in range(40)]
    with Collection.open(folder / "raw", 32) as c:
        c.ingest_items(items)
        assert c.stats().n_features_kept == 40
        assert 0 < c.stats().bytes["features"] < 40 * 1000
    with Collection.open(folder / "none", 32, keep_features=False) as c:
        c.ingest_items(items)
        assert c.stats().n_features_kept == 0
    with Collection.open(folder / "own", 32) as c:
        c.ingest(*chunk(40))
        assert c.stats().n_features_kept == 0
    with pytest.raises(InputError, match="begun with keep_features=False, got True"):
        Collection.open(folder / "none", keep_features=True)


def test_pictures_and_texts_stay_with_their_item(folder):
    X, y = clusters(40, seed=8)
    with opened(folder / "c") as c:
        texts = [f"word{row} here" for row in range(40)]
        c.ingest(X, y, list(range(40)), thumbnails=[b"p%d" % row for row in range(40)], texts=texts)
        for labels in ("class 1", "class 2"):
            c.update([3, 4], labels=[labels])
        assert (c.thumbnail(3), c.get(3).text, c.get(3).round) == (b"p3", "word3 here", 1)
        hits = c.search(X, 1, where={"$text": {"contains": "word3"}})[0]
        assert [hit.id for hit in hits] == [3]
        c.delete([3])
        assert c.check() == []


@pytest.mark.parametrize("joined", [False, True])
def test_a_renamed_class_is_learned_as_if_it_had_been_called_so(folder, joined):
    X, y = clusters(300, seed=8)
    y = [[] if row % 10 == 0 else names for row, names in enumerate(y)]
    new = "class 1" if joined else "birds"
    right = [[new if name == "class 0" else name for name in names] for names in y]
    with opened(folder / "c") as c, opened(folder / "d") as d:
        c.ingest(X, y, range(300))
        d.ingest(X, right, range(300))
        n = sum("class 0" in each.labels + each.predicted for each in c.items())
        n_labelled = sum("class 0" in names for names in y)
        seen = []
        done = c.rename_label("class 0", new, seen.append)
        assert (done.changed, done.learned, done.unlearned) == (n, n_labelled, 0)
        assert sum(seen) == n > n_labelled
        assert [list(c.get(row).labels) for row in range(300)] == right
        assert not any("class 0" in each.predicted for each in c.items())
        assert {each.name: (each.n, each.n_predicted) for each in c.classes()} == {
            each.name: (each.n, each.n_predicted) for each in d.classes()
        }
        assert c.stats().n_classes == d.stats().n_classes
        assert precision(c) >= 0.95 * precision(d)
        assert c.check() == []
        with pytest.raises(InputError, match="no class is called 'class 0'; did you mean"):
            c.rename_label("class 0", "fish")
        with pytest.raises(InputError, match="no class is called 'class 0'; did you mean"):
            c.search(X, where={"$labels": {"has": "class 0"}})
        before = c.stats()
        assert c.rename_label(new, f" {new} ").changed == 0
        for names in (("class 2", ""), ("class 2", 3), (["class 2"], "fish")):
            with pytest.raises(InputError):
                c.rename_label(*names)
        assert c.stats() == before
    with Collection.open(folder / "c", readonly=True) as c:
        assert c.check() == []
        assert [list(c.get(row).labels) for row in range(300)] == right


def test_a_table_of_labels_teaches_as_updates_do_and_can_be_given_again(folder):
    X, y = clusters(300, seed=11)
    ids = [f"i{row}" for row in range(300)]
    path = folder / "labels.csv"
    lines = [
        f"{each},{names[0]},{row}" for row, (each, names) in enumerate(zip(ids, y, strict=True))
    ]
    path.write_text("\n".join(["id,label,year", *lines, "nobody,class 1,7", ",class 1,8", ""]))
    with opened(folder / "c") as c, opened(folder / "truth") as truth:
        for target in (c, truth):
            target.ingest(X, None, ids, [{"old": 1}] * 300)
        truth.update(ids[:256], labels=y[:256], payload=[{"year": row} for row in range(256)])
        truth.update(ids[256:], labels=y[256:], payload=[{"year": row} for row in range(256, 300)])
        seen = []
        done, rejected = c.update_table(path, batch=256, progress=seen.append)
        assert (done.changed, done.learned, done.unlearned) == (300, 300, 0)
        assert [(each.row, each.id) for each in rejected] == [(300, "nobody"), (301, None)]
        assert seen == [256, 46]
        assert_same_sums(c.model, truth.model, X)
        assert {item.id: (item.code, item.labels, item.payload) for item in c.items()} == {
            item.id: (item.code, item.labels, item.payload) for item in truth.items()
        }
        before = c.stats().commits
        again, _ = c.update_table(path)
        assert (again.changed, c.stats().commits) == (0, before)
        with pytest.raises(InputError, match="nobody"):
            c.update_table({"id": ["i1", "nobody"], "labels": [["x"], ["y"]]}, strict=True)
        assert c.get("i1").labels == tuple(y[1])
        done, _ = c.update_table({"id": ["i1"], "year": [5]}, labels=None, payload=("year",))
        assert (c.get("i1").labels, c.get("i1").payload) == (tuple(y[1]), {"year": 5})
        done, _ = c.update_table({"id": ["i1", "i2"], "labels": [["a"] * 3, None]})
        assert (c.get("i1").labels, c.get("i1").payload) == (("a",), {"year": 5})
        assert c.get("i2").labels == ()
        with pytest.raises(DataError, match="neither a column 'labels'"):
            c.update_table({"id": ["i1"]})
        assert c.check() == []


def test_no_labels_are_given_once(folder):
    X, y = clusters(300, seed=12)
    with opened(folder / "c") as c:
        c.ingest(X, y, range(300))
        c.ingest({"image": X["image"][:3]}, None, ["a", "b", "c"])
        assert c.get("a").predicted
        assert c.update(["a", "b", "c"], labels=[[], [], []]).changed == 3
        assert c.get("a").predicted == ()
        assert c.update(["a", "b", "c"], labels=[[], [], []]).changed == 0
        assert c.check() == []


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("sizes", [(1, 300), (1, 9, 100, 400)])
def test_first_items_are_coded_anew_once_content_bits_are_made_for_good(folder, sizes, keeps):
    X, y = clusters(sum(sizes), seed=10)
    with opened(folder / "c", keep_features=keeps) as c:
        start = 0
        for size in sizes:
            rows = slice(start, start + size)
            c.ingest({"image": X["image"][rows]}, y[rows], range(start, start + size))
            assert c.stats().n_features_kept == (start + size if keeps or start + size < 256 else 0)
            start += size
        n_label = c.model.n_label_bits // 8
        encoded = c.model.encode({"image": X["image"]})
        stored = np.array([np.frombuffer(c.get(row).code, np.uint8) for row in range(start)])
        n_first = start - sizes[-1]
        agree = np.unpackbits(~(encoded ^ stored)[:n_first, n_label:], axis=1).mean()
        assert agree > 0.95
        assert c.check() == []
        assert [hits[0].id for hits in c.search(X, 1)[:n_first]] == list(range(n_first))
        # the sums are those over the stored codes, and the first items can be forgotten
        signs = unpack(stored).astype(float)
        assert np.array_equal(c.model.state_.stored.BB, signs.T @ signs)
        if keeps:
            c.delete(range(n_first))
            assert np.array_equal(c.model.state_.stored.BB, signs[n_first:].T @ signs[n_first:])
    with Collection.open(folder / "c", readonly=True) as reader:
        assert reader.check() == []


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("replaces", [True, False])
def test_a_change_that_settles_content_bits_counts_every_item_once(folder, keeps, replaces):
    rng = np.random.default_rng(0)
    X = {name: rng.standard_normal((600, 20)).astype(np.float32) for name in ("image", "text")}
    X["text"][10:300] = 0
    y = [[f"class {row % 3}"] for row in range(600)]
    with Collection.open(folder / "c", n_bits=128, keep_features=keeps) as c:
        c.ingest({name: x[:300] for name, x in X.items()}, y[:300], range(300))
        before = c.model.content_since_
        write, ids = (c.replace, range(40, 300)) if replaces else (c.ingest, range(300, 560))
        write({name: x[300:560] for name, x in X.items()}, y[300:560], ids)
        assert c.model.content_since_ > before and c.check() == []
        rows = [*range(40), *range(300, 560)] if replaces else [*range(560)]
        state = c.model.state_
        units = {k: unit_rows(halved(X)[k][rows] if keeps else X[k][rows]) for k in X}
        T = state.content.without("image").values(units)
        x = np.hstack([units["image"], np.ones((len(rows), 1))])
        assert np.allclose(state.ridges["image"].BX[: T.shape[1]], T.T @ x, atol=1e-3)
