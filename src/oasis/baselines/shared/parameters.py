"""Checks of constructor arguments; errors name the argument, what it is and what is expected."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from oasis.arrays import GeneratorState
from oasis.errors import InputError


def check_weight(name: str, value: Any, *, positive: bool = False) -> float:
    """Return a finite number that is at least 0, or positive.

    >>> check_weight("rho", 0.1)
    0.1
    """
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):
        bound = "positive" if positive else "at least 0"
        raise InputError(f"{name} must be a finite number, {bound}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any) -> int:
    """Return a positive integer.

    >>> check_count("n_iter", 5)
    5
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, str]) -> None:
    """Raise unless the value is one of two words.

    >>> check_choice("ridge_on", "diagonal", ("diagonal", "entries"))
    """
    if value not in choices:
        raise InputError(f"{name} must be {choices[0]!r} or {choices[1]!r}, got {value!r}")


def check_unchanged(name: str, value: Any, learned: Any) -> None:
    """Raise if an argument was changed after the first chunk."""
    if value != learned:
        raise InputError(f"{name} is fixed once a model has learned: it is {learned}, got {value}")


def first_state(random_state: Any) -> GeneratorState:
    """Return the state of a new generator; a given Generator seeds it with one draw."""
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63))
    try:
        return dict(np.random.PCG64(random_state).state)
    except (TypeError, ValueError) as error:
        raise InputError(
            "random_state must be None, a non-negative integer or a numpy Generator, "
            f"got {random_state!r}"
        ) from error
