"""Benchmarks: the table at the end of a run, what --check says, and measures of quality."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import __main__ as runner
from benchmarks import ablation, aside, lengths, samples, streams
from benchmarks.bars import Bar, mean, table
from benchmarks.comparing import Compared, commit, committed_results, compared
from benchmarks.timing import row
from oasis.datasets import Dataset


@pytest.mark.parametrize(
    ("now", "committed", "goal", "reached", "worse"),
    [
        (1.1, 1.0, "<= 1.2", True, False),
        (1.29, 1.0, "<= 1.2", False, False),
        (1.31, 1.0, "<= 1.2", False, True),
        (0.5, 1.0, "<= 1.2", True, False),
        (31.0, 30.0, ">= 30", True, False),
        (24.0, 30.0, ">= 30", False, False),
        (22.0, 30.0, ">= 30", False, True),
        (9.0, None, "<= 1.2", False, False),
    ],
)
def test_a_ratio_is_worse_by_more_than_a_third_of_the_committed_one(
    now, committed, goal, reached, worse
):
    each = Compared("learning", "a round", now, committed, goal)
    assert (each.reached, each.worse) == (reached, worse)


def test_only_ratios_with_a_goal_are_compared():
    rows = [row("a", 1.0, 2.0, goal="<= 3"), row("b", 1.0, 2.0), row("c", 1.0, goal="<= 3")]
    found = compared({"learning": rows}, {"learning": {"rows": [{"name": "a", "ratio": 4.0}]}})
    assert found == [Compared("learning", "a", 2.0, 4.0, "<= 3")]
    assert compared({"search": rows}, {})[0].committed is None


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """A run whose one ratio can be set, outside of git."""
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results.json")
    module = SimpleNamespace(ratio=1.0)
    module.run = lambda: [row("a round", 2.0, module.ratio, goal="<= 1.2")]
    monkeypatch.setattr(runner, "import_module", lambda name: module)
    return module


def test_check_fails_where_a_ratio_got_worse_and_writes_nothing(suite, capsys):
    assert runner.main(["learning"]) == 0
    written = runner.RESULTS.read_text()
    machine = json.loads(written)["learning"]["machine"]
    assert {"processor", "python", "numpy", "blas", "commit"} <= set(machine)
    suite.ratio = 1.25
    assert runner.main(["--check", "learning"]) == 0
    suite.ratio = 1.35
    assert runner.main(["--check", "learning"]) == 1
    assert "worse" in capsys.readouterr().out
    assert runner.RESULTS.read_text() == written
    assert runner.main(["learning"]) == 0  # without --check it is told and kept
    assert json.loads(runner.RESULTS.read_text())["learning"]["rows"][0]["ratio"] == 1.35
    assert runner.main(["nothing"]) == 2
    assert "unknown suite" in capsys.readouterr().err


def test_without_git_the_file_is_what_was_committed(tmp_path):
    path = tmp_path / "results.json"
    assert committed_results(path) == {} and commit(tmp_path) == "unknown"
    path.write_text('{"learning": {"rows": []}}')
    assert committed_results(path) == {"learning": {"rows": []}}


@pytest.fixture
def tiny():
    """200 items of 4 classes: dense pictures, words as a CSR matrix."""
    rng = np.random.default_rng(0)
    L = np.zeros((200, 4), dtype=np.uint8)
    L[np.arange(200), rng.integers(0, 4, 200)] = 1
    image = (L @ rng.standard_normal((4, 12)) + rng.standard_normal((200, 12))).astype(np.float32)
    words = sp.csr_array((rng.random((200, 40)) < 0.2).astype(np.float32))
    return Dataset("tiny", {"image": image, "text": words}, L, ("sky", "sea", "cat", "dog"))


@pytest.mark.slow
def test_every_stream_gives_bars_that_a_table_shows(tiny, monkeypatch):
    monkeypatch.setattr(streams.samples, "load_data", lambda name: tiny)
    found = list(streams.bars(["tiny"], [*streams.STREAMS, "words-as-labels"], seed=0))
    assert {each.stream for each in found} == {*streams.STREAMS, "words-as-labels"}
    assert len({each.key for each in found}) == len(found)
    assert all(each.value is None or 0 <= each.value <= 1 for each in found)
    assert all(each.note for each in found if each.value is None)
    assert table(found, {found[0].key: 0.5}).row_count == len(found)


def test_the_mean_of_a_bar_leaves_out_what_was_not_possible():
    found = [Bar("a", "b", "c", value, 0.5) for value in (0.25, None, 0.5)]
    assert mean(found).value == 0.375 and not mean(found).reached
    assert mean(found[1:2]).value is None


def test_a_sample_keeps_its_queries_apart(tiny):
    drawn = samples.sample(tiny, seed=1, n_rows=150)
    assert len(drawn.queries) == 15 and len(drawn.rows) == 135
    assert not set(drawn.queries) & set(drawn.rows)
    assert np.array_equal(samples.sample(tiny, seed=1, n_rows=150).rows, drawn.rows)


def test_few_words_keeps_words_of_each_text(tiny):
    texts = tiny.X["text"]
    few = samples.few_words(texts, np.random.default_rng(0)).toarray()
    n_words = (texts.toarray() > 0).sum(axis=1)
    assert np.array_equal((few > 0).sum(axis=1), np.minimum(n_words, 3))
    assert np.array_equal(few[few > 0], texts.toarray()[few > 0])


def test_cosine_is_the_sum_over_modalities(tiny):
    X, total = tiny.take(np.arange(30)), 0
    for x in X.values():
        dense = x.toarray() if sp.issparse(x) else x
        unit = dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
        total = total + unit @ unit.T
    np.testing.assert_allclose(samples.cosine(X, X), total, atol=1e-5)


def test_packages_are_read_with_their_words_needs_and_tags(tmp_path):
    paragraph = (
        "Package: lib-{0}\nDepends: libc6 (>= 2), a | b-c\nDescription: plays music\n and more\n"
        "Tag: role::program, use::playing,\n works-with::music-notation\nSection: sound\n"
    )
    path = tmp_path / "packages.txt"
    path.write_text("\n".join(paragraph.format(n) for n in range(20)))
    data = aside.packages(path)
    assert data.classes == ("music notation", "playing") and data.n_samples == 20
    assert data.L.all() and [data.X[name][[0]].nnz for name in ("text", "needs")] == [6, 3]


@pytest.mark.slow
def test_every_measure_is_a_share_and_a_part_taken_out_is_told_in_points(tiny, monkeypatch):
    monkeypatch.setattr(samples, "load_data", lambda name: tiny)
    monkeypatch.setitem(ablation.PARTS, "nothing", nullcontext)
    found = ablation.figures("tiny", ["nothing"], 64, range(1))
    assert found["nothing"] == found[ablation.WHOLE]
    (whole,) = found[ablation.WHOLE]
    assert {"A", "A picture", "A text", "P@10", "half", "U", "item", "H"} <= set(whole)
    assert all(0 <= value <= 1 for name, value in whole.items() if name != "U")
    cells = list(ablation.table("tiny", found).columns[1].cells)
    assert cells == [f"{whole['A']:.3f}", "+0.0"]


def test_lengths_compare_the_code_of_labels_with_a_rival(tiny, monkeypatch):
    monkeypatch.setattr(samples, "load_data", lambda name: tiny)
    found = list(lengths.bars(["tiny"], ["first", "third"], [16], seed=0))
    assert len(found) == 2 * 2 * 2 and all(0 < each.value <= 1 for each in found)
    rival, _, ours, _ = found[:4]
    assert rival.least is None and ours.least == rival.value and ours.note == "LEMON"


@pytest.mark.slow
@pytest.mark.parametrize("name", ablation.PARTS)
def test_a_model_without_a_part_still_learns_and_searches(tiny, name):
    told, bare = np.arange(100), np.arange(100, 200)
    stream = samples.chunks_of(tiny, [told]) + samples.chunks_of(tiny, [bare], labelled=False)
    with ablation.PARTS[name]():
        model = samples.search_model(seed=0, n_bits=128)
        codes = samples.learn(model, stream)
        projected = model.project({"image": tiny.X["image"][told]})
    assert codes.shape == (200, 16) and projected.any(axis=1).all()
