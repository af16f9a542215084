"""What a commit writes into the catalog: a chunk of new items, or deletions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np

from oasis.collection.chunk import NewChunk
from oasis.collection.quality import Quality
from oasis.collection.schema import label_numbers, label_text, row_crc


def insert_chunk(
    connection: sqlite3.Connection, chunk: NewChunk, classes: Sequence[str]
) -> list[str]:
    """Insert the items of a chunk; return the classes that are new with it."""
    numbers = {name: number for number, name in enumerate(classes)}
    members: dict[int, list[int]] = {}
    labels: list[str | None] = []
    for row, names in enumerate(chunk.labels):
        own = [numbers.setdefault(name, len(numbers)) for name in names]
        for number in own:
            members.setdefault(number, []).append(row)
        labels.append(label_text(own))
    width = chunk.codes.shape[1]
    packed = chunk.codes.tobytes()
    codes = [packed[at : at + width] for at in range(0, len(packed), width)]
    intake, keys = chunk.intake, range(chunk.first_key, chunk.first_key + len(labels))
    connection.executemany(
        "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (key, item, chunk.number, code, text, payload, crc)
            for key, item, code, text, payload in zip(
                keys, intake.ids, codes, labels, intake.payloads, strict=True
            )
            for crc in (row_crc(key, item, chunk.number, code, text, payload),)
        ),
    )
    new = list(numbers)[len(classes) :]
    connection.executemany(
        "INSERT INTO classes VALUES (?, ?, 0, ?)",
        ((numbers[name], name, chunk.number) for name in new),
    )
    connection.executemany(
        "UPDATE classes SET n = n + ? WHERE number = ?",
        ((len(rows), number) for number, rows in members.items()),
    )
    connection.executemany(
        "INSERT INTO postings VALUES (?, ?, ?)",
        (
            (number, chunk.first_key, np.array(rows, dtype="<u4").tobytes())
            for number, rows in members.items()
        ),
    )
    connection.executemany(
        "INSERT INTO thumbnails VALUES (?, ?)",
        (
            (key, picture)
            for key, picture in zip(keys, intake.thumbnails, strict=True)
            if picture is not None
        ),
    )
    return new


def insert_round(
    connection: sqlite3.Connection,
    chunk: NewChunk,
    quality: Quality | None,
    time: float,
    seconds: float,
    n_bytes: int,
) -> None:
    """Insert what is kept of the round itself."""
    precision, chance = (None, None) if quality is None else quality
    n_labelled = sum(bool(names) for names in chunk.labels)
    connection.execute(
        "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (chunk.number, time, len(chunk.labels), n_labelled, precision, chance, seconds, n_bytes),
    )


def delete_items(connection: sqlite3.Connection, keys: list[int], commits: int) -> None:
    """Delete items and their thumbnails; remember the keys for commit number ``commits``."""
    lost: dict[int, int] = {}
    for key in keys:
        (text,) = connection.execute("SELECT labels FROM items WHERE key = ?", (key,)).fetchone()
        for number in label_numbers(text):
            lost[number] = lost.get(number, 0) + 1
    one_each = [(key,) for key in keys]
    connection.executemany("DELETE FROM items WHERE key = ?", one_each)
    connection.executemany("DELETE FROM thumbnails WHERE key = ?", one_each)
    connection.executemany("INSERT INTO deleted VALUES (?, ?)", ((key, commits) for key in keys))
    connection.executemany(
        "UPDATE classes SET n = n - ? WHERE number = ?",
        ((n, number) for number, n in lost.items()),
    )
