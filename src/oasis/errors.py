"""The tree of errors.

::

    OasisError
    ├── InputError (ValueError)         what was passed cannot be used: shape, type, NaN, ids
    │   └── UnknownWordError            a class name has no vector in the label space
    ├── NotFittedError                  the model has learned nothing yet
    ├── DataError                       a data file is missing, or does not hold what it should
    ├── FormatError (ValueError)        a file of ours is foreign, damaged or truncated
    │   └── NewerVersionError           ... or was written by a newer oasis
    └── MissingExtraError (ImportError) an optional dependency is not installed

Every message says what was found, what was expected and, where there is one, the way out.
"""

from __future__ import annotations


class OasisError(Exception):
    """The root of every error that oasis raises on purpose."""


class InputError(OasisError, ValueError):
    """What was passed cannot be used; nothing has been changed."""


class UnknownWordError(InputError):
    """A class name, or a word of it, has no vector in the label space."""


class NotFittedError(OasisError):
    """The model has learned nothing yet, so there is nothing to answer with."""


class DataError(OasisError):
    """A data file is missing, or does not hold what it should."""


class FormatError(OasisError, ValueError):
    """A file is not one of ours, or is damaged or truncated."""


class NewerVersionError(FormatError):
    """A file was written by a newer version of oasis."""


class MissingExtraError(OasisError, ImportError):
    """An optional dependency is not installed.

    >>> str(MissingExtraError("pyarrow", extra="parquet", what="reading Parquet"))
    "reading Parquet needs pyarrow; install it with: pip install 'oasis-hash[parquet]'"
    """

    def __init__(self, module: str, *, extra: str, what: str) -> None:
        super().__init__(
            f"{what} needs {module}; install it with: pip install 'oasis-hash[{extra}]'"
        )
