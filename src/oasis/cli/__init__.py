"""The command line: one file a command, which parses options and prints results."""

from oasis.cli.app import main

__all__ = ["main"]
