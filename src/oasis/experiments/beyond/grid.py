"""Execute many inquiries in several processes; valid results of earlier calls are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from oasis.errors import FormatError, InputError, OasisError
from oasis.experiments.beyond.inquiries import (
    FOLDER,
    Inquiry,
    Outcome,
    Plan,
    carry_out,
    describe,
    read_outcome,
    weight_name,
    write_outcome,
)
from oasis.experiments.beyond.material import Material, NoTextsError, load_material
from oasis.experiments.beyond.protocols import Sizes
from oasis.experiments.grid import put_aside
from oasis.experiments.run.workers import warn_again, with_warnings, worker_processes


@dataclass(frozen=True)
class Done:
    """An inquiry is finished: computed now, or kept from an earlier call.

    ``notice`` is a message for the user, such as that a damaged file was moved aside.
    """

    outcome: Outcome
    status: Literal["computed", "kept"]
    notice: str = ""


Listener = Callable[[Done], None]


def inquire(
    plan: Plan,
    out: Path,
    *,
    data: Path | None = None,
    jobs: int = 1,
    listener: Listener | None = None,
) -> list[Done]:
    """Execute a plan into a results folder; return the outcome of each inquiry, in order.

    An existing result is kept if it was made from the same data, sizes and method, and has all
    weights of content of the plan. A damaged or outdated one is moved aside. If a data set has no
    texts for the modality ``meaning``, nothing is written.

    Parameters
    ----------
    out : results folder; created if it does not exist
    data : folder of data files
    jobs : processes; each gets its share of the cores for linear algebra
    listener : called for each finished inquiry, in this process
    """
    inquiries = plan.inquiries()
    keys = [each.key for each in inquiries]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"two inquiries have the key {twice}; rename one of the files")
    if jobs < 1:
        raise InputError(f"jobs must be a positive integer, got {jobs}")
    tell = listener or (lambda done: None)
    done: dict[Inquiry, Done] = {}
    if jobs == 1:
        try:
            for each in inquiries:
                done[each] = _ensure(each, plan.sizes, plan.content, out, data)
                tell(done[each])
        finally:
            _material.cache_clear()  # the file may have changed by the next call
    else:
        for result in _in_processes(inquiries, plan, out, data, jobs, tell):
            done[result.outcome.inquiry] = result
    return [done[each] for each in inquiries]


def _ensure(
    inquiry: Inquiry, sizes: Sizes, content: Sequence[float], out: Path, data: Path | None
) -> Done:
    path = out / FOLDER / f"{inquiry.key}.json"
    material = _material(inquiry.dataset, data, inquiry.features)
    if isinstance(material, NoTextsError):
        return Done(Outcome(inquiry, {}, empty=str(material)), "computed", str(material))
    notice = ""
    if path.exists():
        try:
            kept = read_outcome(path)
            reason = _outdated(kept, inquiry, material, sizes)
            if not reason and _has_weights(kept, content):
                return Done(kept, "kept")
        except FormatError as error:
            reason = str(error)
        if reason:
            notice = f"{reason}; moved to {put_aside(path).name}, and run again"
    outcome = carry_out(inquiry, material, sizes, content)
    write_outcome(path, outcome)
    return Done(outcome, "computed", notice)


def _outdated(kept: Outcome, inquiry: Inquiry, material: Material, sizes: Sizes) -> str:
    """Return why a file is outdated; empty if it is not."""
    wanted = json.loads(json.dumps(describe(inquiry, material, sizes)))
    if kept.inquiry.as_dict() != inquiry.as_dict():
        return f"{inquiry.key} holds another inquiry"
    for name, value in wanted.items():
        if kept.about.get(name) != value:
            return f"{inquiry.key} was made from another {name}"
    return ""


def _has_weights(kept: Outcome, content: Sequence[float]) -> bool:
    # a model without content, and an empty outcome, has no weights to ask for
    has = set(kept.answers)
    return len(has) < 2 or has >= {weight_name(weight) for weight in content}


@lru_cache(maxsize=1)
def _material(dataset: str, folder: Path | None, features: str) -> Material | NoTextsError:
    try:
        return load_material(dataset, folder, features)
    except NoTextsError as error:
        return error


def _in_processes(
    inquiries: Sequence[Inquiry],
    plan: Plan,
    out: Path,
    data: Path | None,
    jobs: int,
    tell: Listener,
) -> list[Done]:
    found: list[Done] = []
    try:
        with worker_processes(jobs) as executor:
            futures = [
                executor.submit(with_warnings, _ensure, each, plan.sizes, plan.content, out, data)
                for each in inquiries
            ]
            for future in as_completed(futures):
                done, warned = future.result()
                warn_again(warned)
                found.append(done)
                tell(done)
    except BrokenProcessPool as error:
        raise OasisError(
            "a process died during an inquiry, perhaps out of memory; repeat the command with "
            "fewer jobs to resume"
        ) from error
    return found
