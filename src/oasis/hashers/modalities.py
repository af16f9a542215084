"""`Modalities`: several modalities of the same samples, from which rows can be taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from oasis.arrays import checked_csr
from oasis.errors import InputError

ONE_MODALITY = "features"
"""Name of the modality when X is a plain array, a sparse matrix or a DataFrame."""


class Modalities:
    """Several modalities of the same samples, indexed by rows like an array.

    Every hasher takes it where it takes a mapping. scikit-learn's tools for splitting
    (`GridSearchCV`, `cross_val_score`, `train_test_split`) take rows of X by position, which a
    mapping cannot give.

    Parameters
    ----------
    X : mapping of modality name to an (n, d) array, sparse matrix or DataFrame
        All with the same number of rows. Values are checked by the hasher.

    Examples
    --------
    >>> X = Modalities({"image": np.zeros((4, 3)), "text": np.ones((4, 2))})
    >>> len(X), X.shape, X[[2, 0]].shape
    (4, (4, 5), (2, 5))
    >>> X[1:3]["text"]
    array([[1., 1.],
           [1., 1.]])
    """

    def __init__(self, X: Mapping[str, Any]) -> None:
        if not isinstance(X, Mapping) or not X:
            raise InputError(
                "expected a mapping of modality names to arrays with at least one modality, got "
                f"{type(X).__name__}"
            )
        # CSR and arrays have rows that can be taken; COO matrices, lists and DataFrames do not
        self._X = {
            name: _as_csr(values, name) if hasattr(values, "tocsr") else np.asarray(values)
            for name, values in X.items()
        }
        n_rows = {name: values.shape[0] if values.ndim else 0 for name, values in self._X.items()}
        if len(set(n_rows.values())) > 1:
            raise InputError(f"modalities differ in their number of samples: {n_rows}")
        for name, values in self._X.items():
            if values.ndim != 2:
                raise InputError(
                    f"modality {name!r} must have shape (n_samples, n_features), got {values.shape}"
                )

    @property
    def X(self) -> dict[str, Any]:
        """The modalities by name: (n, d) arrays or CSR matrices."""
        return dict(self._X)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of samples, and number of features of all modalities together."""
        widths = [int(values.shape[1]) for values in self._X.values()]
        return len(self), sum(widths)

    def __len__(self) -> int:
        return int(next(iter(self._X.values())).shape[0])

    def __getitem__(self, key: Any) -> Any:
        """Return one modality for a name; for anything else, these rows of all modalities.

        Rows are a slice, an array of positions or a mask; a single position gives one row.
        """
        if isinstance(key, str):
            return self._X[key]
        if isinstance(key, tuple):  # scikit-learn writes X[rows, ...]
            if len(key) != 2 or key[1] is not Ellipsis:
                raise InputError(f"only rows can be taken from modalities, got the index {key!r}")
            key = key[0]
        if isinstance(key, (int, np.integer)):
            if not -len(self) <= key < len(self):
                raise IndexError(f"row {key} is out of range for {len(self)} samples")
            key = [key]
        return type(self)({name: values[key] for name, values in self._X.items()})

    def __repr__(self) -> str:
        widths = ", ".join(f"{name}: {values.shape[1]}" for name, values in self._X.items())
        return f"<Modalities of {len(self)} samples, features {widths}>"


def _as_csr(values: Any, name: str) -> Any:
    try:
        return checked_csr(values)
    except InputError as error:
        raise InputError(f"modality {name!r} {error}") from error
