"""Opening what a command works on: a collection here, or a client of a service that has one.

Both have the same methods, so commands need not distinguish them. What only a directory can do,
such as a repair, requires one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oasis.cli.options import is_address
from oasis.collection.records import MAX_ID_BYTES
from oasis.errors import CollectionError, InputError, UnknownIdError

if TYPE_CHECKING:
    from oasis.client import Client
    from oasis.collection import Collection
    from oasis.collection.records import Id
    from oasis.features.extractor import Extractor
    from oasis.model import OASIS

_ANSWER_SECONDS = 300.0
_PATIENCE_SECONDS = 120.0


def open_to_read(
    collection: str, token_file: Path | None = None, *, trust_embedders: bool = False
) -> Collection | Client:
    """Open a collection that exists, here or in a service; a writer may be at work beside."""
    if is_address(collection):
        if trust_embedders:
            raise InputError("a service decides what it trusts: oasis serve --trust-embedders")
        return client_of(collection, token_file)
    return open_directory(Path(collection), trust_embedders=trust_embedders)


def open_to_write(collection: str, token_file: Path | None = None) -> Collection | Client:
    """Open a collection that exists, here or in a service, to change it."""
    from oasis.collection import Collection
    from oasis.collection.feeding import collection_exists

    if is_address(collection):
        return client_of(collection, token_file)
    if not collection_exists(Path(collection)):  # nothing is made where there is no collection
        raise _none_at(Path(collection))
    return Collection.open(collection)


def open_directory(
    path: Path, *, index: str | None = None, trust_embedders: bool = False
) -> Collection:
    """Open a collection that exists here; a writer may be at work beside.

    An ``index`` other than the recorded one is refused.
    """
    from oasis.collection import Collection
    from oasis.collection.feeding import collection_exists

    if not collection_exists(path):
        raise _none_at(path)
    return Collection.open(path, readonly=True, index=index, trust_embedders=trust_embedders)


def _none_at(path: Path) -> CollectionError:
    return CollectionError(f"there is no collection at {path}")


def client_of(url: str, token_file: Path | None) -> Client:
    """Return a client of a service; its token is from the file, or from ``$OASIS_TOKEN``.

    An address without a service is an error at once.
    """
    from oasis.client import Client

    client = Client(url, _token(token_file), timeout=_ANSWER_SECONDS, patience=_PATIENCE_SECONDS)
    try:
        client.stats()
    except BaseException:
        client.close()
        raise
    return client


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get("OASIS_TOKEN") or None
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError(f"the token file {path} cannot be read: {reason}") from None
    if not token:
        raise InputError(f"the token file {path} is empty")
    return token


def model_to_fill(path: Path, bits: int | None, owned: int | None) -> OASIS | None:
    """Return the model for a new collection, or None if ``owned`` is not given.

    For a collection that exists, `Collection.open` compares this model with the recorded one.
    """
    from oasis.collection.feeding import collection_exists
    from oasis.collection.opening import N_BITS
    from oasis.model import OASIS

    if owned is None:
        return None
    if bits is None and collection_exists(path):
        with open_directory(path) as opened:
            bits = opened.n_bits
    return OASIS.for_search(N_BITS if bits is None else bits, owned=owned)


def extractor_to_fill(
    path: Path,
    image: str | None,
    text: str | None,
    widths: Mapping[str, int] | None,
    *,
    trust_embedders: bool = False,
) -> Extractor:
    """Return the extractor for the items of an ingest.

    It is the one recorded in the collection, with the embedders that the command names;
    `Collection.open` refuses one that differs from the record. ``widths`` has, by modality, the
    number of values of vectors that come with the items.
    """
    from oasis.collection.feeding import collection_exists
    from oasis.features.extractor import Extractor

    if collection_exists(path):
        with open_directory(path) as opened:
            described = opened.stats().extractor
        if described is not None:
            recorded = Extractor.from_description(described, trust_embedders=trust_embedders)
            recorded.check_widths(widths or {})
            return recorded.with_named(image, text)
    return Extractor.of(image, text, widths)


def asked_ids(opened: Collection | Client, texts: Iterable[str]) -> list[Id]:
    """Return the ids that texts mean, as `stored_ids` does.

    One that no item has raises `UnknownIdError` here if an item has another form of it, as of a
    file name; otherwise it is left to the caller to refuse it.
    """
    from oasis.cli.conditions import stored_ids

    ids = stored_ids(opened, texts)
    known = opened.known(ids)
    for each in ids:
        near = [] if each in known else sorted(map(str, opened.known(_forms(str(each)))))
        if near:
            raise UnknownIdError(
                f"no item has the id {each!r}; did you mean {' or '.join(map(repr, near[:3]))}?"
            )
    return ids


def _forms(text: str) -> list[Id]:
    """Return other forms of an id: in lower case, without its folder, with another suffix.

    >>> "b.jpg" in _forms("photos/B")
    True
    """
    from oasis.items.folder import IMAGE_SUFFIXES

    forms: dict[Id, None] = {}
    for name in (text, text.lower(), text.rpartition("/")[2], text.lower().rpartition("/")[2]):
        stem = name.rpartition(".")[0] or name
        forms |= dict.fromkeys((name, stem, *(f"{stem}{each}" for each in IMAGE_SUFFIXES)))
    return [each for each in forms if each and len(str(each).encode()) <= MAX_ID_BYTES]
