"""Ids as people write them on a command line; near ones are suggested for one that is unknown."""

from __future__ import annotations

import difflib
import string
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oasis.collection.conditions import stored_ids
from oasis.errors import UnknownIdError
from oasis.items.folder import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from oasis.client import Client
    from oasis.collection import Collection
    from oasis.collection.records import Id

_LETTERS = string.ascii_lowercase + "-_."
_LONGEST = 40
_AT_ONCE = 256
_SHOWN = 3


def asked_ids(opened: Collection | Client, texts: Iterable[str]) -> list[Id]:
    """Return the ids that texts mean, as `stored_ids` does.

    One that no item has raises `UnknownIdError` here if near ones are there; otherwise it is left
    to the caller to refuse it.
    """
    ids = stored_ids(opened, texts)
    known = opened.known(ids)
    for each in ids:
        if each not in known and (near := _near(opened, str(each))):
            raise UnknownIdError(
                f"no item has the id {each!r}; did you mean {' or '.join(map(repr, near))}?"
            )
    return ids


def _near(opened: Collection | Client, text: str) -> list[str]:
    """Return the ids nearest to a text that is none, at most 3.

    They are looked up, not searched for: about 60 lookups per character, and none of a text of
    more than 40 characters.
    """
    if len(text) > _LONGEST:
        return []
    candidates = [each for each in dict.fromkeys(_variants(text)) if each]
    found: set[str] = set()
    for start in range(0, len(candidates), _AT_ONCE):
        found.update(map(str, opened.known(candidates[start : start + _AT_ONCE])))
    return difflib.get_close_matches(text, sorted(found), n=_SHOWN, cutoff=0)


def _variants(text: str) -> Iterator[str]:
    """Yield texts that someone may have meant: one slip of the keyboard, or another file name.

    Digits stay, because another number is mostly another item.

    >>> "bagel.jpg" in set(_variants("bagle.jpg")), "b.jpg" in set(_variants("photos/b"))
    (True, True)
    """
    for at, letter in enumerate(text):
        before, after = text[:at], text[at + 1 :]
        for other in _LETTERS:
            yield f"{before}{other}{letter}{after}"
        if not letter.isdigit():
            yield before + after
            yield from (f"{before}{other}{after}" for other in _LETTERS)
            if after and not after[0].isdigit():
                yield f"{before}{after[0]}{letter}{after[1:]}"
    yield from (text + other for other in _LETTERS)
    yield from (text.lower(), text.upper(), text.capitalize())
    for name in (text, text.rpartition("/")[2]):
        stem = name.rpartition(".")[0] or name
        yield from (name, stem, *(f"{stem}{each}" for each in IMAGE_SUFFIXES))
