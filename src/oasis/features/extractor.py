"""Which field of an item feeds which modality, through which embedder."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from oasis.errors import InputError
from oasis.features.batches import Sources, features_of, looks_at, raw_of, vectors_of
from oasis.features.embedders import (
    Embedder,
    Features,
    Function,
    Given,
    Named,
    embedder_of_name,
    stacked,
)
from oasis.features.gradients import Gradients
from oasis.features.image import EfficientNetLite0
from oasis.features.meaning import Meaning
from oasis.features.text import HashedText

__all__ = ["Extraction", "Extractor", "Failure", "Function"]

NONE = "none"

_IMAGE_CHOICES: dict[str, dict[str, Callable[[], Embedder]]] = {
    "efficientnet": {"image": EfficientNetLite0},
    "gradients": {"image": Gradients},
    NONE: {},
}
_TEXT_CHOICES: dict[str, dict[str, Callable[[], Embedder]]] = {
    "words+meaning": {"text": HashedText, "meaning": Meaning},
    "words": {"text": HashedText},
    "meaning": {"meaning": Meaning},
    NONE: {},
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that has a raw value for a modality, but no features could be computed from it."""

    row: int
    modality: str
    reason: str


class Extraction(NamedTuple):
    """The result for some items: features by modality, failures by row, and thumbnails."""

    X: dict[str, Features]
    failures: list[Failure]
    thumbnails: list[bytes | None]


class Extractor:
    """Which field feeds which modality, through which embedder.

    An item may bring vectors for any of the modalities, under ``vectors``. They are used unchanged,
    and the field of that modality is ignored.

    Parameters
    ----------
    sources : mapping of modality name to (field, embedder)
        A field is an attribute of an item, or its key where items are mappings.

    Examples
    --------
    >>> extractor = Extractor({"text": ("caption", HashedText(n_features=16))})
    >>> extractor.name
    'text<-caption:hashed-text-16-tf@3'
    >>> X, failures = extractor.extract([{"caption": "a red boat"}, {}])
    >>> X["text"].shape, abs(X["text"]).sum(axis=1).tolist(), failures
    ((2, 16), [2.0, 0.0], [])
    """

    def __init__(self, sources: Sources) -> None:
        if not sources:
            raise InputError("an extractor needs at least one modality, got none")
        for modality, source in sources.items():
            if not isinstance(modality, str) or not modality:
                raise InputError(f"modality names are texts, got {modality!r}")
            match source:
                case (str(), embedder) if hasattr(embedder, "embed"):
                    continue
            raise InputError(
                f"modality {modality!r} must come from a pair (field, embedder), got {source!r}; "
                "wrap a plain callable as Function(name, callable, n_features)"
            )
        self.sources = dict(sources)

    @classmethod
    def default(cls) -> Self:
        """Return the extractor for items with a picture, a text, or both.

        A text gives two modalities: its words as "text", its meaning as "meaning".

        >>> Extractor.default().n_features
        {'image': 1280, 'text': 2048, 'meaning': 256}
        """
        return cls.of()

    @classmethod
    def of(
        cls,
        image: str | None = None,
        text: str | None = None,
        vectors: Mapping[str, int] | None = None,
    ) -> Self:
        """Return an extractor by the names of its embedders.

        ``image`` is "efficientnet" (the default), "gradients", "none", a full name, or
        ``package.module:factory``; ``text`` is "words+meaning" (the default), "words", "meaning",
        or one of the last three. ``vectors`` are the modalities whose features come with the items,
        and their numbers of values; if there are any, the defaults are "none".

        >>> Extractor.of(image="none", text="words").n_features
        {'text': 2048}
        >>> Extractor.of(vectors={"image": 512}).name
        'image<-image:given-512'
        """
        unsaid = NONE if vectors else None
        image = image or unsaid or "efficientnet"
        text = text or unsaid or "words+meaning"
        sources: dict[str, tuple[str, Embedder]] = {}
        for source, choice, choices, takes in (
            ("image", image, _IMAGE_CHOICES, "picture"),
            ("text", text, _TEXT_CHOICES, "text"),
        ):
            if choice in choices:
                for modality, make in choices[choice].items():
                    sources[modality] = (source, make())
            else:
                sources[source] = (source, _chosen(choice, choices, takes))
        for modality, width in (vectors or {}).items():
            if modality not in sources:
                sources[modality] = (modality, Given(width))
            elif (made := sources[modality][1].n_features) != width:
                raise InputError(
                    f"the vectors of modality {modality!r} have {width} values, "
                    f"{sources[modality][1].name!r} makes {made}"
                )
        if not sources:
            raise InputError("neither pictures nor texts are to be used; leave one of them in")
        return cls(sources)

    def with_named(self, image: str | None = None, text: str | None = None) -> Extractor:
        """Return this extractor with other embedders for pictures or texts, named as in `of`.

        >>> texts = Extractor.of(image="none", text="words")
        >>> texts.with_named(text="words").name == texts.name
        True
        >>> sorted(texts.with_named(image="gradients", text="meaning").sources)
        ['image', 'meaning']
        """
        named = {"picture": image, "text": text}
        sources = {
            modality: (source, embedder)
            for modality, (source, embedder) in self.sources.items()
            if named.get(embedder.takes) is None
        }
        if image not in (None, NONE):
            sources |= self.of(image, NONE).sources
        if text not in (None, NONE):
            sources |= self.of(NONE, text).sources
        return Extractor(sources)

    @classmethod
    def for_items(cls, items: Iterable[object]) -> Self:
        """Return the extractor for a new collection that starts with these items.

        If some items bring vectors, these are the features. Otherwise it is the default extractor.

        >>> Extractor.for_items([{"vectors": {"clip": [0.1, 0.2, 0.3]}}]).name
        'clip<-clip:given-3'
        """
        widths: dict[str, int] = {}
        for item in items:
            for modality, vector in vectors_of(item).items():
                with suppress(ValueError):  # an invalid vector is refused later, when it is read
                    *_, width = np.shape(vector)
                    widths.setdefault(modality, width)
        return cls.of(vectors=widths)

    @property
    def name(self) -> str:
        """Everything that the features depend on, in one line; equal names mean equal features."""
        return " ".join(
            f"{modality}<-{source}:{embedder.name}"
            for modality, (source, embedder) in sorted(self.sources.items())
        )

    @property
    def n_features(self) -> dict[str, int]:
        """Modality name -> number of features."""
        return {modality: embedder.n_features for modality, (_, embedder) in self.sources.items()}

    @property
    def fields(self) -> list[str]:
        """The fields of an item that are used, in order of name."""
        return sorted({source for source, _ in self.sources.values()})

    @property
    def pictures(self) -> list[str]:
        """The modalities that are made of pictures."""
        return [name for name, (_, embedder) in self.sources.items() if embedder.takes == "picture"]

    @property
    def text_fields(self) -> list[str]:
        """The fields of an item that texts come from, in order of name; "text" if none is used."""
        used = {source for source, embedder in self.sources.values() if embedder.takes == "text"}
        return sorted(used) or ["text"]

    @property
    def guess(self) -> tuple[str, str] | None:
        """Modalities of pictures and meanings, if `picture_meaning` can guess the second.

        >>> Extractor.default().guess, Extractor.of(image="gradients").guess
        (('image', 'meaning'), None)
        """
        by_name = {embedder.name: modality for modality, (_, embedder) in self.sources.items()}
        if EfficientNetLite0.name in by_name and Meaning.name in by_name:
            return by_name[EfficientNetLite0.name], by_name[Meaning.name]
        return None

    def has_anything(self, item: object) -> bool:
        """Return whether an item has any input for features: a vector, or a non-empty field.

        >>> extractor = Extractor.of(image="none")
        >>> extractor.has_anything({"text": " "}), extractor.has_anything({"text": "a boat"})
        (False, True)
        """
        raws = [raw_of(item, source, embedder) for source, embedder in self.sources.values()]
        filled = [raw for raw in raws if not (isinstance(raw, str) and not raw.strip())]
        return bool(vectors_of(item)) or any(raw is not None for raw in filled)

    def extract(
        self,
        items: Sequence[object],
        progress: Callable[[int], object] | None = None,
        *,
        dense: bool = False,
    ) -> tuple[dict[str, Features], list[Failure]]:
        """Return the features of items by modality, and the failures.

        Items are mappings, or objects with attributes; None, or a missing key, is a missing
        modality: a row of zeros, as a failure is. Features are (len(items), n_features) float32,
        CSR for hashed words unless ``dense`` (for a few queries, without SciPy). ``progress`` is
        called with the number of items of every batch, at most 32. Failures are in order of rows.
        """
        made = self._extract(items, progress, dense, None)
        return made.X, made.failures

    def extract_with_thumbnails(
        self, items: Sequence[object], progress: Callable[[int], object] | None = None
    ) -> Extraction:
        """Return the result of `extract`, and a thumbnail of each item's picture, decoded once.

        The picture is in the field of the first modality that takes pictures, "image" if there is
        none. A thumbnail is None if the item has no picture that can be read.
        """
        taking = [self.sources[modality][0] for modality in self.pictures]
        return self._extract(items, progress, False, taking[0] if taking else "image")

    def _extract(
        self,
        items: Sequence[object],
        progress: Callable[[int], object] | None,
        dense: bool,
        shown: str | None,
    ) -> Extraction:
        parts: dict[str, list[Features]] = {modality: [] for modality in self.sources}
        failures: list[Failure] = []
        thumbnails: list[bytes | None] = []
        self._check_vectors(items)
        start = 0
        for batch, looks in looks_at(self.sources, items, shown):
            found: list[Failure] = []
            for modality, (source, embedder) in self.sources.items():
                block, reasons = features_of(modality, source, embedder, batch, looks, dense)
                parts[modality].append(block)
                found += [Failure(start + row, modality, why) for row, why in reasons.items()]
            failures += sorted(found, key=lambda failure: failure.row)
            thumbnails += [look.thumbnail for look in looks]
            start += len(batch)
            if progress is not None and len(batch):
                progress(len(batch))
        X = {modality: stacked(blocks) for modality, blocks in parts.items()}
        return Extraction(X, failures, thumbnails)

    def _check_vectors(self, items: Sequence[object]) -> None:
        for item in items:
            if unknown := sorted(set(vectors_of(item)) - set(self.sources)):
                raise InputError(
                    f"an item brings vectors of {unknown[0]!r}, but there are {list(self.sources)}"
                )

    def check_widths(self, widths: Mapping[str, int]) -> None:
        """Raise `InputError` unless items may bring vectors of these widths, by modality.

        >>> Extractor.of(vectors={"image": 512}).check_widths({"image": 768})
        Traceback (most recent call last):
            ...
        oasis.errors.InputError: the vectors of 'image' have 768 values, expected 512
        """
        for modality, width in widths.items():
            if modality not in self.sources:
                raise InputError(
                    f"there are vectors of {modality!r}, expected some of {list(self.sources)}"
                )
            expected = self.sources[modality][1].n_features
            if width != expected:
                raise InputError(
                    f"the vectors of {modality!r} have {width} values, expected {expected}"
                )

    def describe(self) -> dict[str, Any]:
        """Return what `from_description` needs, as plain JSON values.

        >>> Extractor({"text": ("text", HashedText())}).describe()
        {'text': {'field': 'text', 'embedder': 'hashed-text-2048-tf@3', 'n_features': 2048}}
        """
        return {
            modality: {
                "field": source,
                "embedder": embedder.name,
                "n_features": embedder.n_features,
                **({"takes": embedder.takes} if isinstance(embedder, Named) else {}),
            }
            for modality, (source, embedder) in self.sources.items()
        }

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        functions: Mapping[str, Callable[[list[Any]], Any]] | None = None,
        *,
        trust_embedders: bool = False,
    ) -> Self:
        """Return the extractor that `describe` described; nothing is imported yet.

        ``functions`` are callables by the name of an embedder; one under a name of ours replaces
        ours. ``trust_embedders``: a ``package.module:factory`` of the description may be imported.
        """
        sources: dict[str, tuple[str, Embedder]] = {}
        for modality, entry in description.items():
            match entry:
                case {"field": str(source), "embedder": str(name), "n_features": int(n_features)}:
                    function = (functions or {}).get(name)
                    embedder: Embedder = (
                        embedder_of_name(
                            name, entry.get("takes"), n_features, trusted=trust_embedders
                        )
                        if function is None
                        else Function(name, function, n_features)
                    )
                    if embedder.n_features != n_features:
                        raise InputError(
                            f"embedder {name!r} gives {embedder.n_features} features, the "
                            f"description says {n_features}"
                        )
                    sources[modality] = (source, embedder)
                case _:
                    raise InputError(
                        f"modality {modality!r} is described by {entry!r}, expected field, "
                        "embedder and n_features"
                    )
        return cls(sources)

    def check_same(self, description: Mapping[str, Any]) -> None:
        """Raise `InputError` unless a recorded description gives the same features as this one.

        For vectors computed elsewhere only the number of values is known, so any embedder with the
        same number of features passes.

        >>> recorded = Extractor({"text": ("text", HashedText())}).describe()
        >>> Extractor({"text": ("text", HashedText(stop_words=False))}).check_same(recorded)
        Traceback (most recent call last):
            ...
        oasis.errors.InputError: modality 'text' is made by 'hashed-text-2048-tf-all@3' ...
        """
        own = self.describe()
        if set(own) != set(description):
            raise InputError(
                f"this extractor makes {sorted(own)}, the one recorded made {sorted(description)}"
            )
        for modality, entry in own.items():
            recorded = description[modality]
            n_features = entry["n_features"]
            given = Given(n_features).name in (entry["embedder"], recorded.get("embedder"))
            # the field may have another name in another file, but the embedder must be the same
            if n_features != recorded.get("n_features") or not (
                given or entry["embedder"] == recorded.get("embedder")
            ):
                raise InputError(
                    f"modality {modality!r} is made by {entry['embedder']!r} with {n_features} "
                    f"features, but {recorded.get('embedder')!r} with "
                    f"{recorded.get('n_features')} is recorded; use that one"
                )


def _chosen(name: str, choices: Iterable[str], takes: str) -> Embedder:
    """Return the embedder of a name that is none of the choices; the error names the nearest."""
    try:
        return embedder_of_name(name, takes)
    except InputError:
        if near := difflib.get_close_matches(name, choices, n=1):
            raise InputError(f"no embedder is called {name!r}; did you mean {near[0]!r}?") from None
        raise
