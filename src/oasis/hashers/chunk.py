"""A chunk of a stream, and the checks that it must pass before anything learns from it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oasis.arrays import Matrix, checked_csr, is_sparse
from oasis.errors import InputError, SimilarNamesWarning
from oasis.hashers.modalities import ONE_MODALITY, Modalities
from oasis.hashers.protocol import Labels

if TYPE_CHECKING:
    import scipy.sparse as sp

_LABEL = (str, int, np.integer)


@dataclass(frozen=True)
class Chunk:
    """A chunk that has passed every check."""

    X: dict[str, Matrix]
    labels: list[tuple[str, ...]]

    @property
    def n_samples(self) -> int:
        return len(self.labels)


def check_chunk(
    X: Any,
    y: Labels,
    widths: Mapping[str, int] | None,
    classes: Sequence[str] | None = None,
    may_add: bool = False,
) -> Chunk:
    """Check a chunk to learn from: all modalities, finite, one label set per sample.

    Parameters
    ----------
    X : mapping of modality name to an (n, d) array or sparse matrix, `Modalities`, or one of the
        arrays alone
    y : labels, see `check_labels`
    widths : modality name -> number of features, as learned; None before the first chunk
    classes : names of the columns of y, where y is a 0/1 matrix
    may_add : whether a chunk may bring modalities that no earlier one had
    """
    features = check_samples(X, widths, may_add=may_add)
    return Chunk(features, check_labels(y, _n_rows(next(iter(features.values()))), classes))


def unlabelled_chunk(X: Any, widths: Mapping[str, int] | None) -> Chunk:
    """Check a chunk of samples without labels; otherwise as `check_chunk`."""
    features = check_samples(X, widths)
    return Chunk(features, [()] * _n_rows(next(iter(features.values()))))


def check_samples(
    X: Any, widths: Mapping[str, int] | None, first_row: int = 0, may_add: bool = False
) -> dict[str, Matrix]:
    """Check samples to learn from: all modalities, at least one row, finite.

    Parameters
    ----------
    X : as in `check_chunk`
    widths : modality name -> number of features, as learned; None before the first chunk
    first_row : position of the first sample in its chunk, for the text of errors
    may_add : whether X may bring modalities that are not in ``widths``
    """
    features = check_features(X, widths, may_add)
    if widths is not None:
        missing = [name for name in widths if name not in features]
        if missing:
            raise InputError(
                f"the chunk lacks modality {missing[0]!r}; every chunk to learn from has all of "
                f"{sorted(widths)} (a sample without it is a row of zeros)"
            )
    if _n_rows(next(iter(features.values()))) == 0:
        raise InputError("the chunk is empty; expected at least one sample")
    for name, matrix in features.items():
        check_finite(matrix, name, first_row)
    return features


def check_features(
    X: Any, widths: Mapping[str, int] | None, may_add: bool = False
) -> dict[str, Matrix]:
    """Check names, shapes and types of a non-empty subset of the modalities.

    X is a mapping, `Modalities`, or one array, sparse matrix or DataFrame, which is the modality
    "features". Values are not checked here: `check_finite` checks that they are finite, or the
    caller checks the product computed from them. The result has the order of ``widths``; with
    ``may_add`` other modalities follow.
    """
    X = _by_name(X, widths)
    if not X:
        raise InputError("X has no modality; expected at least one")
    features: dict[str, Matrix] = {}
    for name, values in X.items():
        if not isinstance(name, str):
            raise InputError(f"modality names are strings, got {name!r}")
        if widths is not None and name not in widths and not may_add:
            raise InputError(f"modality {name!r} is unknown; this model learned {sorted(widths)}")
        features[name] = _as_matrix(values, name)
    n_rows = {name: _n_rows(matrix) for name, matrix in features.items()}
    if len(set(n_rows.values())) > 1:
        raise InputError(f"modalities differ in their number of samples: {n_rows}")
    for name, matrix in features.items():
        if matrix.shape[1] == 0:
            raise InputError(f"modality {name!r} has no features")
        if widths is not None and matrix.shape[1] != widths.get(name, matrix.shape[1]):
            raise InputError(
                f"modality {name!r} has {matrix.shape[1]} features, this model learned "
                f"{widths[name]}"
            )
    if widths is not None:
        known = {name: features[name] for name in widths if name in features}
        features = known | features
    return features


def check_finite(matrix: Matrix, name: str, first_row: int = 0) -> None:
    """Raise when a modality holds NaN or infinity, and say where, counting from ``first_row``."""
    values = matrix.data if is_sparse(matrix) else matrix
    with np.errstate(all="ignore"):
        # one fast pass: the sum is finite unless a value is not finite or the sum overflows; the
        # search below distinguishes these two cases
        if np.isfinite(values.sum()):
            return
    bad = np.argwhere(~np.isfinite(values))
    if len(bad) == 0:
        return
    if is_sparse(matrix):
        place = int(bad[0][0])
        row = int(np.searchsorted(matrix.indptr, place, side="right") - 1)
        column, value = int(matrix.indices[place]), matrix.data[place]
    else:
        row, column = (int(i) for i in bad[0])
        value = matrix[row, column]
    raise InputError(
        f"modality {name!r} holds {value} at row {first_row + row}, column {column}; "
        "expected finite numbers"
    )


def check_labels(
    y: Labels, n_samples: int, classes: Sequence[str] | None = None
) -> list[tuple[str, ...]]:
    """Return one tuple of distinct class names per sample, in the order given.

    Parameters
    ----------
    y : one iterable of class names per sample, empty or None for an unlabelled one; or one label
        per sample, a string or an integer (class 3 is named "3") or None; or a 0/1 matrix (n, c),
        dense or sparse, with ``classes``, or a DataFrame whose columns are the class names
    n_samples : number of samples that y must have
    classes : names of the columns of y

    White space around a name is removed.

    >>> check_labels([["sky", " sea "], None], 2)
    [('sky', 'sea'), ()]
    >>> check_labels(["sky", "sea"], 2), check_labels([7, 9], 2)
    ([('sky',), ('sea',)], [('7',), ('9',)])
    >>> check_labels(np.array([[1, 0], [1, 1]]), 2, classes=["sky", "sea"])
    [('sky',), ('sky', 'sea')]
    """
    if isinstance(y, (str, bytes)) or not (isinstance(y, Iterable) or hasattr(y, "tocsr")):
        raise InputError(
            f"y must hold one iterable of class names, or one label, per sample, got {_kind(y)}; "
            "for one sample with one class write [['sky']]"
        )
    if classes is not None or hasattr(y, "columns") or is_unnamed_matrix(y):
        labels = _from_matrix(y, classes)
    else:
        rows: list[Any] = list(y)  # type: ignore[arg-type]  # a sparse y is a matrix
        single = isinstance(next((row for row in rows if row is not None), None), _LABEL)
        labels = [
            ()
            if names is None
            else check_label_set([names] if single else names, f"labels of sample {row}", single)
            for row, names in enumerate(rows)
        ]
    if len(labels) != n_samples:
        raise InputError(f"got labels for {len(labels)} samples, but features for {n_samples}")
    return labels


def warn_of_similar_names(
    labels: Iterable[Iterable[str]], known: Collection[str], stacklevel: int = 5
) -> None:
    """Give one `SimilarNamesWarning` if a new class name equals another one except for case.

    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_similar_names([["Cat", "dog"], ["cat"]], known=["DOG"])
    >>> print(caught[0].message)
    class names that differ by case alone are different classes: 'DOG' and 'dog', 'Cat' and 'cat'
    """
    new = dict.fromkeys(name for names in labels for name in names)
    for name in known:
        new.pop(name, None)
    if not new:
        return
    first = {name.casefold(): name for name in reversed(list(known))}
    pairs = []
    for name in new:
        other = first.setdefault(name.casefold(), name)
        if other != name:
            pairs.append(f"{other!r} and {name!r}")
    if pairs:
        more = f" and {len(pairs) - 5} more pairs" if len(pairs) > 5 else ""
        warnings.warn(
            "class names that differ by case alone are different classes: "
            f"{', '.join(pairs[:5])}{more}",
            SimilarNamesWarning,
            stacklevel=stacklevel,
        )


def is_unnamed_matrix(y: Any) -> bool:
    """Return whether labels are a matrix of numbers whose columns have no names.

    >>> is_unnamed_matrix(np.eye(2)), is_unnamed_matrix([["sky"], ["sea"]])
    (True, False)
    """
    dtype = getattr(y, "dtype", None)
    return getattr(y, "ndim", 0) == 2 and dtype is not None and dtype.kind in "biuf"


def _from_matrix(y: Any, classes: Sequence[str] | None) -> list[tuple[str, ...]]:
    columns = getattr(y, "columns", None) if classes is None else classes
    try:
        matrix = checked_csr(y) if hasattr(y, "tocsr") else np.asarray(y)
    except InputError as error:
        raise InputError(f"the matrix of labels {error}") from error
    if matrix.ndim != 2:
        raise InputError(
            "with classes= y is a 0/1 matrix of shape (n_samples, n_classes), got shape "
            f"{matrix.shape}"
        )
    if columns is None:
        raise InputError(
            f"y is a matrix of shape {matrix.shape} and its columns have no names; pass them as "
            "classes=[...]"
        )
    names = check_label_set(columns, "classes")
    if len(names) != len(columns) or len(names) != matrix.shape[1]:
        raise InputError(
            f"y has {matrix.shape[1]} columns, got {len(columns)} class names ({len(names)} "
            "distinct)"
        )
    values = matrix if isinstance(matrix, np.ndarray) else matrix.data
    if values.dtype.kind not in "biuf" or not ((values == 0) | (values == 1)).all():
        raise InputError("a matrix of labels must hold only 0 and 1, got other values")
    labels: list[list[str]] = [[] for _ in range(matrix.shape[0])]
    for row, column in zip(*(each.tolist() for each in matrix.nonzero()), strict=True):
        labels[row].append(names[column])
    return [tuple(each) for each in labels]


def check_label_set(names: Any, whose: str = "labels", single: bool = False) -> tuple[str, ...]:
    """Return the distinct names of one set, without white space around them.

    ``whose`` names the set in errors; with ``single`` whole numbers are names too.

    >>> check_label_set(["sky", " sea ", "sky"])
    ('sky', 'sea')
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(
            f"{whose} must be an iterable of class names, got {_kind(names)}; write ['sky'] for "
            "one class"
        )
    # the iteration order of a set differs between processes
    ordered = sorted(names, key=str) if isinstance(names, (set, frozenset)) else names
    distinct: dict[str, None] = {}
    for name in ordered:
        if single and isinstance(name, (int, np.integer)) and not isinstance(name, bool):
            distinct[str(int(name))] = None
            continue
        if not isinstance(name, str):
            also = " or integers, one per sample" if single else ""
            raise InputError(f"class names are strings{also}, {whose} hold {name!r}")
        stripped = name.strip()
        if not stripped:
            raise InputError(f"{whose} hold an empty class name")
        distinct[stripped] = None
    return tuple(distinct)


def _by_name(X: Any, widths: Mapping[str, int] | None) -> Mapping[str, Any]:
    """Return the modalities by name; X alone is one modality."""
    if isinstance(X, Modalities):
        return X.X
    if isinstance(X, Mapping):
        return X
    if not (hasattr(X, "shape") or isinstance(X, (list, tuple))):
        raise InputError(
            "X must map modality names to arrays, such as {'image': array}, or be one array, got "
            f"{_kind(X)}"
        )
    if widths is not None and ONE_MODALITY not in widths:
        raise InputError(
            f"one array alone is the modality {ONE_MODALITY!r}; this model learned "
            f"{sorted(widths)}, so pass a mapping of these names to arrays"
        )
    return {ONE_MODALITY: X}


def _as_matrix(values: Any, name: str) -> Matrix:
    if hasattr(values, "tocsr"):
        return _as_csr(values, name)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"modality {name!r} is not a rectangular array: {error}") from error
    _check_numeric(array.dtype, name)
    if array.ndim != 2:
        raise InputError(
            f"modality {name!r} must have shape (n_samples, n_features), got {array.shape}"
        )
    if _float_type(array.dtype) is np.float32:
        return np.ascontiguousarray(array, dtype=np.float32)
    return np.ascontiguousarray(array, dtype=np.float64)


def _as_csr(values: Any, name: str) -> sp.csr_array:
    _check_numeric(values.dtype, name)
    try:
        return checked_csr(values.astype(_float_type(values.dtype), copy=False))
    except InputError as error:
        raise InputError(f"modality {name!r} {error}") from error


def _check_numeric(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "fiub":
        raise InputError(f"modality {name!r} must hold real numbers, got dtype {dtype}")


def _float_type(dtype: np.dtype[Any]) -> type[np.float32] | type[np.float64]:
    # float32 holds every value of these types exactly; anything wider goes to float64
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64


def _n_rows(matrix: Matrix) -> int:
    return int(matrix.shape[0])


def _kind(value: object) -> str:
    return f"{type(value).__name__} {value!r}" if isinstance(value, str) else type(value).__name__
