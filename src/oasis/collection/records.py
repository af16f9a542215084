"""What a collection answers with: plain records, the same whether asked directly or over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from oasis.errors import InputError

Id: TypeAlias = str | int
"""A user's key of an item: a text that is not empty, or a whole number of at most 64 bits."""

Mode: TypeAlias = Literal["asymmetric", "hamming"]
"""How codes are compared: projections with signs, or signs with signs."""

MAX_ID_BYTES = 1024

MAX_HITS = 1_000_000
"""Most hits, skipped ones included, that one query may ask for."""

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Hit:
    """One item that a search found.

    Attributes
    ----------
    id : str or int, as given
    score : float from 0 to 1, higher is better
        How likely it is that the item is what was asked for; noise is near 0. The formula is in
        `oasis.collection.ranking`.
    distance : int
        Hamming distance in bits between the item's code and the signs of the query.
    payload : dict, as given
    labels : tuple of class names, in the order given
    tied : bool
        Whether the item before or after it in the ranking has exactly the same score, also where
        that one is beyond the hits that were asked for.
    weak : bool
        Whether the query resembles nothing that is here: its evidence is below 0.5, see
        `evidence_items`.
    predicted : tuple of class names that the model predicted for an item without labels
    text : str or None
        The text that was kept of the item; only `Collection.find` reads it.
    looks : tuple of the names of things that its picture surely looks like
    """

    id: Id
    score: float
    distance: int
    payload: dict[str, Any] = field(hash=False)
    labels: tuple[str, ...]
    tied: bool = False
    weak: bool = False
    predicted: tuple[str, ...] = ()
    text: str | None = None
    looks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """One item as it is stored.

    ``code`` is its packed bits, ``round`` the chunk it came with, ``text`` the text that was kept
    of it, None where there was none or texts are not kept. ``predicted`` are the classes that the
    model predicted of an item that came without labels, ``looks`` the names of things that its
    picture surely looks like.
    """

    id: Id
    payload: dict[str, Any] = field(hash=False)
    labels: tuple[str, ...]
    round: int
    code: bytes
    text: str | None = None
    predicted: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One ingested chunk.

    Attributes
    ----------
    number : counts from 1
    time : seconds since 1970, when it was about to be committed
    n, n_labelled : samples, and those with labels
    new_classes : names that came with this round first
    precision, chance : float or None
        Of up to 200 labelled samples, asked against the items stored before they were learned: the
        share of the 10 best hits that have a label in common, and the share among items drawn at
        random. None if no sample had labels, or no stored item had.
    seconds : from the call to the commit
    bytes : written to the model file or the journal
    """

    number: int
    time: float
    n: int
    n_labelled: int
    new_classes: tuple[str, ...]
    precision: float | None
    chance: float | None
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """A class.

    Attributes
    ----------
    name : str
    n : items that have it now
    round : the round in which it came first; 0 for one that no round brought, but `update` or a
        model that had learned elsewhere
    n_predicted : items without labels for which it is predicted
    """

    name: str
    n: int
    round: int
    n_predicted: int = 0


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of payloads, as a sample of the items has it.

    Attributes
    ----------
    name : key of the payload's top level
    kind : "number", "text", "boolean", "list", "object", or "mixed"
    n : items of the sample that have it
    values : texts of up to 100 characters or booleans, the most frequent first, at most 20
    complete : whether the sample has no other values than these
    min, max : of numbers, else None
    """

    name: str
    kind: str
    n: int
    values: tuple[Any, ...]
    complete: bool
    min: float | None
    max: float | None


@dataclass(frozen=True, slots=True)
class Stats:
    """A collection in numbers.

    Attributes
    ----------
    n_items, n_seen : items now; samples ever ingested
    n_rounds : chunks so far
    n_classes : classes that items have
    n_bits : length of a code
    modalities : modality name -> number of features; empty before the first chunk
    commits : counts every change
    journal_entries : small chunks since the last checkpoint
    extractor : what makes features of raw items, by modality, or None
    bytes : kind of file -> bytes on disk
    index : where the codes are searched: "local", or the address of a Milvus collection; a service
        says "milvus" instead of the address
    n_content_bits : how many of the bits are content bits; 0 before the first chunk
    keep_text : whether texts of items are kept
    n_features_kept : items whose features are kept
    """

    n_items: int
    n_seen: int
    n_rounds: int
    n_classes: int
    n_bits: int
    modalities: dict[str, int] = field(hash=False)
    commits: int
    journal_entries: int
    extractor: dict[str, Any] | None = field(hash=False)
    bytes: dict[str, int] = field(hash=False)
    index: str = "local"
    n_content_bits: int = 0
    keep_text: bool = True
    n_features_kept: int = 0


@dataclass(frozen=True, slots=True)
class Updated:
    """What became of an update.

    ``changed`` counts the items that are different now, ``learned`` those of them from whose new
    labels the model learned, and ``unlearned`` those whose labels it did not learn, as their
    features were not kept.
    """

    changed: int = 0
    learned: int = 0
    unlearned: int = 0

    def plus(self, other: Updated) -> Updated:
        """Return what became of both."""
        return Updated(
            self.changed + other.changed,
            self.learned + other.learned,
            self.unlearned + other.unlearned,
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that was left out, by its position among those given; id None: it has none."""

    row: int
    id: Id | None
    reason: str


class Part(NamedTuple):
    """What one thing adds to the log-odds of a score, and its share of all that is added.

    ``source`` is "class", "content" (likeness by the content bits), "words", "meaning" or "same"
    (features that are those of the query, or nearly); ``what`` names the class, the fields of the
    query that content is compared of, or the word, and is empty otherwise.
    """

    source: Literal["class", "content", "words", "meaning", "same"]
    what: str
    log_odds: float
    share: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an item has its score for a query.

    Attributes
    ----------
    id : of the item
    score : as in `Hit`
    log_odds : log(score / (1 - score)), of a score from 0.001 to 0.999
    base : the log-odds of an item of which nothing is told, those of 0.001
    parts : largest first; ``base`` and their log-odds sum to ``log_odds``
    """

    id: Id
    score: float
    log_odds: float
    base: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToLabel:
    """An item whose label would teach much.

    Attributes
    ----------
    id : str or int
    classes : up to five that are predicted of it, the likeliest first
    chances : how likely it has each
    payload : dict
    text : str or None
    """

    id: Id
    classes: tuple[str, ...]
    chances: tuple[float, ...]
    payload: dict[str, Any] = field(hash=False)
    text: str | None = None


class Point(NamedTuple):
    """An item in the plane: x and y from 0 to 1, y upwards.

    ``label`` is its first class, which may be ``predicted``; None without any.
    """

    id: Id
    x: float
    y: float
    label: str | None
    predicted: bool


@dataclass(frozen=True, slots=True)
class Plane:
    """A map of a collection: ``points`` of its items, or of a sample; ``n_items`` that it has."""

    points: tuple[Point, ...]
    n_items: int


class SearchOptions(TypedDict, total=False):
    """What a search takes by name; see `Collection.search`."""

    content: float | None
    fuse: bool
    payload: bool
    max_bytes: int | None


class Question(NamedTuple):
    """How a search is asked for: the parameters of `Collection.search` beside its queries."""

    k: int = 10
    mode: Mode = "asymmetric"
    where: Mapping[str, Any] | None = None
    offset: int = 0
    content: float | None = None
    fuse: bool = True
    payload: bool = True
    max_bytes: int | None = None

    @property
    def fuses(self) -> bool:
        """Whether words and repeats count; ``content=0`` asks for the kind alone."""
        return self.fuse and self.mode == "asymmetric" and self.content != 0

    def checked(self) -> Question:
        """Return it with plain numbers, or say what is wrong with it."""
        if self.mode not in ("asymmetric", "hamming"):
            raise InputError(f"mode must be 'asymmetric' or 'hamming', got {self.mode!r}")
        k, offset = check_whole("k", self.k, 1), check_whole("offset", self.offset, 0)
        if k + offset > MAX_HITS:
            raise InputError(f"k + offset may be at most {MAX_HITS}, got {k + offset}")
        if self.content is not None and self.mode == "hamming":
            raise InputError(
                f"content={self.content!r} weighs projections, but mode='hamming' counts all bits "
                "alike; leave one of them out"
            )
        if self.max_bytes is not None:
            check_whole("max_bytes", self.max_bytes, 0)
        return self._replace(k=k, offset=offset)


class Quality(NamedTuple):
    """Mean precision among the 10 best hits, and the same for items drawn at random."""

    precision: float
    chance: float


def query_name(row: int, n_queries: int) -> str:
    """Return how an error names a query.

    >>> query_name(0, 1), query_name(0, 3)
    ('the query', 'query 0')
    """
    return "the query" if n_queries == 1 else f"query {row}"


def check_id(value: Any) -> Id:
    """Return an id as it is kept, or refuse it.

    >>> check_id("a.jpg"), check_id(7)
    ('a.jpg', 7)
    """
    if not isinstance(value, bool) and isinstance(value, (int, Integral)):
        if int(value) not in _INT64:
            raise InputError(f"id {value} is beyond 64 bits; write it as a text")
        return int(value)
    if not isinstance(value, str) or not value:
        raise InputError(f"ids are whole numbers or texts that are not empty, got {value!r}")
    text = str(value)
    if len(utf8(text, "an id")) > MAX_ID_BYTES:
        raise InputError(
            f"an id has at most {MAX_ID_BYTES} bytes, got one of {len(text)} characters"
        )
    return text


def check_ids(values: Sequence[Any]) -> list[Id]:
    """Return ids as they are kept, or refuse them: `check_id` of each.

    Ids that are all texts, or all whole numbers, are checked together, in a tenth of the time.

    >>> check_ids(["a.jpg", 7])
    ['a.jpg', 7]
    """
    kinds = set(map(type, values))
    if kinds == {int} and min(values) in _INT64 and max(values) in _INT64:
        return list(values)
    if kinds == {str} and all(values) and 4 * max(map(len, values)) <= MAX_ID_BYTES:
        utf8("".join(values), "an id")
        return list(values)
    return [check_id(value) for value in values]


def listed_ids(values: Any, what: str) -> list[Id]:
    """Return several ids as they are kept, or refuse what is a single one; ``what`` takes them.

    >>> listed_ids(("a.jpg", 7), "delete")
    ['a.jpg', 7]
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(f"{what} takes a list of ids, got {values!r}; write [id] for one")
    return check_ids(list(values))


def check_whole(name: str, value: Any, least: int) -> int:
    """Return a whole number as an int, or refuse it.

    >>> check_whole("k", 10, 1)
    10
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def utf8(text: str, what: str) -> bytes:
    """Return a text in UTF-8, or refuse it; ``what`` names it in the error."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} holds half a surrogate pair, which no text can") from error
