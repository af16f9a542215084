"""Which column of a table is the picture, the text, the labels, the id; what else is kept."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from oasis.errors import DataError, UnusedFieldWarning

OTHER_NAMES = {
    "id": ("key", "uuid"),
    "image": ("file", "filename", "path", "filepath", "imagepath", "picture", "photo", "img"),
    "text": ("caption", "title", "description"),
    "labels": ("label", "tags", "tag", "keywords", "categories", "category", "classes", "class"),
}
"""Names that are taken for a field of the default name, in this order; case, spaces and
underscores do not count."""

MAX_COLUMNS = 4096
"""A table with more columns, or objects with more fields, is refused."""

_LISTED = 20  # names that a message lists at most
_SHOWN = {"id": "ids", "image": "pictures", "text": "texts", "labels": "labels"}
_NEAR = 0.8  # "lables" and "labels" have 0.83, "test" and "text" 0.75

Kind: TypeAlias = Literal["plain", "vectors", "other"]
"""What a column holds: values of JSON, lists of numbers, or what a payload cannot hold."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Names of the fields (JSONL) or columns (CSV, Parquet); None for a field that is not read.

    A default name stands for the usual names too (`OTHER_NAMES`): a column ``file`` holds pictures
    if there is no ``image``. Any other name must occur. Without ids, an item is known by its file.

    ``payload`` is one field that holds an object (in CSV: JSON text), or a tuple of fields that are
    gathered into an object; then a CSV cell with a JSON number becomes a number. A file without a
    field ``payload`` has all fields gathered that have no other use. ``vectors`` maps a modality to
    the column of its features; such a column is not read as a picture or text. With
    ``facts_alone`` rows are labels and payloads of items that are there already: pictures and texts
    are neither read nor gathered. ``told`` is set by `settled`: what was taken for what, in one
    line.
    """

    id: str = "id"
    image: str | None = "image"
    text: str | None = "text"
    labels: str | None = "labels"
    payload: str | tuple[str, ...] | None = "payload"
    vectors: Mapping[str, str] = field(default_factory=dict)
    facts_alone: bool = field(default=False, repr=False)
    told: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("image", "text"):
            if getattr(self, name) in self.vectors.values():
                object.__setattr__(self, name, None)

    def names(self) -> list[str]:
        """Return the names of all fields that are read.

        >>> Fields(image=None, payload=("year", "place"), vectors={"image": "clip"}).names()
        ['id', 'text', 'labels', 'year', 'place', 'clip']
        """
        gathered = self.payload if isinstance(self.payload, tuple) else (self.payload,)
        named = (self.id, self.image, self.text, self.labels, *gathered, *self.vectors.values())
        return [name for name in named if name is not None]

    def settled(
        self,
        source: Path | str,
        columns: Mapping[str, Kind],
        *,
        what: str = "column",
        numbered: bool = False,
    ) -> Fields:
        """Return the names that these fields have in a file with such columns.

        ``numbered`` files count their rows where they have no ids, and gather no payload unasked.
        A column near a default name that is missing gives an `UnusedFieldWarning`. Raises
        `DataError` if a name that is no default is missing, there are more than `MAX_COLUMNS`, or
        there is nothing to know an item by, or nothing to learn from.

        >>> fields = Fields().settled("x.csv", dict.fromkeys(["File", "caption", "year"], "plain"))
        >>> fields
        Fields(id='File', image='File', text='caption', labels='labels', payload=('year',), ...)
        >>> fields.told
        "x.csv: pictures and ids from 'File', texts from 'caption'; kept: year"
        """
        check_columns(source, columns, what)
        own = set(self.names())
        missing = [name for name in self.names() if name not in columns]
        if wanted := [name for name in missing if name not in (*OTHER_NAMES, "payload")]:
            raise DataError(
                f"{source} has no {what} {wanted[0]!r}; its {what}s are [{listed(columns)}]"
            )
        free = {re.sub(r"[\W_]", "", name).lower(): name for name in columns}
        free = {plain: name for plain, name in free.items() if name not in own}
        names: dict[str, Any] = {}
        for each, others in OTHER_NAMES.items():
            names[each] = getattr(self, each)
            if names[each] == each and each in missing and each not in self.vectors:
                found = next((name for name in others if name in free), None)
                names[each] = free.pop(found) if found else each
        if names["id"] not in columns and names["image"] in columns and not numbered:
            names["id"] = names["image"]
        if self.payload == "payload" and "payload" in missing and not numbered:
            names["payload"] = self._rest(source, columns, what, set(names.values()))
        fields = replace(self, **names)
        fields._check_enough(source, columns, what, numbered)
        if self.facts_alone:
            fields = fields._of_facts(source, columns, what)
        fields._note_misspelt(source, columns, what)
        return replace(fields, told=fields._in_words(source, columns))

    def _of_facts(self, source: Path | str, columns: Mapping[str, Kind], what: str) -> Fields:
        """Return the fields without those that are not in the file, or are not facts."""
        labels = self.labels if self.labels in columns else None
        named = () if self.payload is None else self.payload
        payload = self.payload if isinstance(named, tuple) or named in columns else None
        if labels is None and not payload:
            raise DataError(
                f"{source} has neither a {what} 'labels' nor one to be kept in payloads; its "
                f"{what}s are [{listed(columns)}]"
            )
        return replace(self, image=None, text=None, labels=labels, payload=payload or None)

    def _rest(
        self, source: Path | str, columns: Mapping[str, Kind], what: str, used: set[str]
    ) -> tuple[str, ...]:
        """Return the columns that have no other use; vectors among them must be named."""
        used = used | set(self.vectors.values())
        rest = [name for name in columns if name and name not in used]
        vectors = [name for name in rest if columns[name] == "vectors"]
        if vectors and not self.vectors:
            raise DataError(
                f"{source}: the {what} {vectors[0]!r} holds vectors; to learn from them, add "
                f"--feature image={vectors[0]}, or another name of a modality; to leave them out, "
                f"name what to keep: --keep NAME"
            )
        return tuple(name for name in rest if columns[name] == "plain")

    def _check_enough(
        self, source: Path | str, columns: Mapping[str, Kind], what: str, numbered: bool
    ) -> None:
        if self.id not in columns and not numbered:
            raise DataError(
                f"{source} has no {what} 'id' and none of files; its {what}s are "
                f"[{listed(columns)}]; name the one of the ids: --id-field NAME (in Python: "
                "id=NAME)"
            )
        learns = self.vectors or self.image in columns or self.text in columns
        if not learns and not self.facts_alone:
            usual = {name: ", ".join((name, *OTHER_NAMES[name][:2])) for name in ("image", "text")}
            raise DataError(
                f"{source} has neither a {what} of pictures ({usual['image']}, ...) nor of texts "
                f"({usual['text']}, ...); its {what}s are [{listed(columns)}]; name one: "
                "--image-field NAME or --text-field NAME"
            )

    def _note_misspelt(self, source: Path | str, columns: Mapping[str, Kind], what: str) -> None:
        read = [self.id, self.image, self.text, self.labels, *self.vectors.values()]
        unused = {name.lower(): name for name in columns if name not in read}
        for name in ("id", "image", "text", "labels", "payload"):
            if getattr(self, name) != name or name in columns:
                continue
            for near in difflib.get_close_matches(name, unused, n=1, cutoff=_NEAR):
                warnings.warn(
                    f"{source}: the {what} {unused[near]!r} is not used; did you mean {name!r}?",
                    UnusedFieldWarning,
                    stacklevel=3,
                )

    def _in_words(self, source: Path | str, columns: Mapping[str, Kind]) -> str:
        taken: dict[str, list[str]] = {}
        for each in ("image", "text", "labels", "id"):
            if (name := getattr(self, each)) in columns:
                taken.setdefault(name, []).append(_SHOWN[each])
        parts = [f"{' and '.join(those)} from {name!r}" for name, those in taken.items()]
        parts += [f"vectors of {name!r} from {each!r}" for name, each in self.vectors.items()]
        payload = self.payload if isinstance(self.payload, tuple) else (self.payload,)
        kept = [name for name in payload if name in columns]
        return f"{Path(source).name}: {', '.join(parts)}" + (
            f"; kept: {listed(kept, str)}" if kept else ""
        )


def check_columns(source: Path | str, columns: Sized, what: str = "column") -> None:
    """Raise `DataError` if there are more than `MAX_COLUMNS`."""
    if len(columns) > MAX_COLUMNS:
        raise DataError(
            f"{source} has {len(columns):,} {what}s, expected at most {MAX_COLUMNS:,}; leave out "
            "those that are not needed"
        )


def listed(names: Iterable[object], shown: Callable[[object], str] = repr) -> str:
    """Return names for a message, the first 20 of them.

    >>> listed("abc"), listed(range(4096)).split(", ", 19)[-1]
    ("'a', 'b', 'c'", '19 and 4,076 more')
    """
    every = [*names]
    more = f" and {len(every) - _LISTED:,} more" if len(every) > _LISTED else ""
    return ", ".join(shown(name) for name in every[:_LISTED]) + more
