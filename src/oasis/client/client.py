"""The methods of a collection, asked of a service."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack
from urllib.parse import urlencode

from oasis.client.transport import (
    Sent,
    Transport,
    file_of,
    files_of,
    form,
    plain,
    record,
    tensors,
    value_of,
)
from oasis.collection.records import (
    ClassInfo,
    Explanation,
    FieldInfo,
    Hit,
    Id,
    Mode,
    Part,
    Plane,
    Point,
    Rejected,
    Round,
    SearchOptions,
    Stats,
    Stored,
    ToLabel,
    Updated,
    check_id,
    check_whole,
    listed_ids,
    query_name,
)
from oasis.errors import InputError

if TYPE_CHECKING:
    from oasis.hashers.protocol import Labels

Where = Mapping[str, Any] | None
Progress = Callable[[int], object] | None

REQUEST_BYTES = 16 << 20
"""Most bytes of the pictures of one request, so that it arrives in a minute at 2.2 Mbit/s."""

_QUERY = ("text", "vectors")
_ITEM = (*_QUERY, "id", "labels", "payload")
_NOBODY = "no item has the id {!r}"
_SPARE_BYTES = 1024  # for the syntax around an item and its picture


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
        return self._hits(tensors(X, **_question(k, mode, where, offset, options)))

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
        return self._hits(_raw_queries(items, _question(k, mode, where, offset, options)))

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
        asked = _question(k, mode, where, offset, options)
        return self._hits(plain(words=_listed(names, "names"), **asked))

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
        asked = _question(k, mode, where, offset, options)
        return self._hits(plain(like=check_id(id), **asked))[0]

    def _hits(self, sent: Sent) -> list[list[Hit]]:
        return self._service.ask(
            "search", sent, read=lambda found: [_hits_of(each) for each in _list(found, "results")]
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
        sent = form(_readable([image]), text=text, k=k, where=where, offset=offset)
        return self._service.ask("find", sent, read=lambda found: _hits_of(_list(found, "hits")))

    def explain(self, id: Id, query: str | Mapping[str, Any]) -> Explanation:  # noqa: A002
        """Return why an item has its score for a query: a text, or a raw item without vectors."""
        raw = {"text": query} if isinstance(query, str) else query
        if _field(raw, "vectors"):
            raise InputError("a service explains hits of texts and pictures, not of vectors")
        files = _readable([_field(raw, "image")])
        sent = form(files, ids=[check_id(id)], text=_field(raw, "text"))
        found: Explanation = self._service.ask(
            "explain", sent, read=lambda got: _records(got, "explanations", Explanation)[0]
        )
        return replace(found, parts=tuple(Part(*each) for each in found.parts))

    def next_to_label(self, k: int = 10) -> list[ToLabel]:
        """Return the unlabelled items whose labels would teach most, at most 1,000."""
        return self._all(f"next?k={check_whole('k', k, 1)}", ToLabel, "items")

    def plane(self, most: int = 20_000, random_state: int = 0) -> Plane:
        """Return the items as points in the plane, those of a class near each other."""
        found: Plane = self._service.ask(
            f"plane?{urlencode({'most': most, 'random_state': random_state})}",
            read=lambda got: record(Plane, got),
        )
        return replace(found, points=tuple(Point(*each) for each in found.points))

    def duplicates(self, progress: Progress = None) -> list[list[Id]]:
        """Return groups of items that repeat each other, the oldest of each group first."""
        groups = self._service.ask("duplicates", read=value_of("groups", list))
        if progress is not None:
            progress(len(self))
        return list(groups)

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return the evidence of raw queries; below 0.5 a query resembles nothing learned."""
        sent = _raw_queries(items, {"k": 1, "payload": False, "evidence": True})
        return list(self._service.ask("search", sent, read=value_of("evidence", list)))

    def suggest(self, text: str) -> str | None:
        """Return what a text query may have meant, or None."""
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        found = self._service.ask("suggest", plain(text=text), read=value_of("text"))
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
        sent = plain(ids=[check_id(each) for each in ids])
        return set(self._service.ask("known", sent, read=value_of("ids", list)))

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        return self._service.ask(_addressed("item", id), read=lambda found: record(Stored, found))

    def latest(self, k: int = 10) -> list[Stored]:
        """Return the newest items, at most 100, newest first; texts are cut to 1,000 characters."""
        return self._all(f"latest?k={check_whole('k', k, 1)}", Stored, "items")

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._service.picture(_addressed("thumbnail", id))

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture of an item, or None: the original if the service has it."""
        return self._service.picture(_addressed("preview", id))

    def classes(self) -> list[ClassInfo]:
        """Return the classes in order of arrival, with the number of items that have each."""
        return self._all("classes", ClassInfo)

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads with examples of their values, from a sample."""
        return self._all("fields", FieldInfo)

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        return self._all("rounds", Round)

    def _all(self, path: str, kind: Callable[..., Any], name: str = "") -> list[Any]:
        return self._service.ask(path, read=lambda found: _records(found, name or path, kind))

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        return self._service.ask("stats", read=lambda found: record(Stats, found))

    def norms(self) -> dict[str, float]:
        """Return the Frobenius norms of what the model has learned, by name."""
        return dict(self._service.ask("norms", read=value_of("norms", dict)))

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
        return list(self._service.ask("check", plain(), read=value_of("findings", list)))

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
        rest = _rest(labels=y, ids=ids, payload=payload, thumbnails=thumbnails, texts=texts)
        self._service.ask("ingest", tensors(X, **rest), change=True, read=dict)

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
        rest = _rest(labels=y, ids=ids, payload=payload, thumbnails=thumbnails, texts=texts)
        self._service.ask("ingest", tensors(X, replace=True, **rest), change=True, read=dict)

    def ingest_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Progress = None,
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
        return self._send_items(items, thumbnails, progress, strict=strict, replace=False)

    def replace_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Progress = None,
    ) -> list[Rejected]:
        """Replace stored items by raw ones with the same ids, in one commit; as `ingest_items`."""
        return self._send_items(items, thumbnails, progress, strict=strict, replace=True)

    def _send_items(
        self,
        items: Sequence[Any],
        thumbnails: Iterable[bytes | None] | bool,
        progress: Progress,
        **how: Any,
    ) -> list[Rejected]:
        wanted = _listed(items, "items")
        small = None if isinstance(thumbnails, bool) else _in_base64(thumbnails)
        if small is not None and len(small) != len(wanted):
            raise InputError(f"got {len(small)} thumbnails for {len(wanted)} items")
        files, unread = files_of(_field(each, "image") for each in wanted)
        rows = [row for row in range(len(wanted)) if row not in unread]
        rejected = [
            Rejected(row, check_id(_field(wanted[row], "id")), f"image: {reason}")
            for row, reason in unread.items()
        ]
        if how["strict"] and rejected:
            raise InputError(f"item {rejected[0].row} cannot be used: {rejected[0].reason}")
        if rows:
            how["items"] = [_raw(wanted[row]) for row in rows]
            if thumbnails is not True:
                how["thumbnails"] = [small and small[row] for row in rows]
            given = {at: files[row] for at, row in enumerate(rows) if row in files}
            found = self._service.ask(
                "ingest", form(given, **how), change=True, read=value_of("rejected", list)
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
        n_json, n_bytes, n_values = _SPARE_BYTES, 0, 0
        for row, item in enumerate(items[: limits["raw_batch"]]):
            text = plain(**_raw(item))[0]
            n_json += len(text) + 2
            n_values += text.count(b",") + text.count(b"{") + text.count(b"[") + 1
            n_bytes += _size(_field(item, "image"))
            if (
                n_json > limits["json_bytes"]
                or n_values > limits.get("json_values", n_values)
                or n_json + n_bytes > limits["body_bytes"]
                or (row and n_bytes > REQUEST_BYTES)
            ):
                return row
        return min(len(items), limits["raw_batch"])

    def update(
        self,
        ids: Id | Iterable[Id],
        *,
        payload: Any = ...,
        labels: Any = ...,
        progress: Progress = None,
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
            asked["payload"] = [payload] * len(checked) if same else _listed(payload, "payload")
        if labels is not ...:
            sets = [None] * len(checked) if labels is None else _listed(labels, "labels")
            if sets and all(isinstance(each, str) for each in sets):
                sets = [sets] * len(checked)
            asked["labels"] = [_names(each) for each in sets]
        return self._updated("update", asked, progress)

    def update_table(
        self,
        table: Any,
        *,
        id: str = "id",  # noqa: A002
        labels: str | None = "labels",
        payload: str | tuple[str, ...] | None = "payload",
        separator: str = ";",
        batch: int = 4096,
        strict: bool = False,
        progress: Progress = None,
    ) -> tuple[Updated, list[Rejected]]:
        """Change labels and payloads of items by the rows of a table or file, read here.

        A commit has at most ``batch`` rows, and as many as one request takes.
        """
        from oasis.items import Fields, Item
        from oasis.items.read import read_items, read_table, settled_fields

        fields = Fields(id, labels=labels, payload=payload, facts_alone=True)
        fields = settled_fields(table, fields)
        read = read_items if isinstance(table, (str, PathLike)) else read_table
        limits, done = self.limits(), Updated()
        rejected: list[Rejected] = []
        most = min(check_whole("batch", batch, 1), limits["batch"])
        for is_trial in (True, False) if strict else (False,):
            rows = read(table, fields, separator=separator, strict=strict)
            for start, some in _in_batches(rows, most, limits):
                known = self.known([each.id for each in some if isinstance(each, Item)])
                found = [each for each in some if isinstance(each, Item) and each.id in known]
                rejected += [
                    Rejected(row, each.id, getattr(each, "reason", _NOBODY.format(each.id)))
                    for row, each in enumerate(some, start)
                    if not isinstance(each, Item) or each.id not in known
                ]
                if strict and rejected:
                    raise InputError(
                        f"row {rejected[0].row} cannot be used: {rejected[0].reason}; nothing was "
                        "changed"
                    )
                if is_trial:
                    continue
                facts: dict[str, Any] = {}
                if fields.labels is not None:
                    facts["labels"] = [each.labels for each in found]
                if fields.payload is not None:
                    facts["payload"] = [each.payload for each in found]
                if found:
                    done = done.plus(self.update([each.id for each in found], **facts))
                if progress is not None:
                    progress(len(some))
        return done, rejected

    def rename_label(self, old: str, new: str, progress: Progress = None) -> Updated:
        """Give all items of the class ``old`` the class ``new``, in one commit."""
        return self._updated("relabel", {"old": old, "new": new}, progress)

    def _updated(self, path: str, asked: dict[str, Any], progress: Progress) -> Updated:
        found: Updated = self._service.ask(
            path, plain(**asked), change=True, read=lambda got: record(Updated, got)
        )
        if progress is not None:
            progress(len(asked.get("ids", ())) or found.changed)
        return found

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items permanently; return how many. Every id must exist."""
        sent = plain(ids=listed_ids(ids, "delete"))
        return int(self._service.ask("delete", sent, change=True, read=value_of("n", int)))

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        self._service.ask("checkpoint", plain(), change=True, read=dict)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        sent = plain(vectors={name: _numbers(vector) for name, vector in vectors.items()})
        self._service.ask("words", sent, change=True, read=dict)


# -- what is asked, and what is answered -------------------------------------------------------


def _question(
    k: int, mode: str, where: Where, offset: int, options: SearchOptions
) -> dict[str, Any]:
    """Return the part of a search that all kinds share; what is as by default is left out."""
    asked = {"k": k, "mode": mode, "where": where, "offset": offset, **options}
    if asked.pop("max_bytes", None) is not None:
        raise InputError("max_bytes is for collections here; a service bounds its answers itself")
    if asked.get("fuse") is not False:
        asked.pop("fuse", None)
    return asked


def _raw_queries(items: Any, asked: dict[str, Any]) -> Sent:
    """Return a search with raw queries; one whose picture cannot be read is refused."""
    wanted = _listed(items, "queries")
    files = _readable([_field(each, "image") for each in wanted])
    return form(files, items=[_raw(each, _QUERY) for each in wanted], **asked)


def _readable(pictures: Sequence[Any]) -> dict[int, bytes]:
    files, unread = files_of(pictures)
    for row, reason in unread.items():
        raise InputError(f"{query_name(row, len(pictures))} cannot be used: image: {reason}")
    return files


def _rest(**given: Any) -> dict[str, Any]:
    """Return what comes beside matrices as JSON has it, where it is given."""
    as_json: dict[str, Callable[[Any], Any]] = {
        "labels": lambda y: [_names(each) for each in _listed(y, "y")],
        "ids": lambda ids: listed_ids(ids, "ids"),
        "thumbnails": _in_base64,
    }
    return {
        name: as_json.get(name, lambda value, name=name: _listed(value, name))(value)
        for name, value in given.items()
        if value is not None
    }


def _raw(item: Any, names: tuple[str, ...] = _ITEM) -> dict[str, Any]:
    """Return the fields of a raw item as JSON has them; its picture is sent beside it."""
    given = {name: _field(item, name) for name in names}
    vectors = given["vectors"]
    if vectors is not None and not isinstance(vectors, Mapping):
        raise InputError(
            f"the vectors of an item are {type(vectors).__name__}, expected a mapping of modality "
            "to vector"
        )
    given["vectors"] = {
        name: _numbers(vector.toarray().ravel() if hasattr(vector, "toarray") else vector)
        for name, vector in (vectors or {}).items()
        if vector is not None
    } or None
    if given.get("labels") is not None:
        given["labels"] = _names(given["labels"])
    if given.get("id") is not None:
        given["id"] = check_id(given["id"])
    return {name: value for name, value in given.items() if value is not None}


def _field(item: Any, name: str) -> Any:
    """Return a field of a raw item, which is a mapping or has attributes; None if it has none."""
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _size(picture: Any) -> int:
    """Return about how many bytes a picture takes in a request."""
    if isinstance(picture, (str, Path)):
        try:
            return Path(picture).stat().st_size + _SPARE_BYTES
        except (OSError, ValueError):  # it is listed when it is read
            return _SPARE_BYTES
    return 0 if picture is None else len(file_of(picture)) + _SPARE_BYTES


def _in_base64(thumbnails: Iterable[bytes | None]) -> list[str | None]:
    return [None if each is None else b64encode(file_of(each)).decode() for each in thumbnails]


def _numbers(vector: Any) -> Any:
    import numpy as np

    return np.asarray(vector).tolist()


def _names(names: Any) -> list[Any] | None:
    """Return labels as a list; a plain text is refused."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable | None):
        raise InputError(f"labels are lists of class names, got {names!r}; write [name] for one")
    return None if names is None else list(names)


def _listed(values: Any, what: str) -> list[Any]:
    """Return any values as a list; a plain text or a mapping is refused."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise InputError(f"{what} must be a list, got {type(values).__name__}")
    return list(values)


def _in_batches(
    rows: Iterable[Any], most: int, limits: Mapping[str, int]
) -> Iterator[tuple[int, list[Any]]]:
    """Yield rows in batches that a request takes, each with the position of its first."""
    some: list[Any] = []
    start = n_bytes = 0
    for each in rows:
        size = len(plain(item=_raw(each))[0]) + _SPARE_BYTES
        if some and (len(some) >= most or n_bytes + size > limits["json_bytes"]):
            yield start, some
            start, some, n_bytes = start + len(some), [], 0
        some.append(each)
        n_bytes += size
    if some:
        yield start, some


def _alone(value: Any) -> Any:
    return value if value is ... else [value]


def _addressed(path: str, key: Any) -> str:
    """Return a path with an id in its query."""
    checked = check_id(key)
    kind = "text" if isinstance(checked, str) else "number"
    return f"{path}?{urlencode({'id': checked, 'kind': kind})}"


def _list(found: Any, name: str) -> list[Any]:
    return list(value_of(name, list)(found))


def _records(found: Any, name: str, kind: Callable[..., Any]) -> list[Any]:
    return [record(kind, each) for each in _list(found, name)]


def _hits_of(found: list[Any]) -> list[Hit]:
    """Return hits as records; where payloads were not asked for, they are empty."""
    return [record(Hit, {"payload": {}, **each}) for each in found]
