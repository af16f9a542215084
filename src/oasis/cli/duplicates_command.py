"""``oasis duplicates``."""

from __future__ import annotations

from typing import Annotated

import typer

from oasis.cli.console import people, print_json
from oasis.cli.options import AsJson, Existing
from oasis.errors import InputError

_SHOWN = 20


def duplicates(
    collection: Existing,
    delete_all_but_first: Annotated[
        bool,
        typer.Option(
            "--delete-all-but-first", help="Keep the oldest item of each group, after a question."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without the question.")] = False,
    as_json: AsJson = False,
) -> None:
    """List groups of items that repeat each other, by fingerprints of their features.

    A picture that was saved again, or made a little smaller, brighter or darker, repeats another.

    Example: oasis duplicates photos.oasis --delete-all-but-first
    """
    from oasis.cli.opening import open_directory
    from oasis.cli.progress import progress_of
    from oasis.collection import Collection

    with (
        open_directory(collection) as opened,
        progress_of("comparing", len(opened)) as advance,
    ):
        groups = opened.duplicates(advance)
    extra = [each for group in groups for each in group[1:]]
    deleted = 0
    if delete_all_but_first and extra:
        if not yes:
            if as_json:
                raise InputError("--delete-all-but-first asks; with --json it needs --yes")
            _show(groups)
            typer.confirm(f"delete {len(extra):,} items for ever?", abort=True)
        with Collection.open(collection) as writer:
            deleted = writer.delete(extra)
    if as_json:
        print_json({"groups": groups, "deleted": deleted})
    elif deleted:
        people().print(f"{deleted:,} deleted; the first of {len(groups):,} groups are kept")
    else:
        _show(groups)


def _show(groups: list[list[str | int]]) -> None:
    for group in groups[:_SHOWN]:
        people().print(" = ".join(map(str, group)), markup=False, soft_wrap=True)
    if len(groups) > _SHOWN:
        people().print(f"... and {len(groups) - _SHOWN:,} more groups")
    n = sum(len(group) - 1 for group in groups)
    people().print(f"{len(groups):,} groups, {n:,} items beyond the first of each")
