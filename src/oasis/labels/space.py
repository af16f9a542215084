"""The label space: a vector for every class name, growing as classes arrive.

Row j of K is the vector of class j. The representation of a sample is the sum of its classes' rows,
scaled to unit length (``G = L K``, normalised). A row blends the word vector of the
class name, which brings related classes close, with an axis of its own, which keeps classes apart.
With weight ``a`` of the axes ::

    row j of K = [sqrt(1 - a) * unit word vector,  sqrt(a) * e_j]

so that two classes have the inner product ``(1 - a) * cos(words)``, and a class with itself 1. The
word columns come first, then one column per class in order of arrival. A sum over G of earlier
rounds is extended for new classes by zero columns at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from oasis.arrays import Array, indicator
from oasis.errors import FormatError, InputError, UnknownWordError
from oasis.labels.sources import (
    FileWords,
    GivenWords,
    State,
    WordSource,
    source_from_state,
    source_of,
)

if TYPE_CHECKING:
    import scipy.sparse as sp

DEFAULT_AXES = 0.99
"""Weight of the axes in the default label space.

Classes with similar word vectors would get similar codes, so words have a weight of 0.01 only. That
is enough to rank classes by their similarity to a name that is not a class.
"""

_CANCEL = 1e-12
"""Vectors cancel when their sum is shorter than this share of the sum of their lengths."""


class LabelSpace:
    """A vector for every class name: from words, from an axis of its own, or a blend of both.

    A space is immutable: `grown` returns another one that has more classes, and the vector of a
    class stays what it was on arrival. The constructor loads nothing; words are looked up by
    `grown`.

    Parameters
    ----------
    words : None, "wordllama", the path of a word2vec or GloVe file, or a mapping of name to vector
        A name that is not a key of the mapping, and any name in the other sources, is split into
        words and gets the mean of their vectors. None requires ``axes=1``.
    axes : float in [0, 1]
        Weight of the axis of a class. With 0 the rows of K are the word vectors, not scaled: a
        class with a longer vector has more weight in a sample of several classes, as in the paper.
        With 1 words are not used. Above 0, a name without letters and digits, such as "+", is
        accepted as a class: its word columns are zero.

    Examples
    --------
    >>> space = LabelSpace({"sky": [1.0, 0.0], "sea": [0.6, 0.8]}, axes=0.5).grown(["sky", "sea"])
    >>> space.names, space.n_features
    (('sky', 'sea'), 4)
    >>> G = space.represent([["sky"], ["sea"], []])
    >>> (G @ G.T).round(6)
    array([[1. , 0.3, 0. ],
           [0.3, 1. , 0. ],
           [0. , 0. , 0. ]])
    """

    def __init__(self, words: Any = None, axes: float = 0.0) -> None:
        try:
            weight = float(axes)
        except (TypeError, ValueError):
            weight = np.nan
        if isinstance(axes, (str, bool)) or not 0 <= weight <= 1:
            raise InputError(f"axes must be a number from 0 to 1, got {axes!r}")
        if words is None and weight != 1:
            raise InputError(
                f"a label space without words needs axes=1, got axes={axes!r}; give it words, or "
                "use LabelSpace.of('orthogonal')"
            )
        source = None if words is None else source_of(words)
        self._set(None if weight == 1 else source, weight, (), None)

    def _set(
        self, source: WordSource | None, axes: float, names: tuple[str, ...], rows: Array | None
    ) -> Self:
        if rows is None or not names:
            rows = np.empty((0, source.width if source else 0))
        rows.flags.writeable = False
        self._source, self.axes, self.names, self._rows = source, axes, names, rows  # (c, width)
        self._index = {name: i for i, name in enumerate(names)}
        return self

    def _with(self, source: WordSource | None, names: tuple[str, ...], rows: Array | None) -> Self:
        """Return a space of the same axes with other words and classes."""
        return type(self).__new__(type(self))._set(source, self.axes, names, rows)

    @classmethod
    def of(cls, labels: Any) -> LabelSpace:
        """Return the label space for the argument ``labels`` of a hasher.

        Parameters
        ----------
        labels : a mapping of name to vector, "orthogonal", "wordllama", the path of a word2vec or
            GloVe file, a LabelSpace (returned unchanged), or None: WordLlama blended with axes of
            weight `DEFAULT_AXES`

        >>> LabelSpace.of("orthogonal")
        <LabelSpace words=None axes=1.0, 0 classes>
        >>> LabelSpace.of(None)
        <LabelSpace words='wordllama' axes=0.99, 0 classes>
        """
        if isinstance(labels, LabelSpace):
            return labels
        if labels is None:
            return cls("wordllama", axes=DEFAULT_AXES)
        if isinstance(labels, str) and labels == "orthogonal":
            return cls(axes=1.0)
        if isinstance(labels, (str, Path, Mapping)):
            return cls(labels)
        raise InputError(
            "labels must be a mapping of class names to vectors, 'orthogonal', 'wordllama', the "
            f"path of a word2vec or GloVe file, or a LabelSpace, got {type(labels).__name__}"
        )

    @property
    def n_features(self) -> int:
        """Number of columns of G: word columns (0 before their number is known) and axes."""
        return int(self._rows.shape[1]) + self._n_axes

    @property
    def has_words(self) -> bool:
        """Whether names that are not classes have vectors too."""
        return self._source is not None

    @property
    def word_vectors(self) -> Array:
        """The word vectors of the classes, as they arrived, (c, width)."""
        return self._rows

    @property
    def _n_axes(self) -> int:
        return len(self.names) if self.axes > 0 else 0

    def grown(self, names: Iterable[str]) -> LabelSpace:
        """Return a space that also has these classes; names that it has already are skipped.

        The rows of the present classes are copied bit for bit, and the word source is shared.
        Without a new name the space itself is returned.

        Raises
        ------
        UnknownWordError
            The source has no vector for a name.

        Notes
        -----
        Cost: one look-up for all new names together; for a file, at most one scan of it.

        >>> LabelSpace.of("orthogonal").grown(["sky", "sea"]).grown(["sea", "sun"]).names
        ('sky', 'sea', 'sun')
        """
        new = [name for name in dict.fromkeys(_checked(names)) if name not in self._index]
        return self.with_classes(new, self._word_columns(new)) if new else self

    def with_classes(self, names: Sequence[str], rows: Array) -> LabelSpace:
        """Return the space grown by classes whose word vectors are given; the source is not used.

        >>> space = LabelSpace({"sky": [1.0, 0.0]}).with_classes(["sea"], np.array([[0.6, 0.8]]))
        >>> space.names, space.word_vectors
        (('sea',), array([[0.6, 0.8]]))
        """
        width = self._rows.shape[1] if self.names or self._source is None else rows.shape[1]
        if set(names) & set(self.names) or len(set(names)) < len(names):
            raise InputError(f"of the classes {list(names)} some are known already or named twice")
        if rows.shape != (len(names), width):
            raise InputError(
                f"the vectors of {len(names)} classes have shape {rows.shape}, expected "
                f"{(len(names), width)}"
            )
        grown = np.vstack([self._rows.reshape(len(self.names), width), rows])
        return self._with(self._source, (*self.names, *names), grown)

    def _word_columns(self, names: list[str]) -> Array:
        """Return the word columns of K for new classes, (len(names), width)."""
        if self._source is None:
            return np.empty((len(names), 0))
        if self.axes == 0:
            return self._source.vectors(names)
        # a name without words has only its axis; while the width is unknown, `vectors` refuses it
        width = self._source.width_of_words()
        named = [
            row for row, name in enumerate(names) if not (width and self._source.has_no_words(name))
        ]
        rows = np.zeros((len(names), width))
        if named:
            found = _to_unit(self._source.vectors([names[row] for row in named]))
            rows = np.zeros((len(names), found.shape[1]))
            rows[named] = np.sqrt(1 - self.axes) * found
        return rows

    def closed(self) -> LabelSpace:
        """Return the space without its word source: small to send, but it cannot grow by words.

        >>> LabelSpace({"sky": [1.0, 0.0], "sea": [0.0, 1.0]}).grown(["sky"]).closed()
        <LabelSpace words=None axes=0.0, 1 class>
        """
        return self._with(None, self.names, self._rows)

    def without_classes(self) -> LabelSpace:
        """Return the space as it was made, before any class arrived; the source is shared.

        >>> LabelSpace.of("orthogonal").grown(["sky"]).without_classes()
        <LabelSpace words=None axes=1.0, 0 classes>
        """
        return self._with(self._source, (), None)

    def indicator(self, label_sets: Iterable[Iterable[str] | None]) -> sp.csr_array:
        """Return L (n, c): 1 where a sample has a class, 0 elsewhere.

        Names are compared exactly; a repeated one counts once.

        >>> LabelSpace.of("orthogonal").grown(["a", "b"]).indicator([["a"], ["b", "a"]]).toarray()
        array([[1., 0.],
               [1., 1.]])
        """
        index = self._index
        try:
            sets = [
                () if names is None else {index[name] for name in names} for names in label_sets
            ]
        except KeyError as error:
            raise UnknownWordError(
                f"{error.args[0]!r} is not one of the {len(self.names)} classes of this label "
                "space; add it with grown first"
            ) from None
        except TypeError as error:
            raise InputError(f"labels of samples are iterables of class names: {error}") from error
        return indicator(sets, len(self.names))

    def represent(self, label_sets: Iterable[Iterable[str] | None]) -> Array:
        """Return G: per sample the sum of its classes' vectors, scaled to unit length.

        Parameters
        ----------
        label_sets : one iterable of class names of this space per sample, empty or None for an
            unlabelled one

        Returns
        -------
        (n, n_features) float64. A sample without a class, or whose vectors cancel (their sum is
        shorter than 1e-12 of the sum of their lengths), has a row of zeros. A row depends on the
        set of its classes alone, not on their order or on other samples.

        >>> LabelSpace.of("orthogonal").grown(["a", "b"]).represent([["a"], ["b", "a"], None])
        array([[1.        , 0.        ],
               [0.70710678, 0.70710678],
               [0.        , 0.        ]])
        """
        return self.represent_rows(self.indicator(label_sets))

    def represent_rows(self, L: sp.csr_array) -> Array:
        """Return G for the rows of an indicator L (n, c), see `represent`."""
        indptr, numbers, width = L.indptr, L.indices, self._rows.shape[1]
        counts = np.diff(indptr)
        G = np.zeros((len(counts), self.n_features))
        for place in range(int(counts.max(initial=0))):  # L_j K, the columns of words
            samples = np.flatnonzero(counts > place)
            G[samples, :width] += self._rows[numbers[indptr[samples] + place]]
        owners = np.repeat(np.arange(len(counts)), counts)
        if self.axes > 0:
            G[owners, width + numbers] = np.sqrt(self.axes)
        return _to_unit(G, _CANCEL * np.bincount(owners, self._lengths[numbers], len(counts)))

    @property
    def _lengths(self) -> Array:
        """Lengths of the rows of K, (c,)."""
        lengths: Array = np.sqrt(np.vecdot(self._rows, self._rows) + self.axes)
        return lengths

    def query_vectors(self, names: Iterable[str]) -> Array:
        """Return a unit vector for each name, a class or not, (n, n_features).

        The vector of a class is its row of K. The vector of any other name is that of its words,
        with zeros on the axes; if the word vector is zero, the row is zero.

        Raises
        ------
        InputError
            The space has no words.
        UnknownWordError
            A name that is not a class has no word vector.

        >>> space = LabelSpace({"sky": [3.0, 0.0], "sea": [3.0, 4.0]}).grown(["sky"])
        >>> space.query_vectors(["sky", "sea"])
        array([[1. , 0. ],
               [0.6, 0.8]])
        """
        if self._source is None:
            raise InputError(
                "this label space has no words, so a name has no vector; use words, or a blend "
                "such as LabelSpace('wordllama', axes=0.5)"
            )
        names = _checked(names)
        known = np.zeros((len(names), self.n_features))  # without SciPy: this is part of a search
        for row, name in enumerate(names):
            if (number := self._index.get(name)) is not None:
                known[row, : self._rows.shape[1]] = self._rows[number]
                if self.axes > 0:
                    known[row, self._rows.shape[1] + number] = np.sqrt(self.axes)
        known = _to_unit(known)
        others = [name for name in dict.fromkeys(names) if name not in self._index]
        if not others:
            return known
        looked_up = dict(zip(others, _to_unit(self._source.vectors(others)), strict=True))
        width = len(looked_up[others[0]])
        vectors = np.zeros((len(names), width + self._n_axes))
        if known.shape == vectors.shape:  # otherwise no class has come, and the width was unknown
            vectors[:] = known
        for row, name in enumerate(names):
            if name in looked_up:
                vectors[row, :width] = looked_up[name]
        return vectors

    def nearness(self, names: Iterable[str]) -> tuple[Array, Array]:
        """Return the inner products of names with the classes, twice (n, c).

        First those of `query_vectors` with the vectors of classes, then those of word vectors of
        unit length alone: axes of classes, on which other names are zero, do not count there.
        Memory grows with classes, not with their square.

        >>> space = LabelSpace({"sky": [3.0, 0.0], "sea": [3.0, 4.0]}).grown(["sky"])
        >>> [each.tolist() for each in space.nearness(["sea"])]
        [[[0.6]], [[0.6]]]
        """
        vectors, rows = self.query_vectors(names), self._rows
        if not self.names:
            return np.zeros((len(vectors), 0)), np.zeros((len(vectors), 0))
        words = vectors[:, : rows.shape[1]]
        inner = words @ rows.T  # (n, c)
        if self.axes > 0:
            inner += np.sqrt(self.axes) * vectors[:, rows.shape[1] :]
        lengths = self._lengths
        inner /= np.where(lengths > 0, lengths, 1)
        return inner, _to_unit(words.copy()) @ _to_unit(rows.copy()).T

    def add(self, vectors: Mapping[str, Any]) -> None:
        """Add vectors to the mapping of this space, and of every space that shares it.

        Classes keep the vectors with which they arrived. Either all vectors are added or, with an
        error, none: they must have the width of the others, and a name cannot get another vector.

        >>> space = LabelSpace({"sky": [1.0, 0.0]})
        >>> space.add({"sea": [0.6, 0.8]})
        >>> space.grown(["sea"]).represent([["sea"]])
        array([[0.6, 0.8]])
        """
        self._given().add(vectors)

    def with_words(self, vectors: Mapping[str, Any]) -> LabelSpace:
        """Return a space that has more given vectors, see `add`; this one is not changed.

        >>> space = LabelSpace({"sky": [1.0, 0.0]})
        >>> space.with_words({"sea": [0.6, 0.8]})
        <LabelSpace words=<2 given vectors> axes=0.0, 0 classes>
        >>> space
        <LabelSpace words=<1 given vectors> axes=0.0, 0 classes>
        """
        source = self._given().copy()
        source.add(vectors)
        return self._with(source, self.names, self._rows)

    def _given(self) -> GivenWords:
        if isinstance(self._source, GivenWords):
            return self._source
        what = "has no words" if self._source is None else f"takes words from {self._source!r}"
        raise InputError(
            f"this label space {what}; vectors can be added only to one made from a mapping"
        )

    def state(self) -> State:
        """Return what `from_state` needs: JSON-able facts, and arrays by name.

        The vectors of all classes and a given mapping are part of it; WordLlama and files are
        recorded by name and checksum.
        """
        source, arrays = (None, {}) if self._source is None else self._source.state()
        meta = {"axes": self.axes, "names": list(self.names), "source": source}
        return meta, {"rows": self._rows, **arrays}

    @classmethod
    def from_state(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        words: str | Path | None = None,
    ) -> LabelSpace:
        """Return the space that `state` described; no word source is loaded.

        Parameters
        ----------
        meta, arrays : what `state` returned
        words : path of the file of word vectors, if it has moved. The file is needed for new
            classes only, and its checksum must be the recorded one.

        >>> space = LabelSpace.of("orthogonal").grown(["sky"])
        >>> LabelSpace.from_state(*space.state()).names
        ('sky',)
        """
        if words is not None and not isinstance(words, (str, Path)):
            raise InputError(f"words must be the path of a file, got {type(words).__name__}")
        try:
            described, names = meta["source"], _checked(meta["names"])
            source = None if described is None else source_from_state(described, arrays, words)
            space = LabelSpace(None, 1.0)._set(source, float(meta["axes"]), (), None)
            if not 0 <= space.axes <= 1 or (source is None and space.axes < 1):
                raise InputError(f"axes of weight {space.axes} with words from {source}")
            rows = np.array(arrays["rows"], dtype=np.float64, order="C")
            # the width of a source that is not loaded may be unknown, 0
            width = 0 if source is None else source.width or rows.shape[-1]
            if names and (rows.shape != (len(names), width) or not np.isfinite(rows).all()):
                raise InputError(f"{len(names)} names, vectors of shape {rows.shape}")
            space = space.with_classes(names, rows) if names else space
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"the state of the label space is damaged: {error!r}") from error
        if words is not None and not isinstance(source, FileWords):
            raise InputError(
                f"words is the path of a file, but this label space has its words from {source}"
            )
        return space

    def __repr__(self) -> str:
        classes = "1 class" if len(self.names) == 1 else f"{len(self.names)} classes"
        return f"<LabelSpace words={self._source!r} axes={self.axes}, {classes}>"


def _checked(names: Any) -> list[str]:
    """Return class names without the blanks around them, or refuse them."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InputError(f"expected an iterable of class names, got {names!r}; write ['sky']")
    checked: list[str] = []
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InputError(f"class names are non-empty strings, got {name!r}")
        checked.append(name.strip())
    return checked


def _to_unit(rows: Array, floor: Any = 0.0) -> Array:
    """Scale rows to unit length, in place; rows not longer than ``floor`` become zero."""
    # vecdot: unlike einsum's, its rounding does not depend on the number of rows
    lengths = np.sqrt(np.vecdot(rows, rows))
    short = lengths <= floor
    rows[short] = 0
    rows /= np.where(short, 1, lengths)[:, None]
    return rows
