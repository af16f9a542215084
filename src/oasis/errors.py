"""The tree of errors.

::

    OasisError
    ├── InputError (ValueError)         what was passed cannot be used: shape, type, NaN, ids
    │   ├── UnknownWordError            a class name has no vector in the label space
    │   ├── DuplicateIdError            an id is in the collection already, or given twice
    │   ├── UnknownIdError              no item of the collection has this id
    │   └── TooLargeError               an answer would be larger than the bound given for it
    ├── NotFittedError (ValueError, AttributeError)   the model has learned nothing yet
    ├── DataError                       a data file is missing, or does not hold what it should
    ├── FormatError (ValueError)        a file of ours is foreign, damaged or truncated
    │   ├── NewerVersionError           ... or was written by a newer oasis
    │   └── MissingFileError (FileNotFoundError)   ... or is not there
    ├── CollectionError                 no collection at this path, or not usable in this way
    │   ├── LockedError                 another process (or object) is writing to it
    │   └── StorageError                the disk refused: full, read-only, failing
    ├── ServiceError                    a service answered with an error of its own
    │   ├── UnreachableError            ... or did not answer
    │   ├── RefusedError                ... or wants another token, name or kind of request
    │   └── BusyError                   ... or is overloaded; try again later
    ├── EngineError                     a search engine is absent, too slow, full, or failed
    ├── CheckError (AssertionError)     a hasher or an index fails a conformance check
    └── MissingExtraError (ImportError) an optional dependency is not installed

    OasisWarning (UserWarning)
    ├── SimilarNamesWarning             two class names differ by case alone
    ├── KernelWidthWarning              a kernel is far too wide or narrow for the features
    └── UnusedFieldWarning              a field of a data file is left out, probably by mistake

The command line prints a warning of ours as one line, ``note: ...``, on standard error.

Every message says what was found, what was expected and, where there is one, the way out.
"""

from __future__ import annotations


class OasisError(Exception):
    """The root of every error that oasis raises on purpose."""


class InputError(OasisError, ValueError):
    """What was passed cannot be used; nothing has been changed."""


class UnknownWordError(InputError):
    """A class name, or a word of it, has no vector in the label space."""


class DuplicateIdError(InputError):
    """An id is in the collection already, or given twice; nothing has been changed."""


class UnknownIdError(InputError):
    """No item of the collection has this id; nothing has been changed."""


class TooLargeError(InputError):
    """An answer would be larger than the bound given for it; nothing has been changed."""


class NotFittedError(OasisError, ValueError, AttributeError):
    """The model has learned nothing yet.

    As in scikit-learn it is also an `AttributeError`: ``hasattr(model, "classes_")`` is False
    before the first chunk.
    """


class DataError(OasisError):
    """A data file is missing, or does not hold what it should."""


class FormatError(OasisError, ValueError):
    """A file is not one of ours, or is damaged or truncated."""


class NewerVersionError(FormatError):
    """A file was written by a newer version of oasis."""


class MissingFileError(FormatError, FileNotFoundError):
    """A model, index or collection file does not exist; raised by whatever opens it."""


class CollectionError(OasisError):
    """A directory is no collection, or the collection cannot be used in this way."""


class LockedError(CollectionError):
    """Another writer has the collection open."""


class StorageError(CollectionError):
    """The disk refused to read or write; what was committed before is unchanged."""


class ServiceError(OasisError):
    """A service answered with an error of its own."""


class UnreachableError(ServiceError):
    """A service did not answer; a change that was sent may or may not have been made."""


class RefusedError(ServiceError):
    """A service does not take this request from this caller; nothing has been changed."""


class BusyError(ServiceError):
    """A service is overloaded or shutting down; nothing has been changed."""


class EngineError(OasisError):
    """A search engine is absent, too slow, full, or failed.

    Changes that it acknowledged before are kept. A change that failed may have been applied in
    part; it is safe to send it again unchanged.
    """


class CheckError(OasisError, AssertionError):
    """A hasher or an index fails a conformance check."""


class MissingExtraError(OasisError, ImportError):
    """An optional dependency is not installed.

    >>> print(MissingExtraError("pyarrow", extra="parquet", what="reading Parquet"))
    reading Parquet needs pyarrow; install it with: pip install -e '.[parquet]' in a clone of the
    repository, or pip install 'oasis-hash[parquet]' from a package index that has oasis-hash

    A package that belongs to no extra is named with the command that installs it:

    >>> print(MissingExtraError("milvus-lite", command="pip install milvus-lite", what="a file"))
    a file needs milvus-lite; install it with: pip install milvus-lite
    """

    def __init__(self, module: str, *, what: str, extra: str = "", command: str = "") -> None:
        command = command or (
            f"pip install -e '.[{extra}]' in a clone of the repository, "
            f"or pip install 'oasis-hash[{extra}]' from a package index that has oasis-hash"
        )
        super().__init__(f"{what} needs {module}; install it with: {command}")


class OasisWarning(UserWarning):
    """The root of every warning that oasis gives on purpose."""


class SimilarNamesWarning(OasisWarning):
    """Two class names differ by case alone, such as 'Cat' and 'cat'; they are two classes."""


class KernelWidthWarning(OasisWarning):
    """A kernel is so wide or narrow that its features hardly differ between samples."""


class UnusedFieldWarning(OasisWarning):
    """A field of a data file is left out, though its name or its values suggest that it is meant.

    Its name is near that of a field that is missing, or it holds vectors.
    """
