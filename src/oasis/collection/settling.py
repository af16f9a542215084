"""Settling where the codes of a collection are searched: what is recorded, opened and moved."""

from __future__ import annotations

import json
import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path

from oasis.collection.catalog import Catalog
from oasis.collection.home import LOCAL, Home, place_of
from oasis.collection.local import LocalHome
from oasis.collection.milvus import MilvusHome
from oasis.collection.schema import Head, without_index_file
from oasis.errors import CollectionError, FormatError

_ADDRESS = "index"
_FILLED = "index_filled"
_OWNER = "owner"
"""Facts in the catalog: the address now, all those that this collection has filled, and a number of
its own, by which it knows them again."""


def recorded_address(catalog: Catalog, connection: sqlite3.Connection) -> str:
    """Return where the codes are searched; collections older than the choice are local."""
    found = catalog.meta(connection, _ADDRESS)
    return LOCAL if found is None else str(found)


def open_home(
    catalog: Catalog,
    connection: sqlite3.Connection,
    directory: Path,
    head: Head,
    n_bits: int,
    known: Home | None,
) -> Home:
    """Return the recorded home as of a commit; one that is ``known`` keeps its connection."""
    address = recorded_address(catalog, connection)
    if address == LOCAL:
        return LocalHome.load(catalog, connection, directory, head, n_bits)
    if known is not None and known.address == address:
        return known
    return MilvusHome(address, n_bits, _owner(catalog, connection))


def settle(catalog: Catalog, n_bits: int, address: str) -> None:
    """Bring the codes to an address and record it; nothing to do where it is recorded already.

    What raises on the way leaves the record as it was, and another call goes on from there. The
    place that was left is not touched: it may be gone.

    Raises
    ------
    CollectionError
        What is at the address, or some items there, are not of this collection.
    EngineError
        There is no server, or it does not answer in time.
    """
    with catalog.reading() as connection:
        recorded = recorded_address(catalog, connection)
        if recorded == address:
            return
        head = catalog.head(connection)
    if place_of(recorded) == place_of(address):
        with catalog.write():
            catalog.put_meta(_ADDRESS, address)
        return
    if address != LOCAL:
        _fill(catalog, n_bits, address)
    # readers of an older commit load everything anew when they see this one
    new = without_index_file(
        replace(head, commits=head.commits + 1),
        head.commits + 1,
        0 if address == LOCAL else head.next_key - 1,
    )
    with catalog.write():
        catalog.put_meta(_ADDRESS, address)
        catalog.put_head(head, new)


def _fill(catalog: Catalog, n_bits: int, address: str) -> None:
    with catalog.reading() as connection:
        filled = _filled(catalog, connection)
        owner = _owner(catalog, connection)
    if not owner:
        owner = str(uuid.uuid4())
        with catalog.write():
            catalog.put_meta(_OWNER, owner)
    home = MilvusHome(address, n_bits, owner)
    try:
        if place_of(address) not in filled:
            if n := len(home.index):
                raise CollectionError(
                    f"{address} holds {n} items that are not of this collection; give it another "
                    "name, or empty it first"
                )
            # known before the first item goes there, so that a crash does not lock us out
            with catalog.write():
                catalog.put_meta(_FILLED, json.dumps([*filled, place_of(address)]))
        with catalog.reading() as connection:
            home.reconcile(catalog, connection)
    finally:
        home.close()


def _owner(catalog: Catalog, connection: sqlite3.Connection) -> str:
    """Return the collection's number of its own; empty where it has not needed one yet."""
    return str(catalog.meta(connection, _OWNER) or "")


def _filled(catalog: Catalog, connection: sqlite3.Connection) -> list[str]:
    text = catalog.meta(connection, _FILLED)
    try:
        found = [] if text is None else json.loads(text)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{catalog.path} is damaged: {_FILLED} is unreadable") from error
    return [str(each) for each in found]
