"""Random draws, all from one seeded generator whose state is kept as plain data.

A round works on a copy of the generator, so that a refused chunk has drawn nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from oasis.arrays import Array
from oasis.errors import InputError

GeneratorState: TypeAlias = Mapping[str, Any]


def first_state(random_state: Any) -> GeneratorState:
    """Return the state of a new generator; a given Generator seeds it and moves on by one draw."""
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63))
    try:
        return dict(np.random.PCG64(random_state).state)
    except (TypeError, ValueError) as error:
        raise InputError(
            "random_state must be None, a non-negative integer or a numpy Generator, "
            f"got {random_state!r}"
        ) from error


def random_signs(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Return +1 and -1 with equal chances."""
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def random_rotation(rng: np.random.Generator, size: int) -> Array:
    """Return an orthogonal (size, size) matrix, uniformly distributed.

    >>> import numpy as np
    >>> R = random_rotation(np.random.default_rng(0), 5)
    >>> bool(np.allclose(R @ R.T, np.eye(5)))
    True
    """
    Q, upper = np.linalg.qr(rng.standard_normal((size, size)))
    # QR alone favours some rotations; the signs of the diagonal make the draw uniform
    rotation: Array = Q * np.where(np.diag(upper) < 0, -1.0, 1.0)
    return rotation
