"""Inquiries: keys, files, resuming, several processes, and what a report makes of them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oasis import OASIS
from oasis.errors import FormatError, InputError
from oasis.experiments.beyond import answers, inquiries
from oasis.experiments.beyond.answers import Answer
from oasis.experiments.beyond.grid import Done, inquire
from oasis.experiments.beyond.inquiries import (
    Inquiry,
    Outcome,
    Plan,
    carry_out,
    read_outcome,
    write_outcome,
)
from oasis.experiments.beyond.lines import groups_of
from oasis.experiments.beyond.material import Material, load_material
from oasis.experiments.beyond.protocols import Sizes
from oasis.experiments.report.beyond import (
    beyond_sections,
    empty_table,
    glance_table,
    measure_table,
    write_beyond,
)
from oasis.experiments.report.report import write_report

SMALL = Sizes(n_rounds=2, chunk=100, n_queries=20, draws=1, across=(20, 40))
DATA = "synthetic@400"


@cache
def material() -> Material:
    return load_material(DATA)


def plan(*methods: str, **changes: Any) -> Plan:
    made = Plan([DATA], ["own"], methods, [16], 1, SMALL)
    return replace(made, **changes)


# ---------------------------------------------------------------- files


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    inquiry = Inquiry(DATA, "own", "itq", 16, 0, "never-labelled", 0)
    outcome = carry_out(inquiry, material(), SMALL)
    write_outcome(tmp_path / "a" / "b.json", outcome)
    again = read_outcome(tmp_path / "a" / "b.json")
    assert again.as_dict() == json.loads(json.dumps(outcome.as_dict()))
    assert again.inquiry == inquiry
    assert again.answers["default"]["word"].empty == "does not answer names"


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text, reason in (
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "not a result of oasis beyond"),
        ('{"format": "oasis-beyond", "version": 99}', "version 99, this oasis reads 1"),
        ('{"format": "oasis-beyond", "version": 1}', "is damaged"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(FormatError, match=reason):
            read_outcome(path)


def test_inquiries_are_kept_and_damaged_ones_are_moved_aside(tmp_path: Path) -> None:
    first = inquire(plan("float-cosine"), tmp_path)
    assert {each.status for each in first} == {"computed"}
    again = inquire(plan("float-cosine"), tmp_path)
    assert {each.status for each in again} == {"kept"}
    assert [each.outcome.as_dict() for each in again] == [
        json.loads(json.dumps(each.outcome.as_dict())) for each in first
    ]
    victim = tmp_path / "beyond" / f"{first[0].outcome.inquiry.key}.json"
    victim.write_text(victim.read_text("utf-8")[:100], "utf-8")
    told: list[Done] = []
    repaired = inquire(plan("float-cosine"), tmp_path, listener=told.append)
    assert [each.status for each in repaired].count("computed") == 1
    assert "is damaged" in repaired[0].notice and told == repaired
    assert victim.with_name(victim.name + ".aside-1").exists()


def test_other_sizes_are_other_results(tmp_path: Path) -> None:
    inquire(plan("itq"), tmp_path)
    other = inquire(plan("itq", sizes=replace(SMALL, n_queries=10)), tmp_path)
    assert {each.status for each in other} == {"computed"}
    assert all("made from another sizes" in each.notice for each in other)


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    one = inquire(plan("itq"), tmp_path / "one")
    two = inquire(plan("itq"), tmp_path / "two", jobs=2)
    for a, b in zip(one, two, strict=True):
        assert a.outcome.inquiry == b.outcome.inquiry
        assert a.outcome.answers == b.outcome.answers


def test_picks_are_checked_before_anything_runs(tmp_path: Path) -> None:
    for changes, reason in (
        ({"datasets": ["nothing"]}, "unknown data set 'nothing'"),
        ({"methods": ["nothing"]}, "unknown method 'nothing'"),
        ({"bits": [12]}, "multiple of 8"),
        ({"bits": []}, "no bits picked"),
        ({"features": ["image+"]}, "not a list of modalities"),
        ({"seeds": 0}, "seeds must be a positive integer"),
        ({"content": (2.0,)}, "content must be a weight from 0 to 1, got 2.0"),
    ):
        with pytest.raises(InputError, match=reason):
            plan("oasis", **changes)
    with pytest.raises(InputError, match="no modality 'sound'"):
        inquire(plan("oasis", features=["image+sound"]), tmp_path)
    with pytest.raises(InputError, match="jobs must be"):
        inquire(plan("oasis"), tmp_path, jobs=0)


def test_data_without_texts_have_no_meaning_and_say_so(tmp_path: Path) -> None:
    done = inquire(plan("itq", features=["image+meaning"]), tmp_path)
    assert all("texts of synthetic-coco79 are not known" in each.outcome.empty for each in done)


def test_a_method_that_cannot_take_the_data_is_empty_and_says_why() -> None:
    inquiry = Inquiry(DATA, "own", "thor", 16, 0, "labels", 0)
    many = replace(
        material().dataset,
        L=np.eye(200, dtype=np.uint8)[np.arange(400) % 200],
        classes=tuple(f"class {i}" for i in range(200)),
    )
    outcome = carry_out(inquiry, replace(material(), dataset=many, grades=None), SMALL)
    assert "can tell 128 classes apart" in outcome.empty and not outcome.answers


# ---------------------------------------------------------------- weights of content


class Weighed(OASIS):
    """A model whose content is noise: the more it weighs, the worse the answers."""

    def project(self, X: Any, content: float | None = None) -> Any:
        kind = super().project(X)
        noise = np.random.default_rng(0).standard_normal(kind.shape).astype(np.float32)
        weight = 0.5 if content is None else content
        return (1 - weight) * kind + weight * noise


def test_models_with_content_are_asked_at_several_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = partial(Weighed, content=8)
    assert answers.takes_content(weighed(16)) and not answers.takes_content(Blind(128))
    assert answers.takes_content(OASIS(128)) and not answers.takes_content(OASIS(64))
    entry = replace(inquiries.method_named("oasis"), make=weighed)
    monkeypatch.setattr(inquiries, "method_named", lambda name: entry)
    inquiry = Inquiry(DATA, "own", "oasis", 16, 0, "labels", 0)
    outcome = carry_out(inquiry, material(), SMALL, content=[0.25])
    assert list(outcome.answers) == ["default", "0", "1", "0.25"]
    found = [outcome.answers[w]["labels"].asymmetric or {} for w in ("0", "0.25", "1")]
    assert found[0]["map"] > found[1]["map"] > found[2]["map"]


class Blind(OASIS):
    """A model without content."""

    def project(self, X: Any) -> Any:
        return super().project(X)


# ---------------------------------------------------------------- the report


def outcome_of(
    method: str, kind: str, figures: dict[str, dict[str, float]], number: int = 0, **more: Any
) -> Outcome:
    """An outcome with made-up figures; chance is 0.1 throughout."""
    n_bits = None if method == "float-cosine" else 64
    asked = {
        name: Answer(None if n_bits is None else each, each, dict.fromkeys(each, 0.1))
        for name, each in figures.items()
    }
    inquiry = Inquiry("toy", "own", method, n_bits, 0, kind, number)
    return Outcome(inquiry, {}, {"default": asked}, **more)


def made_up() -> list[Outcome]:
    def item(value: float) -> dict[str, float]:
        return {"mrr": value, "first_1": value, "first_5": value, "first_10": value}

    found = []
    for method, by_label, otherwise in (
        ("lemon", 0.9, 0.1),
        ("itq", 0.3, 0.4),
        ("float-cosine", 0.4, 0.7),
    ):
        found += [
            outcome_of(method, "labels", {"labels": {"map": by_label}, "item": item(otherwise)}),
            outcome_of(method, "finer", {"coarse": {"map": 0.5}, "fine": {"map": otherwise}}),
            outcome_of(method, "never-labelled", {"never-labelled": {"map": otherwise}}),
            outcome_of(method, "never-labelled", {"never-labelled": {"map": otherwise / 2}}, 1),
            outcome_of(method, "across", {"across-1000": item(0.2)}),
        ]
    return found


def test_a_method_that_encodes_labels_wins_the_label_table_and_loses_this_one() -> None:
    (group,) = groups_of(made_up())
    table = glance_table(group)
    assert table.rows == (
        ("LEMON", "*0.900", "1", "-2%", "2"),
        ("float cosine", "0.400", "", "100%", ""),
        ("ITQ", "0.300", "2", "*49%", "1"),
    )
    # by hand: item and fine (.4-.1)/(.7-.1); never labelled, mean of two draws, (.3-.1)/(.525-.1)
    share = (0.3 / 0.6 + 0.3 / 0.6 + 0.2 / 0.425) / 3
    itq = next(line for line in group.lines if line.variant == "itq")
    assert group.beyond(itq) == pytest.approx(share)


def test_a_method_that_was_not_asked_everything_has_no_place_beyond() -> None:
    outcomes = [
        each
        for each in made_up()
        if (each.inquiry.method, each.inquiry.kind) != ("lemon", "never-labelled")
    ]
    (group,) = groups_of(outcomes)
    lemon = next(line for line in group.lines if line.variant == "lemon")
    assert group.beyond(lemon) is None
    assert ("LEMON", "*0.900", "1", "", "") in glance_table(group).rows


def test_what_a_method_cannot_answer_counts_nothing_beyond() -> None:
    empty = Answer(None, None, {"map": 0.1}, "no")
    outcomes = [
        replace(each, answers={"default": {"never-labelled": empty}})
        if (each.inquiry.method, each.inquiry.kind) == ("itq", "never-labelled")
        else each
        for each in made_up()
    ]
    (group,) = groups_of(outcomes)
    itq = next(line for line in group.lines if line.variant == "itq")
    assert group.beyond(itq) == pytest.approx((0.3 / 0.6 + 0.3 / 0.6 + 0) / 3)


def test_never_labelled_is_given_as_a_share_of_float_cosine_on_the_same_draws() -> None:
    (group,) = groups_of(made_up())
    table = measure_table(group, "asymmetric")
    at = table.header.index("of cosine")
    shares = {row[0]: row[at] for row in table.rows}
    assert shares == {"LEMON": "0.14", "ITQ": "0.57", "float cosine": "1.00", "chance": ""}
    assert "across 1,000 (first 10)" in table.header
    assert "float cosine" not in [row[0] for row in measure_table(group, "hamming").rows]


def test_reasons_of_empty_cells_are_told_once() -> None:
    empty = Answer(None, None, {}, "does not answer names")
    outcomes = [
        replace(each, answers={"default": {"word": empty}})
        for each in made_up()
        if (each.inquiry.method, each.inquiry.kind) == ("itq", "never-labelled")
    ]
    table = empty_table(groups_of(outcomes))
    assert table.rows == (("toy, own", "ITQ", "word", "does not answer names"),)


@pytest.mark.slow
def test_results_become_pages_and_a_section_of_the_report(tmp_path: Path) -> None:
    out = tmp_path / "results"
    inquire(plan("oasis", "itq", "float-cosine"), out)
    markdown, html = write_beyond(out)
    text = markdown.read_text("utf-8")
    assert "synthetic-coco79@400, 16 bits: labels, and beyond" in text
    assert "does not answer names" in text and "float cosine" in text
    assert "<table>" in html.read_text("utf-8")
    (section,) = beyond_sections(out)
    assert section.parts[0].drawings[0].png.startswith(b"\x89PNG")
    report = write_report(out, tmp_path / "report")
    assert "beyond the labels" in report.page.read_text("utf-8")
    assert "what codes tell apart" in report.markdown.read_text("utf-8")
