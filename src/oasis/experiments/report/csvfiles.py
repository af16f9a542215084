"""Tables of a report, for programs: CSV files in long form."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from oasis.experiments.measure.cells import Results
from oasis.experiments.measure.queries import Difference

_QUERIES = ("new", "old", "all")


def last_round_csv(results: Results) -> str:
    """Return every figure of the last round in long form, with the paper's figure."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for queries in _QUERIES:
            chance = cell.last(queries, "chance")
            for figure in ("expected", "stable", "asymmetric"):
                estimate = cell.last(queries, figure)
                if estimate is None or chance is None:
                    continue
                is_papers = queries == "new" and figure == "stable"
                published = cell.published() if is_papers else None
                rows.append(
                    [
                        *(dataset, setting, variant, _number(n_bits), queries, figure),
                        *(_number(estimate.mean), _number(estimate.spread), estimate.n_seeds),
                        *(_number(chance.mean), _number(published)),
                        "" if published is None else _number(estimate.mean - published),
                    ]
                )
    header = "dataset setting method bits queries measure map spread seeds chance paper difference"
    return to_csv(header.split(), rows)


def by_round_csv(results: Results) -> str:
    """Return MAP and training time round by round, in long form."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        columns = [
            cell.by_round(queries, figure)
            for queries in _QUERIES
            for figure in ("expected", "chance")
        ]
        for t, number in enumerate(cell.round_numbers()):
            seconds = cell.estimate(lambda s, t=t: s.rounds[t].train_seconds)  # type: ignore[misc]
            figures = [
                _number(None if each is None else each.mean)
                for each in (column[t] for column in columns)
            ]
            rows.append(
                [
                    *(dataset, setting, variant, _number(n_bits), number),
                    *(cell.summaries[0].rounds[t].n_train, cell.summaries[0].rounds[t].n_base),
                    *figures,
                    _number(None if seconds is None else seconds.mean),
                ]
            )
    header = (
        "dataset setting method bits round n_train n_base new new_chance old old_chance all "
        "all_chance train_seconds"
    )
    return to_csv(header.split(), rows)


def forgetting_csv(results: Results) -> str:
    """Return, for each round with queries of its own, their MAP right after it and now."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for i in range(len(cell.summaries[0].history)):
            after = cell.estimate(lambda s, i=i: s.history[i][i])  # type: ignore[misc]
            now = cell.estimate(lambda s, i=i: s.history[-1][i])  # type: ignore[misc]
            if after is not None and now is not None:
                values = after.mean, now.mean, after.mean - now.mean
                rows.append(
                    [dataset, setting, variant, _number(n_bits), i + 1, *map(_number, values)]
                )
    header = "dataset setting method bits queries_of right_after now lost"
    return to_csv(header.split(), rows)


def differences_csv(
    compared: Mapping[str, Mapping[str, tuple[str, Mapping[str, Difference]]]],
) -> str:
    """Return paired differences: data set -> setting -> the best method and its differences."""
    rows = [
        [
            *(dataset, setting, best, variant),
            *(_number(value) for value in (each.mean, each.low, each.high)),
            *(each.verdict, each.n_queries, each.n_seeds),
        ]
        for dataset, settings in compared.items()
        for setting, (best, others) in settings.items()
        for variant, each in others.items()
    ]
    header = "dataset setting best other difference low high verdict pairs seeds"
    return to_csv(header.split(), rows)


def search_csv(results: Results) -> str:
    """Return figures of searches and codes at the last round, run by run."""
    rows = []
    for (dataset, setting, variant, n_bits), cell in results.cells.items():
        for each in cell.summaries:
            if each.lookup is not None:
                rows.append(
                    [
                        *(dataset, setting, variant, _number(n_bits), each.run.seed),
                        *(_number(value) for value in vars(each.lookup).values()),
                        *(each.last.n_base, _number(each.train_seconds)),
                        *(_number(each.query_seconds), _number(each.model_bytes)),
                    ]
                )
    header = (
        "dataset setting method bits seed k map_at_k ndcg_at_k precision_at_2 tied n_distinct "
        "n_constant n_base train_seconds query_seconds model_bytes"
    )
    return to_csv(header.split(), rows)


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return stream.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
