"""The reference of the command line, ``docs/cli.md``, made from the commands themselves.

``python -m oasis.cli.reference docs/cli.md`` writes it; a test sees that it is current.
"""

from __future__ import annotations

import sys
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
"""


def reference() -> str:
    """Return the reference in Markdown: every command with its arguments and options."""
    group: Any = typer.main.get_command(application())
    parts = [_START]
    for name, command in sorted(group.commands.items()):
        parts.append(f"## oasis {name}\n\n{_help(command.help or '')}\n")
        parts.append(_table(command.params))
    return "\n".join(parts)


def _help(text: str) -> str:
    """Return the help of a command as paragraphs, its example as code."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    return "\n\n".join(
        f"```sh\n{part.removeprefix('Example: ')}\n```" if part.startswith("Example: ") else part
        for part in paragraphs
    )


def _table(params: list[Any]) -> str:
    lines = ["| argument or option | meaning | if not given |", "|---|---|---|"]
    for param in params:
        if "--help" in param.opts:
            continue
        if param.param_type_name == "argument":
            spelled, default = f"`{param.metavar}`", "needed" if param.required else ""
        else:
            spelled = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
            spelled += f" {param.metavar}" if param.metavar else ""
            default = "needed" if param.required else _default(param.default)
        meaning = " ".join((param.help or "").split()).replace("|", "\\|")
        lines.append(f"| {spelled.replace('|', chr(92) + '|')} | {meaning} | {default} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"`{value}`"


def write(path: Path) -> None:
    """Write the reference to a file."""
    path.write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
