"""Forgetting: how much MAP of a round's queries is lost in later rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from oasis.arrays import Array
from oasis.errors import InputError


def forgetting(history: Any) -> Array:
    """MAP of each round's queries right after their round, minus MAP of the same queries now.

    Parameters
    ----------
    history : (n_rounds, n_rounds)
        ``history[t, i]`` is the MAP of the queries of round i after round t. "Now" is the last
        row; for an earlier moment pass ``history[:t + 1, :t + 1]``. Values above the diagonal
        (queries of later rounds) are ignored and may be NaN.

    Returns
    -------
    (n_rounds,) float64
        Positive where something was forgotten, negative where later rounds helped; the last
        entry is 0. The usual single figure is the mean of all but the last.

    Examples
    --------
    >>> import numpy as np
    >>> lost = forgetting([[0.75, np.nan], [0.5, 0.6]])
    >>> lost.tolist()
    [0.25, 0.0]
    """
    try:
        values = np.asarray(history, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"history must be a square array of numbers: {error}") from error
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(f"history must have shape (n_rounds, n_rounds), got {values.shape}")
    after, of = np.tril_indices(len(values))
    bad = np.flatnonzero(~np.isfinite(values[after, of]))
    if len(bad):
        t, i = int(after[bad[0]]), int(of[bad[0]])
        raise InputError(
            f"history holds {values[t, i]} for the queries of round {i} after round {t}; expected "
            "a finite value on and below the diagonal"
        )
    result: Array = np.diagonal(values) - values[-1:].reshape(-1)
    return result
