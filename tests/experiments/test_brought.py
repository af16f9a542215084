"""Methods that others bring: by import path and entry point, in runs, reports and scenarios."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import experiment_data
import numpy as np
import pytest
import scipy.sparse as sp

from oasis.baselines import LEMON
from oasis.baselines.scaled import ColumnScale, ScaledHasher
from oasis.errors import InputError
from oasis.experiments import brought, methods
from oasis.experiments.methods import grid_of, method_named
from oasis.experiments.report import as_markdown, sections_of
from oasis.experiments.results import Results
from oasis.experiments.runner import Event, Notice, run
from oasis.experiments.task import Grid, load_dataset, parse_variant

toy = experiment_data.toy

# written on nothing of the package's; the second has no project, the third keeps everything
MODULE = """
import numpy as np


class Plain:
    def __init__(self, n_bits, random_state=0, gain=1.0):
        self.n_bits, self.gain = n_bits, gain
        self.rng = np.random.default_rng(random_state)
        self.A = None

    def _rows(self, X):
        return np.hstack([np.asarray(X[name]) for name in sorted(X)])

    def partial_fit(self, X, y):
        rows = self._rows(X)
        if self.A is None:
            self.A = self.gain * self.rng.standard_normal((rows.shape[1], self.n_bits))
        self.codes_ = np.packbits(self.project(X) > 0, axis=1, bitorder="little")
        return self

    def project(self, X):
        return self._rows(X) @ self.A


class CodesOnly:
    def __init__(self, n_bits, classes, labels):
        assert len(classes) == 6 and set(labels) == set(classes)
        self.inner = Plain(n_bits)

    needs_classes = True

    def partial_fit(self, X, y):
        assert all(isinstance(names, tuple) for names in y)
        self.codes_ = self.inner.partial_fit(X, y).codes_

    def encode(self, X):
        return np.packbits(self.inner.project(X) > 0, axis=1, bitorder="little")


class Keeper(Plain):
    is_batch = True

    def partial_fit(self, X, y):
        super().partial_fit(X, y)
        before = getattr(self, "all_codes_", self.codes_[:0])
        self.all_codes_ = np.vstack([before, self.codes_])


class Dots:
    def __init__(self):
        self.seen = []

    def partial_fit(self, X, y):
        self.seen.append(X["image"])

    def scores(self, X):
        return X["image"] @ np.vstack(self.seen).T


class Wrong(Plain):
    def partial_fit(self, X, y):
        super().partial_fit(X, y)
        self.codes_ = self.codes_.astype(float)


class Crash(Plain):
    def partial_fit(self, X, y):
        super().partial_fit(X, y)
        np.ones((2, 3)) @ np.ones(len(y)) / 0


class Tunable(Plain):
    tuning_grid = {"gain": (1.0, 2.0, 3.0)}


class Misfit(Plain):
    tuning_grid = {"gian": (1.0,)}


class Shapeless(Plain):
    tuning_grid = 3


class Single(Plain):
    tuning_grid = {"gain": 2.0}


class Needy(Plain):
    def __init__(self, n_bits, depth):
        super().__init__(n_bits)


class Nothing:
    pass


VALUE = 3
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "theirs_" + tmp_path.name.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(MODULE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def text_of(folder: Path) -> str:
    sections = sections_of(Results.read(folder))
    return "\n".join(as_markdown(t) for each in sections for p in each.parts for t in p.tables)


@pytest.mark.slow
def test_brought_methods_run_beside_ours_in_several_processes_and_are_reported(
    theirs: str, toy: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    methods = [f"{theirs}:Plain+gain=2", f"{theirs}:CodesOnly", f"{theirs}:Keeper", "lemon"]
    grid = Grid([toy], ["first", "second"], [*methods, f"{theirs}:Dots"], [16])
    finished = run(grid.tasks(), tmp_path / "out", jobs=2)
    assert [each.row["error"] for each in finished if "error" in each.row] == []
    results = Results.read(tmp_path / "out")
    kinds = {r["method"]: results.facts_of(r)["method"]["kind"] for r in results.rows.values()}
    assert kinds[f"{theirs}:Keeper"] == "batch" and kinds[f"{theirs}:Dots"] == "ranker"
    assert finished[0].row["parameters"] == {"gain": 2}
    assert finished[0].row["model_bytes"] == 20 * 16 * 8
    # the report needs no module any more
    sys.modules.pop(theirs, None)
    (tmp_path / f"{theirs}.py").unlink()
    text = text_of(tmp_path / "out")
    assert "Plain, gain=2" in text and "CodesOnly" in text and "Dots" in text and "LEMON" in text


def test_a_method_of_their_own_projects_as_their_class_does(theirs: str, toy: str) -> None:
    data = load_dataset(toy)
    X, y = data.take(np.arange(40)), data.labels(np.arange(40))
    plain = method_named(f"{theirs}:Plain").model(16, 5, data, {})
    codes = method_named(f"{theirs}:CodesOnly").model(16, 5, data, {})
    cls = getattr(sys.modules[theirs], "Plain")  # noqa: B009
    truth = cls(16, random_state=5).partial_fit(X, y)
    plain.partial_fit(X, y)
    codes.partial_fit(X, y)
    assert np.allclose(plain.project(X), truth.project(X), rtol=1e-5)  # type: ignore[union-attr]
    assert np.array_equal(plain.codes_, truth.codes_)  # type: ignore[union-attr]
    assert set(np.unique(codes.project(X))) == {-1.0, 1.0}  # type: ignore[union-attr]
    assert np.array_equal(codes.encode(X), codes.codes_)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{m}:Nothing", "is not a method: expected partial_fit"),
        ("{m}:VALUE", "is int, expected a class"),
        ("{m}:Absent", "has no 'Absent'"),
        ("absent_module:Thing", "the module cannot be imported .*; install its package"),
        (":Thing", "is not an import path"),
        ("{m}:Needy", "give depth a value"),
        ("nobody-knows-it", "unknown method .* or an import path such as"),
    ],
)
def test_what_cannot_be_brought_is_said(theirs: str, toy: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        method_named(name.format(m=theirs)).model(16, 0, load_dataset(toy), {})


def test_wrong_codes_of_theirs_fail_their_task_alone(theirs: str, toy: str, tmp_path: Path) -> None:
    tasks = Grid([toy], ["first"], [f"{theirs}:Wrong", "lemon"], [16]).tasks()
    wrong, ours = run(tasks, tmp_path / "out")
    assert wrong.status == "failed" and "codes_ is float64" in wrong.row["error"]
    assert ours.status == "computed"


def test_a_task_is_repeated_when_the_file_of_the_method_has_changed(
    theirs: str, toy: str, tmp_path: Path
) -> None:
    tasks = Grid([toy], ["first"], [f"{theirs}:Plain"], [16]).tasks()
    events: list[Event] = []

    def status() -> str:
        (finished,) = run(tasks, tmp_path / "out", listener=events.append)
        methods._brought.cache_clear()
        return finished.status

    path = Path(sys.modules[theirs].__file__ or "")
    assert [status(), status()] == ["computed", "kept"]
    path.write_text(f"{path.read_text('utf-8')}\nVERSION = 2\n", "utf-8")
    assert [status(), status()] == ["computed", "kept"]
    (notice,) = (each.text for each in events if isinstance(each, Notice))
    assert "was made from another version of the method's file; put aside" in notice


def test_their_grid_is_tuned(theirs: str, toy: str, tmp_path: Path) -> None:
    tasks = Grid([toy], ["first"], [f"{theirs}:Tunable"], [16], kind="tuning").tasks()
    (found,) = run(tasks, tmp_path)
    tried = {trial["parameters"].get("gain", 1.0) for trial in found.row["trials"]}
    assert len(found.row["trials"]) == 9 and tried == {1.0, 2.0, 3.0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Misfit", "tuning_grid has 'gian', which is no parameter; known are gain, scaling"),
        ("Shapeless", "tuning_grid is 3, expected a dict"),
        ("Single", "gain=2.0, expected a list of numbers"),
    ],
)
def test_a_grid_of_theirs_that_cannot_be_tuned_is_refused(
    theirs: str, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        grid_of(f"{theirs}:{name}")


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_exception_of_theirs_fails_their_task_alone_and_its_traceback_is_told(
    theirs: str, toy: str, tmp_path: Path, jobs: int
) -> None:
    tasks = Grid([toy], ["first"], [f"{theirs}:Crash", "lemon"], [16]).tasks()
    events: list[Event] = []
    crash, ours = run(tasks, tmp_path / "out", jobs=jobs, listener=events.append)
    assert crash.status == "failed" and crash.row["error"].startswith("ValueError: matmul: ")
    assert "\n" not in crash.row["error"]
    assert ours.status == "computed"
    (notice,) = (each.text for each in events if isinstance(each, Notice))
    assert "np.ones((2, 3)) @" in notice and notice.count("File ") == 1


def test_entry_points_are_methods_by_name(
    theirs: str, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("their-hash", f"{theirs}:Plain", "oasis.methods")
    monkeypatch.setattr(brought, "entry_points", lambda group: [entry] * (group == "oasis.methods"))
    method, parameters = parse_variant("their-hash+gain=0.5")
    assert method.title == "their-hash" and parameters == (("gain", 0.5),)
    assert method.model(16, 0, load_dataset(toy), dict(parameters)).partial_fit is not None


# --- scaling -----------------------------------------------------------------------------------


def test_column_scale_is_that_of_the_rows_that_are_there() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * [1, 10, 100, 0] + 3
    X[7] = 0
    there = np.delete(X, 7, axis=0)
    scaled = ColumnScale.of(X).apply(X)
    expected = (there - there.mean(axis=0)) / np.where(
        there.std(axis=0) > 1e-9, there.std(axis=0), 1
    )
    assert np.allclose(np.delete(scaled, 7, axis=0), expected, atol=1e-4)
    assert (scaled[7] == 0).all()
    sparse = sp.csr_array(np.where(rng.random((50, 4)) < 0.3, X, 0))
    made = ColumnScale.of(sparse).apply(sparse)
    assert isinstance(made, sp.csr_array) and made.nnz <= sparse.nnz
    filled = sparse.toarray()[sparse.toarray().any(axis=1)]
    factor = np.where(filled.std(axis=0) > 1e-9, 1 / np.maximum(filled.std(axis=0), 1e-12), 0)
    assert np.allclose(made.toarray(), sparse.toarray() * factor, rtol=1e-4)


@pytest.mark.parametrize("scaling", ["unit", "zscore"])
def test_scaled_hasher_equals_the_hasher_on_scaled_features(toy: str, scaling: str) -> None:
    data = load_dataset(toy)
    chunks = [np.arange(0, 60), np.arange(60, 110)]
    scaled = method_named("lemon").model(16, 3, data, {"scaling": scaling})
    plain = LEMON(16, random_state=3)
    first = data.take(chunks[0])
    assert isinstance(scaled, ScaledHasher)

    def by_hand(X: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if scaling == "unit":
            return {name: v / np.linalg.norm(v, axis=1, keepdims=True) for name, v in X.items()}
        return {name: (v - first[name].mean(0)) / first[name].std(0) for name, v in X.items()}

    for rows in chunks:
        scaled.partial_fit(data.take(rows), data.labels(rows))
        plain.partial_fit(by_hand(data.take(rows)), data.labels(rows))
        assert np.mean(scaled.codes_ == plain.codes_) > 0.98
    query = data.take(np.arange(110, 150))
    assert np.allclose(scaled.project(query), plain.project(by_hand(query)), atol=1e-3)
    with pytest.raises(InputError, match="scaling=half of 'lemon': expected one of raw, unit"):
        parse_variant("lemon+scaling=half")
