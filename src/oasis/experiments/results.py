"""Results: the one format of everything measured, ``<data set>.jsonl``.

The first line is a header, every other line the row of one task, sorted by key. The header lists
each fact that rows share once, by a checksum of it: data sets (with the checksums of their files),
environments (machine, versions, commit) and methods (parameters, inputs). A row names its facts
under ``of``, besides the task (``kind``, ``dataset``, ``setting``, ``method``, ``parameters``,
``n_bits``, ``seed``) and what was measured. A failed task has ``error`` instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import oasis
from oasis.errors import FormatError, InputError, NewerVersionError
from oasis.experiments.methods import METHODS, Method
from oasis.experiments.task import Row, module_of
from oasis.store import replacing

SECTIONS = {"data": "data", "method": "methods", "environment": "environments"}
"""Name in a row -> section of the header."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit the threads of linear algebra; read when it is loaded."""

_FORMAT, _VERSION = "oasis-results", 1
_PACKAGES = ("numpy", "scipy", "scikit-learn", "wordllama")


@dataclass
class Results:
    """The rows of a file, by key, and the facts that they share.

    Attributes
    ----------
    rows : key -> row
    facts : section -> checksum -> fact
    """

    rows: dict[str, Row] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read a file, or all files of a folder.

        Raises
        ------
        FormatError
            If a file is foreign, or a line of it is damaged.
        """
        if path.is_dir():
            paths = sorted(path.glob("*.jsonl"))
            if not paths:
                raise InputError(f"no results in {path}; expected a folder with .jsonl files")
            found = cls()
            for each in paths:
                found.add(cls.read(each))
            return found
        try:
            first, *lines = path.read_text("utf-8").splitlines() or [""]
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file of results") from error
        except UnicodeDecodeError as error:
            raise FormatError(f"{path} is not a file of results: {error}") from error
        header = _parsed(first)
        if header.get("format") != _FORMAT:
            raise FormatError(f"{path} is not a file of results")
        if header.get("version", 0) > _VERSION:
            raise NewerVersionError(f"{path} was written by a newer oasis; update to read it")
        found = cls(facts={name: dict(header.get(name, {})) for name in SECTIONS.values()})
        for number, line in enumerate(lines, 2):
            row = _parsed(line)
            of = row.get("of", {})
            known = all(of[n] in found.facts[f] for n, f in SECTIONS.items() if n in of)
            if not known or "key" not in row or "kind" not in row:
                raise FormatError(
                    f"{path} is damaged: line {number} is not a row; delete it, and repeat the "
                    "command that made the file"
                )
            found.rows[row["key"]] = row
        return found

    def add(self, other: Results) -> None:
        """Add the rows of another file; a row of the same key is replaced."""
        self.rows |= other.rows
        for section, facts in other.facts.items():
            self.facts.setdefault(section, {}).update(facts)

    def put(self, row: Row, facts: Mapping[str, Any]) -> None:
        """Add a row made from facts: ``data``, ``method`` and ``environment`` go to the header."""
        of = {}
        for name, value in facts.items():
            if name in SECTIONS:
                of[name] = checksum(value)
                self.facts.setdefault(SECTIONS[name], {})[of[name]] = value
            else:
                of[name] = value
        self.rows[row["key"]] = {**row, "of": of}

    def facts_of(self, row: Row) -> dict[str, Any]:
        """Return the facts of a row, looked up."""
        of = row.get("of", {})
        return {k: self.facts[SECTIONS[k]][v] if k in SECTIONS else v for k, v in of.items()}

    def write(self, path: Path) -> None:
        """Write the file, atomically; facts that no row has are left out."""
        used = {
            name: {row.get("of", {}).get(name) for row in self.rows.values()} for name in SECTIONS
        }
        header: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
        for name, section in SECTIONS.items():
            facts = self.facts.get(section, {})
            header[section] = {key: facts[key] for key in sorted(facts) if key in used[name]}
        lines = [json.dumps(each) for each in (header, *map(self.rows.get, sorted(self.rows)))]
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text("\n".join(lines) + "\n", "utf-8")

    def of_kind(self, kind: str) -> list[Row]:
        """Return the rows of one kind that did not fail."""
        return [row for row in self.rows.values() if row["kind"] == kind and "error" not in row]


def rounded(value: Any, digits: int = 6) -> Any:
    """Return plain values with floats of so many significant digits.

    >>> rounded({"map": 1 / 3, "n": 2})
    {'map': 0.333333, 'n': 2}
    """
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {key: rounded(each, digits) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [rounded(each, digits) for each in value]
    return value


def checksum(fact: Any) -> str:
    """Return the first digits of the SHA-256 of plain values.

    >>> checksum({"b": 1, "a": 2}) == checksum({"a": 2, "b": 1})
    True
    """
    text = json.dumps(fact, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def outdated(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """Return which fact a kept row has from another version; empty if none.

    Facts of a method are compared as far as both are recorded, without the title.
    """
    wanted = json.loads(json.dumps(wanted))  # in the form in which it is recorded
    for name, value in wanted.items():
        if name == "environment":
            continue
        found = kept.get(name)
        if name == "method" and isinstance(found, dict):
            both = (set(value) & set(found) | {"source_sha256"}) - {"title"}
            value, found = ({k: each.get(k) for k in both} for each in (value, found))
            if value.pop("source_sha256") != found.pop("source_sha256"):
                return "version of the method's file"
        if value != found:
            return {"data": "data set"}.get(name, name)
    return ""


def environment() -> dict[str, Any]:
    """Return the machine, the versions and the commit that a row was computed with.

    >>> sorted(environment())
    ['commit', 'machine', 'versions']
    """
    cores = os.cpu_count() or 1
    limits = [os.environ[name] for name in THREAD_VARIABLES if name in os.environ]
    machine = {
        "processor": _processor(),
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": int(limits[0]) if limits and limits[0].isdigit() else cores,
    }
    versions = {"python": platform.python_version(), "oasis": oasis.__version__}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {"machine": machine, "versions": versions, "commit": _commit()}


@dataclass(frozen=True)
class Differing:
    """A cell that two files have with other values; None where a file lacks it."""

    key: str
    figure: str
    old: float | None
    new: float | None
    tolerance: float

    def __str__(self) -> str:
        old, new = ("none" if each is None else f"{each:.5f}" for each in (self.old, self.new))
        return f"{self.key}  {self.figure}: {old}, now {new} (tolerance {self.tolerance:g})"


def compare(old: Results, new: Results) -> list[Differing]:
    """Return the cells that differ by more than the tolerance of their method (`Method.tolerance`).

    Compared are the rows of ``old``; a cell that ``new`` lacks, or a task that failed, differs.
    """
    return list(_differing(old.rows.values(), new.rows))


def _differing(old: Iterable[Row], new: Mapping[str, Row]) -> Iterator[Differing]:
    for row in old:
        method: Method | None = METHODS.get(row["method"])
        tolerance = Method.tolerance if method is None else method.tolerance
        now = new.get(row["key"], {"error": "there is none"})
        if "error" in row:
            continue
        cells = module_of(row["kind"]).cells
        found = {} if "error" in now else cells(now)
        for figure, value in cells(row).items():
            other = found.get(figure)
            if other is None or abs(other - value) > tolerance:
                yield Differing(row["key"], figure, value, other, tolerance)


def _parsed(line: str) -> Row:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


@cache
def _commit() -> str:
    """Return the commit of the source tree; empty for an installed package."""
    command: Sequence[str] = ("git", "rev-parse", "--short=12", "HEAD")
    try:
        done = subprocess.run(
            command, cwd=Path(oasis.__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:  # there is no git
        return ""
    return done.stdout.strip()
