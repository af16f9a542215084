"""What comes in with a chunk besides features and labels: ids, payloads, thumbnails, raw items."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oasis.arrays import has_row, is_sparse
from oasis.collection.records import Id, Rejected, check_ids, query_name, utf8
from oasis.collection.words import check_text
from oasis.errors import DuplicateIdError, InputError
from oasis.features import picture_tags
from oasis.features.embedders import Features
from oasis.features.extractor import Extractor
from oasis.features.thumbnail import MAX_BYTES as MAX_THUMBNAIL_BYTES
from oasis.features.thumbnail import MAX_PREVIEW_BYTES, Thumbnail

MAX_PAYLOAD_BYTES = 1 << 20

MAX_PAYLOAD_LEVELS = 100
"""Of lists and objects inside each other: deep inside a program, Python reads hardly more."""

MAX_LABELS = 1000
"""Labels of an item."""

MAX_NEW_CLASSES = 2000
"""Classes that are new with a chunk; a model holds matrices of classes x classes."""

_MAX_BYTES = {"thumbnail": MAX_THUMBNAIL_BYTES, "preview": MAX_PREVIEW_BYTES}

_FEW = 64  # queries whose hashed text is made dense

_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PLAIN = {str, int, float, bool, type(None)}


@dataclass(frozen=True)
class Intake:
    """The checked facts of a chunk's items, in their order.

    ``payloads`` are JSON texts, None for an empty payload; ``thumbnails``, ``texts``, ``previews``
    and ``looks`` (names of what a picture looks like, a line each) are None where there is none.
    """

    ids: list[Id]
    payloads: list[str | None]
    thumbnails: list[bytes | None]
    previews: list[bytes | None]
    texts: list[str | None]
    looks: list[str | None]


def check_intake(
    n: int, first_id: int, ids: Any, payload: Any, thumbnails: Any, texts: Any = None
) -> Intake:
    """Check what comes with n items; without ids they get the numbers from ``first_id`` on."""
    if ids is None:
        checked: list[Id] = list(range(first_id, first_id + n))
    else:
        checked = check_ids(_as_many(ids, n, "ids"))
        if len(set(checked)) < n:
            seen: set[Id] = set()
            # 1 and "1" are different ids, and different in a set
            again = next(value for value in checked if value in seen or seen.add(value))  # type: ignore[func-returns-value]
            raise DuplicateIdError(f"id {again!r} is given more than once")
    payloads: list[str | None] = [None] * n
    if payload is not None:
        payloads = [
            check_payload(value, f"the payload of sample {row}")
            for row, value in enumerate(_as_many(payload, n, "payload"))
        ]
    pictures = check_pictures(thumbnails, n)
    words: list[str | None] = [None] * n
    if texts is not None:
        words = [
            check_text(value, f"the text of sample {row}")
            for row, value in enumerate(_as_many(texts, n, "texts"))
        ]
    return Intake(checked, payloads, *pictures, words, [None] * n)


def check_pictures(thumbnails: Any, n: int) -> tuple[list[bytes | None], list[bytes | None]]:
    """Return the thumbnails of n items, and their previews."""
    if thumbnails is None:
        return [None] * n, [None] * n
    given = _as_many(thumbnails, n, "thumbnails")
    return [_picture("thumbnail", row, value) for row, value in enumerate(given)], [
        _picture("preview", row, value.preview) if isinstance(value, Thumbnail) else None
        for row, value in enumerate(given)
    ]


def check_classes(labels: Sequence[tuple[str, ...]], known: Sequence[str]) -> None:
    """Refuse label sets that are too large, and a chunk with too many classes that are new."""
    distinct = set(labels)
    largest = max(distinct, key=len)
    if len(largest) > MAX_LABELS:
        raise InputError(
            f"sample {labels.index(largest)} has {len(largest)} labels, at most {MAX_LABELS} are "
            "learned"
        )
    new = set().union(*distinct).difference(known)
    if len(new) > MAX_NEW_CLASSES:
        raise InputError(
            f"the chunk has {len(new)} classes that are new, at most {MAX_NEW_CLASSES} are learned "
            "at a time; give fewer items at a time"
        )
    for name in new:
        utf8(name, f"the class name {name!r}")


def _as_many(values: Any, n: int, what: str) -> list[Any]:
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must hold one entry per sample, got {type(values).__name__}")
    listed = list(values)
    if len(listed) != n:
        raise InputError(f"got {what} for {len(listed)} samples, but features for {n}")
    return listed


def check_payload(value: Any, what: str = "the payload") -> str | None:
    """Return a payload as it is kept, JSON text or None for an empty one; or refuse it.

    >>> check_payload({"year": 2024}), check_payload({})
    ('{"year":2024}', None)
    """
    if not value and (value is None or value == {}):
        return None
    if not isinstance(value, Mapping):
        raise InputError(f"{what} must be an object, got {value!r}")
    try:
        text = _TO_JSON(dict(value))
        plain = _PLAIN.issuperset(map(type, value.values())) and set(map(type, value)) == {str}
        same = plain or json.loads(text) == value
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{what} is no JSON: {error}") from error
    if not same:
        raise InputError(
            f"{what} would come back changed; use texts as keys, and lists instead of tuples"
        )
    if (size := len(utf8(text, what))) > MAX_PAYLOAD_BYTES:
        raise InputError(f"{what} has {size} bytes as JSON, at most {MAX_PAYLOAD_BYTES} are kept")
    if not plain and _is_deep(value):
        raise InputError(
            f"{what} has more than {MAX_PAYLOAD_LEVELS} levels of lists and objects inside each "
            "other; flatten it"
        )
    return text


def _is_deep(payload: Mapping[str, Any]) -> bool:
    level: list[Any] = [payload]
    for _ in range(MAX_PAYLOAD_LEVELS):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, (dict, list))]
    return bool(level)


def _picture(what: str, row: int, value: Any) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InputError(
            f"the {what} of sample {row} must be the bytes of a picture file, got "
            f"{type(value).__name__}"
        )
    picture = bytes(value)
    limit = _MAX_BYTES[what]
    if not 0 < len(picture) <= limit:
        raise InputError(
            f"the {what} of sample {row} has {len(picture)} bytes, expected 1 to {limit}"
        )
    return picture


class Extracted(NamedTuple):
    """The items that can be ingested, by their rows, in their order; all checked but the labels.

    ``thumbnails`` are None unless they were to be made.
    """

    rows: list[int]
    X: dict[str, Features]
    ids: list[Id]
    labels: list[Any]
    payloads: list[str | None]
    texts: list[str | None]
    thumbnails: list[bytes | None] | None

    def intake(
        self,
        pictures: list[bytes | None] | None,
        *,
        keeps_text: bool,
        guess: tuple[str, str] | None,
    ) -> Intake:
        """Return the facts, with pictures that were given for all rows, if any were.

        ``guess`` is `Extractor.guess`: then pictures have the names that they surely look like.
        """
        given = self.thumbnails if pictures is None else [pictures[row] for row in self.rows]
        nothing: list[str | None] = [None] * len(self.rows)
        return Intake(
            self.ids,
            self.payloads,
            *check_pictures(given, len(self.rows)),
            self.texts if keeps_text else nothing,
            nothing
            if guess is None or not has_row(self.X[guess[0]]).any()
            else ["\n".join(each) or None for each in self._tags(guess[0])],
        )

    def _tags(self, modality: str) -> list[tuple[str, ...]]:
        matrix = self.X[modality]
        return picture_tags(matrix.toarray() if is_sparse(matrix) else matrix)


def extract_items(
    extractor: Extractor,
    items: Sequence[Any],
    known: Callable[[list[Id]], set[Id]],
    progress: Callable[[int], object] | None,
    *,
    with_thumbnails: bool,
    replaces: bool = False,
) -> tuple[Extracted, list[Rejected]]:
    """Return what can be ingested of raw items, and what cannot, by row.

    An item is an object with ``id``, ``labels`` and ``payload`` beside the fields of the extractor,
    or a mapping with such keys; it may have ``vectors`` by modality. ``known`` says which ids are
    in the collection already: their items are left out before anything is extracted, or, where
    items are to be replaced, those of all other ids. So are items that have none of the fields, and
    those with a text, a payload or labels that are too large to be kept.
    """
    ids = check_ids([_field(item, "id") for item in items])
    there, seen = known(ids), set[Id]()
    text_fields = extractor.text_fields
    rejected: list[Rejected] = []
    kept: dict[int, tuple[str | None, str | None]] = {}  # by row, payload and text
    for row, (each, item) in enumerate(zip(ids, items, strict=True)):
        try:
            if replaces and each not in there:
                raise InputError(f"no item has the id {each!r}")
            if each in there and not replaces:
                raise InputError(f"id {each!r} is in the collection already")
            if each in seen:
                raise InputError(f"id {each!r} is given more than once")
            _check_content(extractor, item)
            payload = check_payload(_field(item, "payload"))
            kept[row] = payload, item_text(text_fields, item)
            seen.add(each)
        except InputError as error:
            rejected.append(Rejected(row, each, str(error)))
    rows, made = list(kept), None
    new = [items[row] for row in rows]
    if with_thumbnails:
        X, failures, made = extractor.extract_with_thumbnails(new, progress)
    else:
        X, failures = extractor.extract(new, progress)
    failed: dict[int, str] = {}
    for failure in failures:
        failed.setdefault(failure.row, f"{failure.modality}: {failure.reason}")
    rejected += [Rejected(rows[at], ids[rows[at]], reason) for at, reason in failed.items()]
    if failed:
        sound = [at for at in range(len(rows)) if at not in failed]
        X = {name: matrix[sound] for name, matrix in X.items()}
        rows, made = (
            [rows[at] for at in sound],
            None if made is None else [made[at] for at in sound],
        )
    extracted = Extracted(
        rows,
        X,
        [ids[row] for row in rows],
        [_field(items[row], "labels") for row in rows],
        [kept[row][0] for row in rows],
        [kept[row][1] for row in rows],
        made,
    )
    return extracted, sorted(rejected, key=lambda each: each.row)


def _check_content(extractor: Extractor, item: Any) -> None:
    """Refuse an item that there is nothing to learn from, or that has too many labels."""
    if not extractor.has_anything(item):
        raise InputError(f"it has nothing to learn from; expected one of {extractor.fields}")
    labels = _field(item, "labels")
    if isinstance(labels, Sized) and len(labels) > MAX_LABELS:
        raise InputError(f"it has {len(labels)} labels, at most {MAX_LABELS} are learned")


def item_text(fields: Iterable[str], item: Any) -> str | None:
    """Return the text of an item as it is kept: what it has in the fields that texts come from.

    Several are joined by a new line.
    """
    found = (_field(item, name) for name in fields)
    texts = [value for value in found if isinstance(value, str)]
    return check_text("\n".join(texts), "the text") if texts else None


def with_text(extractor: Extractor, item: Any, text: str) -> dict[str, Any]:
    """Return an item with another text, in every field that texts come from."""
    made = {name: _field(item, name) for name in ("vectors", *extractor.fields)}
    return made | {
        name: text
        for name, each in extractor.sources.values()
        if each.takes == "text" and isinstance(made.get(name), str)
    }


def extract_queries(
    extractor: Extractor,
    items: Sequence[Any],
    have_words: Sequence[bool],
    modalities: Container[str],
) -> dict[str, Features]:
    """Return the features of raw queries in modalities that items have.

    A query that has neither any nor words is refused.
    """
    X, failures = extractor.extract(items, dense=len(items) <= _FEW)
    if failures:
        first = failures[0]
        raise InputError(
            f"{query_name(first.row, len(items))} cannot be used: {first.modality}: {first.reason}"
        )
    X = {name: matrix for name, matrix in X.items() if name in modalities}
    some = np.array(have_words, dtype=np.bool_)
    for matrix in () if all(have_words) else X.values():
        some |= has_row(matrix)
    if not some.all():
        raise InputError(
            f"{query_name(int(np.argmin(some)), len(items))} has nothing to search with; give it "
            f"{' or '.join(sorted({extractor.sources[name][0] for name in X}))}"
        )
    return X


def check_sequence(items: Any, what: str) -> Sequence[Any]:
    """Return items as a sequence, or refuse what is a single one."""
    if isinstance(items, (str, bytes, Mapping)) or not hasattr(items, "__iter__"):
        raise InputError(f"{what} must be a list of items, got {type(items).__name__}")
    return items if isinstance(items, Sequence) else list(items)


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
