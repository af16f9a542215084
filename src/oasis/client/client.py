"""The methods of a collection, asked of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from oasis.client import answers
from oasis.client.changes import ClientChanges
from oasis.client.raw_items import queries_request
from oasis.client.requests import JSON, address_of, listed, pack, plain, question
from oasis.client.transport import Transport, problem_of
from oasis.collection.records import (
    ClassInfo,
    FieldInfo,
    Hit,
    Id,
    Mode,
    Round,
    Stats,
    Stored,
    check_id,
)
from oasis.errors import InputError


class Client(ClientChanges):
    """A collection that a service has open; any thread may use it.

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

    # -- opening and closing -------------------------------------------------------------------

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
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        fuse: bool = True,
        payload: bool = True,
    ) -> list[list[Hit]]:
        """Return the k best hits of every query; arrays are sent as they are, in their own type."""
        asked = question(k, mode, where, offset, payload, content)
        if not fuse:
            asked["fuse"] = False
        return self._service.ask("search", *pack(X, asked), read=answers.hits)

    def search_items(
        self,
        items: Sequence[Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        fuse: bool = True,
        payload: bool = True,
    ) -> list[list[Hit]]:
        """Search with raw items, such as ``[{"text": "a red boat"}]``; the service computes
        features.

        Pictures are sent as files; those given by a path are read here.
        """
        asked = question(k, mode, where, offset, payload, content)
        if not fuse:
            asked["fuse"] = False
        return self._service.ask("search", *queries_request(items, asked), read=answers.hits)

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return the evidence of raw queries; below 0.5 a query resembles nothing learned."""
        asked = {"k": 1, "payload": False, "evidence": True}
        return self._service.ask(
            "search", *queries_request(items, asked), read=answers.list_in("evidence")
        )

    def suggest(self, text: str) -> str | None:
        """Return what a text query may have meant, or None; see `Collection.suggest`."""
        if not isinstance(text, str):
            raise InputError(f"suggest takes a text, got {type(text).__name__}")
        found = self._service.ask("suggest", *plain({"text": text}), read=answers.value_in("text"))
        return None if found is None else str(found)

    def search_words(
        self,
        names: Iterable[str],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        payload: bool = True,
    ) -> list[list[Hit]]:
        """Search with names of classes, or with any words if the label space knows words."""
        asked = question(k, mode, where, offset, payload, content)
        asked["words"] = listed(names, "names")
        return self._service.ask("search", *plain(asked), read=answers.hits)

    def more_like(
        self,
        id: Id,  # noqa: A002 - the name that users give it
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        *,
        content: float | None = None,
        payload: bool = True,
    ) -> list[Hit]:
        """Return the items nearest to one that is stored, itself left out, by its code."""
        asked = question(k, mode, where, offset, payload, content)
        asked["like"] = check_id(id)
        return self._service.ask("search", *plain(asked), read=answers.hits)[0]

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
        asked = {"ids": [check_id(each) for each in ids]}
        return set(self._service.ask("known", *plain(asked), read=answers.list_in("ids")))

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        return self._service.ask(f"item?{address_of(id)}", read=answers.stored)

    def latest(self, k: int = 10) -> list[Stored]:
        """Return the newest items, at most 100, newest first; texts are cut to 1,000 characters."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise InputError(f"k must be a whole number of at least 1, got {k!r}")
        return self._service.ask(f"latest?k={k}", read=answers.latest)

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._picture("thumbnail", id)

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture of an item, or None.

        The original if the service has a folder of originals, else as in `Collection.preview`.
        """
        return self._picture("preview", id)

    def _picture(self, what: str, id: Id) -> bytes | None:  # noqa: A002
        status, content = self._service.answer("GET", f"{what}?{address_of(id)}")
        if status == 200:
            return content
        problem = problem_of(content)
        if not problem.get("type", "").endswith(":no-picture"):
            self._service.raise_for(status, problem)
        return None

    def classes(self) -> list[ClassInfo]:
        """Return the classes in order of arrival, with the number of items that have each."""
        return self._service.ask("classes", read=answers.classes)

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads with examples of their values, from a sample."""
        return self._service.ask("fields", read=answers.described_fields)

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        return self._service.ask("rounds", read=answers.rounds)

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        return self._service.ask("stats", read=answers.stats)

    def norms(self) -> dict[str, float]:
        """Return the Frobenius norms of what the model has learned, by name."""
        return dict(self._service.ask("norms", read=answers.value_in("norms")))

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
        return bool(self._service.ask("stats", read=answers.value_in("readonly")))

    def check(self) -> list[str]:
        """Read everything and return a list of what is wrong; it is empty if nothing is."""
        return self._service.ask("check", b"", JSON, read=answers.list_in("findings"))
