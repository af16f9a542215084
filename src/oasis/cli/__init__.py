"""The command line: commands, no logic. One module a family of commands."""

from oasis.cli.app import main

__all__ = ["main"]
