"""Collection: learn, index and store as one transaction."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self, Unpack

from oasis.collection.catalog import Catalog, translated
from oasis.collection.checks import Finding, findings
from oasis.collection.committed import ATTEMPTS, Committed, Follower, VanishedError, learned
from oasis.collection.files import Files
from oasis.collection.filters import AllowLists
from oasis.collection.labelling import next_to_label
from oasis.collection.lock import LOCK_NAME, WriterLock
from oasis.collection.lookups import Lookups
from oasis.collection.notebook import collection_html
from oasis.collection.opening import check_model, make_directory, prepare
from oasis.collection.plane import plane
from oasis.collection.query import Queries
from oasis.collection.records import (
    ClassInfo,
    Explanation,
    FieldInfo,
    Hit,
    Id,
    Mode,
    Plane,
    Question,
    Rejected,
    Round,
    SearchOptions,
    Stats,
    Stored,
    ToLabel,
    Updated,
    check_id,
)
from oasis.collection.replica import check_address
from oasis.collection.setup import RecordedExtractor, Setup, feature_widths
from oasis.collection.writing import Writer
from oasis.errors import CollectionError, InputError
from oasis.features.extractor import Extractor
from oasis.hashers.protocol import Labels
from oasis.index import CodeIndex
from oasis.items import Fields
from oasis.model import AnyModel

_SHOWN_POINTS = 2000


class Collection:
    """A directory that learns from a stream of items and finds them again.

    Made by `Collection.open`. `ingest` is atomic and durable when it returns. One writer at a time,
    any number of readers, in any process; in one process any number of threads may search while
    one writes, and they work on the last committed state without waiting for it.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from oasis import OASIS, Collection
    >>> rng = np.random.default_rng(0)
    >>> X = {"image": rng.random((4, 20)), "text": rng.random((4, 10))}
    >>> y = [["sky"], ["sky", "sea"], ["cat"], ["cat"]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = OASIS(n_bits=16, random_state=0)
    ...     with Collection.open(f"{folder}/photos.oasis", model=model) as c:
    ...         c.ingest(X, y, ids=["a", "b", "c", "d"], payload=[{"year": i} for i in range(4)])
    ...         hits = c.search(X, k=2, where={"year": {"gte": 2}})
    ...     [hit.id for hit in hits[2]]
    ['c', 'd']
    """

    def __init__(
        self,
        directory: Path,
        catalog: Catalog,
        setup: Setup,
        lock: WriterLock | None,
        extractor: Extractor | None,
        words: Any,
        trust_embedders: bool,
    ) -> None:
        """Not to be called; see `open`."""
        self.path = directory
        self._pid = os.getpid()
        self._catalog, self._setup, self._lock = catalog, setup, lock
        self._writer: Writer | None = None
        self._extractor = RecordedExtractor(catalog, extractor, trusts=trust_embedders)
        self._follower = Follower(
            directory, catalog, setup.n_bits, follows=lock is None, words=words
        )
        try:
            if lock is not None:
                files = Files(directory, lock)
                self._writer = Writer(catalog, files, setup, self._follower, self._extractor, words)
            self._extractor.settle(feature_widths(self._snapshot.model), records=lock is not None)
        except BaseException:
            self._snapshot.replica.close()
            raise
        of = (catalog, setup, self._follower, self._extractor)
        self._lookups = Lookups(*of)
        self._queries = Queries(
            catalog, self._follower, self._extractor, self._lookups, keep_text=setup.keep_text
        )

    @property
    def _snapshot(self) -> Committed:
        return self._follower.snapshot

    @property
    def _writing(self) -> Writer:
        """What changes the collection; refused where this object can only read."""
        self._follower.check_open()
        if self._writer is None:
            raise CollectionError(
                f"{self.path} was opened with readonly=True; open it without to change it"
            )
        return self._writer

    # -- opening and closing -------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        n_bits: int | None = None,
        *,
        model: AnyModel | None = None,
        extractor: Extractor | None = None,
        words: str | PathLike[str] | None = None,
        readonly: bool = False,
        timeout: float = 0.0,
        index: str | PathLike[str] | None = None,
        keep_text: bool | None = None,
        keep_features: bool | None = None,
        picture_meaning: bool | None = None,
        trust_embedders: bool = False,
    ) -> Self:
        """Open a collection; it is created where there is none.

        Parameters
        ----------
        path : path-like
            A directory: missing, empty, or a collection.
        n_bits : int, optional
            Length of the codes of a new collection, 256 if not given. Of one that exists it may be
            left out, and another one is refused.
        model : OASIS or the published method, optional
            What a new collection learns with; ``OASIS.for_search(n_bits)`` if not given. It may
            have learned already, and is stored with the first commit. Of a collection that exists
            it must have the same parameters and have learned nothing, or be the one that it began
            with.
        extractor : Extractor, optional
            What makes features of raw items. It is recorded, and another one is refused.
        words : path-like, optional
            Where the file of word vectors is now, if it has moved.
        readonly : bool
            Read beside a writer, in this or another process. Every search first loads new commits.
        timeout : float
            Seconds to wait for another writer; 0 does not wait.
        index : str or path-like, optional
            Where the codes are searched: "local", in memory; "milvus://host:port/name", or the same
            with "?timeout=60" behind it (seconds for each request, 10 if not given); or the path of
            a milvus-lite file that ends in .db. It is recorded; the default is "local". A writer
            may give another one: then the codes are copied there from the catalog, which has all of
            them.
        keep_text : bool, optional
            Whether a new collection keeps the texts of its items, so that they are found by their
            words; yes if not given. Of one that exists it may be left out, and another choice is
            refused.
        keep_features : bool, optional
            Whether a new collection keeps the features of its items, in half precision, so that
            labels given later teach. If not given it keeps those that it makes of raw items, and
            not those that are given as they are. Of one that exists as ``keep_text``.
        picture_meaning : bool, optional
            Whether a new collection guesses what pictures show, so that words find those without a
            text (`oasis.features.picture_meaning`, and names as words of which it is sure); yes if
            not given and its extractor makes the features that this needs. Of one that exists as
            ``keep_text``.
        trust_embedders : bool
            Whether a recorded embedder ``package.module:factory`` may be imported, which runs code
            that whoever filled the collection has chosen. Needed only for features of raw items,
            and not where ``extractor`` is given.

        Raises
        ------
        LockedError
            Another writer has it open.
        CollectionError
            The directory is no collection, or (`StorageError`) cannot be read or written; or
            there are items at ``index`` that are not of this collection.
        EngineError
            Milvus is not there, or does not answer in time.
        FormatError
            A file of it is damaged, or (`NewerVersionError`) was written by a newer oasis.
        """
        directory = Path(path)
        choices = {
            "keep_text": keep_text,
            "keep_features": keep_features,
            "picture_meaning": picture_meaning,
        }
        for name, value in {**choices, "trust_embedders": trust_embedders}.items():
            if value is not None and not isinstance(value, bool):
                raise InputError(f"{name} must be True or False, got {value!r}")
        address = None if index is None else check_address(index)
        lock: WriterLock | None = None
        catalog: Catalog | None = None
        try:
            with translated(directory):
                if readonly:
                    catalog = Catalog(directory, writable=False)
                else:
                    check_model(model, n_bits)  # before anything is written
                    make_directory(directory)
                    lock = WriterLock(directory / LOCK_NAME, timeout)
                    catalog = Catalog(directory, writable=True)
                setup = prepare(directory, catalog, lock, n_bits, model, address, choices)
                return cls(directory, catalog, setup, lock, extractor, words, trust_embedders)
        except BaseException:
            if catalog is not None:
                catalog.close()
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        """Make a checkpoint (see `checkpoint`) and close; a second call does nothing.

        In a forked child nothing is written.
        """
        follower = self._follower
        if os.getpid() != self._pid:
            follower.closed = True
            return
        with follower.changing:
            if follower.closed:
                return
            try:
                if self._writer is not None:
                    self._writer.close()
            finally:
                follower.closed = True
                follower.snapshot.replica.close()
                self._catalog.close()
                if self._lock is not None:
                    self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise CollectionError("a collection cannot be sent to another process; open it there")

    def __repr__(self) -> str:
        head = self._follower.snapshot.head
        return f"<Collection {str(self.path)!r}: {head.n_items} items, {self.n_bits} bits>"

    # -- changing -------------------------------------------------------------------------------

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

        When it returns, a kill or a power cut does not undo it.

        Parameters
        ----------
        X, y : as in `OASIS.partial_fit`
            Samples without labels, all if ``y`` is None, get the codes of samples with their
            predicted labels.
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
        smaller one goes to the journal (see `oasis.collection.journal`).
        """
        self._writing.ingest(X, y, ids, payload, thumbnails, texts)

    def replace(
        self,
        X: Mapping[str, Any],
        y: Labels | None,
        ids: Iterable[Id],
        payload: Iterable[Mapping[str, Any] | None] | None = None,
        thumbnails: Iterable[bytes | None] | None = None,
        texts: Iterable[str | None] | None = None,
    ) -> None:
        """Delete the items with these ids and ingest others under them, in one commit.

        The arguments are those of `ingest`, but every id must be there. Nothing of the old items is
        kept: codes, labels, payloads, pictures and texts are those given. What was learned from the
        old items is subtracted where their features are kept.
        """
        if ids is None:
            raise InputError("replace takes the ids of the items to replace, got None")
        self._writing.ingest(X, y, ids, payload, thumbnails, texts, replaces=True)

    def update(
        self,
        ids: Id | Iterable[Id],
        *,
        payload: Any = ...,
        labels: Any = ...,
        progress: Callable[[int], object] | None = None,
    ) -> Updated:
        """Change payloads or labels of items, in one commit; what is left out is kept.

        Where the features of an item are kept, the model learns from its new labels, what it
        taught before is subtracted, and its code is made anew; other codes never change. Where
        they are not kept, the item is found under its new labels, the model does not learn, and a
        warning is logged. Labels that are given, also none at all, take the place of predicted
        ones.

        Parameters
        ----------
        ids : str or int, or several of them
            All must be there.
        payload : JSON object, or one for each id, optional
            The whole new payload; None for an empty one.
        labels : class names of all these items, or one iterable of names for each id, optional
            All labels of an item; None for none.
        progress : callable, optional
            Called with the number of items after every block of them.

        Raises
        ------
        UnknownIdError
            No item has the id; nothing was changed.
        """
        return self._writing.update(ids, payload, labels, progress)

    def rename_label(
        self, old: str, new: str, progress: Callable[[int], object] | None = None
    ) -> Updated:
        """Give all items of the class ``old`` the class ``new``, in one commit, as by `update`.

        Where both exist they are joined. Predicted labels are renamed too, and learn nothing.
        ``progress`` is called with the number of items after every block of them. An unknown class
        is an `InputError`.
        """
        return self._writing.rename_label(old, new, progress)

    def delete(self, ids: Iterable[Id]) -> int:
        """Delete items for ever, other codes untouched; return how many. Every id must be there.

        What was learned from them is subtracted from the sums of the model where their features
        are kept, and stays there where they are not.
        """
        return self._writing.delete(ids)

    def ingest_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Extract the features of raw items and ingest them as one chunk.

        Parameters
        ----------
        items : sequence of `oasis.items.Item`, or of mappings with the same keys
        thumbnails : bool, or as in `ingest`, one per item
            True makes them of the items' pictures, which are decoded once for all uses.
        strict : bool
            Raise at the first item that cannot be used, instead of leaving it out.
        progress : callable, optional
            Called with the number of items after every batch of the extraction.

        Returns
        -------
        list of Rejected
            The items left out: there was nothing to make features of, or they could not be made,
            or the id is there already. An ingest that was interrupted is therefore resumed by
            giving the same items again.
        """
        return self._writing.ingest_items(items, thumbnails, strict, progress, replaces=False)

    def replace_items(
        self,
        items: Sequence[Any],
        *,
        thumbnails: Iterable[bytes | None] | bool = False,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Replace stored items by raw ones with the same ids, in one commit; see `replace`.

        Parameters and result are those of `ingest_items`, but an item is left out whose id is not
        there.
        """
        return self._writing.ingest_items(items, thumbnails, strict, progress, replaces=True)

    def ingest_table(
        self,
        table: Any,
        features: Mapping[str, str],
        *,
        id: str = "id",  # noqa: A002 - the name that users give it
        labels: str | None = "labels",
        payload: str | tuple[str, ...] | None = "payload",
        separator: str = ";",
        batch: int = 4096,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> list[Rejected]:
        """Ingest features that are there already, from the columns of a table or file.

        Each batch of rows is a chunk: learned, atomic, and durable before the next one is begun.

        Parameters
        ----------
        table : path, pyarrow Table, pandas DataFrame, or mapping of column name to values
            A path is of a .parquet, .npz, .npy or .jsonl file.
        features : mapping of modality to column
            Columns of vectors, in half, single or double precision. A row may lack some.
        id, labels, payload : names of columns
            Without a column of ids, npz, npy and tables count their rows from 0. ``payload`` is a
            column of objects, or a tuple of columns that are gathered into one.
        separator : str
            What separates labels where they are one text.
        batch : int
            Rows of a chunk.
        strict : bool
            Check all rows first, and raise at the first that cannot be used.
        progress : callable, optional
            Called with the number of rows after every batch.

        Returns
        -------
        list of Rejected
            The rows left out: a vector of another length or with NaN, no vector at all, or an id
            that is there already.

        Raises
        ------
        InputError, DataError
            A column is missing or holds no vectors, or vectors have another length than those of
            this collection; nothing has been changed.
        """
        fields = Fields(id, None, None, labels, payload, dict(features))
        return self._writing.ingest_table(table, fields, separator, batch, strict, progress)

    def update_table(
        self,
        table: Any,
        *,
        id: str = "id",  # noqa: A002 - the name that users give it
        labels: str | None = "labels",
        payload: str | tuple[str, ...] | None = "payload",
        separator: str = ";",
        batch: int = 4096,
        strict: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> tuple[Updated, list[Rejected]]:
        """Change labels and payloads of items by the rows of a table or file, as by `update`.

        Each batch of rows is a commit, and memory holds one. After an interruption the same call
        goes on: what is as the table says is not changed.

        Parameters
        ----------
        table : path, pyarrow Table, pandas DataFrame, or mapping of column name to values
            A path is of a .csv, .tsv, .jsonl or .parquet file.
        id, labels, payload : names of columns
            Items keep their labels, or payloads, where the column is missing. An empty cell of
            labels stands for none. ``payload`` is a column of objects, or a tuple of columns that
            are gathered into the whole new payload; a file without the column gathers all that are
            no ids, labels, pictures or texts.
        separator, batch, strict, progress : as in `ingest_table`

        Returns
        -------
        Updated, list of Rejected
            What became of the items, and the rows left out: no item has their id, or their labels
            or payload are too large.
        """
        fields = Fields(id, labels=labels, payload=payload, facts_alone=True)
        return self._writing.update_table(table, fields, separator, batch, strict, progress)

    def index_field(self, name: str) -> None:
        """Make an index of a field of the payload, so that filters by it read only what passes.

        The index follows all changes. Cost: one pass over the payloads.
        """
        if not isinstance(name, str):
            raise InputError(f"a field has a text as its name, got {name!r}")
        self._writing.index_field(name)

    def checkpoint(self) -> None:
        """Write the whole model and the index, and erase the journal with the features in it."""
        self._writing.checkpoint()

    def add_words(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors of class names to a collection whose label space was made from a mapping."""
        self._writing.add_words(vectors)

    # -- searching ------------------------------------------------------------------------------

    def search(
        self,
        X: Mapping[str, Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Return the k best hits of every query, best first; ties by age, the older first.

        Parameters
        ----------
        X : mapping of modality name to an (n, d) array or CSR matrix
            Any of the modalities.
        k, offset : int
            How many hits to return, after skipping so many.
        mode : {"asymmetric", "hamming"}
            By the cosine of the query's real-valued projection with an item's signs, or by Hamming
            distance.
        where : mapping, optional
            A filter; see `oasis.collection.filters`.
        content : float from 0 to 1, optional
            Weight of the content bits in asymmetric scores: 0 asks for the kind alone, the labels
            that are predicted of the query; 1 for the thing itself alone. None: as in
            `OASIS.project`. A collection whose codes have no content bits takes None alone.
        fuse : bool
            Whether an item with the very features of the query comes first, with a score of 1: see
            `oasis.collection.duplicates`. It holds for ``mode="asymmetric"``, but not for
            ``content=0``, which asks for the kind alone.
        payload : bool
            Whether hits carry their payload; without, it is empty, and not read.
        max_bytes : int, optional
            Raise `TooLargeError` where the payloads of the hits have more bytes of JSON together.
        """
        return self._queries.by_features(X, Question(k, mode, where, offset, **options))

    def search_items(
        self,
        items: Sequence[Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Search with raw items, such as ``[{"text": "a red boat"}]``, by the extractor.

        Parameters
        ----------
        items : sequence of mappings or objects with the fields of the extractor, and ``vectors``
        fuse : bool
            Whether the words of a text, its meaning and the fingerprints of its features decide
            together with the codes, by the formula in `oasis.collection.ranking`. It holds
            for ``mode="asymmetric"``, but not for ``content=0``, which asks for the kind alone.
        k, mode, where, offset, content, payload, max_bytes : as in `search`
        """
        return [
            answer.hits
            for answer in self._queries.by_items(items, Question(k, mode, where, offset, **options))
        ]

    def find(
        self,
        text: str | None = None,
        *,
        image: Any = None,
        k: int = 10,
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
    ) -> list[Hit]:
        """Return the hits for what a person asks: words, a picture, or both.

        A picture orders what the words find.

        Parameters
        ----------
        text : str, optional
        image : path, bytes of a picture file, or what else the extractor takes, optional
        k, where, offset : as in `search`

        Returns
        -------
        list of Hit, best first, with their texts
        """
        return self._queries.found(text, image, Question(k, "asymmetric", where, offset))

    def search_items_with_evidence(
        self,
        items: Sequence[Any],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> tuple[list[list[Hit]], list[float]]:
        """Return `search_items` and `evidence_items` of the same queries, as of one commit.

        Features are computed once.

        Parameters are those of `search_items`.
        """
        answers = self._queries.by_items(items, Question(k, mode, where, offset, **options))
        return [each.hits for each in answers], [each.evidence for each in answers]

    def search_words(
        self,
        names: Iterable[str],
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[list[Hit]]:
        """Search with names of classes, or with any words if the label space knows words.

        Hits are weak where no class means nearly the same; see `OASIS.project_words_with_evidence`.
        A class that items have by `update` alone is searched by the mean of their codes, whatever
        the weight of content.

        Parameters
        ----------
        content : float or None
            Weight, from 0 to 1, of the content that a name has as a text. None, like 0, searches by
            the label alone. Other weights need an extractor that makes features of texts.
        k, mode, where, offset, payload, max_bytes : as in `search`
        """
        return self._queries.by_names(names, Question(k, mode, where, offset, **options))

    def more_like(
        self,
        id: Id,  # noqa: A002 - the name that users give it
        k: int = 10,
        mode: Mode = "asymmetric",
        where: Mapping[str, Any] | None = None,
        offset: int = 0,
        **options: Unpack[SearchOptions],
    ) -> list[Hit]:
        """Return the items nearest to one that is stored, itself left out, by its code.

        With content bits, asymmetric scores weigh kind and content alike, so that near-duplicates
        come first; ``content`` gives another weight, from 0 for the kind to 1 for content alone.
        """
        return self._queries.near(id, Question(k, mode, where, offset, **options))

    def evidence_items(self, items: Sequence[Any]) -> list[float]:
        """Return how sure it is that something like each raw query is here, from 0 to 1.

        `OASIS.evidence` of the query, or, if that is more, the score of its best hit over 0.6. Of a
        text that names a class it is at least 0.9, and 0.1 where there are no classes. Below 0.5
        hits are weak. A model that cannot tell gives 1.
        """
        answers = self._queries.by_items(items, Question(k=1, payload=False))
        return [each.evidence for each in answers]

    def suggest(self, text: str) -> str | None:
        """Return what is searched instead of a text with typing errors, or None.

        Each word that stands in no text and in no name of a class is replaced by a similar one that
        does, see `oasis.collection.words`. Words of 4 to 32 letters are, the first eight
        unknown ones; not those that the bundled word vectors know.
        """
        return self._queries.suggested(text)

    def explain(self, id: Id, query: str | Mapping[str, Any]) -> Explanation:  # noqa: A002
        """Return why an item has its score for a query.

        Which part comes from which class, from content, from which words, from meaning, and from
        being the same; see `oasis.collection.explain`. ``query`` is a text, or the fields of a raw
        item as in `search_items`.
        """
        return self._queries.explained(id, query)

    def next_to_label(self, k: int = 10) -> list[ToLabel]:
        """Return the items without labels whose labels would teach most, the most useful first.

        Uncertain by the calibration, and unlike each other; see `oasis.collection.labelling`. At
        most 4,000 items are looked at.
        """
        return next_to_label(self._follower.current(), self._catalog, k)

    def plane(self, most: int = 20_000, random_state: int = 0) -> Plane:
        """Return the items as points in the plane, those of a class near each other.

        Beyond ``most`` items, a sample; see `oasis.collection.plane`.
        """
        return plane(self._follower.current(), self._catalog, most, random_state)

    def _repr_html_(self) -> str:
        return collection_html(str(self.path), self.stats(), self.plane(_SHOWN_POINTS))

    def duplicates(self, progress: Callable[[int], object] | None = None) -> list[list[Id]]:
        """Return groups of items that repeat each other, the oldest of each group first.

        By the fingerprints of their features in every modality; ``progress`` is called with the
        number of items compared since the last call. Cost: seconds for 100,000 items, minutes for
        a million.
        """
        return self._lookups.ids_of(self._queries.repeats.groups(progress))

    # -- looking up -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._follower.current().head.n_items

    def __contains__(self, item: object) -> bool:
        try:
            return bool(self._lookups.known([check_id(item)]))
        except InputError:  # what no item can have as its id
            return False

    def known(self, ids: Iterable[Id]) -> set[Id]:
        """Return those of the ids that items have."""
        return self._lookups.known(ids)

    def get(self, id: Id) -> Stored:  # noqa: A002
        """Return an item as it is stored."""
        return self._lookups.get(id)

    def latest(self, k: int = 10, max_bytes: int | None = None) -> list[Stored]:
        """Return the items that came last, the newest first: k, or as many as the bytes allow.

        At most 1,000,000.

        ``max_bytes`` bounds the JSON of their payloads together; the newest comes in any case.
        """
        return self._lookups.latest(k, max_bytes)

    def snippets(self, ids: Sequence[Id], n_characters: int = 200) -> dict[Id, str]:
        """Return how the kept texts of items begin, of those ids that have one."""
        return self._lookups.snippets(ids, n_characters)

    def items(self) -> Iterator[Stored]:
        """Yield every item as it is stored, oldest first, all of them as of one commit.

        What is committed after the first item was asked for is not seen. Cost: about 8 microseconds
        an item, in no more memory than one takes; the files cannot be tidied up while an iteration
        goes on, so one that is given up should be closed.
        """
        return self._lookups.items()

    def thumbnail(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the picture that came with an item, or None."""
        return self._lookups.thumbnail(id)

    def preview(self, id: Id) -> bytes | None:  # noqa: A002
        """Return the largest picture kept of an item, up to 512 pixels wide and high, or None.

        That is the thumbnail where there is no preview: one that was given with ready features, or
        one of a small picture.
        """
        return self._lookups.preview(id)

    def classes(self) -> list[ClassInfo]:
        """Return the classes that items have, in order of arrival, with the number of items."""
        return self._lookups.classes()

    def fields(self) -> list[FieldInfo]:
        """Return the fields of payloads with examples of their values, those of most items first.

        From the 1,000 oldest and the 1,000 newest items, as far as their payloads have up to 8 MiB
        together, so that the cost does not grow with the collection.
        """
        return self._lookups.fields()

    def rounds(self) -> list[Round]:
        """Return every chunk ingested, in order, with its quality."""
        return self._lookups.rounds()

    def stats(self) -> Stats:
        """Return the collection in numbers."""
        return self._lookups.stats()

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self._setup.n_bits

    @property
    def readonly(self) -> bool:
        """Whether this object can only read."""
        return self._writer is None

    @property
    def extractor(self) -> Extractor:
        """What makes features of raw items: the one given, or the one recorded."""
        return self._extractor.get()

    @property
    def fingerprints_are_here(self) -> bool:
        """Whether a search by features finds all fingerprints of the last commit in memory.

        It neither looks for a commit nor reads.
        """
        return self._queries.fingerprints_are_here

    @property
    def keep_text(self) -> bool:
        """Whether texts of items are kept."""
        return self._setup.keep_text

    @property
    def model(self) -> AnyModel:
        """A copy of the model as of the last commit; learning with it does not change this one."""
        return copy.copy(learned(self._follower.current()))

    def norms(self) -> dict[str, float]:
        """Return the Frobenius norms of what the model has learned, by name."""
        model = self._follower.current().model
        return {} if model is None else model.state_.norms()

    @property
    def codes_are_here(self) -> bool:
        """Whether codes are searched in this process; neither looks for a commit nor connects."""
        return self._snapshot.replica.is_local

    @property
    def index(self) -> CodeIndex:
        """The index of all codes by key, to be read only."""
        return self._follower.current().index

    # -- checking ------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """Read everything and return a list of what is wrong; it is empty if nothing is.

        Every row is compared with its checksum, every table with its tally, model, journal and
        index with theirs, postings and counts with the items. Cost: one pass over all files. A
        writer waits for it.
        """
        return [finding.text for finding in self._checked_findings()]

    def repair(self) -> list[str]:
        """Rebuild what can be derived from items, and return what is still wrong.

        The index, the postings of classes and words and the counts of classes are made from the
        items' rows and texts; files that no commit names are removed. Items, texts, thumbnails,
        class names, rounds, the model and its journal can only be restored from a backup.
        """
        writer = self._writing
        if any(finding.can_repair for finding in self._checked_findings()):
            writer.repair()
            self._queries.allow_lists = AllowLists(self._catalog)
        return self.check()

    def _checked_findings(self) -> list[Finding]:
        follower = self._follower
        follower.check_open()  # first: in a forked child nobody would ever release the lock
        with follower.changing:
            follower.check_open()
            found = self._findings()
            # a file that is missing for a reader may have been removed by the writer meanwhile
            for _ in range(ATTEMPTS if found and follower.follows else 0):
                if follower.commits() == follower.snapshot.head.commits:
                    break
                found = self._findings()
            if follower.follows and follower.commits() != follower.snapshot.head.commits:
                # the writer commits faster than a check reads, and removes replaced files
                found = [finding for finding in found if not finding.is_missing]
            return found

    def _findings(self) -> list[Finding]:
        with self._catalog.reading() as connection:
            if self._follower.follows:
                # by the same connection, as a writer may commit between two
                try:
                    self._follower.follow(connection)
                except VanishedError as error:
                    return [Finding(str(error))]
            return findings(
                self._follower.snapshot,
                self._catalog,
                connection,
                self.path,
                writes=self._writer is not None,
            )
