from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasis.datasets import Dataset, icons, load
from oasis.datasets.dataset import (
    label_indicator,
)
from oasis.errors import DataError, InputError
from oasis.streams import (
    Round,
    Runbook,
    balanced,
    class_order,
    numbered_runbook,
    rounds,
    runbook,
    runbooks,
)

SHARED = Path(os.environ.get("OASIS_SHARED", Path(__file__).parents[2] / ".." / "shared"))
COCO = SHARED / "data" / "coco40k" / "coco40k.npz"


def bare(name: str, L: np.ndarray, classes: tuple[str, ...], arrival: Any = None) -> Dataset:
    """A data set whose features do not matter."""
    X = {"image": np.zeros((len(L), 1), dtype=np.float32)}
    return Dataset(name, X, L, classes, arrival=arrival)


def toy(n: int = 300, c: int = 6, seed: int = 0) -> Dataset:
    """Samples of none to three of c classes, in skewed numbers, arriving at 12 moments."""
    rng = np.random.default_rng(seed)
    L = (rng.random((n, c)) < np.linspace(0.5, 0.1, c)[rng.permutation(c)]).astype(np.uint8)
    L[rng.random(n) < 0.1] = 0
    arrival = np.sort(rng.integers(12, size=n))
    return bare("toy", L, tuple(f"class {i}" for i in range(c)), arrival)


def icon_labels() -> Dataset:
    found = icons.icons()
    classes = tuple(sorted({name for icon in found for name in icon.categories}))
    releases = sorted({icon.release for icon in found}, key=icons.release_order)
    arrival = np.array([releases.index(icon.release) for icon in found])
    return bare(
        "icons", label_indicator([icon.categories for icon in found], classes), classes, arrival
    )


def stand_in(name: str) -> Dataset:
    """A small data set that the runbook of this name can be tried on."""
    kind = name.split("-")[0]
    if kind in ("mirflickr", "nuswide", "coco79"):
        return load(f"synthetic-{kind}", n_samples=13_500, seed=5, lazy=True)
    if kind == "wiki":
        rng = np.random.default_rng(1)
        L = np.eye(10, dtype=np.uint8)[rng.integers(10, size=900)]
        names = "art biology geography history literature media music royalty sport warfare"
        return bare("wiki", L, tuple(names.split()))
    return icon_labels() if kind == "icons" else toy()


def check_stream(data: Dataset, book: Runbook, dealt: list[Round]) -> None:
    """What holds for every stream, whatever its rule."""
    learned = np.concatenate([r.train for r in dealt])
    assert len(np.unique(learned)) == len(learned), "a sample is learned from once"
    for r in dealt:
        assert r.train.dtype == r.queries.dtype == np.int64
        assert not np.isin(r.queries, learned).any(), "a query is never in the base"
        assert len(np.unique(r.queries)) == len(r.queries)
        assert len(r.train) > 0
    numbers = [r.number for r in dealt]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 1
    seen: set[str] = set()
    for r in dealt:
        here = {name for names in data.labels(r.train) for name in names}
        assert set(r.new_classes) == here - seen
        assert len(r.new_classes) == len(set(r.new_classes))
        seen |= here
    if book.rule == "chunks":
        assert all(np.array_equal(r.queries, dealt[0].queries) for r in dealt)
        assert len(learned) + len(dealt[0].queries) == data.n_samples
        return
    queried = np.concatenate([r.queries for r in dealt])
    assert len(np.unique(queried)) == len(queried), "a sample is a query of one round at most"
    for r in dealt:
        assert len(r.queries) == (len(r.train) + len(r.queries)) // 10, "1:9, rounded down"


@pytest.mark.parametrize("name", runbooks())
def test_shipped_runbook_deals_a_valid_stream(name: str) -> None:
    data, book = stand_in(name), runbook(name)
    assert book.name == name
    assert book.about
    dealt = rounds(data, book, seed=3)
    check_stream(data, book, dealt)
    if book.classes:
        allowed: set[int] = set()
        order = class_order(data, book.order)
        for r in dealt:
            group = {
                data.classes.index(label) if isinstance(label, str) else int(order[label - 1])
                for label in book.classes[r.number - 1]
            }
            allowed = allowed | group if book.rule == "growing" else group
            for row in (*r.train, *r.queries):
                labels = set(np.flatnonzero(data.L[row]))
                assert labels, "only labelled samples"
                assert labels <= allowed, "no future class, and no old one in the third setting"


@pytest.mark.parametrize(
    ("name", "n_classes", "n_rounds"),
    [
        ("mirflickr-second", 24, 10),
        ("mirflickr-third", 24, 4),
        ("nuswide-second", 21, 20),
        ("nuswide-third", 21, 8),
    ],
)
def test_runbooks_of_the_paper_use_every_class_once(
    name: str, n_classes: int, n_rounds: int
) -> None:
    book = runbook(name)
    assert len(book.classes) == n_rounds
    numbers = [label for group in book.classes for label in group]
    assert sorted(map(int, numbers)) == list(range(1, n_classes + 1))
    assert book.order == ("frequency" if name.startswith("mirflickr") else "columns")


def test_paper_first_setting_has_the_paper_chunk_sizes() -> None:
    for name, sizes in (
        ("mirflickr", [2_000] * 9 + [15]),
        ("nuswide", [10_000] * 19 + [3_834]),
    ):
        n = 2_000 + sum(sizes)
        data = bare(name, np.ones((n, 2), dtype=np.uint8), ("a", "b"))
        dealt = rounds(data, runbook(f"{name}-first"), seed=0)
        assert [len(r.train) for r in dealt] == sizes
        assert len(dealt[0].queries) == 2_000


def test_icon_rounds_are_balanced() -> None:
    data = icon_labels()
    dealt = rounds(data, runbook("icons"), seed=0)
    sizes = [len(r.train) + len(r.queries) for r in dealt]
    assert len(dealt) == 12
    assert sum(sizes) == 1_446
    assert min(sizes) >= 82
    assert max(sizes) <= 150
    admitted = [len(r.new_classes) for r in dealt]
    assert 3 <= min(admitted) <= max(admitted) <= 11
    assert sum(admitted) == 68


def test_icon_releases_never_split_a_release() -> None:
    data = icon_labels()
    assert data.arrival is not None
    last = -1
    for r in rounds(data, runbook("icons-releases"), seed=0):
        here = data.arrival[np.concatenate([r.train, r.queries])]
        assert here.min() > last
        last = here.max()


def test_growing_matches_the_definition() -> None:
    data = toy()
    book = Runbook("g", rule="growing", classes=((2,), (1, 5), (3, 4)), query_share=0.25)
    order = sorted(range(6), key=lambda c: (-int(data.L[:, c].sum()), c))
    taken: set[int] = set()
    allowed: set[int] = set()
    for r, group in zip(rounds(data, book, 0), book.classes, strict=True):
        allowed |= {order[int(number) - 1] for number in group}
        expected = {
            row
            for row in range(data.n_samples)
            if data.L[row].any() and set(np.flatnonzero(data.L[row])) <= allowed
        } - taken
        assert {*r.train, *r.queries} == expected
        assert len(r.queries) == len(expected) // 4
        taken |= expected


def test_groups_match_the_definition() -> None:
    data = toy(seed=2)
    book = Runbook("g", rule="groups", order="columns", per_round=2, query_share=0.1)
    dealt = rounds(data, book, 0)
    for r, group in zip(dealt, ({0, 1}, {2, 3}, {4, 5}), strict=True):
        expected = {
            row
            for row in range(data.n_samples)
            if data.L[row].any() and set(np.flatnonzero(data.L[row])) <= group
        }
        assert {*r.train, *r.queries} == expected


def test_arrival_orders_chunks_and_rounds() -> None:
    data = toy()
    assert data.arrival is not None
    by_chunk = Runbook("c", rule="chunks", order="arrival", chunk=50, query_count=30)
    times = np.concatenate([data.arrival[r.train] for r in rounds(data, by_chunk, 1)])
    assert (np.diff(times) >= 0).all()
    by_moment = Runbook("m", rule="arrival", per_round=5, query_share=0.0)
    spans = [set(data.arrival[r.train]) for r in rounds(data, by_moment, 1)]
    assert spans == [{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11}]


def test_class_order_counts_by_frequency_columns_and_arrival() -> None:
    L = np.array([[0, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0], [1, 0, 1, 0]], dtype=np.uint8)
    data = bare("four", L, ("a", "b", "c", "never"), np.array([7, 2, 7, 7]))
    assert class_order(data, "columns").tolist() == [0, 1, 2, 3]
    assert class_order(data, "frequency").tolist() == [2, 0, 1, 3]
    assert class_order(data, "arrival").tolist() == [2, 1, 0, 3]


def test_rounds_repeat_with_the_seed_and_differ_without() -> None:
    data = toy()
    for name in ("any-first", "any-second", "any-third"):
        one, same, other = (rounds(data, runbook(name), seed) for seed in (4, 4, 5))
        for a, b in zip(one, same, strict=True):
            assert np.array_equal(a.train, b.train)
            assert np.array_equal(a.queries, b.queries)
        assert any(not np.array_equal(a.train, b.train) for a, b in zip(one, other, strict=True))


def test_empty_round_is_left_out_and_the_numbers_stay() -> None:
    L = np.array([[1, 0, 0]] * 10 + [[0, 0, 1]] * 10, dtype=np.uint8)
    data = bare("gap", L, ("a", "b", "c"))
    book = Runbook("g", rule="groups", classes=(("a",), ("b",), ("c",)), query_share=0.1)
    assert [r.number for r in rounds(data, book, 0)] == [1, 3]
    nothing = Runbook("n", rule="groups", classes=(("b",),), query_share=0.1)
    with pytest.raises(InputError, match="finds no sample in gap"):
        rounds(data, nothing, 0)


def test_query_share_is_exact_in_decimals() -> None:
    data = bare("hundred", np.ones((100, 1), dtype=np.uint8), ("a",))
    book = Runbook("s", rule="chunks", query_share=0.29, n_rounds=3)
    dealt = rounds(data, book, 0)
    assert len(dealt[0].queries) == 29
    assert [len(r.train) for r in dealt] == [24, 24, 23]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_balanced_equals_trying_every_cut(weight: list[int], draw: Any) -> None:
    n_spans = draw.draw(st.integers(1, len(weight)))
    spans = balanced(np.array(weight), n_spans)
    assert len(spans) == n_spans
    assert [a for a, _ in spans] == [0, *(b for _, b in spans[:-1])]
    assert spans[-1][1] == len(weight)
    assert all(a < b for a, b in spans)
    best = min(
        sum(sum(weight[a:b]) ** 2 for a, b in itertools.pairwise((0, *cuts, len(weight))))
        for cuts in itertools.combinations(range(1, len(weight)), n_spans - 1)
    )
    assert sum(sum(weight[a:b]) ** 2 for a, b in spans) == best


GOOD = {"name": "x", "rule": "growing", "order": "columns", "per_round": 2, "query_share": 0.1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": "grow"}, "unknown rule 'grow'; known are chunks, growing, groups, arrival"),
        ({"order": "random"}, "unknown order 'random' for rule 'growing'"),
        ({"per_rounds": 2}, "unknown key 'per_rounds'; known are name"),
        ({"per_round": 0}, "per_round must be a positive integer, got 0"),
        ({"per_round": True}, "per_round must be a positive integer, got True"),
        ({"per_round": None}, "needs exactly one of classes, per_round, n_rounds; got none"),
        ({"n_rounds": 3}, "exactly one of .* got per_round, n_rounds"),
        ({"chunk": 10}, "chunk has no meaning with rule 'growing'"),
        ({"query_share": 1.0}, "query_share must be a number from 0 to below 1, got 1.0"),
        ({"query_share": "half"}, "query_share must be a number from 0 to below 1, got 'half'"),
        ({"query_share": None}, "exactly one of query_share; got none"),
        ({"per_round": None, "classes": [[1], []]}, "round 2 has no class"),
        ({"per_round": None, "classes": [[1], [1]]}, "the class 1 is given twice"),
        ({"per_round": None, "classes": [[0]]}, "round 1 has the class 0"),
        ({"per_round": None, "classes": [["sky", 1]]}, "by name or by number, not both"),
        ({"per_round": None, "classes": [1, 2]}, "classes must be a list of lists"),
        ({"order": 3}, "order must be a string, got 3"),
    ],
)
def test_bad_runbook_is_refused_with_the_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Runbook.parse({**GOOD, **change}, "bad.toml")


@pytest.mark.parametrize("name", runbooks())
def test_runbook_survives_as_dict(name: str) -> None:
    book = runbook(name)
    again = Runbook.parse(book.as_dict())
    assert again == book
    assert again.digest() == book.digest()


def test_digest_follows_what_decides_the_rounds() -> None:
    book = Runbook.parse(GOOD)
    assert book.digest() == Runbook.parse({**GOOD, "name": "y", "about": "words"}).digest()
    assert book.digest() != Runbook.parse({**GOOD, "per_round": 3}).digest()
    none, zero = (Runbook.parse({**GOOD, "query_share": share}) for share in (0, 0.0))
    assert none.digest() == zero.digest()
    assert len({runbook(name).digest() for name in runbooks()}) == len(runbooks())


def test_runbook_reads_a_file_and_names_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nrule = "chunks"\nchunk = 5\nquery_count = 2\n')
    assert runbook(str(path)).chunk == 5
    path.write_text("name = mine")
    with pytest.raises(InputError, match=r"mine.toml: not a TOML file"):
        Runbook.read(path)
    with pytest.raises(DataError, match="no such runbook"):
        Runbook.read(tmp_path / "none.toml")
    with pytest.raises(InputError, match="unknown runbook 'coco79-fourth'; known are any-arrival"):
        runbook("coco79-fourth")


@pytest.mark.parametrize(
    ("book", "message"),
    [
        (Runbook("b", rule="chunks", chunk=5, query_count=300), "needs 300 queries, but toy has"),
        (
            Runbook("b", rule="growing", classes=((7,),), query_share=0.1),
            "class number 7, but toy has 6 classes",
        ),
        (
            Runbook("b", rule="groups", classes=(("sky",),), query_share=0.1),
            "has the class 'sky', which toy does not have",
        ),
        (
            Runbook("b", rule="groups", n_rounds=7, query_share=0.1),
            "6 classes or moments cannot be divided among 7 rounds",
        ),
    ],
)
def test_runbook_that_does_not_fit_the_data_is_refused(book: Runbook, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rounds(toy(), book, 0)


def test_arrival_without_moments_is_refused() -> None:
    data = bare("plain", np.ones((20, 1), dtype=np.uint8), ("a",))
    with pytest.raises(InputError, match="plain has no arrival times"):
        rounds(data, runbook("any-arrival"), 0)
    with pytest.raises(InputError, match="seed must not be negative"):
        rounds(data, runbook("any-first"), -1)


@pytest.mark.slow
@pytest.mark.skipif(not COCO.exists(), reason="the coco40k file is not here")
def test_coco79_rounds_on_the_real_data() -> None:
    data = load("coco79", COCO.parent)
    dealt = {s: rounds(data, runbook(f"coco79-{s}"), 0) for s in ("first", "second", "third")}
    for setting, stream in dealt.items():
        check_stream(data, runbook(f"coco79-{setting}"), stream)
    assert [len(r.train) for r in dealt["first"]] == [4_000] * 9 + [2_798]
    assert [len(r.new_classes) for r in dealt["second"]] == [8] * 9 + [7]
    assert sum(len(r.train) + len(r.queries) for r in dealt["second"]) == 39_798
    assert [len(r.train) for r in dealt["third"]] == [2_528, 7_327, 7_891, 5_917]
    assert [len(r.new_classes) for r in dealt["third"]] == [10, 13, 15, 41]
    # chance of the last round of the third setting: expected AP of a random order
    base = np.concatenate([r.train for r in dealt["third"]])
    L = data.L.astype(np.float32)
    similar = L[dealt["third"][-1].queries] @ L[base].T > 0
    N, R = len(base), similar.sum(axis=1)
    harmonic = (1 / np.arange(1, N + 1)).sum()
    chance = np.where(R > 0, (harmonic + (R - 1) / (N - 1) * (N - harmonic)) / N, 0).mean()
    assert chance == pytest.approx(0.07, abs=0.005)


def test_runbooks_by_numbers_have_so_many_rounds_and_new_classes() -> None:
    data = load("synthetic-coco79", n_samples=600, lazy=True)
    chunks = rounds(data, numbered_runbook(7), seed=0)
    assert len(chunks) == 7 and len(chunks[0].queries) == 60
    growing = rounds(data, numbered_runbook(4, 10), seed=0)
    known: set[str] = set()
    order = class_order(data, "frequency")
    for each in growing:
        known |= {data.classes[j] for j in order[(each.number - 1) * 10 : each.number * 10]}
        assert set().union(*data.labels(each.train)) <= known
    assert max(each.number for each in growing) == 4 and len(known) == 40
    apart = rounds(data, numbered_runbook(None, 20, apart=True), seed=0)
    for each in apart:
        group = {data.classes[j] for j in order[(each.number - 1) * 20 : each.number * 20]}
        assert set().union(*data.labels(each.train)) <= group
    with pytest.raises(InputError, match="give a number of rounds"):
        numbered_runbook()
