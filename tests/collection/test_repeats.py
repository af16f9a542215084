"""Fingerprints: an item that is asked with its own features comes first; nothing else changes."""

import numpy as np
import pytest
import scipy.sparse as sp
from collection_truth import toy_model
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.codes import unpack
from oasis.collection import Collection, duplicates
from oasis.collection.duplicates import Fingerprints
from oasis.errors import FormatError
from oasis.features.extractor import Extractor


def features(n, seed=0, centre=3.0):
    rng = np.random.default_rng([11, seed])
    words = sp.random_array((n, 200), density=0.04, rng=rng, format="csr")
    return {"image": rng.standard_normal((n, 40)) + centre, "text": words, "price": np.ones((n, 1))}


def n_bits_apart(a, b):
    return int(np.bitwise_count(a ^ b).max())


# -- fingerprints ----------------------------------------------------------------------------------


def test_fingerprints_depend_on_directions_alone():
    X = features(60)
    prints = Fingerprints.of_chunk(X)
    assert prints.names == ["image", "text"]
    expected = prints.of(X)
    scaled = {"image": 1e30 * X["image"], "text": X["text"].toarray().astype(np.float32) * 1e-30}
    assert n_bits_apart(prints.of(scaled), expected) <= 1
    one_by_one = np.vstack(
        [prints.of({k: x[row : row + 1] for k, x in X.items()}) for row in range(60)]
    )
    assert n_bits_apart(one_by_one, expected) <= 1
    assert (prints.of({"image": X["image"]})[:, 1] == 0).all()
    again = Fingerprints.from_bytes(prints.to_bytes())
    assert (again.of(X) == expected).all()
    with pytest.raises(FormatError, match="fingerprints"):
        Fingerprints.from_bytes(b"what")


def test_a_function_from_one_sample_knows_a_changed_copy_of_it():
    X = features(1)
    prints = Fingerprints.of_chunk(X)
    changed = X["image"] + 0.02 * np.random.default_rng(1).standard_normal((1, 40))
    assert n_bits_apart(prints.of({"image": changed})[:, 0], prints.of(X)[:, 0]) <= 4


def test_a_function_takes_the_mean_of_a_modality_that_comes_later():
    X = features(60)
    without = {**X, "image": np.zeros_like(X["image"])}
    grown = Fingerprints.of_chunk(without).grown({"image": X["image"]})
    assert (grown.of(X) == Fingerprints.of_chunk(X).of(X)).all()


# -- look-up ---------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 120),
    st.integers(1, 2),
    st.integers(0, 2**32 - 1),
)
def test_what_is_found_equals_brute_force(n, m, seed):
    rng = np.random.default_rng(seed)
    query = rng.integers(1, 2**63, m, dtype=np.uint64)
    prints = np.empty((n, m), dtype=np.uint64)
    for row in range(n):  # each differs in up to 20 bits, or lacks a modality
        for column in range(m):
            flips = rng.choice(64, rng.integers(0, 21), replace=False).astype(np.uint64)
            prints[row, column] = query[column] ^ np.bitwise_xor.reduce(np.uint64(1) << flips)
    prints[rng.random((n, m)) < 0.1] = 0
    if rng.random() < 0.3:
        query[0] = 0
    next_key = int(rng.integers(0, n + 1))
    found = duplicates._Known(None, prints).like(query, 0, next_key)
    expected = {}
    for key in range(next_key):
        pairs = [(a, b) for a, b in zip(prints[key].tolist(), query.tolist(), strict=True) if b]
        apart = [(a ^ b).bit_count() if a else 64 for a, b in pairs]
        if pairs and max(apart) <= 11:
            expected[key] = max(apart)
    assert dict(zip(found.keys.tolist(), found.distances.tolist(), strict=True)) == expected
    assert found.keys.tolist() == sorted(expected)


# -- in a collection -------------------------------------------------------------------------------


def filled(folder, n=150, **options):
    """Return a collection of items of two kinds, and their features."""
    X = features(n)
    c = Collection.open(folder / "c", model=toy_model(32), **options)
    for start in range(0, n, 50):
        rows = slice(start, start + 50)
        part = {name: x[rows] for name, x in X.items()}
        c.ingest(part, [["sky"], ["sea"]] * 25, ids=list(range(start, start + 50)))
    return c, X


def at(X, *rows, names=("image", "text")):
    return {name: X[name][list(rows)] for name in names}


@pytest.mark.parametrize("names", [("image",), ("text",), ("image", "text")])
def test_an_item_asked_with_its_own_features_comes_first(folder, names):
    c, X = filled(folder)
    with c:
        for row in range(0, 150, 7):
            first, second = c.search(at(X, row, names=names), 2)[0]
            assert (first.id, first.score, first.weak) == (row, 1.0, False)
            assert second.score < 1
    with Collection.open(folder / "c", readonly=True) as reader:
        (hits,) = reader.search(at(X, 120, names=names), 1)
        assert hits[0].id == 120


def test_scores_equal_the_formula_over_all_items(folder):
    c, X = filled(folder)
    rng = np.random.default_rng(4)
    query = at(X, 3, 40, 99)
    query["image"] = query["image"] + 0.02 * rng.standard_normal((3, 40))
    new = features(2, seed=9)
    query = {
        "image": np.vstack([query["image"], new["image"]]),
        "text": sp.vstack([query["text"], new["text"]]).tocsr(),
    }
    with c:
        function = Fingerprints.of_chunk({name: x[:50] for name, x in X.items()})
        theirs, own = function.of(X), function.of(query)
        projections = c.model.project(query).astype(np.float64)
        sure = c.model.evidence(query)
        for row, hits in enumerate(c.search(query, 150)):
            scores = {}
            for item in c.items():
                signs = unpack(np.frombuffer(item.code, np.uint8)[None])[0].astype(np.float64)
                total = np.abs(projections[row]).sum()
                apart = n_bits_apart(theirs[item.id], own[row])
                agreement = max(signs @ projections[row] / total, 0)
                missed = 1 - 0.99 * sure[row] * np.sqrt(agreement)
                scores[item.id] = 1 - missed * ((apart / 12) ** 4 if apart <= 11 else 1)
            assert [hit.id for hit in hits[:1]] == [max(scores, key=scores.get)]
            np.testing.assert_allclose(
                [hit.score for hit in hits], [scores[hit.id] for hit in hits], atol=1e-6
            )
            np.testing.assert_allclose(
                [hit.score for hit in hits], sorted(scores.values(), reverse=True), atol=1e-6
            )
            repeated = [key for key in range(150) if n_bits_apart(theirs[key], own[row]) <= 11]
            assert repeated == ([[3], [40], [99]][row] if row < 3 else [])


def test_it_can_be_switched_off_and_is_off_for_the_kind_alone(folder):
    c, X = filled(folder)
    query = at(X, 5)
    with c:
        plain = c.search(query, 20, fuse=False)
        codes = c.search(query, 20, "hamming")
        assert plain[0][0].score < 1
        assert codes == c.search(query, 20, "hamming", fuse=False)
        assert {hit.id for hit in plain[0]} >= {hit.id for hit in c.search(query, 20)[0][1:]}


def test_deleted_filtered_and_replaced_items_do_not_come_back(folder):
    c, X = filled(folder)
    with c:
        (first,) = c.search(at(X, 8), 1, where={"$labels": {"has": "sky"}})[0]
        assert first.id == 8
        (other,) = c.search(at(X, 8), 1, where={"$labels": {"has": "sea"}})[0]
        assert other.id != 8 and other.score < 1
        c.delete([8])
        assert c.search(at(X, 8), 1)[0][0].score < 1
        moved = features(1, seed=77)
        c.replace(moved, [["sea"]], [9])
        assert c.search(at(X, 9), 1)[0][0].score < 1
        assert c.search(at(moved, 0), 1)[0][0].id == 9
        assert c.check() == []


def test_a_reader_finds_what_was_committed_since(folder):
    c, X = filled(folder, 50)
    with c, Collection.open(c.path, readonly=True) as reader:
        assert reader.search(at(X, 7), 1)[0][0].id == 7
        for number in range(4):
            more = features(15, seed=20 + number)
            c.ingest(more, [["sky"]] * 15, ids=[f"{number}-{row}" for row in range(15)])
            for target in (reader, c):
                hits = target.search(at(more, 2, 14), 1)
                assert [each[0].id for each in hits] == [f"{number}-2", f"{number}-14"]
                assert target.search(at(X, 7), 1)[0][0].id == 7


def test_equal_items_are_tied_and_the_oldest_is_first(folder):
    c, X = filled(folder, 50)
    with c:
        same = {name: x[[4] * 3] for name, x in X.items()}
        c.ingest(same, [["sky"]] * 3, ids=["a", "b", "c"])
        hits = c.search(at(X, 4), 5)[0]
        assert [hit.id for hit in hits[:4]] == [4, "a", "b", "c"]
        assert [hit.tied for hit in hits[:4]] == [True] * 4
        assert [hit.score for hit in hits[:4]] == [1.0] * 4


def test_a_changed_copy_comes_first_and_is_not_weak(folder):
    c, X = filled(folder)
    rng = np.random.default_rng(8)
    centred = X["image"] - X["image"].mean(axis=0)
    noise = rng.standard_normal(centred.shape)
    # at a cosine of about 0.98, as a picture that was made brighter
    again = X["image"] + 0.2 * noise * np.linalg.norm(centred, axis=1, keepdims=True) / 40**0.5
    with c:
        hits = [each[0] for each in c.search({"image": again}, 1)]
        by_codes = [each[0] for each in c.search({"image": again}, 1, fuse=False)]
    found = np.array([hit.id for hit in hits]) == np.arange(150)
    assert found.mean() > 0.8 > np.mean([hit.id == row for row, hit in enumerate(by_codes)])
    assert not any(hit.weak for hit, right in zip(hits, found, strict=True) if right)


@pytest.mark.parametrize(
    "change",
    [
        "SET prints = x'00' WHERE id = 3",
        "SET prints = NULL WHERE id = 3",
        "SET prints = CAST(x'01' || substr(prints, 2) AS BLOB) WHERE id = 3",
        "SET prints = (SELECT prints FROM items WHERE id = 4) WHERE id = 3",
        "SET key = 999 WHERE id = 3",
    ],
)
def test_a_changed_fingerprint_is_told(folder, change):
    c, X = filled(folder, 50)
    with c:
        connection = c._catalog.connection_to_write()
        connection.execute(f"UPDATE items {change}")
        assert c.check()
    with Collection.open(folder / "c", readonly=True) as reader:
        with pytest.raises(FormatError, match="fingerprints of items cannot be read"):
            reader.search(at(X, 5), 1)
        assert reader.search(at(X, 5), 1, fuse=False)


# -- raw items -------------------------------------------------------------------------------------


def captions(n):
    rng = np.random.default_rng(0)
    nouns = ["dog", "cat", "bus", "boat", "bird", "train", "clock", "chair", "tree", "lamp"]
    return [" ".join(["the", *rng.permutation(nouns)[:4], f"n{row}"]) for row in range(n)]


def test_a_text_is_found_by_its_fingerprint_where_texts_are_not_kept(folder):
    extractor = Extractor.of(image="none", text="words")
    texts = captions(80)
    for keep in (False, True):
        path = folder / str(keep)
        with Collection.open(path, extractor=extractor, keep_text=keep) as c:
            c.ingest_items([{"id": n, "text": text} for n, text in enumerate(texts)])
            c.ingest_items([{"id": "bare", "text": texts[3].removeprefix("the ")}])
            for row in (0, 3, 40):
                hits = c.search_items([{"text": texts[row]}], 2)[0]
                assert hits[0].id == row and hits[0].score == 1
                assert c.evidence_items([{"text": texts[row]}]) >= [0.5 if keep else 1.0]
                # kept texts tell the article apart, features do not
                assert (hits[1].score == 1) == (row == 3 and not keep)


def test_duplicates_are_groups_of_items_that_repeat_each_other(folder):
    c, X = filled(folder, 100)
    with c:
        assert c.duplicates() == []
        again = {name: x[[3, 40, 3]] for name, x in X.items()}
        c.ingest(again, [["sky"]] * 3, ids=["a", "b", "c"])
        bare = {name: x[[7]] * (name != "text") for name, x in X.items()}
        c.ingest(bare, [["sky"]], ids=["d"])  # without the text it is another item
        seen = []
        assert c.duplicates(seen.append) == [[3, "a", "c"], [40, "b"]]
        assert sum(seen) == len(c)
        c.delete([3])
        assert c.duplicates() == [[40, "b"], ["a", "c"]]
        with Collection.open(c.path, readonly=True) as reader:
            assert reader.duplicates() == c.duplicates()
