"""Embedders, which turn raw values into features: ours, any callable, one found by name, or none.

The name of an embedder states everything that its features depend on, including a version. So a
collection can record the extractor it was filled with and refuse another one.

==============================  ==================================================================
``efficientnet-lite0@1``        `oasis.features.image.EfficientNetLite0`
``glyph-gradients-48@1``        `oasis.features.gradients.Gradients`
``hashed-text-2048-tf@3``       `oasis.features.text.HashedText`, by its settings
``wordllama-256@1``             `oasis.features.meaning.Meaning`
``package.module:factory``      `Named`: a callable of your own
``given-768``                   `Given`: vectors made elsewhere, 768 values each
==============================  ==================================================================
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single, checked_csr, checked_vector, is_sparse
from oasis.errors import InputError
from oasis.features.gradients import Gradients
from oasis.features.image import EfficientNetLite0
from oasis.features.meaning import Meaning
from oasis.features.pictures import Picture, PictureEmbedder
from oasis.features.text import HashedText

if TYPE_CHECKING:
    import scipy.sparse as sp

Features: TypeAlias = "Single | sp.csr_array"
"""One modality: (n, n_features) float32, dense or CSR."""

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_GIVEN = re.compile(r"given-([1-9]\d{0,8})", re.ASCII)


class Embedder(Protocol):
    """Turns raw values into features.

    ``takes`` is the kind of a raw value: "text", "picture", "vector", or "value" for anything.
    ``embed`` returns one row per raw value, and for rows without features (which are zero) the
    reason, by row. An `Extractor` never passes None, but it may pass an empty list.

    An embedder whose ``embed`` returns CSR may also have ``embed_dense``, which returns the same as
    a dense array.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_features(self) -> int: ...

    @property
    def takes(self) -> str: ...

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]: ...


class Function:
    """An embedder made of any callable: a list of raw values in, an (n, n_features) array out.

    If the callable raises, it is called again for each value alone, and the values for which it
    raises are failures. A result of the wrong shape raises `InputError`.

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
        self.name = name
        self.function = function
        self.n_features = _checked_width(n_features)
        self.takes = "value"

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]:
        """Return the features of the raw values, and by row the reason why it has none."""
        if not len(raws):
            return np.zeros((0, self.n_features), dtype=np.float32), {}
        try:
            values = self.function(list(raws))
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything
            if len(raws) == 1:
                reason = f"{type(error).__name__}: {error}"
                return np.zeros((1, self.n_features), dtype=np.float32), {0: reason}
            parts = [self.embed([raw]) for raw in raws]
            return stacked([X for X, _ in parts]), {
                row: reasons[0] for row, (_, reasons) in enumerate(parts) if reasons
            }
        X = self._check(values, len(raws))
        with np.errstate(invalid="ignore"):  # infinities of both signs in one row
            finite = np.isfinite(X.sum(axis=1, dtype=np.float64))
        rows = np.flatnonzero(finite)
        failures = {int(row): "its features are not finite" for row in np.flatnonzero(~finite)}
        return spread(X[rows] if failures else X, rows, len(raws)), failures

    def _check(self, values: Any, n: int) -> Features:
        try:
            X: Features = checked_csr(values) if hasattr(values, "tocsr") else np.asarray(values)
            with np.errstate(over="ignore"):  # too large for float32: infinite, `embed` refuses it
                X = X.astype(np.float32, copy=False)
        except InputError as error:
            raise InputError(f"the matrix that embedder {self.name!r} returned {error}") from error
        except (TypeError, ValueError) as error:
            raise InputError(f"embedder {self.name!r} returned no array of numbers") from error
        if X.shape != (n, self.n_features):
            raise InputError(
                f"embedder {self.name!r} returned shape {X.shape} for {n} values, expected "
                f"{(n, self.n_features)}"
            )
        return X


class Given:
    """Uses vectors that were computed elsewhere, unchanged.

    >>> X, failures = Given(2).embed([[1, 2], [1, 2, 3], "text"])
    >>> X.tolist(), failures[1]
    ([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], 'the vector has 3 values, expected 2')
    """

    takes = "vector"

    def __init__(self, n_features: int) -> None:
        self.n_features = _checked_width(n_features)
        self.name = f"given-{n_features}"

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]:
        """Return the vectors as float32 rows, and why a row has none: wrong length, NaN, type."""
        X = np.zeros((len(raws), self.n_features), dtype=np.float32)
        failures: dict[int, str] = {}
        for row, raw in enumerate(raws):
            if isinstance(raw, (str, bytes, PathLike)):
                failures[row] = (
                    "no features are made of pictures or texts here; expected a vector of "
                    f"{self.n_features} values, got {type(raw).__name__}"
                )
                continue
            try:
                with np.errstate(over="ignore"):
                    vector = checked_vector(raw, self.n_features).astype(np.float32)
                    X[row] = checked_vector(vector)  # too large for float32
            except InputError as error:
                failures[row] = f"the vector {error}"
        return X, failures


class Named(PictureEmbedder):
    """An embedder found by its name: ``package.module:factory``.

    The factory is called without arguments and returns a callable that maps a list to an (n, d)
    array: a list of texts, or of pictures as PIL images (RGB, upright, shorter side at most 1,024
    pixels). It is imported and called lazily, when features or their number are first needed. So a
    collection that records such a name runs that code when raw items are ingested or searched, if
    it is ``trusted``.

    Parameters
    ----------
    name : str
    takes : {"text", "picture"}
    n_features : int, optional
        If not given: the callable's attribute ``n_features``, or the width of its result for one
        value.
    trusted : bool
        Whether the user named it, or trusts who did. Otherwise features are refused, and nothing is
        imported.
    """

    def __init__(
        self, name: str, takes: str, n_features: int | None = None, *, trusted: bool = True
    ) -> None:
        if not _PATH.fullmatch(name):
            raise InputError(f"an embedder is named package.module:factory, got {name!r}")
        if takes not in ("text", "picture"):
            raise InputError(f"an embedder takes 'text' or 'picture', got {takes!r}")
        self.name = name
        self.takes = takes
        self.trusted = trusted
        self._n_features = n_features
        self._function: Function | None = None

    @property
    def n_features(self) -> int:
        if self._n_features is None:
            self._n_features = self._load().n_features
        return self._n_features

    def embed(self, raws: Sequence[Any]) -> tuple[Features, dict[int, str]]:
        """Return the features of texts or pictures, and by row the reason why it has none."""
        return super().embed(raws) if self.takes == "picture" else self._load().embed(raws)

    def prepare(self, picture: Picture) -> Any:
        """Return a decoded picture as a PIL image."""
        return picture.rgb()

    def embed_prepared(self, prepared: Sequence[Any]) -> tuple[Features, dict[int, str]]:
        """Return the features of PIL images."""
        return self._load().embed(prepared)

    def _load(self) -> Function:
        if self._function is None:
            if not self.trusted:
                field = "image" if self.takes == "picture" else "text"
                raise InputError(
                    f"the collection asks to run {self.name!r}, which computes its features; if "
                    "you trust it, add --trust-embedders (in Python: trust_embedders=True), or "
                    f"name it yourself: --{field}-extractor {self.name} of oasis ingest (in "
                    f"Python: extractor=Extractor.of({field}=...))"
                )
            function = _made_by(self.name)
            n_features = self._n_features or getattr(function, "n_features", None)
            if n_features is None:
                n_features = self._width_of(function)
            self._function = Function(self.name, function, int(n_features))
        return self._function

    def _width_of(self, function: Callable[[list[Any]], Any]) -> int:
        """Return the number of features, by calling the function with one value."""
        raw: Any = "a word"
        if self.takes == "picture":
            from PIL import Image

            raw = Image.new("RGB", (64, 64), "grey")
        try:
            shape = np.shape(function([raw]))
        except Exception as error:
            raise InputError(
                f"embedder {self.name!r} raised {type(error).__name__}: {error}"
            ) from error
        if len(shape) != 2 or shape[0] != 1 or not shape[1]:
            raise InputError(
                f"embedder {self.name!r} returned shape {shape} for one value, expected (1, d)"
            )
        return int(shape[1])


def _checked_width(n_features: object) -> int:
    if isinstance(n_features, bool) or not isinstance(n_features, int) or n_features < 1:
        raise InputError(f"n_features must be a positive int, got {n_features!r}")
    return n_features


def _made_by(name: str) -> Callable[[list[Any]], Any]:
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        made = found()
    except ImportError as error:
        raise InputError(
            f"embedder {name!r} cannot be loaded: {error}; install its package, or add the folder "
            "that holds it to PYTHONPATH"
        ) from error
    except Exception as error:  # a stranger's module may raise anything
        raise InputError(
            f"embedder {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(made):
        raise InputError(
            f"embedder {name!r} cannot be loaded: {path}() returned {type(made).__name__}, "
            "expected a callable that maps a list to vectors"
        )
    return made  # type: ignore[no-any-return]


def embedder_of_name(
    name: str, takes: str | None = None, n_features: int | None = None, *, trusted: bool = True
) -> Embedder:
    """Return the embedder that has this name; the other parameters are those of `Named`.

    >>> embedder_of_name("hashed-text-512-tf@3").n_features
    512
    """
    for known in (EfficientNetLite0, Gradients, Meaning):
        if name == known.name:
            return known()
    text = HashedText.from_name(name)
    if text is not None:
        return text
    if given := _GIVEN.fullmatch(name):
        return Given(int(given[1]))
    if takes is not None and _PATH.fullmatch(name):
        return Named(name, takes, n_features, trusted=trusted)
    raise InputError(
        f"no embedder is called {name!r}; known are {EfficientNetLite0.name!r}, "
        f"{Gradients.name!r}, {Meaning.name!r}, names like {HashedText().name!r}, and "
        "package.module:factory; pass any other as a callable under its name"
    )


def spread(X: Features, rows: npt.NDArray[np.intp], n: int) -> Features:
    """Return an (n, d) matrix with the rows of X at ``rows``, in order, and zeros elsewhere."""
    if len(rows) == n:
        return X
    if not is_sparse(X):
        dense = np.zeros((n, X.shape[1]), dtype=np.float32)
        dense[rows] = X
        return dense
    lengths = np.zeros(n + 1, dtype=X.indptr.dtype)
    lengths[rows + 1] = np.diff(X.indptr)
    return type(X)((X.data, X.indices, np.cumsum(lengths)), shape=(n, X.shape[1]))


def stacked(blocks: list[Features]) -> Features:
    """Return stacked matrices: CSR if one of them is."""
    if len(blocks) == 1:
        return blocks[0]
    dense = [block for block in blocks if isinstance(block, np.ndarray)]
    if len(dense) == len(blocks):
        return np.concatenate(dense)
    import scipy.sparse as sp

    sparse: sp.csr_array = sp.vstack([sp.csr_array(block) for block in blocks], format="csr")
    return sparse
