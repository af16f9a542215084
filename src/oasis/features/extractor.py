"""Which field of an item feeds which modality, through which embedder.

An embedder has a name that states everything its features depend on, version included, so a
collection can record the extractor it was filled with and refuse another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.errors import InputError
from oasis.features.gradients import Gradients
from oasis.features.image import EfficientNetLite0
from oasis.features.text import HashedText

if TYPE_CHECKING:
    import scipy.sparse as sp

Features: TypeAlias = "npt.NDArray[np.float32] | sp.csr_array"
"""One modality: (n, n_features) float32, dense or CSR."""

_BATCH = 32


class Embedder(Protocol):
    """Turns raw values into features.

    ``embed`` returns one row per raw value and, by row, why there are no features; such a row is
    zero. An `Extractor` never passes None, but it may pass an empty list.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_features(self) -> int: ...

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]: ...


class Function:
    """An embedder made of any callable: a list of raw values in, an (n, n_features) array out.

    When the callable raises, it is asked again for each value alone, and the values that make it
    raise are failures. A result of another shape is the callable's mistake and raises `InputError`.

    Parameters
    ----------
    name : str
        States everything that the features depend on, such as "clip-vit-b32@1".
    function : callable
    n_features : int

    Examples
    --------
    >>> length = Function("length@1", lambda texts: [[len(text)] for text in texts], n_features=1)
    >>> X, failures = length.embed(["four", 4])
    >>> X.tolist(), failures
    ([[4.0], [0.0]], {1: "TypeError: object of type 'int' has no len()"})
    """

    def __init__(self, name: str, function: Callable[[list[Any]], Any], n_features: int) -> None:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"an embedder's name is a text that is not empty, got {name!r}")
        if not callable(function):
            raise InputError(f"embedder {name!r} must be callable, got {type(function).__name__}")
        if isinstance(n_features, bool) or not isinstance(n_features, int) or n_features < 1:
            raise InputError(f"n_features must be a positive int, got {n_features!r}")
        self.name = name
        self.function = function
        self.n_features = n_features

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]:
        """Return the features of the raw values, and why a row has none."""
        if not len(raws):
            return np.zeros((0, self.n_features), dtype=np.float32), {}
        try:
            values = self.function(list(raws))
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything
            if len(raws) == 1:
                reason = f"{type(error).__name__}: {error}"
                return np.zeros((1, self.n_features), dtype=np.float32), {0: reason}
            parts = [self.embed([raw]) for raw in raws]
            return _stack([X for X, _ in parts]), {
                row: reasons[0] for row, (_, reasons) in enumerate(parts) if reasons
            }
        X = self._check(values, len(raws))
        with np.errstate(invalid="ignore"):  # infinities of both signs in one row
            finite = np.isfinite(X.sum(axis=1, dtype=np.float64))
        rows = np.flatnonzero(finite)
        failures = {int(row): "its features are not finite" for row in np.flatnonzero(~finite)}
        return _spread(X[rows] if failures else X, rows, len(raws)), failures

    def _check(self, values: Any, n: int) -> Features:
        try:
            X: Features = _as_csr(values) if hasattr(values, "tocsr") else np.asarray(values)
            with np.errstate(over="ignore"):  # too large for float32: not finite, seen to later
                X = X.astype(np.float32, copy=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"embedder {self.name!r} returned no array of numbers") from error
        if X.shape != (n, self.n_features):
            raise InputError(
                f"embedder {self.name!r} returned shape {X.shape} for {n} values, expected "
                f"{(n, self.n_features)}"
            )
        return X


@dataclass(frozen=True, slots=True)
class Failure:
    """An item whose raw value for a modality is there, but gave no features."""

    row: int
    modality: str
    reason: str


class Extractor:
    """Which field feeds which modality, through which embedder.

    Parameters
    ----------
    sources : mapping of modality name to (field, embedder)
        A field is an attribute of an item, or its key where items are mappings.

    Examples
    --------
    >>> extractor = Extractor({"text": ("caption", HashedText(n_features=16))})
    >>> extractor.name
    'text<-caption:hashed-text-16-tf@1'
    >>> X, failures = extractor.extract([{"caption": "a red boat"}, {}])
    >>> X["text"].shape, abs(X["text"]).sum(axis=1).tolist(), failures
    ((2, 16), [2.0, 0.0], [])
    """

    def __init__(self, sources: Mapping[str, tuple[str, Embedder]]) -> None:
        if not sources:
            raise InputError("an extractor needs at least one modality, got none")
        for modality, source in sources.items():
            if not isinstance(modality, str) or not modality:
                raise InputError(f"modality names are texts, got {modality!r}")
            if (
                not isinstance(source, tuple)
                or len(source) != 2
                or not isinstance(source[0], str)
                or not hasattr(source[1], "embed")
            ):
                raise InputError(
                    f"modality {modality!r} must come from a pair (field, embedder), got "
                    f"{source!r}; wrap a plain callable as Function(name, callable, n_features)"
                )
        self.sources = dict(sources)

    @classmethod
    def default(cls) -> Self:
        """Return the extractor for items with a picture, a text, or both.

        >>> Extractor.default().n_features
        {'image': 1280, 'text': 2048}
        """
        return cls({"image": ("image", EfficientNetLite0()), "text": ("text", HashedText())})

    @property
    def name(self) -> str:
        """Everything that the features depend on, in one line; equal names, equal features."""
        return " ".join(
            f"{modality}<-{field}:{embedder.name}"
            for modality, (field, embedder) in sorted(self.sources.items())
        )

    @property
    def n_features(self) -> dict[str, int]:
        """Modality name -> number of features."""
        return {modality: embedder.n_features for modality, (_, embedder) in self.sources.items()}

    def extract(
        self,
        items: Sequence[object],
        progress: Callable[[int], object] | None = None,
        dense: bool = False,
    ) -> tuple[dict[str, Features], list[Failure]]:
        """Return the features of items by modality, and the items that have to be left out.

        Parameters
        ----------
        items : sequence of mappings, or of objects with attributes
            None, or a key that is not there, is a missing modality: a row of zeros.
        progress : callable, optional
            Called after every batch of at most 32 items with the number of items in it.
        dense : bool
            Hashed text as dense rows, for a few queries: that needs no SciPy, whose import takes
            longer than a search.

        Returns
        -------
        X : modality name -> (len(items), n_features) float32, dense or CSR
            The row of a failure is zero in its modality; the caller decides what becomes of it.
        failures : list of Failure
            In the order of rows.
        """
        parts: dict[str, list[Features]] = {modality: [] for modality in self.sources}
        failures: list[Failure] = []
        for start in range(0, max(len(items), 1), _BATCH):
            batch = items[start : start + _BATCH]
            found: list[Failure] = []
            for modality, (field, embedder) in self.sources.items():
                raws = [_raw(item, field) for item in batch]
                present = np.flatnonzero([raw is not None for raw in raws])
                given = [raws[row] for row in present]
                X: Features
                if dense and isinstance(embedder, HashedText):
                    X, reasons = embedder.embed_dense(given)
                else:
                    X, reasons = embedder.embed(given)
                parts[modality].append(_spread(X, present, len(batch)))
                found += [
                    Failure(start + int(present[row]), modality, reason)
                    for row, reason in reasons.items()
                ]
            failures += sorted(found, key=lambda failure: failure.row)
            if progress is not None and len(batch):
                progress(len(batch))
        return {modality: _stack(blocks) for modality, blocks in parts.items()}, failures

    def describe(self) -> dict[str, Any]:
        """Return what `from_description` needs, as plain JSON values.

        >>> Extractor({"text": ("text", HashedText())}).describe()
        {'text': {'field': 'text', 'embedder': 'hashed-text-2048-tf@1', 'n_features': 2048}}
        """
        return {
            modality: {
                "field": field,
                "embedder": embedder.name,
                "n_features": embedder.n_features,
            }
            for modality, (field, embedder) in self.sources.items()
        }

    @classmethod
    def from_description(
        cls,
        description: Mapping[str, Any],
        functions: Mapping[str, Callable[[list[Any]], Any]] | None = None,
    ) -> Self:
        """Return the extractor that `describe` described.

        Parameters
        ----------
        description : mapping
        functions : mapping of embedder name to callable, optional
            For embedders that are not ours; where a name is ours too, the callable takes its place.
        """
        sources: dict[str, tuple[str, Embedder]] = {}
        for modality, entry in description.items():
            match entry:
                case {"field": str(field), "embedder": str(name), "n_features": int(n_features)}:
                    function = (functions or {}).get(name)
                    embedder: Embedder = (
                        embedder_of_name(name)
                        if function is None
                        else Function(name, function, n_features)
                    )
                    if embedder.n_features != n_features:
                        raise InputError(
                            f"embedder {name!r} gives {embedder.n_features} features, the "
                            f"description says {n_features}"
                        )
                    sources[modality] = (field, embedder)
                case _:
                    raise InputError(
                        f"modality {modality!r} is described by {entry!r}, expected field, "
                        "embedder and n_features"
                    )
        return cls(sources)

    def check_same(self, description: Mapping[str, Any]) -> None:
        """Raise `InputError` unless a recorded description gives the same features as this one.

        >>> recorded = Extractor({"text": ("text", HashedText())}).describe()
        >>> Extractor({"text": ("text", HashedText(weighting="binary"))}).check_same(recorded)
        Traceback (most recent call last):
            ...
        oasis.errors.InputError: modality 'text' is made by 'hashed-text-2048-binary@1' ...
        """
        own = self.describe()
        if set(own) != set(description):
            raise InputError(
                f"this extractor makes {sorted(own)}, the one recorded made {sorted(description)}"
            )
        for modality, entry in own.items():
            recorded = description[modality]
            # the field may be called otherwise in another file; what is made of it may not
            for key in ("embedder", "n_features"):
                if entry[key] != recorded.get(key):
                    raise InputError(
                        f"modality {modality!r} is made by {entry['embedder']!r} with "
                        f"{entry['n_features']} features, but {recorded.get('embedder')!r} with "
                        f"{recorded.get('n_features')} is recorded; use that one"
                    )


def embedder_of_name(name: str) -> Embedder:
    """Return the embedder of ours that has this name.

    >>> embedder_of_name("hashed-text-512-tf@1").n_features
    512
    """
    if name == EfficientNetLite0.name:
        return EfficientNetLite0()
    if name == Gradients.name:
        return Gradients()
    text = HashedText.from_name(name)
    if text is None:
        raise InputError(
            f"no embedder is called {name!r}; known are {EfficientNetLite0.name!r}, "
            f"{Gradients.name!r} and names like {HashedText().name!r}; pass any other as a "
            "callable under its name"
        )
    return text


def _raw(item: object, field: str) -> Any:
    if isinstance(item, Mapping):
        return item.get(field)
    try:
        return getattr(item, field)
    except AttributeError:
        raise InputError(f"an item of type {type(item).__name__} has no field {field!r}") from None


def _spread(X: Features, rows: npt.NDArray[np.intp], n: int) -> Features:
    """Return an (n, d) matrix with the rows of X at ``rows``, in order, and zeros elsewhere."""
    if len(rows) == n:
        return X
    if isinstance(X, np.ndarray):
        dense = np.zeros((n, X.shape[1]), dtype=np.float32)
        dense[rows] = X
        return dense
    lengths = np.zeros(n + 1, dtype=X.indptr.dtype)
    lengths[rows + 1] = np.diff(X.indptr)
    return type(X)((X.data, X.indices, np.cumsum(lengths)), shape=(n, X.shape[1]))


def _stack(blocks: list[Features]) -> Features:
    if len(blocks) == 1:
        return blocks[0]
    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    if len(dense) == len(blocks):
        return np.concatenate(dense)
    import scipy.sparse as sp

    sparse: sp.csr_array = sp.vstack([sp.csr_array(block) for block in blocks], format="csr")
    return sparse


def _as_csr(values: Any) -> sp.csr_array:
    import scipy.sparse as sp

    return sp.csr_array(values)
