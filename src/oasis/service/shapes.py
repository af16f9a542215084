"""The shapes of requests and answers, for decoding and for ``/openapi.json``.

Requests are checked by pydantic as they are decoded; what depends on the collection or on the
limits of the service is checked later. Answers are written from the collection's records.
"""

from __future__ import annotations

import inspect
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeVar, get_args

from fastapi import Response
from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from oasis.collection import Hit
from oasis.collection.records import (
    ClassInfo,
    Explanation,
    FieldInfo,
    Plane,
    Rejected,
    Round,
    Stats,
    Stored,
    ToLabel,
    Updated,
)
from oasis.service.settings import Limits

MAX_KEYS = 64
"""Most keys of an object that maps names to vectors by modality."""

MAX_WORDS = 10_000
"""Most words that get vectors at once."""

MAX_SNIPPET = 1000
"""Most characters of its text that a hit carries."""

Id = StrictStr | Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
Element = TypeVar("Element")
# validation stops at the first element that is refused: a body of 16 MB has room for millions of
# them, and each error takes a kilobyte
Elements = Annotated[list[Element], Field(fail_fast=True)]
LabelSets = Elements[Elements[StrictStr] | None]


# lists of numbers are checked a row at a time, by `bodies`
Numbers = Annotated[Any, WithJsonSchema({"type": "array", "items": {"type": "number"}})]
Rows = Annotated[
    Any,
    WithJsonSchema({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
]
Vectors = dict[StrictStr, Rows]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        """Refuse the first key that is not known; pydantic would list all of them."""
        for name in value if isinstance(value, dict) else ():
            if name not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown_key",
                    "the key {name} is not known; known are {known}",
                    {"name": repr(name[:100]), "known": ", ".join(cls.model_fields)},
                )
        return value


class RawQuery(_Request):
    """Something to search with; pictures are the bytes of a file, never a path."""

    text: StrictStr | None = None
    image: Base64Bytes | None = Field(None, description="A picture file in base64.")
    vectors: dict[StrictStr, Numbers] | None = Field(
        None, max_length=MAX_KEYS, description="Features that are there already, by modality."
    )

    def fields(self) -> dict[str, Any]:
        """Return the fields that an extractor may use; the vectors still as lists."""
        return {"text": self.text or None, "image": self.image, "vectors": self.vectors}


class RawItem(RawQuery):
    """Something to learn from and to find again."""

    id: Id
    labels: Elements[StrictStr] | None = None
    payload: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        return {
            **super().fields(),
            "id": self.id,
            "labels": self.labels or (),
            "payload": self.payload,
        }


HitField = Literal["id", "score", "distance", "payload", "labels", "tied", "weak", "predicted"]
HIT_FIELDS: tuple[HitField, ...] = get_args(HitField)


class SearchRequest(_Request):
    """One of vectors, items, words and like says what to search with."""

    vectors: Vectors | None = Field(
        None, max_length=MAX_KEYS, description="Features by modality, one row a query."
    )
    items: Elements[RawQuery] | None = Field(None, description="Texts, pictures, or both.")
    words: Elements[StrictStr] | None = Field(None, description="Names of classes, or any words.")
    like: Id | None = Field(None, description="The id of a stored item.")
    k: StrictInt = Field(10, ge=1, description="How many hits a query.")
    offset: StrictInt = Field(0, ge=0, description="How many hits to skip.")
    mode: Literal["asymmetric", "hamming"] = "asymmetric"
    content: StrictFloat | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of content bits: with 0 only classes count, with 1 only content; of "
        "words, their content as texts.",
    )
    fuse: StrictBool = Field(
        True,
        description="Whether words in kept texts and labels, and the fingerprints of features, "
        "count beside codes; of vectors and items. Words and like are ranked by codes alone.",
    )
    where: dict[str, Any] | None = Field(
        None, description='A filter, such as {"year": {"gte": 2020}} or {"$labels": {"has": "sky"}}'
    )
    fields: Elements[HitField] | None = Field(
        None, description="What to return of a hit; all of it if not given."
    )
    payload: StrictBool = Field(True, description="Whether hits carry their payload.")
    evidence: StrictBool = Field(
        False, description="Whether to tell how sure it is that anything like an item is here."
    )
    snippet: StrictInt = Field(
        0, ge=0, le=MAX_SNIPPET, description="Characters of its kept text that a hit carries."
    )

    def wanted(self) -> tuple[HitField, ...]:
        """Return the fields of a hit that are asked for, in their own order."""
        chosen = HIT_FIELDS if self.fields is None else self.fields
        return tuple(
            name for name in HIT_FIELDS if name in chosen and (self.payload or name != "payload")
        )

    @model_validator(mode="after")
    def _one_kind(self) -> SearchRequest:
        _check_one(self, "vectors", "items", "words", "like")
        if self.evidence and self.items is None:
            raise ValueError("evidence is told of items alone")
        if not self.fuse and (self.words is not None or self.like is not None):
            raise ValueError(
                "words and like are always ranked by codes alone; leave fuse out, or give vectors "
                "or items"
            )
        return self


class FindRequest(_Request):
    """What a person asks for: words, a picture (also as the file image.0 of a form), or both."""

    text: StrictStr | None = Field(None, description="At most 64 KiB.")
    image: Base64Bytes | None = Field(None, description="A picture file in base64.")
    k: StrictInt = Field(10, ge=1, le=100, description="How many hits.")
    offset: StrictInt = Field(0, ge=0, description="How many hits to skip.")
    where: dict[str, Any] | None = Field(None, description="A filter, as of a search.")


class ExplainRequest(_Request):
    """Items, and what they were searched with: words, a picture (also as image.0), or both."""

    ids: Elements[Id] = Field(min_length=1, description="At most 48.")
    text: StrictStr | None = Field(None, description="At most 64 KiB.")
    image: Base64Bytes | None = Field(None, description="A picture file in base64.")


class SuggestRequest(_Request):
    """A text query whose spelling may be wrong."""

    text: StrictStr = Field(description="At most 64 KiB.")


class IngestRequest(_Request):
    """Ready vectors with labels, ids, payload and thumbnails by row; or raw items."""

    vectors: Vectors | None = Field(
        None, max_length=MAX_KEYS, description="Features by modality, one row a sample."
    )
    labels: LabelSets | None = Field(
        None, description="Class names by row; if not given, no sample has labels."
    )
    ids: Elements[Id] | None = None
    payload: Elements[dict[str, Any] | None] | None = None
    texts: Elements[StrictStr | None] | None = Field(
        None, description="Texts to keep, by row; at most 1 MiB each."
    )
    thumbnails: Elements[Base64Bytes | None] | None = Field(
        None,
        description="Small picture files in base64, by row; at most 10 kB each. If not given, they "
        "are made from the pictures of raw items.",
    )
    items: Elements[RawItem] | None = Field(None, description="Texts, pictures, or both.")
    strict: StrictBool = Field(False, description="Refuse all of the items if one is refused.")
    replace: StrictBool = Field(
        False, description="The ids must be there; what has them is deleted in the same commit."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> IngestRequest:
        if self.items is not None and (self.labels or self.ids or self.payload or self.texts):
            raise ValueError(
                "labels, ids, payload and texts of raw items stand in the items themselves"
            )
        _check_one(self, "vectors", "items")
        return self


class UpdateRequest(_Request):
    """New labels or payload of an item; fields that are left out do not change."""

    labels: Elements[StrictStr] | None = Field(None, description="All its labels; null for none.")
    payload: dict[str, Any] | None = Field(
        None, description="Its whole payload, at most 1 MiB; null for an empty one."
    )

    def given(self) -> dict[str, Any]:
        """Return what is to be changed, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set}

    @model_validator(mode="after")
    def _something(self) -> UpdateRequest:
        if not self.model_fields_set:
            raise ValueError("expected labels, payload or both")
        return self


class UpdateManyRequest(_Request):
    """New labels or payloads of items, in the order of their ids; what is left out is kept."""

    ids: Elements[Id]
    labels: LabelSets | None = Field(None, description="All labels of each item.")
    payload: Elements[dict[str, Any] | None] | None = Field(
        None, description="The whole payload of each item, at most 1 MiB."
    )

    def given(self) -> dict[str, Any]:
        """Return what is to be changed, by name."""
        return {name: getattr(self, name) for name in self.model_fields_set - {"ids"}}

    @model_validator(mode="after")
    def _something(self) -> UpdateManyRequest:
        if not self.given():
            raise ValueError("expected labels, payload or both")
        return self


class RelabelRequest(_Request):
    """The name of a class, and its new one."""

    old: StrictStr
    new: StrictStr


class IdsRequest(_Request):
    """Ids of items."""

    ids: Elements[Id]


class WordsRequest(_Request):
    """Vectors of class names."""

    vectors: dict[StrictStr, Numbers] = Field(max_length=MAX_WORDS)


def _check_one(request: BaseModel, *names: str) -> None:
    given = [name for name in names if getattr(request, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise ValueError(f"expected one of {', '.join(names)}, got {found}")


REQUESTS: tuple[type[BaseModel], ...] = (
    SearchRequest,
    FindRequest,
    ExplainRequest,
    SuggestRequest,
    IngestRequest,
    UpdateRequest,
    UpdateManyRequest,
    RelabelRequest,
    IdsRequest,
    WordsRequest,
)
"""What bodies are, for ``/openapi.json``."""


# -- answers, as they are written --------------------------------------------------------------


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def answer(value: Any) -> Response:
    """Return a value, or JSON that is encoded already, as an answer."""
    content = value if isinstance(value, bytes) else encoded(value)
    return Response(content, media_type="application/json")


def encoded(value: Any) -> bytes:
    """Return a value as JSON."""
    return _JSON.encode(value).encode()


def encoded_hits(
    lists: Iterable[Iterable[Hit]], fields: Sequence[str], texts: Mapping[str | int, str]
) -> bytes:
    """Return lists of hits as JSON; hit by hit, so that other threads get their turn between."""
    # by hand: asdict copies every payload deeply
    results = (
        ",".join(
            _JSON.encode(
                {name: getattr(found, name) for name in fields}
                | ({"text": texts[found.id]} if found.id in texts else {})
            )
            for found in hits
        )
        for hits in lists
    )
    return ",".join(f"[{hits}]" for hits in results).encode()


def as_json(record: Any) -> dict[str, Any]:
    """Return a record of the collection as JSON has it."""
    # not deeply: a payload is JSON already, and a code is a text of its bytes
    found = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in found.items()
    }


# -- answers, as they are described ------------------------------------------------------------

_ATTRIBUTE = re.compile(r"^(\w+(?:, \w+)*) : (.+(?:\n {4}.+)*)", re.MULTILINE)


def described(record: type) -> dict[str, str]:
    """Return what the docstring of a record says of each of its fields.

    >>> described(ClassInfo)["n"]
    'items that have it now'
    """
    found = _ATTRIBUTE.findall(inspect.getdoc(record) or "")  # indented alike by every Python
    return {name: " ".join(what.split()) for names, what in found for name in names.split(", ")}


RECORDS = (
    ClassInfo,
    Explanation,
    FieldInfo,
    Plane,
    ToLabel,
    Hit,
    Limits,
    Rejected,
    Round,
    Stats,
    Stored,
    Updated,
)


@dataclass(frozen=True)
class StatsAnswer(Stats):
    readonly: bool = False


class ProblemAnswer(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[dict[str, str]] | None = Field(
        None, description="Where in the body (a JSON pointer), and what is wrong there."
    )
