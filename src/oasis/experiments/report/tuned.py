"""The trials and the chosen parameters of each tuned method, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from oasis.experiments.measure.cells import title_of
from oasis.experiments.report.table import Table
from oasis.experiments.tuning import TuningRecord


def tuning_table(records: Sequence[TuningRecord], dataset: str) -> Table:
    """Return the records of a data set as a table; empty if nothing was tuned."""
    own = [record for record in records if record.dataset == dataset]
    sizes = sorted({(record.n_learned, record.n_queries) for record in own})
    parts = ", ".join(f"{learned:,} and {asked:,}" for learned, asked in sizes)
    return Table(
        "Tuning",
        "MAP by Hamming distance of validation queries: samples of the first rounds that are not "
        f"queries of these tables. Samples for learning and for queries: {parts}. The first trial "
        "has the published parameters; parameters that are not named are the published ones.",
        (
            *("setting", "method", "bits", "chosen", "trials", "failed"),
            *("published", "best", "chance"),
        ),
        tuple(
            (
                record.setting,
                title_of(record.method),
                str(record.n_bits),
                ", ".join(f"{name}={value}" for name, value in record.chosen.parameters)
                or "as published",
                str(len(record.trials)),
                str(sum(trial.map is None for trial in record.trials)),
                *(
                    "" if each.map is None else f"{each.map:.3f}"
                    for each in (record.published, record.chosen)
                ),
                f"{record.chance:.3f}",
            )
            for record in own
        ),
        n_names=4,
    )
