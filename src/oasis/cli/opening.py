"""Opening a collection for a command, with the extractor it was filled with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from oasis.collection import Collection
from oasis.collection.opening import N_BITS
from oasis.collection.transfer.feeding import collection_exists
from oasis.errors import CollectionError
from oasis.features.extractor import Extractor
from oasis.model import OASIS


def open_to_read(path: Path, index: str | None = None) -> Collection:
    """Open a collection that exists; a writer may be at work beside.

    An ``index`` other than the recorded one is refused.
    """
    if not collection_exists(path):
        raise CollectionError(f"there is no collection at {path}")
    return Collection.open(path, readonly=True, index=index)


def model_to_fill(path: Path, bits: int | None, owned: int | None) -> OASIS | None:
    """Return the model for a new collection, or None if ``owned`` is not given.

    For a collection that exists, `Collection.open` compares this model with the recorded one.
    """
    if owned is None:
        return None
    if bits is None and collection_exists(path):
        with Collection.open(path, readonly=True) as opened:
            bits = opened.n_bits
    return OASIS(N_BITS if bits is None else bits, owned=owned)


def extractor_to_fill(
    path: Path, image: str | None, text: str | None, widths: Mapping[str, int] | None = None
) -> Extractor:
    """Return the extractor for the items of an ingest.

    It is the one recorded in the collection unless the command names one; `Collection.open` refuses
    one that differs from the record. ``widths`` has, by modality, the number of values of vectors
    that come with the items.
    """
    if image is None and text is None and collection_exists(path):
        with Collection.open(path, readonly=True) as opened:
            recorded = opened.stats().extractor
        if recorded is not None:
            extractor = Extractor.from_description(recorded)
            extractor.check_widths(widths or {})
            return extractor
    return Extractor.of(image, text, widths)
