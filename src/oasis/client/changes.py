"""Changes that a client asks a service for: ingest, replace, update, delete ..."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from oasis.client import answers
from oasis.client.raw_items import field, items_request, n_fitting, picture_files, pictures
from oasis.client.requests import JSON, address_of, as_list, listed, names_of, pack, plain
from oasis.client.transport import Transport
from oasis.collection.records import Id, Rejected, check_id
from oasis.errors import InputError

if TYPE_CHECKING:
    from oasis.hashers.protocol import Labels


class ClientChanges:
    """The methods of `Collection` that change it, for a collection that a service has open."""

    _service: Transport

    def ingest(
        self,
        X: Mapping[str, Any],
        y: Labels,
        ids: Iterable[Id] | None = None,
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Learn from a chunk and store its items: all of it, or nothing with an error.

        When it returns, the chunk is on the service's disk. After an `UnreachableError` it may or
        may not be; `known` shows it when the service answers again.
        """
        self._send_chunk(X, y, ids, payload, thumbnails, texts)

    def replace(
        self,
        X: Mapping[str, Any],
        y: Labels,
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
        y: Labels,
        ids: Iterable[Id] | None,
        payload: Any,
        thumbnails: Any,
        texts: Any,
        **options: bool,
    ) -> None:
        rest: dict[str, Any] = {
            "labels": [None if names is None else names_of(names) for names in listed(y, "y")],
            **options,
        }
        if ids is not None:
            rest["ids"] = [check_id(each) for each in ids]
        if payload is not None:
            rest["payload"] = listed(payload, "payload")
        if thumbnails is not None:
            rest["thumbnails"] = pictures(thumbnails)
        if texts is not None:
            rest["texts"] = listed(texts, "texts")
        self._service.ask("ingest", *pack(X, rest), change=True, read=dict)

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
        return self._send_items(items, thumbnails, strict, progress)

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
        **options: bool,
    ) -> list[Rejected]:
        wanted = listed(items, "items")
        small = thumbnails if isinstance(thumbnails, bool) else pictures(thumbnails)
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
            asked: dict[str, Any] = {"strict": strict, **options}
            if small is not True:
                asked["thumbnails"] = [small[row] for row in rows]
            sent = items_request(
                [wanted[row] for row in rows], [files.get(row) for row in rows], asked
            )
            found = self._service.ask("ingest", *sent, change=True, read=answers.rejected)
            rejected += [Rejected(rows[each.row], each.id, each.reason) for each in found]
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
        id: Id,  # noqa: A002
        *,
        payload: Mapping[str, Any] | EllipsisType | None = ...,
        labels: Iterable[str] | EllipsisType | None = ...,
    ) -> None:
        """Change the payload or the labels of an item; what is left out does not change."""
        asked: dict[str, Any] = {}
        if not isinstance(payload, EllipsisType):
            asked["payload"] = payload
        if not isinstance(labels, EllipsisType):
            asked["labels"] = None if labels is None else names_of(labels)
        if not asked:
            raise InputError("nothing to change: give payload, labels, or both")
        self._service.ask(
            f"item?{address_of(id)}", *plain(asked), change=True, method="PATCH", read=dict
        )

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items permanently; return how many. Every id must exist."""
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"delete takes a list of ids, got {ids!r}; write [id] for one")
        asked = {"ids": [check_id(each) for each in ids]}
        return int(
            self._service.ask(
                "delete",
                *plain(asked),
                change=True,
                read=answers.value_in("n"),
            )
        )

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        self._service.ask("checkpoint", b"", JSON, change=True, read=dict)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        listed_vectors = {name: as_list(vector) for name, vector in vectors.items()}
        self._service.ask("words", *plain({"vectors": listed_vectors}), change=True, read=dict)
