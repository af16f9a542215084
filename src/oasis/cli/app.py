"""The application: its commands, and how errors are printed.

A warning of ours becomes a note. Exit codes: 0, 1 (a clear one-line error on standard error), 2
(usage).
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

import oasis
from oasis.cli.console import warnings_as_notes
from oasis.cli.demo_command import demo
from oasis.cli.files_command import backup, check, export, restore
from oasis.cli.info_command import info
from oasis.cli.ingest_command import ingest
from oasis.cli.items_command import delete, duplicates, next_items, relabel, update
from oasis.cli.report_command import evaluate, report
from oasis.cli.search_command import search
from oasis.cli.serve_command import serve
from oasis.cli.study_command import beyond, reproduce, scenarios, tune
from oasis.errors import OasisError

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "ingest": ingest,
    "search": search,
    "update": update,
    "relabel": relabel,
    "delete": delete,
    "duplicates": duplicates,
    "next": next_items,
    "info": info,
    "export": export,
    "check": check,
    "backup": backup,
    "restore": restore,
    "serve": serve,
    "reproduce": reproduce,
    "tune": tune,
    "report": report,
    "evaluate": evaluate,
    "scenarios": scenarios,
    "beyond": beyond,
}
"""Every command by its name, in the order of the help."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"oasis {oasis.__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with some of the commands; typer builds all options of each."""
    app = typer.Typer(
        name="oasis",
        help="Online multi-modal hashing: short binary codes learned from a stream.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: importing what draws it takes as long as all the rest
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in names:
        app.command(name)(COMMANDS[name])
    return app


def main() -> None:
    """Run the command line; errors that have a name become one line and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that lacks a character gets a question mark, not an error
            stream.reconfigure(errors="replace")
    asked = [name for name in sys.argv[1:2] if name in COMMANDS]
    try:
        with warnings_as_notes():
            application(asked or COMMANDS)()
    except (OasisError, OSError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        sys.exit(1)
