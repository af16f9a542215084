"""The measures beyond the labels: what is dealt, what is asked, and what counts as an answer."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp

from oasis import OASIS
from oasis.baselines import ITQ, LEMON, FloatCosine
from oasis.codes import hamming
from oasis.datasets.coco import SUPER_CATEGORIES, super_category_of
from oasis.datasets.dataset import Dataset
from oasis.datasets.texts import meaning, read_captions
from oasis.errors import DataError, InputError
from oasis.experiments.beyond import ask, learn, parts
from oasis.experiments.episodes import (
    Episode,
    Material,
    Sizes,
    episode,
    load_material,
    material_of,
    numbered,
)
from oasis.experiments.results import Results
from oasis.experiments.runner import Notice, run
from oasis.experiments.task import Grid

SMALL = Sizes(n_rounds=2, chunk=200, n_queries=40, draws=2, across=(30, 90))


@cache
def synthetic() -> Material:
    return load_material("synthetic@700")


@cache
def icons(features: str = "own") -> Material:
    return load_material("icons", None, features)


def episodes(material: Material, seed: int, sizes: Sizes) -> list[Episode]:
    """Return all episodes of a seed that the data set has."""
    found = []
    for name in numbered(sizes):
        try:
            found.append(episode(material, name, seed, sizes))
        except InputError as error:
            assert "has no" in str(error) or "has only" in str(error), error
    return found


def dealt(name: str, material: Material | None = None, seed: int = 0) -> Episode:
    return episode(material or synthetic(), name, seed, SMALL)


def learned_of(episode: Episode) -> int:
    return sum(map(len, episode.rounds))


def later_of(episode: Episode) -> list:
    return list(episode.chunks())[len(episode.rounds) :]


def rows_of(episode: Episode) -> list[int]:
    return [int(row) for part in (*episode.rounds, *episode.later) for row in part]


# ---------------------------------------------------------------- what is dealt


@pytest.mark.slow
@pytest.mark.parametrize("make", [synthetic, icons])
def test_no_row_is_stored_twice_and_a_seed_decides_everything(make: object) -> None:
    material = make()  # type: ignore[operator]
    first = episodes(material, 0, SMALL)
    again = episodes(material, 0, SMALL)
    other = episodes(material, 1, SMALL)
    assert len(first) == len(numbered(SMALL)) == 9
    for one, same, another in zip(first, again, other, strict=True):
        assert len(set(rows_of(one))) == len(rows_of(one))
        assert rows_of(one) == rows_of(same) != rows_of(another)
        for a, b in zip(one.questions, same.questions, strict=True):
            assert a.X is None or b.X is None or set(a.X) == set(b.X)
            for name in a.X or {}:
                assert _equal(a.X[name], b.X[name])  # type: ignore[index]
    assert first[3].held_out != first[4].held_out


def test_queries_by_labels_are_not_stored() -> None:
    material = synthetic()
    for each in (dealt("labels-0", seed=3), dealt("finer-0", seed=3)):
        stored = material.dataset.X["image"][each.stored]
        queries = each.questions[0].X["image"]  # type: ignore[index]
        assert not (queries[:, None, :] == stored[None, :, :]).all(axis=2).any()


def test_never_labelled_classes_are_in_no_label_set_and_in_every_later_item() -> None:
    material = synthetic()
    chosen = dealt("never-labelled-1")
    held = [material.dataset.classes.index(name) for name in chosen.held_out]
    assert len(held) == 20
    assert not material.dataset.L[np.concatenate(chosen.rounds)][:, held].any()
    assert material.dataset.L[np.concatenate(chosen.later)][:, held].any(axis=1).all()
    for _, y in chosen.chunks():
        assert not {name for names in y for name in names} & set(chosen.held_out)
    shared, by_name, as_text = chosen.questions
    assert shared.base.tolist() == list(range(learned_of(chosen), len(chosen.stored)))
    assert shared.query_labels is not None and shared.base_labels is not None
    assert (shared.base_labels == material.dataset.L[chosen.stored[shared.base]][:, held]).all()
    assert shared.query_labels.any(axis=1).all()
    assert by_name.names == chosen.held_out
    assert len(by_name.base) == len(chosen.stored)
    assert "no features of other texts" in as_text.empty


def test_classes_without_a_name_are_in_the_stream_and_every_class_is_asked_for_once() -> None:
    material = icons()
    data = material.dataset
    asked: list[str] = []
    for quarter in range(4):
        chosen = dealt(f"unnamed-{quarter}", material)
        asked += chosen.held_out
        given = {name for _, y in chosen.chunks() for names in y for name in names}
        assert given and given.isdisjoint(chosen.held_out)
        by_name, as_text = chosen.questions
        held = [data.classes.index(name) for name in chosen.held_out]
        truth = data.L[chosen.stored][:, held]
        assert truth.any()  # such items are stored all the same
        for question in (by_name, as_text):
            assert question.base_labels is not None and (question.base_labels == truth).all()
        assert by_name.names == chosen.held_out
        assert material.texts is not None and as_text.X is not None
        assert _equal(as_text.X["text"], material.texts.words(chosen.held_out))
    assert sorted(asked) == sorted(data.classes)
    _, unknown = dealt("unnamed-0").questions
    assert unknown.empty.endswith("no features of other texts than its items'")


def test_finer_labels_are_not_given() -> None:
    chosen = dealt("finer-0")
    given = {name for _, y in chosen.chunks() for names in y for name in names}
    assert given <= set(SUPER_CATEGORIES)
    coarse, fine = chosen.questions
    assert fine.query_labels is not None and coarse.query_labels is not None
    of = super_category_of(synthetic().dataset.classes)
    for each, wanted in zip(fine.query_labels, coarse.query_labels, strict=True):
        names = {of[column] for column in np.flatnonzero(each)}
        assert names == {chosen.classes[column] for column in np.flatnonzero(wanted)}


@pytest.mark.slow
def test_icons_have_categories_as_coarse_labels_and_shared_terms_as_fine_ones() -> None:
    grades = icons().grades
    assert grades is not None
    assert grades.coarse_names == icons().dataset.classes
    assert (grades.fine.sum(axis=0) >= 2).all()
    terms = icons().dataset.payload["terms"].tolist()
    row = int(np.argmax(grades.fine.any(axis=1)))
    shares = (grades.fine[row] & grades.fine).any(axis=1)
    mine = set(terms[row].split(", "))
    assert shares.tolist() == [bool(mine & set(each.split(", "))) for each in terms]


def test_an_item_is_asked_for_by_three_of_its_own_words() -> None:
    material = synthetic()
    question = dealt("labels-0", material).questions[1]
    stored = dealt("labels-0", material).stored
    assert question.items is not None and question.X is not None
    asked = question.X["text"].toarray()  # type: ignore[union-attr]
    own = material.dataset.X["text"][stored[question.items]].toarray()  # type: ignore[union-attr]
    assert (asked.sum(axis=1) == 3).all()
    assert (asked <= own).all()


def test_an_icon_is_asked_for_by_its_title() -> None:
    material = icons("image+text+meaning")
    chosen = dealt("labels-0", material)
    question = chosen.questions[1]
    assert question.items is not None and question.X is not None and material.texts is not None
    titles = [material.texts.titles[row] for row in chosen.stored[question.items]]
    assert set(question.X) == {"text", "meaning"}
    assert _equal(question.X["text"], material.texts.words(titles))
    assert _equal(question.X["meaning"], meaning(titles))


def test_items_across_have_no_text_and_their_texts_ask_for_them() -> None:
    material = synthetic()
    chosen = dealt("across-0")
    later = np.concatenate(chosen.later)
    for X, y in later_of(chosen):
        assert not any(y)
        assert not X["text"].toarray().any()  # type: ignore[union-attr]
        assert X["image"].any()
    small, large = chosen.questions
    assert [len(small.base), len(large.base)] == [30, 90]
    assert set(large.X or {}) == {"text"}
    assert _equal(large.X["text"], material.dataset.X["text"][later])  # type: ignore[index]
    assert large.items is not None
    assert (chosen.stored[large.base[large.items]] == later).all()


def test_data_without_texts_or_finer_labels_have_fewer_questions() -> None:
    rng = np.random.default_rng(0)
    data = Dataset(
        "plain",
        {"image": rng.random((200, 8), dtype=np.float32)},
        np.eye(4, dtype=np.uint8)[rng.integers(0, 4, 200)],
        ("a", "b", "c", "d"),
    )
    material = material_of(data)
    found = episodes(material, 0, SMALL)
    assert [len(each.later) for each in found] == [0, 1, 1, 0, 0, 0, 0]
    assert "no words" in found[0].questions[1].empty
    with pytest.raises(InputError, match="texts of plain are not known"):
        material_of(data, features="image+meaning")
    with pytest.raises(InputError, match="no modality 'sound'; it has image"):
        material_of(data, features="sound")
    with pytest.raises(InputError, match="too few"):
        dealt("labels-0", material_of(data.select(np.arange(5))))


# ---------------------------------------------------------------- what counts as an answer


def test_answers_of_a_hasher_equal_brute_force_over_stored_codes() -> None:
    chosen = dealt("labels-0")
    model = OASIS(n_bits=32, random_state=0)
    codes = learn(model, chosen)
    assert codes is not None and len(codes) == len(chosen.stored)
    shared, item = chosen.questions
    assert shared.X is not None and item.X is not None and item.items is not None
    distances = hamming(model.encode(item.X), codes)
    own = distances[np.arange(len(distances)), item.items][:, None]
    ranks = 1 + (distances < own).sum(axis=1) + ((distances == own).sum(axis=1) - 1) / 2
    answer = ask(model, codes, item)
    assert answer["hamming"]["mrr"] == pytest.approx((1 / ranks).mean())
    assert answer["hamming"]["first_10"] == pytest.approx((ranks <= 10).mean())
    by_labels = ask(model, codes, shared)
    assert by_labels["asymmetric"]["map"] > 2 * by_labels["chance"]["map"]


def test_what_a_method_cannot_answer_is_empty_and_says_why() -> None:
    chosen = dealt("never-labelled-0")
    by_name = chosen.questions[1]
    itq, cosine = ITQ(n_bits=16, random_state=0), FloatCosine()
    for model in (itq, cosine):
        answer = ask(model, learn(model, chosen), by_name)
        assert "hamming" not in answer and "asymmetric" not in answer
        assert "does not answer names" in answer["empty"]
        assert answer["chance"]["map"] > 0
    answer = ask(itq, None, chosen.questions[2])
    assert answer["empty"] == chosen.questions[2].empty


def test_unlabelled_items_in_the_stream_are_not_learned_by_published_methods() -> None:
    chosen = dealt("unnamed-1", icons())
    model = LEMON(n_bits=16, random_state=0)
    codes = learn(model, chosen)
    same, expected = LEMON(n_bits=16, random_state=0), []
    for X, y in chosen.chunks():
        has = [bool(names) for names in y]
        assert 0 < sum(has) < len(has)
        part = {name: matrix[np.array(has)] for name, matrix in X.items()}
        known = iter(same.partial_fit(part, [names for names in y if names]).codes_.copy())
        encoded = same.encode(X)
        rows = zip(has, encoded, strict=True)
        expected += [next(known) if labelled else code for labelled, code in rows]
    assert codes is not None and (codes == np.array(expected)).all()


def test_oasis_answers_names_and_stores_what_has_no_label() -> None:
    chosen = dealt("never-labelled-0")
    model = OASIS(n_bits=32, random_state=0)
    codes = learn(model, chosen)
    assert codes is not None and model.n_seen_ == len(codes) == len(chosen.stored)
    answer = ask(model, codes, chosen.questions[1])
    assert answer["asymmetric"] and "empty" not in answer
    assert set(model.classes_).isdisjoint(chosen.held_out)


# ---------------------------------------------------------------- rows and tables


def beyond_tasks(methods: list[str], settings: list[str], dataset: str = "synthetic@300"):
    return Grid([dataset], settings, methods, [16], 1, "beyond", {"quick": True}).tasks()


def test_rows_are_kept_and_other_sizes_are_other_rows(tmp_path) -> None:
    tasks = beyond_tasks(["itq", "float-cosine"], ["own/labels-0", "own/finer-0"])
    first = run(tasks, tmp_path)
    assert {each.status for each in first} == {"computed"}
    assert set(first[0].row["answers"]["default"]) == {"labels", "item"}
    rankers = [each for each in first if each.task.n_bits is None]
    assert len(rankers) == 2 and "hamming" not in rankers[0].row["answers"]["default"]["labels"]
    assert {each.status for each in run(tasks, tmp_path)} == {"kept"}
    whole = Grid(["synthetic@300"], ["own/labels-0"], ["itq"], [16], 1, "beyond").tasks()
    notices: list[object] = []
    (again,) = run(whole, tmp_path, listener=notices.append)
    assert again.status == "computed"
    assert any(isinstance(e, Notice) and "another sizes" in e.text for e in notices)


def test_models_with_content_are_asked_at_several_weights(tmp_path) -> None:
    grid = Grid(
        ["synthetic@300"],
        ["own/labels-0"],
        ["oasis-search", "oasis"],
        [96],
        1,
        "beyond",
        {"quick": True, "content": "0.25"},
    )
    with_content, without = (each.row for each in run(grid.tasks(), tmp_path))
    assert set(with_content["answers"]) == {"default", "0", "1", "0.25"}
    assert set(without["answers"]) == {"default"}


def test_what_the_data_lack_is_empty_and_says_why(tmp_path) -> None:
    (lacking,) = run(beyond_tasks(["itq"], ["image+meaning/labels-0"]), tmp_path)
    assert "the texts of synthetic-coco79 are not known" in lacking.row["error"]
    words, as_text = (
        run(beyond_tasks(["oasis"], ["own/unnamed-0"]), tmp_path)[0]
        .row["answers"]["default"]
        .values()
    )
    assert words["hamming"]["map"] > 0
    assert as_text["empty"].endswith("no features of other texts than its items'")
    with pytest.raises(InputError, match="not a list of modalities"):
        beyond_tasks(["itq"], ["image++text/labels-0"])
    with pytest.raises(InputError, match="unknown episode 'labels'"):
        beyond_tasks(["itq"], ["own/labels"])


def literal_row(method: str, n_bits: int | None, name: str, **values: float) -> dict:
    way = "asymmetric"
    answers = {
        k: {way: {_FIGURE.get(k, "map"): v}, "chance": _CHANCE[k]} for k, v in values.items()
    }
    return {
        "key": f"{method}{name}",
        "kind": "beyond",
        "dataset": "x",
        "setting": f"own/{name}",
        "method": method,
        "parameters": {},
        "n_bits": n_bits,
        "seed": 0,
        "of": {},
        "answers": {"default": {k.replace("_", "-"): v for k, v in answers.items()}},
    }


_FIGURE = {"item": "mrr"}
_CHANCE = {"labels": {"map": 0.1}, "item": {"mrr": 0.0}, "fine": {"map": 0.1}}


def test_a_method_that_encodes_labels_wins_the_label_column_and_loses_the_other() -> None:
    rows = [
        literal_row("oasis-paper", 16, "labels-0", labels=0.9, item=0.1),
        literal_row("oasis-paper", 16, "finer-0", fine=0.2),
        literal_row("itq", 16, "labels-0", labels=0.4, item=0.6),
        literal_row("itq", 16, "finer-0", fine=0.3),
        literal_row("float-cosine", None, "labels-0", labels=0.5, item=0.8),
        literal_row("float-cosine", None, "finer-0", fine=0.5),
    ]
    (part,) = parts(Results(), "x", rows)
    assert part.tables[0].header[:3] == ("method", "beyond", "labels")
    glance = {row[0]: row[1:3] for row in part.tables[0].rows}
    # (x - chance) / (cosine - chance), the mean over fine and item
    assert glance["OASIS (paper)"] == (f"~{(0.25 + 0.125) / 2:.3f}", "*0.900")
    assert glance["ITQ"] == (f"*{(0.5 + 0.75) / 2:.3f}", "~0.400")
    assert glance["float cosine"] == ("1.000", "0.500")


# ---------------------------------------------------------------- texts


def test_meaning_of_a_text_does_not_depend_on_its_neighbours() -> None:
    both = meaning(["a dog", "", "a long text about horses on a green field", "a dog"])
    assert (both[0] == meaning(["a dog"])[0]).all() and (both[0] == both[3]).all()
    assert not both[1].any()
    assert not meaning(["", "..."]).any()
    np.testing.assert_allclose(np.linalg.norm(both[[0, 2]], axis=1), 1, rtol=1e-6)


def test_captions_are_found_by_number(tmp_path: object) -> None:
    path = tmp_path / "captions.txt"  # type: ignore[operator]
    path.write_text("0007\tA dog.\n0003\tA cat, a tree\n", encoding="utf-8")
    data = Dataset(
        "coco79",
        {"image": np.eye(2, dtype=np.float32)},
        np.eye(2, dtype=np.uint8),
        ("cat", "dog"),
        payload={"coco_id": np.array([3, 7])},
    )
    assert read_captions(path, data) == ("A cat, a tree", "A dog.")
    path.write_text("0007\tA dog.\n", encoding="utf-8")
    with pytest.raises(DataError, match="no caption of image 3"):
        read_captions(path, data)
    path.write_text("no tab", encoding="utf-8")
    with pytest.raises(DataError, match="line 1: expected an image's number"):
        read_captions(path, data)


def test_super_categories_have_the_79_classes_once() -> None:
    names = [name for each in SUPER_CATEGORIES.values() for name in each]
    assert len(names) == len(set(names)) == 79
    assert set(names) == set(synthetic().dataset.classes)
    with pytest.raises(InputError, match="'person' is in none"):
        super_category_of(["person"])


def _equal(a: object, b: object) -> bool:
    dense = [x.toarray() if isinstance(x, sp.csr_array) else x for x in (a, b)]
    return bool(np.array_equal(*dense))  # type: ignore[arg-type]
