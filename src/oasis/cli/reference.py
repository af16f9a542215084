"""The reference of the command line, ``docs/cli.md``, made from the commands themselves.

``python -m oasis.cli.reference docs/cli.md`` writes it; a test sees that it is current.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import typer

from oasis.cli.app import application

_START = """\
# The command line

Made from the commands by `python -m oasis.cli.reference docs/cli.md`; do not edit.

Results go to standard output: tables for people, one JSON document with `--json`. Progress and
errors go to standard error. Exit codes: 0; 1 for an error, in one line; 2 for wrong usage.
`oasis COMMAND -h` shows what is below.

In brackets: what holds if an option is not given. Commands share these options:

"""

SHARED_BY = 2
"""An option that so many commands describe alike is described once, before all of them."""

Row = tuple[str, str]


def reference() -> str:
    """Return the reference in Markdown: every command with its arguments and options."""
    group: Any = typer.main.get_command(application())
    rows = {name: _rows(command.params) for name, command in sorted(group.commands.items())}
    uses = Counter(row for command in rows.values() for row in command)
    shared = {row: None for row, count in uses.items() if count >= SHARED_BY}
    parts = [_START + "".join(_line(row) for row in sorted(shared))]
    for name, command in rows.items():
        parts.append(f"## oasis {name}\n\n{_help(group.commands[name].help or '')}\n")
        also = ", ".join(_name(row) for row in command if row in shared)
        parts.append(
            "".join(_line(row) for row in command if row not in shared)
            + (f"- Also {also}.\n" if also else "")
        )
    return "\n".join(parts)


def _line(row: Row) -> str:
    return f"- {row[0]}: {row[1]}\n"


def _name(row: Row) -> str:
    return row[0].split(",")[0].split(" ")[0]


def _help(text: str) -> str:
    """Return the help of a command as paragraphs, its example as code."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return "\n\n".join(
        f"```sh\n{part.removeprefix('Example: ')}\n```" if part.startswith("Example: ") else part
        for part in paragraphs
    )


def _rows(params: list[Any]) -> list[Row]:
    """Return how each argument and option is spelled, and what it means."""
    rows = []
    for param in params:
        if "--help" in param.opts:
            continue
        if param.param_type_name == "argument":
            spelled, default = f"`{param.metavar}`", ""
        else:
            spelled = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
            spelled += f" {param.metavar}" if param.metavar else ""
            default = "" if param.required else _default(param.default)
        meaning = " ".join((param.help or "").split())
        rows.append((spelled, f"{meaning} ({default})" if default else meaning))
    return rows


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"`{value}`"


def write(path: Path) -> None:
    """Write the reference to a file."""
    path.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
