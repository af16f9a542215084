"""What is asked of a collection, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.codes import Codes, pack
from oasis.collection.filters.where import Filter
from oasis.collection.records import Id, Mode, check_whole
from oasis.collection.repeats.lookup import Repeats
from oasis.collection.texts.fusion import QueryWords
from oasis.errors import InputError
from oasis.model import OASIS, AnyModel

WEAK = 0.5
"""Evidence below which the hits of a query are marked as weak."""

MAX_HITS = 1_000_000
"""Most hits, skipped ones included, that one query may ask for."""


class Question(NamedTuple):
    """What is asked: (q, n_bits) projections, how many hits to skip and to return, a filter.

    ``payload`` says whether hits carry theirs, and ``max_bytes`` how many bytes of JSON the
    payloads that are read may have together; None for any number. ``codes`` are those that the
    distances of hits are counted from, the signs of the projections if not given. ``words`` are
    those of each query, to be found in texts and labels beside its code, and ``trust`` is how much
    each code counts beside them, from 0 to 1. ``without`` is the id of an item that is left out.
    ``evidence`` is how sure it is that each query is near to something; None for all of them.
    ``repeats`` are the items that have the features of each query.
    """

    projections: npt.NDArray[np.float32]
    mode: Mode
    k: int
    offset: int
    where: Filter | None
    payload: bool = True
    max_bytes: int | None = None
    codes: Codes | None = None
    words: Sequence[QueryWords] | None = None
    trust: Single | None = None
    without: Id | None = None
    evidence: Single | None = None
    repeats: Sequence[Repeats] | None = None

    @classmethod
    def of(
        cls,
        projections: npt.NDArray[np.float32],
        mode: Any,
        k: Any,
        offset: Any,
        where: Any,
        payload: bool = True,
        max_bytes: int | None = None,
    ) -> Question:
        """Check what a user asks for."""
        if mode not in ("asymmetric", "hamming"):
            raise InputError(f"mode must be 'asymmetric' or 'hamming', got {mode!r}")
        k, offset = check_whole("k", k, 1), check_whole("offset", offset, 0)
        if max_bytes is not None:
            max_bytes = check_whole("max_bytes", max_bytes, 0)
        if k + offset > MAX_HITS:
            raise InputError(f"k + offset may be at most {MAX_HITS}, got {k + offset}")
        parsed = None if where is None or where == {} else Filter.of(where)
        return cls(projections, mode, k, offset, parsed, payload, max_bytes)

    def at(self, rows: list[int]) -> Question:
        """Return some of the queries alone."""
        if len(rows) == len(self.projections):
            return self
        return self._replace(
            projections=self.projections[rows],
            codes=None if self.codes is None else self.codes[rows],
            words=None if self.words is None else [self.words[row] for row in rows],
            trust=None if self.trust is None else self.trust[rows],
            evidence=None if self.evidence is None else self.evidence[rows],
            repeats=None if self.repeats is None else [self.repeats[row] for row in rows],
        )

    def is_fused(self, row: int) -> bool:
        """Return whether a query has words that are looked up, or items that repeat it."""
        return bool(self.words and self.words[row].words) or bool(
            self.repeats and len(self.repeats[row].keys)
        )

    def is_weak(self, row: int) -> bool:
        """Return whether a query is near to nothing."""
        return self.evidence is not None and bool(self.evidence[row] < WEAK)

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
            "out, or begin a collection with a model that has some, such as OASIS(128)"
        )
    if mode == "hamming":
        raise InputError(
            f"content={content!r} weighs projections, but mode='hamming' counts all bits alike; "
            "leave one of them out"
        )
