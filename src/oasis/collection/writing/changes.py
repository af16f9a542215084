"""Changes of a collection by ready features: ingest, delete, and what else makes a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import EllipsisType
from typing import Any

from oasis.collection.catalog.catalog import fault_of_doubt
from oasis.collection.catalog.setup import label_space, with_labels
from oasis.collection.records import Id, check_id, listed_ids, utf8
from oasis.collection.search.raw_queries import RawQueries
from oasis.collection.writing.intake import check_payload
from oasis.collection.writing.writer import Writer
from oasis.errors import CollectionError, InputError, NotFittedError
from oasis.hashers.chunk import check_label_set, warn_of_similar_names
from oasis.hashers.protocol import Labels


class Changes(RawQueries):
    """What can be done with a collection beyond reading it; one thread at a time does."""

    _writer: Writer | None = None

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

        When it returns, a kill or a power cut does not undo it.

        Parameters
        ----------
        X, y : as in `OASIS.partial_fit`
            Samples without labels get the codes of samples with their predicted labels.
        ids : one str or int per sample, optional
            Kept as given; 1 and "1" are different. Each must be new, or have been deleted. Without
            ids an item gets the whole number that counts it, or, where an item has that as its id,
            one beyond the largest number that is an id.
        payload : one JSON object per sample, optional
            At most 1 MiB each as JSON, and 100 levels of lists and objects inside each other.
        thumbnails : bytes of a picture file, or None, per sample, optional
            At most 10 kB (10,240 bytes) each.
        texts : one text, or None, per sample, optional
            Kept word for word, at most 1 MiB each; found by ``{"$text": {"contains": ...}}``.

        Notes
        -----
        A chunk with 32 or more labelled samples, and the first one, writes the whole model; a
        smaller one is appended to the journal (see `oasis.collection.files.files`).
        """
        self._ingest(X, y, ids, payload, thumbnails, texts)

    def _ingest(
        self,
        X: Any,
        y: Labels,
        ids: Any,
        payload: Any,
        thumbnails: Any,
        texts: Any,
        *,
        replaces: bool = False,
    ) -> None:
        with self._writing() as writer:
            if texts is not None and not self.keep_text:
                raise InputError(
                    "this collection was begun with keep_text=False, so it takes no texts; leave "
                    "them out"
                )
            self._snapshot = writer.ingest(
                self._snapshot, X, y, ids, payload, thumbnails, texts, replaces=replaces
            )

    def replace(
        self,
        X: Mapping[str, Any],
        y: Labels,
        ids: Iterable[Id],
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Delete the items with these ids and ingest others under them, in one commit.

        The arguments are those of `ingest`, but every id must be there. Nothing of the old items is
        kept: codes, labels, payloads, pictures and texts are those given. What was learned from the
        old items stays learned.
        """
        if ids is None:
            raise InputError("replace takes the ids of the items to replace, got None")
        self._ingest(X, y, ids, payload, thumbnails, texts, replaces=True)

    def update(
        self,
        id: Id,  # noqa: A002
        *,
        payload: Mapping[str, Any] | EllipsisType | None = ...,
        labels: Iterable[str] | EllipsisType | None = ...,
    ) -> None:
        """Change the payload or the labels of an item; what is left out is kept.

        Labels are what is shown and filtered by: the code of the item stays as it is, and the model
        does not learn. Labels that are given, also none at all, take the place of predicted ones.

        Parameters
        ----------
        id : str or int
        payload : JSON object, optional
            The whole new payload; None for an empty one.
        labels : iterable of class names, optional
            All labels of the item; None for none. A name that no item had makes a class, which the
            model learns when a chunk brings it.

        Raises
        ------
        UnknownIdError
            No item has the id.
        """
        key = check_id(id)
        if payload is ... and labels is ...:
            raise InputError("nothing to change: give payload, labels, or both")
        text = ... if isinstance(payload, EllipsisType) else check_payload(payload)
        names: tuple[str, ...] | None = None
        if not isinstance(labels, EllipsisType):
            names = check_label_set(() if labels is None else labels)
            for name in names:
                utf8(name, f"the class name {name!r}")
        with self._writing() as writer:
            if names:
                warn_of_similar_names([names], self._snapshot.classes, stacklevel=3)
            self._snapshot = writer.update(self._snapshot, key, names, text)

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items for ever, other codes untouched; return how many. Every id must be there.

        What was learned from them stays in the sums of the model.
        """
        wanted = list(dict.fromkeys(listed_ids(ids, "delete")))
        with self._writing() as writer:
            self._snapshot = writer.delete(self._snapshot, wanted)
        return len(wanted)

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        with self._writing() as writer:
            self._snapshot = writer.checkpoint(self._snapshot, index_changes=1)

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        with self._writing() as writer:
            if self._snapshot.model is None:
                raise NotFittedError(
                    "this collection has learned nothing yet; give the vectors with its model"
                )
            model = self._snapshot.model
            # a space of its own: nothing is changed before the commit
            more = with_labels(model, label_space(model).with_words(vectors))
            self._snapshot = writer.adopt(self._snapshot, more)

    @property
    def readonly(self) -> bool:
        """Whether this object can only read."""
        return self._follows

    @contextmanager
    def _writing(self) -> Iterator[Writer]:
        with self._changing:
            writer = self._check_writable()
            if self._catalog.in_doubt:
                # even a file written now could damage a commit that is there after all
                raise fault_of_doubt()
            yield writer

    def _check_writable(self) -> Writer:
        self._check_open()
        if self._writer is None:
            raise CollectionError(
                f"{self.path} was opened with readonly=True; open it without to change it"
            )
        return self._writer
