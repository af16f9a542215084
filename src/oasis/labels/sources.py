"""Sources of word vectors: a mapping given by the user, WordLlama, or a file.

A class name is split into words, and its vector is the mean of theirs. Every source has
``vectors(names)``, and a ``state`` with its name and checksum: a saved label space opens the same
source again, and refuses it if it has changed.
"""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from oasis.arrays import checked_vector
from oasis.errors import DataError, FormatError, InputError, UnknownWordError
from oasis.labels.files import Vector, find_words, fingerprint, read_width
from oasis.wordllama import N_FEATURES, word_vectors

State: TypeAlias = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]
"""What is saved: JSON-able facts, and arrays by name."""

# within these bounds, squares and sums of vectors neither overflow nor underflow in float64
_MIN_NORM, _MAX_NORM = 1e-100, 1e100


def split_name(name: str) -> tuple[str, ...]:
    """Split a class name into words, at every character that is neither a letter nor a digit.

    Accents and vowel signs belong to their letter, and an apostrophe between letters to its word.

    >>> split_name("food-beverage"), split_name("plant_life"), split_name("women's shoes")
    (('food', 'beverage'), ('plant', 'life'), ("women's", 'shoes'))
    """
    text = unicodedata.normalize("NFC", name).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    kept = "".join(c if c == "'" or _is_word_character(c) else " " for c in text)
    return tuple(word for word in (part.strip("'") for part in kept.split()) if word)


def _is_word_character(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def check_vector(vector: Any, name: str, width: int | None = None) -> Vector:
    """Return a (width,) float64 copy of a vector, or raise an `InputError`.

    A vector of zeros is accepted: a sample that has only this class gets a row of zeros.
    """
    try:
        values = checked_vector(vector, width).astype(np.float64)
    except InputError as error:
        raise InputError(f"the vector of {name!r} {error}") from error
    peak = float(np.abs(values).max())
    if peak and not _MIN_NORM <= peak <= _MAX_NORM:
        raise InputError(
            f"the vector of {name!r} has values up to {peak:.3g} in size; expected between "
            f"{_MIN_NORM:g} and {_MAX_NORM:g}, or all zero"
        )
    values.flags.writeable = False
    return values


class WordSource(ABC):
    """A source of word vectors, all of one width."""

    @property
    def width(self) -> int:
        """Number of values of a vector; 0 while it is unknown. Nothing is loaded."""
        return 0

    def width_of_words(self) -> int:
        """Return the number of values of a vector; reads the source if necessary."""
        return self.width

    def has_no_words(self, name: str) -> bool:
        """Return whether a name, such as "+", has no word that could have a vector."""
        return not split_name(name)

    @abstractmethod
    def vectors(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the (len(names), width) vectors of distinct names, or raise `UnknownWordError`.

        At least one name. A row depends on its name alone, not on the other names.
        """

    @abstractmethod
    def state(self) -> State:
        """Return what `source_from_state` needs to open this source again."""


class GivenWords(WordSource):
    """Vectors given by name. A name without one gets the mean of its words, if all have one."""

    def __init__(self, vectors: Mapping[str, Any]) -> None:
        self._vectors: dict[str, Vector] = {}
        self.add(vectors)

    @property
    def width(self) -> int:
        return next((len(vector) for vector in self._vectors.values()), 0)

    def has_no_words(self, name: str) -> bool:
        return name not in self._vectors and super().has_no_words(name)

    def add(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors: all of them or, with an error, none."""
        if not isinstance(vectors, Mapping):
            raise InputError(
                f"expected a mapping of names to vectors, got {type(vectors).__name__}"
            )
        new: dict[str, Vector] = {}
        width = self.width or None
        for given, vector in vectors.items():
            if not isinstance(given, str) or not given.strip():
                raise InputError(f"names of vectors are non-empty strings, got {given!r}")
            name = given.strip()
            checked = check_vector(vector, name, width)
            width = len(checked)
            known = new.get(name, self._vectors.get(name))
            if known is not None and not np.array_equal(known, checked):
                raise InputError(
                    f"{name!r} has another vector already; the vector of a name cannot change, so "
                    "use another name"
                )
            new[name] = checked
        self._vectors.update(new)

    def copy(self) -> GivenWords:
        """Return an independent source with the same vectors."""
        made = GivenWords({})
        made._vectors = dict(self._vectors)
        return made

    def vectors(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        words = {name: (name,) if name in self._vectors else split_name(name) for name in names}
        way_out = "add its vector with LabelSpace.add"
        return _mean_vectors(words, self._vectors.get, self, way_out)

    def state(self) -> State:
        given = np.array(list(self._vectors.values())).reshape(len(self._vectors), self.width)
        return {"kind": "given", "names": list(self._vectors)}, {"given": given}

    def __repr__(self) -> str:
        return f"<{len(self._vectors)} given vectors>"


class WordLlamaWords(WordSource):
    """The static embedding that comes with the package wordllama: 256 values, no network.

    Vectors are scaled to unit length: before that, the longest is several times the shortest and
    would dominate a sample of several labels. The words of a name, joined by a space, are cut into
    subwords, so every name with a letter or a digit has a vector. They are loaded on first use; see
    `oasis.wordllama`.
    """

    def __init__(self, version: str | None = None, checksum: str | None = None) -> None:
        self._version, self._checksum = version, checksum

    @property
    def width(self) -> int:
        return N_FEATURES

    def vectors(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        texts = {name: " ".join(split_name(name)) for name in names}
        unknown = {name: "" for name, text in texts.items() if not text}
        if unknown:
            raise _unknown(unknown, self, "use a name with a letter in it, or a mapping")
        words = word_vectors()
        version, checksum = words.version, words.checksum
        if self._checksum not in (None, checksum):
            raise DataError(
                f"this label space was made with wordllama {self._version}, whose word vectors "
                f"differ from those of wordllama {version}; install wordllama=={self._version}"
            )
        self._version, self._checksum = version, checksum
        vectors = words.embed([texts[name] for name in names]).astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0))

    def state(self) -> State:
        return {"kind": "wordllama", "version": self._version, "checksum": self._checksum}, {}

    def __repr__(self) -> str:
        return "'wordllama'"


class FileWords(WordSource):
    """A word2vec or GloVe file, scanned when a word is needed; found words are kept in memory.

    A word is looked up as written, then in lower case, then capitalised.
    """

    def __init__(self, path: Path, checksum: str | None = None) -> None:
        self._path = path.expanduser().absolute()
        # _checksum: of the file that vectors were taken from; _scanned: of the file scanned last
        self._checksum, self._scanned = checksum, checksum
        # None for a word that the file does not have
        self._found: dict[str, Vector | None] = {}

    @property
    def width(self) -> int:
        return next((len(vector) for vector in self._found.values() if vector is not None), 0)

    def width_of_words(self) -> int:
        return self.width or read_width(self._path)

    def vectors(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        words = {name: split_name(name) for name in names}
        self._look_up({word for parts in words.values() for word in parts})
        way_out = "use another file, or a mapping that has its vector"
        vectors = _mean_vectors(words, self._vector, self, way_out)
        self._checksum = self._scanned
        return vectors

    def _vector(self, word: str) -> Vector | None:
        return next((v for v in map(self._found.get, _forms(word)) if v is not None), None)

    def _look_up(self, words: Collection[str]) -> None:
        if all(self._found.get(word) is not None for word in words):
            return
        checksum = fingerprint(self._path)
        if self._checksum not in (None, checksum):
            raise DataError(
                f"{self._path} is not the file with which this label space was made (checksum "
                f"{checksum[:12]}, expected {str(self._checksum)[:12]}); pass the path of that file"
            )
        if checksum != self._scanned:
            # no vector was taken from the file before it changed, so the change is allowed
            self._found, self._scanned = {}, checksum
        pending = {word for word in words if word not in self._found}
        if not pending:
            return
        wanted = {form for word in pending for form in _forms(word)}
        found = find_words(self._path, wanted, until=pending)
        self._found |= {form: check_vector(vector, form) for form, vector in found.items()}
        if not pending <= found.keys():
            # the scan reached the end of the file, so it does not have the other words
            self._found |= dict.fromkeys(wanted - found.keys())

    def state(self) -> State:
        return {"kind": "file", "path": str(self._path), "checksum": self._checksum}, {}

    def __repr__(self) -> str:
        return repr(str(self._path))


def source_of(words: Any) -> WordSource:
    """Return the source for a mapping, ``"wordllama"`` or the path of a file."""
    if isinstance(words, Mapping):
        return GivenWords(words)
    if isinstance(words, str) and words == "wordllama":
        return WordLlamaWords()
    if isinstance(words, (str, Path)):
        path = Path(words)
        if not path.expanduser().is_file():
            raise DataError(
                f"there is no file {str(words)!r}; words come from a mapping of names to vectors, "
                "'wordllama', or a word2vec or GloVe file (for axes alone: words=None, axes=1)"
            )
        return FileWords(path)
    raise InputError(
        "words must be a mapping of names to vectors, 'wordllama' or the path of a file, got "
        f"{type(words).__name__}"
    )


def source_from_state(
    meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], path: str | Path | None
) -> WordSource:
    """Return the source that ``state`` described, without opening it.

    ``path`` is the path of its file, if it has moved.
    """
    kind = meta["kind"]
    if kind == "given":
        return GivenWords(dict(zip(meta["names"], arrays["given"], strict=True)))
    if kind == "wordllama":
        return WordLlamaWords(meta["version"], meta["checksum"])
    if kind == "file":
        return FileWords(Path(meta["path"] if path is None else path), meta["checksum"])
    raise FormatError(f"the label space has words of kind {kind!r}, which is unknown")


def _forms(word: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((word, word.lower(), word.capitalize())))


def _mean_vectors(
    words: Mapping[str, Sequence[str]],
    look_up: Callable[[str], Vector | None],
    source: WordSource,
    way_out: str,
) -> npt.NDArray[np.float64]:
    """Return the mean vector of the words of each name, or raise for all names without one."""
    rows: list[Vector] = []
    unknown: dict[str, str] = {}
    for name, parts in words.items():
        vectors = []
        for word in parts:
            vector = look_up(word)
            if vector is None:
                unknown[name] = word
                break
            vectors.append(vector)
        if vectors and name not in unknown:
            rows.append(vectors[0] if len(vectors) == 1 else np.mean(vectors, axis=0))
        else:
            unknown.setdefault(name, "")
    if unknown:
        raise _unknown(unknown, source, way_out)
    return np.array(rows)


def _unknown(unknown: Mapping[str, str], source: WordSource, way_out: str) -> UnknownWordError:
    """Return the error for class names that have no vector; values are the missing words."""
    (name, word), *others = unknown.items()
    what = (
        f"the word {word!r} of class {name!r}" if word else f"class {name!r}, which has no words,"
    )
    more = f"; {len(others)} more: {', '.join(repr(n) for n, _ in others[:5])}" if others else ""
    return UnknownWordError(
        f"{what} has no vector in {source}: {way_out}, or use labels='orthogonal'{more}"
    )
