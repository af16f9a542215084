"""Labels given later: what an item taught before is subtracted, and it teaches anew.

Where the features of an item are kept, the model forgets it with its old labels, learns it with the
new ones, and gives it the code that it would have got at ingest. Where they are not kept, the model
does not learn; but the label bits of a code are a function of the labels alone, so the item gets
those of its new labels and is found under them at once.
"""

from __future__ import annotations

import copy
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from oasis.codes import Codes, pack
from oasis.collection.class_members import class_members
from oasis.collection.committed import Committed
from oasis.collection.intake import Intake, check_payload
from oasis.collection.item_rows import NewChunk, change_item, insert_versions
from oasis.collection.journal import Entry
from oasis.collection.kept_features import read_features, unpacked_features
from oasis.collection.predictions import predicted_labels
from oasis.collection.records import Id, Updated, check_id, listed_ids
from oasis.collection.rows import ITEM_COLUMNS, ItemRow
from oasis.collection.setup import feature_widths
from oasis.collection.words import delete_texts, insert_texts, text_of
from oasis.errors import DuplicateIdError, InputError
from oasis.hashers.chunk import check_chunk, check_label_set
from oasis.model import OASIS, AnyModel
from oasis.model.codewords import sample_codes

BLOCK = 4096
"""Items that are changed, or forgotten, together: it bounds memory."""

SMALL_CHUNK = 32
"""A chunk with fewer labelled samples goes to the journal instead of writing the whole model."""


class ItemChange(NamedTuple):
    """An item's new labels (None: as they are) and payload (...: as it is).

    ``predicted`` are other predicted labels of an item that keeps its own.
    """

    id: Id
    labels: tuple[str, ...] | None
    payload: str | EllipsisType | None
    predicted: tuple[str, ...] | None = None


def item_changes(ids: Any, payload: Any, labels: Any) -> list[ItemChange]:
    """Return the changes of items, checked; see `Collection.update`.

    >>> item_changes(["a", "b"], ..., [["cat"], None])
    [ItemChange(id='a', labels=('cat',), payload=Ellipsis, ...), ItemChange(id='b', labels=(), ...)]
    """
    if isinstance(ids, (str, Integral)):
        checked = [check_id(ids)]
        payloads, sets = [payload], [labels]
    else:
        checked = listed_ids(ids, "update")
        payloads, sets = (
            _for_each(payload, checked, "payload"),
            _for_each(labels, checked, "labels"),
        )
    if len(set(checked)) < len(checked):
        again = next(each for each, n in Counter(checked).items() if n > 1)
        raise DuplicateIdError(f"id {again!r} is given more than once")
    distinct = {}  # a bulk of items has few label sets
    changes: list[ItemChange] = []
    for each, own, value in zip(checked, sets, payloads, strict=True):
        names: tuple[str, ...] | None = None
        if own is not ...:
            given = () if own is None else own if isinstance(own, str) else tuple(own)
            if given not in distinct:
                distinct[given] = check_label_set(given)
            names = distinct[given]
        kept = ... if value is ... else check_payload(value, f"the payload of {each!r}")
        changes.append(ItemChange(each, names, kept))
    return changes


def _for_each(value: Any, ids: Sequence[Id], what: str) -> list[Any]:
    """Return one value for each id: those given, or the one that is given for all."""
    if value is ... or value is None or isinstance(value, Mapping):
        return [value] * len(ids)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{what} must hold one entry for each id, got {value!r}")
    listed = list(value)
    if what == "labels" and all(isinstance(each, str) for each in listed):
        return [tuple(listed)] * len(ids)
    if len(listed) != len(ids):
        raise InputError(f"got {what} for {len(listed)} items, but {len(ids)} ids")
    return listed


def renamed(
    connection: sqlite3.Connection, classes: Sequence[str], old: str, new: str
) -> Iterator[list[ItemChange]]:
    """Yield the changes that give items of the class ``old`` the class ``new``, in blocks.

    Items for which ``old`` is predicted have ``new`` predicted.
    """

    def put(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(new if name == old else name for name in names))

    number = classes.index(old)
    for predicted in (False, True):
        keys = class_members(connection, number, predicted=predicted).tolist()
        for start in range(0, len(keys), BLOCK):
            rows = connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items WHERE key IN (SELECT value FROM json_each(?))",  # noqa: S608
                (json.dumps(keys[start : start + BLOCK]),),
            )
            items = [ItemRow(*row).check() for row in rows]
            if predicted:
                yield [
                    ItemChange(each.id, None, ..., put(each.predicted_names(classes)))
                    for each in items
                ]
            else:
                yield [ItemChange(each.id, put(each.label_names(classes)), ...) for each in items]


class _Moved(NamedTuple):
    """An item with the payload that it gets, and the labels that it had and gets."""

    item: ItemRow
    payload: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]


class Relabelling:
    """An update in the making.

    Attributes
    ----------
    model : a copy that learns; None while nothing is learned
    classes : all names, those that are new included
    versions : the new versions of items, block by block
    gone, amended : keys whose items have a new version, and of items that were changed in place
    next_key : key of the next new version
    done : what has become of the items
    """

    def __init__(self, snapshot: Committed) -> None:
        self.model = None if snapshot.model is None else copy.copy(snapshot.model)
        self.classes = list(snapshot.classes)
        self.versions: list[NewChunk] = []
        self.gone: list[int] = []
        self.amended: list[int] = []
        self.next_key = snapshot.head.next_key
        self.done = Updated()
        self._before = snapshot.model
        self._is_local = snapshot.replica.is_local
        self._entries: list[bytes | None] = []

    def entry(self) -> bytes | None:
        """Return the entry of the journal; None where the model file is to be written."""
        return self._entries[0] if len(self._entries) == 1 else None

    def change(
        self, connection: sqlite3.Connection, changes: Sequence[ItemChange], commits: int
    ) -> None:
        """Change items inside the transaction of commit ``commits``."""
        moved: list[_Moved] = []
        for each in changes:
            row = connection.execute(
                f"SELECT {ITEM_COLUMNS} FROM items WHERE id = ?",  # noqa: S608
                (each.id,),
            ).fetchone()
            item = ItemRow(*row).check()
            old = item.label_names(self.classes)
            payload = item.payload if isinstance(each.payload, EllipsisType) else each.payload
            if each.labels is not None and (item.predicted or each.labels != old):
                moved.append(_Moved(item, payload, old, each.labels))
            elif payload != item.payload or each.predicted is not None:
                self._amend(connection, item, None, payload, commits, each.predicted)
        if moved:
            self._relabel(connection, moved, commits)

    def _amend(
        self,
        connection: sqlite3.Connection,
        item: ItemRow,
        labels: tuple[str, ...] | None,
        payload: str | None,
        commits: int,
        guess: tuple[str, ...] | None = None,
    ) -> None:
        new = change_item(connection, item, labels, payload, self.classes, commits, guess)
        self.classes += new
        self.amended.append(item.key)
        self._count(1)

    def _count(self, changed: int, learned: int = 0, unlearned: int = 0) -> None:
        done = self.done
        self.done = Updated(
            done.changed + changed, done.learned + learned, done.unlearned + unlearned
        )

    def _relabel(self, connection: sqlite3.Connection, moved: list[_Moved], commits: int) -> None:
        codes = np.array([np.frombuffer(each.item.code, np.uint8) for each in moved])
        predicted: list[tuple[str, ...]] = [()] * len(moved)
        kept = {}
        if isinstance(self.model, OASIS):
            kept = read_features(connection, [each.item.born for each in moved])
        taught = [at for at, each in enumerate(moved) if each.item.born in kept]
        if taught:
            some = [moved[at] for at in taught]
            rows = [kept[each.item.born] for each in some]
            codes[taught], guessed = self._learn(rows, some, codes[taught])
            for at, names in zip(taught, guessed, strict=True):
                predicted[at] = names
        if others := [at for at, each in enumerate(moved) if each.item.born not in kept]:
            codes[others] = _recoded(self.model, [moved[at].new for at in others], codes[others])
            self._count(0, unlearned=len(others))
        stay = [
            at
            for at, each in enumerate(moved)
            if at not in set(taught) and codes[at].tobytes() == each.item.code
        ]
        for at in stay:
            item, payload, _, labels = moved[at]
            self._amend(connection, item, labels, payload, commits)
        if go := sorted(set(range(len(moved))) - set(stay)):
            self._move(
                connection,
                [moved[at] for at in go],
                [predicted[at] for at in go],
                codes[go],
                commits,
            )

    def _learn(
        self, rows: list[bytes], moved: list[_Moved], codes: Codes
    ) -> tuple[Codes, list[tuple[str, ...]]]:
        """Teach the model; return new codes, and labels that are predicted of unlabelled items."""
        model = self.model
        assert isinstance(model, OASIS)
        X = unpacked_features(rows, feature_widths(model) or {})
        old, new = [each.old for each in moved], [each.new for each in moved]
        model.forget(X, old, codes)
        chunk = check_chunk(X, new, model.state_.widths)
        model.learn(chunk)
        entry = None
        if len(moved) < SMALL_CHUNK and self._before is not None:
            entry = Entry.of(X, new, self._before, model, old, codes).to_bytes()
        self._entries.append(entry)
        self._count(0, learned=len(moved))
        return model.codes_, predicted_labels(model, chunk)

    def _move(
        self,
        connection: sqlite3.Connection,
        moved: list[_Moved],
        predicted: list[tuple[str, ...]],
        codes: Codes,
        commits: int,
    ) -> None:
        items, first = [each.item._replace(payload=each.payload) for each in moved], self.next_key
        keys, labels = [item.key for item in items], [each.new for each in moved]
        texts = [text_of(connection, key) for key in keys]
        delete_texts(connection, keys)
        self.classes += insert_versions(
            connection, items, first, labels, predicted, codes, self.classes, commits
        )
        new_keys = range(first, first + len(items))
        of_items = zip(new_keys, texts, (item.payload for item in items), strict=True)
        insert_texts(connection, list(of_items))
        payloads = [] if self._is_local else [item.payload for item in items]
        intake = Intake([], payloads, [], [], [])
        self.versions.append(NewChunk(0, first, intake, labels, predicted, codes))
        self.gone += keys
        self.next_key += len(items)
        self._count(len(items))


def forget_items(
    connection: sqlite3.Connection, model: OASIS, items: Sequence[ItemRow], names: Sequence[str]
) -> bool:
    """Subtract from a model what items taught whose features are kept; return if any were."""
    kept = read_features(connection, [item.born for item in items])
    some = [item for item in items if item.born in kept]
    if some:
        codes = np.array([np.frombuffer(item.code, np.uint8) for item in some])
        X = unpacked_features([kept[item.born] for item in some], model.state_.widths)
        model.forget(X, [item.label_names(names) for item in some], codes)
    return bool(some)


def _recoded(model: AnyModel | None, label_sets: Sequence[tuple[str, ...]], codes: Codes) -> Codes:
    """Return codes with the label bits of other labels; as they are where nothing is known of them.

    The classes of the label sets that the model has learned count.
    """
    if not isinstance(model, OASIS):
        return codes
    codewords = model.state_.codewords
    known = set(model.classes_[: len(codewords)])
    learned = [tuple(name for name in names if name in known) for names in label_sets]
    rows = [at for at, names in enumerate(learned) if names]
    if not rows or not codewords.shape[1]:
        return codes
    L = model.state_.labels.indicator([learned[at] for at in rows])[:, : len(codewords)]
    made = codes.copy()
    made[rows, : model.n_label_bits // 8] = pack(sample_codes(L, codewords))
    return made
