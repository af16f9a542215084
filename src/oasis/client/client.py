"""The methods of a collection, asked of a service."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, Unpack

from oasis.client.requests import (
    Sent,
    address_of,
    as_list,
    field,
    form,
    in_base64,
    listed,
    n_fitting,
    names_of,
    pack,
    picture_files,
    plain,
    queries,
    question,
    raw_items,
)
from oasis.client.transport import Transport, parts, record, value_of
from oasis.collection.records import (
    ClassInfo,
    FieldInfo,
    Hit,
    Id,
    Mode,
    Rejected,
    Round,
    SearchOptions,
    Stats,
    Stored,
    Updated,
    check_id,
    listed_ids,
)
from oasis.errors import InputError

if TYPE_CHECKING:
    from oasis.hashers.protocol import Labels

Where = Mapping[str, Any] | None


class Client:
    """A collection that a service has open; any thread may use it.

    A method does what the one of `oasis.collection.Collection` does that has its name; what is
    said here is what a service adds.

    Parameters
    ----------
    url : str
        Address of the service, such as "http://127.0.0.1:8000"; a path in it is kept as a prefix.
    token : str, optional
    timeout : float
        Seconds to wait for an answer.
    patience : float
        Seconds to keep asking a busy service before a `BusyError`; 0 asks once.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8000")
    >>> client
    <Client 'http://127.0.0.1:8000'>
    >>> Client("photos.oasis")
    Traceback (most recent call last):
        ...
    oasis.errors.InputError: the url must be like http://127.0.0.1:8000, got 'photos.oasis'
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        patience: float = 30.0,
    ) -> None:
        self._service = Transport(url, token, timeout, patience)

    def close(self) -> None:
        """Close the connections; the service goes on. A second call does nothing."""
        self._service.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self._service.url!r}>"

    # -- searching -----------------------------------------------------------------------------

    def search(
        self,
        X: Mapping[str, Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Where = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Return the k best hits of every query; arrays are sent as they are, in their own type."""
        return self._hits(pack(X, question(k, mode, where, offset, options)))

    def search_items(
        self,
        items: Sequence[Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Where = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Search with raw items; the service computes features.

        Pictures are sent as files; those given by a path are read here.
        """
        return self._hits(queries(items, question(k, mode, where, offset, options)))

    def search_words(
        self,
        names: Iterable[str],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Where = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Search with names of classes, or with any words if the label space knows words."""
        asked = question(k, mode, where, offset, options)
        return self._hits(plain({**asked, "words": listed(names, "names")}))

    def more_like(
        self,
        id: Id,  # noqa: A002 - the name that users give it
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Where = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[Hit]:
        """Return the items nearest to one that is stored, itself left out, by its code."""
        asked = question(k, mode, where, offset, options)
        return self._hits(plain({**asked, "like": check_id(id)}))[0]

    def _hits(self, sent: Sent) -> list[list[Hit]]:
        return self._service.ask(
            "search", sent, read=lambda found: [_hits_of(hits) for hits in parts(found, "results")]
        )

    def find(
        self,
        text: str | None = None,
        *,
        image: Any = None,
        k: int = 10,
        where: Where = None,
        offset: int = 0,
    ) -> list[Hit]:
        """Return the hits for what a person asks, at most 100: words, a picture, or both."""
        asked = {"text": text, "k": k, "where": where, "offset": offset}
        files, unread = picture_files([{"image": image}])
        if unread:
            raise InputError(f"the query cannot be used: image: {unread[0]}")
        return self._service.ask(
            "find", form(asked, files), read=lambda found: _hits_of(parts(found, "hits"))
        )

    def duplicates(self, progress: Callable[[int], object] | None = None) -> list[list[Id]]:
        """Return groups of items that repeat each other, the oldest of each group first."""
        groups = self._service.ask("duplicates", read=lambda found: parts(found, "groups"))
        if progress is not None:
            progress(len(self))
        return groups

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return the evidence of raw queries; below 0.5 a query resembles nothing learned."""
        sent = queries(items, {"k": 1, "payload": False, "evidence": True})
        return self._service.ask("search", sent, read=lambda found: parts(found, "evidence"))

    def suggest(self, text: str) -> str | None:
        """Return what a text query may have meant, or None."""
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        found = self._service.ask("suggest", plain({"text": text}), read=value_of("text"))
        return None if found is None else str(found)

    # -- looking -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.stats().n_items

    def __contains__(self, item: object) -> bool:
        try:
            return bool(self.known([check_id(item)]))
        except InputError:  # what no item can have as its id
            return False

    def known(self, ids: Iterable[Id]) -> set[Id]:
        """Return those of the given ids that exist."""
        sent = plain({"ids": [check_id(each) for each in ids]})
        return set(self._service.ask("known", sent, read=lambda found: parts(found, "ids")))

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        return self._service.ask(f"item?{address_of(id)}", read=_stored)

    def latest(self, k: int = 10) -> list[Stored]:
        """Return the newest items, at most 100, newest first; texts are cut to 1,000 characters."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        return self._service.ask(
            f"latest?k={k}", read=lambda found: [_stored(each) for each in parts(found, "items")]
        )

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._service.picture(f"thumbnail?{address_of(id)}")

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture of an item, or None: the original if the service has it."""
        return self._service.picture(f"preview?{address_of(id)}")

    def classes(self) -> list[ClassInfo]:
        """Return the classes in order of arrival, with the number of items that have each."""
        return self._records("classes", ClassInfo)

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads with examples of their values, from a sample."""
        return self._records("fields", FieldInfo, "values")

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        return self._records("rounds", Round, "new_classes")

    def _records(self, name: str, kind: Callable[..., Any], tuples: str = "") -> list[Any]:
        """Return the records of a list; the field ``tuples`` of each is made a tuple."""
        return self._service.ask(
            name,
            read=lambda found: [
                record(kind, each, **({tuples: tuple(parts(each, tuples))} if tuples else {}))
                for each in parts(found, name)
            ],
        )

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        return self._service.ask("stats", read=lambda found: record(Stats, found))

    def norms(self) -> dict[str, float]:
        """Return the Frobenius norms of what the model has learned, by name."""
        return dict(self._service.ask("norms", read=value_of("norms")))

    def limits(self) -> dict[str, int]:
        """Return what one request to the service may take, by name; docs/service.md lists it."""
        return self._service.ask("limits", read=dict)

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.stats().n_bits

    @property
    def readonly(self) -> bool:
        """Whether the service only reads."""
        return bool(self._service.ask("stats", read=value_of("readonly")))

    def check(self) -> list[str]:
        """Read everything and return a list of what is wrong; it is empty if nothing is."""
        return self._service.ask("check", plain({}), read=lambda found: parts(found, "findings"))

    # -- changing ------------------------------------------------------------------------------

    def ingest(
        self,
        X: Mapping[str, Any],
        y: Labels | None = None,
        ids: Iterable[Id] | None = None,
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Learn from a chunk and store its items: all of it, or nothing with an error.

        When it returns, the chunk is on the service's disk. After an `UnreachableError` it may or
        may not be; `known` shows it when the service answers again.
        """
        self._send_chunk(X, y, ids, payload, thumbnails, texts, replace=False)

    def replace(
        self,
        X: Mapping[str, Any],
        y: Labels | None,
        ids: Iterable[Id],
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Delete the items with these ids and ingest others under them, in one commit."""
        if ids is None:
            raise InputError("replace takes the ids of the items to replace, got None")
        self._send_chunk(X, y, ids, payload, thumbnails, texts, replace=True)

    def _send_chunk(
        self,
        X: Mapping[str, Any],
        y: Labels | None,
        ids: Iterable[Id] | None,
        payload: Any,
        thumbnails: Any,
        texts: Any,
        *,
        replace: bool,
    ) -> None:
        rest: dict[str, Any] = {"replace": replace}
        if y is not None:
            rest["labels"] = [None if each is None else names_of(each) for each in listed(y, "y")]
        if ids is not None:
            rest["ids"] = [check_id(each) for each in ids]
        if payload is not None:
            rest["payload"] = listed(payload, "payload")
        if thumbnails is not None:
            rest["thumbnails"] = in_base64(thumbnails)
        if texts is not None:
            rest["texts"] = listed(texts, "texts")
        self._service.ask("ingest", pack(X, rest), change=True, read=dict)

    def ingest_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Send raw items as one chunk; the service computes their features and ingests them.

        Parameters
        ----------
        items : sequence of `oasis.items.Item`, or of mappings with the same keys
            As many as one request takes; `fitting` returns that number. Pictures are sent as files.
        thumbnails : bool, or one per item
            True: the service makes them from the pictures.
        strict : bool
            Raise at the first item that cannot be used, instead of leaving it out.
        progress : callable, optional
            Called with the number of items when they are stored.

        Returns
        -------
        list of Rejected
            The items left out, and why.
        """
        return self._send_items(items, thumbnails, strict, progress, replace=False)

    def replace_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Replace stored items by raw ones with the same ids, in one commit; as `ingest_items`."""
        return self._send_items(items, thumbnails, strict, progress, replace=True)

    def _send_items(
        self,
        items: Sequence[Any],
        thumbnails: Iterable[bytes | None] | bool,
        strict: bool,
        progress: Callable[[int], object] | None,
        *,
        replace: bool,
    ) -> list[Rejected]:
        wanted = listed(items, "items")
        small = thumbnails if isinstance(thumbnails, bool) else in_base64(thumbnails)
        if small is False:
            small = [None] * len(wanted)
        if small is not True and len(small) != len(wanted):
            raise InputError(f"got {len(small)} thumbnails for {len(wanted)} items")
        files, unread = picture_files(wanted)
        rows = [row for row in range(len(wanted)) if row not in unread]
        rejected = [
            Rejected(row, check_id(field(wanted[row], "id")), f"image: {reason}")
            for row, reason in unread.items()
        ]
        if strict and rejected:
            raise InputError(f"item {rejected[0].row} cannot be used: {rejected[0].reason}")
        if rows:
            asked: dict[str, Any] = {
                "strict": strict,
                "replace": replace,
                "items": raw_items([wanted[row] for row in rows]),
            }
            if small is not True:
                asked["thumbnails"] = [small[row] for row in rows]
            given = {at: files[row] for at, row in enumerate(rows) if row in files}
            found = self._service.ask(
                "ingest", form(asked, given), change=True, read=lambda got: parts(got, "rejected")
            )
            for each in found:
                left = record(Rejected, each)
                rejected.append(Rejected(rows[left.row], left.id, left.reason))
        if progress is not None:
            progress(len(wanted))
        return sorted(rejected, key=lambda each: each.row)

    def fitting(self, items: Sequence[Any], limits: Mapping[str, int]) -> int:
        """Return how many of the first items one request can take, 0 if not even one.

        Parameters
        ----------
        items : as in `ingest_items`
        limits : mapping
            What `limits` returned.
        """
        return n_fitting(items, limits)

    def update(
        self,
        ids: Id | Iterable[Id],
        *,
        payload: Any = ...,
        labels: Any = ...,
        progress: Callable[[int], object] | None = None,
    ) -> Updated:
        """Change payloads or labels of items, as many as one request takes, in one commit."""
        if payload is ... and labels is ...:
            raise InputError("nothing to change: give payload, labels, or both")
        if isinstance(ids, (str, Integral)):
            ids, labels, payload = [ids], _alone(labels), _alone(payload)
        checked = listed_ids(ids, "update")
        asked: dict[str, Any] = {"ids": checked}
        if payload is not ...:
            same = payload is None or isinstance(payload, Mapping)
            asked["payload"] = [payload] * len(checked) if same else listed(payload, "payload")
        if labels is not ...:
            sets = [None] * len(checked) if labels is None else listed(labels, "labels")
            if sets and all(isinstance(each, str) for each in sets):
                sets = [sets] * len(checked)
            asked["labels"] = [None if each is None else names_of(each) for each in sets]
        found = self._service.ask("update", plain(asked), change=True, read=_updated)
        if progress is not None:
            progress(len(checked))
        return found

    def rename_label(
        self, old: str, new: str, progress: Callable[[int], object] | None = None
    ) -> Updated:
        """Give all items of the class ``old`` the class ``new``, in one commit."""
        sent = plain({"old": old, "new": new})
        found = self._service.ask("relabel", sent, change=True, read=_updated)
        if progress is not None:
            progress(found.changed)
        return found

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items permanently; return how many. Every id must exist."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"delete takes a list of ids, got {ids!r}; write [id] for one")
        sent = plain({"ids": [check_id(each) for each in ids]})
        return int(self._service.ask("delete", sent, change=True, read=value_of("n")))

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        self._service.ask("checkpoint", plain({}), change=True, read=dict)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        sent = plain({"vectors": {name: as_list(vector) for name, vector in vectors.items()}})
        self._service.ask("words", sent, change=True, read=dict)


def _hits_of(found: list[Any]) -> list[Hit]:
    """Return hits as records; where payloads were not asked for, they are empty."""
    return [
        record(
            Hit,
            {"payload": {}, **each},
            labels=tuple(parts(each, "labels")),
            predicted=tuple(each.get("predicted", ())),
        )
        for each in found
    ]


def _alone(value: Any) -> Any:
    return value if value is ... else [value]


def _updated(found: Any) -> Updated:
    return record(Updated, found)


def _stored(found: Any) -> Stored:
    return record(
        Stored,
        found,
        labels=tuple(parts(found, "labels")),
        code=b64decode(value_of("code")(found)),
        predicted=tuple(found.get("predicted", ())),
    )
