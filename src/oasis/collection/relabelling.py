"""Labels given later: what an item taught before is subtracted, and it teaches anew.

Where the features of an item are kept, the model forgets it with its old labels, learns it with the
new ones, and gives it the code that it would have got at ingest. Where they are not kept, the model
does not learn; but the label bits of a code are a function of the labels alone, so the item gets
those of its new labels and is found under them at once. Either way the item is a new version of
itself, with a new key.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from oasis.codes import Codes, pack
from oasis.collection.class_members import class_members
from oasis.collection.committed import Change
from oasis.collection.intake import check_payload
from oasis.collection.item_rows import NewItems, insert_versions, set_payload
from oasis.collection.journal import Entry
from oasis.collection.kept_features import read_features, unpacked_features
from oasis.collection.records import Id, Updated, check_id, listed_ids
from oasis.collection.rows import ItemRow, items_with
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

    @classmethod
    def of(cls, id_: Id, labels: Any, payload: Any) -> ItemChange:
        """Return a change, checked; ... for what is kept."""
        names: tuple[str, ...] | None = None
        if labels is not ...:
            names = check_label_set(() if labels is None else labels)
        kept = ... if payload is ... else check_payload(payload, f"the payload of {id_!r}")
        return cls(id_, names, kept)


def item_changes(ids: Any, payload: Any, labels: Any) -> list[ItemChange]:
    """Return the changes of items, checked; see `Collection.update`.

    >>> item_changes(["a", "b"], ..., [["cat"], None])
    [ItemChange(id='a', labels=('cat',), payload=Ellipsis, ...), ItemChange(id='b', labels=(), ...)]
    """
    if isinstance(ids, (str, Integral)):
        return [ItemChange.of(check_id(ids), labels, payload)]
    checked = listed_ids(ids, "update")
    payloads = _for_each(payload, checked, "payload")
    sets = _for_each(labels, checked, "labels")
    if len(set(checked)) < len(checked):
        again = next(each for each, n in Counter(checked).items() if n > 1)
        raise DuplicateIdError(f"id {again!r} is given more than once")
    return [ItemChange.of(*each) for each in zip(checked, sets, payloads, strict=True)]


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

    for predicted in (False, True):
        keys = class_members(connection, classes.index(old), predicted=predicted).tolist()
        for start in range(0, len(keys), BLOCK):
            items = items_with(connection, "key", keys[start : start + BLOCK])
            yield [
                ItemChange(each.id, None, ..., put(each.predicted_names(classes)))
                if predicted
                else ItemChange(each.id, put(each.label_names(classes)), ...)
                for each in items
            ]


def change_items(change: Change, changes: Sequence[ItemChange]) -> Updated:
    """Give items other labels and payloads, inside the transaction of a change."""
    found = {
        item.id: item for item in items_with(change.connection, "id", [each.id for each in changes])
    }
    moved: list[_Moved] = []
    n_amended = 0
    for each in changes:
        item = found[each.id]
        old = item.label_names(change.classes)
        payload = item.payload if isinstance(each.payload, EllipsisType) else each.payload
        if each.predicted is not None:
            moved.append(_Moved(item, payload, old, old, each.predicted))
        elif each.labels is not None and (item.predicted or each.labels != old):
            moved.append(_Moved(item, payload, old, each.labels))
        elif payload != item.payload:
            set_payload(change.connection, item, payload)
            n_amended += 1
    n_learned, n_unlearned = _relabel(change, moved) if moved else (0, 0)
    return Updated(len(moved) + n_amended, n_learned, n_unlearned)


class _Moved(NamedTuple):
    """An item with the payload that it gets, and the labels that it had and gets."""

    item: ItemRow
    payload: str | None
    old: tuple[str, ...]
    new: tuple[str, ...]
    predicted: tuple[str, ...] = ()

    @property
    def teaches(self) -> bool:
        return self.new != self.old or not self.predicted


def _relabel(change: Change, moved: list[_Moved]) -> tuple[int, int]:
    """Put new versions in the place of items; return how many were learned, and how many not."""
    codes = np.array([np.frombuffer(each.item.code, np.uint8) for each in moved])
    predicted = [each.predicted for each in moved]
    new = [at for at, each in enumerate(moved) if each.teaches]
    kept = {}
    if isinstance(change.model, OASIS):
        kept = read_features(change.connection, [moved[at].item.born for at in new])
    taught = [at for at in new if moved[at].item.born in kept]
    others = [at for at in new if moved[at].item.born not in kept]
    if taught:
        some = [moved[at] for at in taught]
        rows = [kept[each.item.born] for each in some]
        codes[taught] = _learn(change, rows, some, codes[taught])
    if others:
        codes[others] = _recoded(change.model, [moved[at].new for at in others], codes[others])
    put_versions(
        change,
        [each.item for each in moved],
        [each.new for each in moved],
        predicted,
        codes,
        [each.payload for each in moved],
    )
    return len(taught), len(others)


def put_versions(
    change: Change,
    items: Sequence[ItemRow],
    labels: list[tuple[str, ...]],
    predicted: list[tuple[str, ...]],
    codes: Codes,
    payloads: list[str | None],
) -> None:
    """Put new versions in the place of items, inside the transaction of a change."""
    new = NewItems(change.head.next_key, labels, predicted, codes)
    commits = change.head.commits
    insert_versions(change.connection, items, new, payloads, change.classes, commits)
    change.gone += [item.key for item in items]
    change.add(new)


def _learn(change: Change, rows: list[bytes], moved: list[_Moved], codes: Codes) -> Codes:
    """Teach the model; return new codes."""
    model = change.model
    assert isinstance(model, OASIS)
    X = unpacked_features(rows, model.state_.widths)
    old, new = [each.old for each in moved], [each.new for each in moved]
    model.forget(X, old, codes)
    chunk = check_chunk(X, new, model.state_.widths)
    model.learn(chunk)
    entry = None
    if len(moved) < SMALL_CHUNK and change.before.model is not None:
        entry = Entry.of(X, new, change.before.model, model, old, codes).to_bytes()
    change.taught.append(entry)
    return model.codes_


def forget_items(change: Change, items: Sequence[ItemRow]) -> None:
    """Subtract from the model what items taught whose features are kept."""
    model = change.model
    for start in range(0, len(items) if isinstance(model, OASIS) else 0, BLOCK):
        block = items[start : start + BLOCK]
        kept = read_features(change.connection, [item.born for item in block])
        some = [item for item in block if item.born in kept]
        if some and isinstance(model, OASIS):
            codes = np.array([np.frombuffer(item.code, np.uint8) for item in some])
            X = unpacked_features([kept[item.born] for item in some], model.state_.widths)
            model.forget(X, [item.label_names(change.classes) for item in some], codes)
            change.taught.append(None)


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
