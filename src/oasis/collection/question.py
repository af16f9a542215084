"""What is asked of a collection, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, Single
from oasis.codes import Codes, pack
from oasis.collection.duplicates import Repeats
from oasis.collection.filters import Filter
from oasis.collection.records import Asked, Id, Mode, check_whole
from oasis.errors import InputError
from oasis.features.words import tokens_of
from oasis.model import OASIS, AnyModel

WEAK = 0.5
"""Evidence below which the hits of a query are marked as weak."""

SURE = 0.99
"""What codes, words and meaning tell at most: 1 is an item that has what is asked, exactly."""

MAX_WORDS = 64
"""Distinct words of a query that are looked up."""

MAX_HITS = 1_000_000
"""Most hits, skipped ones included, that one query may ask for."""


class QueryText(NamedTuple):
    """The text of a query, and its words in order, as `tokens_of` has them."""

    text: str
    tokens: list[str]

    @classmethod
    def of(cls, text: str | None) -> QueryText:
        """Take a text apart.

        >>> QueryText.of("The dogs").tokens, QueryText.of(None).tokens
        (['the', 'dogs'], [])
        """
        return cls(text or "", tokens_of(text) if text else [])

    @property
    def words(self) -> list[str]:
        """The distinct words that are looked up: the first 64."""
        return list(dict.fromkeys(self.tokens))[:MAX_WORDS]


class Question(NamedTuple):
    """What is asked: (q, n_bits) projections, how many hits to skip and to return, a filter.

    ``payload`` says whether hits carry theirs, and ``max_bytes`` how many bytes of JSON the
    payloads that are read may have together; None for any number. ``codes`` are those that the
    distances of hits are counted from, the signs of the projections if not given. ``texts`` are
    those of each query, whose words are looked up. ``pictures`` are the projections of what a query
    has beside its text, zeros for nothing. ``named`` are the numbers of the classes that the texts
    name. ``without`` is the id of an item that is left out.
    ``evidence`` is how sure it is that each query is near to something learned; None where that is
    not known. ``repeats`` are the items that have the features of each query.
    """

    projections: npt.NDArray[np.float32]
    mode: Mode
    k: int
    offset: int
    where: Filter | None
    payload: bool = True
    max_bytes: int | None = None
    codes: Codes | None = None
    texts: Sequence[QueryText] | None = None
    pictures: Single | None = None
    named: Sequence[frozenset[int]] | None = None
    without: Id | None = None
    evidence: Single | None = None
    repeats: Sequence[Repeats] | None = None

    @classmethod
    def of(cls, projections: npt.NDArray[np.float32], how: Asked) -> Question:
        """Check what a user asks for."""
        if how.mode not in ("asymmetric", "hamming"):
            raise InputError(f"mode must be 'asymmetric' or 'hamming', got {how.mode!r}")
        k, offset = check_whole("k", how.k, 1), check_whole("offset", how.offset, 0)
        max_bytes = how.max_bytes
        if max_bytes is not None:
            max_bytes = check_whole("max_bytes", max_bytes, 0)
        if k + offset > MAX_HITS:
            raise InputError(f"k + offset may be at most {MAX_HITS}, got {k + offset}")
        parsed = None if how.where is None or how.where == {} else Filter.of(how.where)
        return cls(projections, how.mode, k, offset, parsed, how.payload, max_bytes)

    def at(self, rows: list[int]) -> Question:
        """Return some of the queries alone."""
        if len(rows) == len(self.projections):
            return self
        return self._replace(
            projections=self.projections[rows],
            codes=None if self.codes is None else self.codes[rows],
            texts=None if self.texts is None else [self.texts[row] for row in rows],
            pictures=None if self.pictures is None else self.pictures[rows],
            named=None if self.named is None else [self.named[row] for row in rows],
            evidence=None if self.evidence is None else self.evidence[rows],
            repeats=None if self.repeats is None else [self.repeats[row] for row in rows],
        )

    def is_scored(self, row: int) -> bool:
        """Return whether a query has words that are looked up, or items that repeat it."""
        return bool(self.texts and self.texts[row].tokens) or bool(
            self.repeats and len(self.repeats[row].keys)
        )

    def is_weak(self, row: int) -> bool:
        """Return whether a query is near to nothing."""
        return self.evidence is not None and bool(self.evidence[row] < WEAK)

    def kinds(self, row: int, agreements: Array) -> Array:
        """Return how likely items are of the kind of a query, by how their codes agree with it.

        ``0.99 evidence sqrt(agreement)``. The agreement is ``sum p s / sum |p|`` of the query's
        projection p and the item's signs s, or ``1 - 2 distance / n_bits`` by Hamming distance;
        below 0 it counts 0. Where no evidence is known, it takes the place of the evidence too.
        """
        positive = np.clip(agreements, 0, 1)
        evidence = positive if self.evidence is None else float(self.evidence[row])
        likely: Array = SURE * evidence * np.sqrt(positive)
        return likely

    def signs(self) -> list[int]:
        """Return the codes that distances are counted from, as whole numbers."""
        codes = pack(self.projections) if self.codes is None else self.codes
        return [int.from_bytes(code.tobytes(), "little") for code in codes]


def has_content(model: AnyModel) -> TypeGuard[OASIS]:
    """Return whether codes have content bits; those of the published method have none."""
    return isinstance(model, OASIS) and model.n_content_bits > 0


def check_weighable(model: AnyModel, content: float, mode: Any) -> None:
    """Refuse a weight of content where projections cannot weigh it."""
    if not has_content(model):
        raise InputError(
            f"content={content!r}, but the codes of this collection have no content bits; leave it "
            "out, or begin a collection with a model that has some, such as OASIS.for_search(128)"
        )
    if mode == "hamming":
        raise InputError(
            f"content={content!r} weighs projections, but mode='hamming' counts all bits alike; "
            "leave one of them out"
        )
