"""The protocol of every hasher: what its users rely on.

`Estimator` has scikit-learn's conventions for parameters without an import of scikit-learn:
`sklearn.base` takes two seconds to import, and a search needs none of it. It has what
scikit-learn's tools require: parameters by name (`clone`, `GridSearchCV`, `Pipeline`), tags, and
support of `check_is_fitted`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import Single
from oasis.codes import Codes, pack
from oasis.errors import InputError

if TYPE_CHECKING:
    import scipy.sparse as sp

_LONGEST_VALUE = 200  # characters of one value in a repr

Labels: TypeAlias = "Iterable[Iterable[str] | int | None] | sp.sparray"
"""Labels of a chunk: see `oasis.hashers.chunk.check_labels` for all forms.

The usual form is one iterable of class names per sample, empty or None for an unlabelled sample.
"""


class Estimator:
    """An object whose parameters are the arguments of its constructor, stored unchanged.

    A subclass lists every parameter in the signature of ``__init__`` and stores each under its own
    name, unchanged. Names of learned attributes end in an underscore.

    Examples
    --------
    >>> class Threshold(Estimator):
    ...     def __init__(self, at=0.5, strict=False):
    ...         self.at = at
    ...         self.strict = strict
    >>> Threshold(0.7)
    Threshold(at=0.7)
    >>> Threshold().set_params(strict=True).get_params()
    {'at': 0.5, 'strict': True}
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """Return the names of the parameters, sorted."""
        return sorted(cls._defaults())

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        if cls.__init__ is object.__init__:
            return {}
        _, *parameters = inspect.signature(cls.__init__).parameters.values()  # without self
        for each in parameters:
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise TypeError(
                    f"{cls.__name__}.__init__ takes *{each.name}; an estimator names each of its "
                    "parameters"
                )
        return {each.name: each.default for each in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : also those of parameters that are estimators, as ``parameter__name``
        """
        found: dict[str, Any] = {}
        for name in self._get_param_names():
            value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
            found[name] = value
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``parameter__name`` sets one of a parameter that has its own.

        All names are checked before any is set. Values are checked by the next call that learns.
        """
        known = self._get_param_names()
        nested: dict[str, dict[str, Any]] = defaultdict(dict)
        own: dict[str, Any] = {}
        for key, value in params.items():
            name, separator, inner = key.partition("__")
            if name not in known:
                raise InputError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}"
                )
            if separator:
                nested[name][inner] = value
            else:
                own[name] = value
        for name, value in own.items():
            setattr(self, name, value)
        for name, inner_params in nested.items():
            getattr(self, name).set_params(**inner_params)
        return self

    def __repr__(self) -> str:
        """Return the call that makes this object, with the parameters that differ from default."""
        defaults, shown = self._defaults(), []
        for name, value in self.get_params(deep=False).items():
            text = repr(value)
            if text != repr(defaults[name]):
                half = _LONGEST_VALUE // 2
                short = text if len(text) <= _LONGEST_VALUE else f"{text[:half]}...{text[-half:]}"
                shown.append(f"{name}={short}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether anything has been learned: whether an attribute ends in an underscore."""
        return any(name.endswith("_") and not name.startswith("_") for name in vars(self))

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags of an estimator; imports scikit-learn."""
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True, multi_output=True),
            input_tags=InputTags(sparse=True),
        )


class OnlineHasher(Estimator, ABC):
    """The protocol of every hasher.

    Attributes
    ----------
    n_bits : int
        Length of a code.
    codes_ : (n, n_bits / 8) uint8
        The codes of the last chunk, to be stored as they are.
    """

    is_batch: ClassVar[bool] = False
    """Whether it keeps old features, retrains on everything and replaces stored codes."""
    needs_classes: ClassVar[bool] = False
    """Whether all classes must be announced before the first chunk."""

    n_bits: int
    codes_: Codes

    @abstractmethod
    def partial_fit(self, X: Any, y: Labels, classes: Sequence[str] | None = None) -> Self:
        """Learn from one chunk. Everything is checked before anything is changed."""

    @abstractmethod
    def project(self, X: Any) -> Single:
        """Return the (n, n_bits) real-valued projections whose signs are the codes."""

    def encode(self, X: Any) -> Codes:
        """Return the (n, n_bits / 8) packed codes of samples that are not learned from."""
        return pack(self.project(X))

    def transform(self, X: Any) -> npt.NDArray[np.uint8]:
        """Return the bits of `encode`, one per column: (n, n_bits) uint8, 0 or 1."""
        return np.unpackbits(self.encode(X), axis=1, bitorder="little")
