"""Evaluate codes that were made elsewhere by every measure, and store them with other results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oasis.experiments.grid import RAW
from oasis.experiments.measure.measures import measure
from oasis.experiments.measure.queries import QUERIES, write_queries
from oasis.experiments.measure.summaries import FOLDER, Summary, file_sha256, write_summary
from oasis.experiments.report.table import Table
from oasis.experiments.run.given import read_given
from oasis.experiments.run.results import write_result


def evaluate(
    path: Path,
    mapping: Mapping[str, tuple[str, ...]] | None = None,
    *,
    method: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
    out: Path | None = None,
) -> Summary:
    """Measure the codes or scores of a file; `oasis.experiments.run.given` describes its layout.

    Parameters
    ----------
    out : a results folder, in which raw result, summary and scores per query are stored, so that
        `oasis.experiments.report.report.write_report` includes them

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = np.eye(3, dtype=np.uint8)[rng.integers(3, size=60)]
    >>> codes = labels @ rng.standard_normal((3, 16)) + 0.1 * rng.standard_normal((60, 16))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/mine.npz", base_codes=codes[10:], query_codes=codes[:10],
    ...              base_labels=labels[10:], query_labels=labels[:10])
    ...     summary = evaluate(Path(folder) / "mine.npz")
    >>> summary.run.method, summary.last.all.expected > 0.9
    ('mine', True)
    """
    raw = read_given(path, mapping, method=method, dataset=dataset, seed=seed)
    if out is None:
        return measure(raw, file_sha256(path))[0]
    raw_path = out / RAW / f"{raw.run.key}.npz"
    write_result(raw_path, raw)
    summary, scores = measure(raw, file_sha256(raw_path))
    write_queries(out / QUERIES / f"{raw.run.key}.npz", scores)
    write_summary(out / FOLDER / f"{raw.run.key}.json", summary)
    return summary


def evaluation_table(summary: Summary) -> Table:
    """Return the measures of one file as a table of two columns."""
    measured = summary.last.all
    rows: list[tuple[str, str]] = []
    if measured is not None:
        rows += [
            ("queries", f"{measured.n:,}"),
            ("items", f"{summary.last.n_base:,}"),
            ("MAP, expected ties", f"{measured.expected:.4f}"),
        ]
        rows += [] if measured.stable is None else [("MAP, older first", f"{measured.stable:.4f}")]
        if measured.asymmetric is not None:
            rows.append(("MAP by projections", f"{measured.asymmetric:.4f}"))
        rows.append(("chance", f"{measured.chance:.4f}"))
    found = summary.lookup
    if found is not None:
        rows += [
            (f"MAP@{found.k}", f"{found.map_at_k:.4f}"),
            (f"nDCG@{found.k}", f"{found.ndcg_at_k:.4f}"),
            ("precision within radius 2", f"{found.precision_at_2:.4f}"),
            ("distinct codes", f"{found.n_distinct:,}"),
            ("constant bits", f"{found.n_constant} of {summary.run.n_bits}"),
            (f"queries tied at {found.k}", f"{found.tied:.1%}"),
        ]
    length = f", {summary.run.n_bits} bits" if summary.run.n_bits else ""
    return Table(f"{summary.run.method}{length}", "", ("measure", "value"), tuple(rows), n_names=1)
