"""Learning from and encoding data that do not fit one machine, on a Dask cluster.

A chunk comes in blocks of rows. Everything with a column per feature is computed on the workers:
the sums ``X'X`` and ``X'B``, and the products ``X W'``. Sums and codes are sent back, and the rest
of a round is done on the client.

What equals a round in one piece
    The draws are the same, row for row, for the same seed, however the chunk is cut. So the codes
    are the same wherever the value before the sign is above rounding, about 1e-9 of its size for
    float64 features and 1e-6 for float32 ones with `OASIS.paper`. It is not where such a model
    that has learned nothing gets a chunk with a single label set, whose codes are random in exact
    arithmetic, nor with ``alpha=0``. Sums agree to rounding; ``sum V'V`` of a chunk with no more
    rows than bits and fewer label sets does not, as nothing determines it. The same blocks on the
    same number of threads give the same bits in every run.

Passes over the features
    `OASIS`: one for the sums, one for the content bits, one over blocks with unlabelled rows for
    their label bits; `OASIS.paper`: ``n_iter``. One more if the sizes of delayed blocks are not
    known. A block that is not persisted is read again in each pass, by the task that uses it.

Memory
    Of a worker: for each of its threads one block, `oasis.scale.dask_blocks.TILE_ROWS` scaled rows
    of it, and up to five d x d sums. Here: the state of the model, the labels and the packed codes;
    with `OASIS.paper` about eight float64 rows as long as a code for each sample.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from oasis.codes import Codes
from oasis.errors import FormatError, InputError, MissingExtraError
from oasis.hashers.chunk import check_labels
from oasis.hashers.protocol import Labels
from oasis.index.export import parquet_writer
from oasis.model.base import HashFunction, Model, ModelState
from oasis.scale.dask_blocks import Cluster, blocks_of, surveyed, widths_of
from oasis.scale.dask_rows import ClusterRows, Reading, encoded
from oasis.store import replacing

if TYPE_CHECKING:
    from distributed import Client


class CodeTarget(Protocol):
    """A target for codes: `oasis.index.HammingIndex`, or any object with this method."""

    def add(self, codes: Codes, ids: Any, /) -> Any:
        """Take codes (n, n_bits / 8) with as many ids."""


def partial_fit(
    model: Model[Any],
    X: Any,
    y: Labels,
    *,
    sizes: Sequence[int] | None = None,
    client: Client | None = None,
) -> Model[Any]:
    """Learn from one chunk in blocks, as `OASIS.partial_fit` would have learned it in one piece.

    Parameters
    ----------
    model : learns the chunk; afterwards ``codes_`` holds its codes
    X : mapping of modality name to an (n, d) dask array, or sequence of delayed blocks
        Dask arrays are cut by rows, as the first of them is. A delayed object gives a mapping of
        modality name to array or CSR matrix, and is best one that reads a file where it runs; a
        future of such a mapping will do as well. Every modality of the first chunk.
    y : one iterable of class names per sample of all blocks; empty or None for an unlabelled one
    sizes : rows of each delayed block; without them the blocks are read once more
    client : the cluster's client; None for the one that was made last

    Returns
    -------
    The model. Everything is checked before anything in it is changed: a refused chunk leaves it as
    it was, and so does a cluster that fails. A worker that dies is replaced by Dask, and its
    results are computed again.

    Notes
    -----
    A chunk is always added to the full sum of X'X, also a small one for which `OASIS` avoids the
    factorisation; the solution is the same.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from distributed import Client
    >>> rng = np.random.default_rng(0)
    >>> image, labels = rng.random((40, 20)), [["sky"], ["sea"], ["sky", "sea"], ["cat"]] * 10
    >>> from oasis.model import OASIS
    >>> model = OASIS(16, labels="orthogonal", random_state=0)
    >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
    ...     model = partial_fit(model, {"image": da.from_array(image, chunks=(15, 20))}, labels)
    >>> alone = OASIS(16, labels="orthogonal", random_state=0).partial_fit({"image": image}, labels)
    >>> bool((model.codes_ == alone.codes_).all())
    True
    """
    cluster = Cluster(client)
    old: ModelState | None = getattr(model, "state_", None)
    widths = widths_of(X, old.widths if old else None)
    if widths is not None:
        model.begin(widths)  # parameters, before any block is read
    blocks, widths = surveyed(cluster, blocks_of(cluster, X, sizes), widths)
    if not blocks:
        raise InputError("the chunk is empty; expected at least one sample")
    n_samples = sum(block.place.n_rows for block in blocks)
    label_sets = check_labels(y, n_samples)
    rows = ClusterRows(cluster, blocks, Reading(widths, model.unit_length))
    model.state_, model.codes_ = model.run_round(model.begin(widths), label_sets, rows)
    return model


def encode(
    model: Model[Any],
    X: Any,
    to: str | os.PathLike[str] | CodeTarget,
    *,
    ids: Sequence[Any] | npt.NDArray[Any] | None = None,
    sizes: Sequence[int] | None = None,
    client: Client | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Encode a corpus in blocks, into Parquet files or straight into an index.

    Parameters
    ----------
    model : encodes as it stands, see `OASIS.encode`
    X : as in `partial_fit`; any non-empty subset of the modalities
    to : a directory, or an index: whatever has ``add(codes, ids)``
        A directory gets one file per block, ``codes-00000000.parquet`` and so on, with the columns
        ``id`` and ``code`` of `oasis.index.export`. Each is written whole or not at all, so that a
        call that was interrupted goes on where it stopped: files that are there are kept, and
        their blocks are not encoded again. Files of another model, of rows with other ids, or of
        blocks that this corpus does not have are refused.
    ids : one for each row, in order; None for 0, 1, 2 and so on
        Integers, or for files strings as well. Anything that can be sliced, such as a ``range``.
    sizes : rows of each delayed block, if they are known; then they are checked beforehand, and
        blocks whose files are there need not be read to count them
    client : the cluster's client; None for the one that was made last
    progress : called with the number of rows whenever those of one more block are done

    Returns
    -------
    How many rows were encoded or found encoded. Codes are those of `OASIS.encode`, up to rounding
    before the sign. Blocks go to the target in order, whatever the
    order in which workers finish them; no more than two per thread are under way.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from distributed import Client
    >>> from oasis.index import HammingIndex
    >>> from oasis.model import OASIS
    >>> image = np.random.default_rng(0).random((40, 20))
    >>> labels = [["sky"], ["sea"]] * 20
    >>> model = OASIS(16, labels="orthogonal").partial_fit({"image": image}, labels)
    >>> index = HammingIndex(16)
    >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
    ...     encode(model, {"image": da.from_array(image, chunks=(15, 20))}, index)
    40
    >>> bool((index.items()[0] == model.encode({"image": image})).all())
    True
    """
    cluster = Cluster(client)
    state = model.learned
    widths_of(X, state.widths, whole=False)
    blocks = blocks_of(cluster, X, sizes)
    if ids is not None and all(block.place.n_rows >= 0 for block in blocks):
        n_rows = sum(block.place.n_rows for block in blocks)
        if len(ids) != n_rows:
            raise InputError(f"got {len(ids)} ids for {n_rows} rows")
    hash_function = model.hash_function()
    done: dict[int, Kept]
    write: Callable[[int, Codes, Any], None]
    if isinstance(to, (str, os.PathLike)):
        files = CodeFiles(Path(to), model.n_bits, hash_function)
        done, write = files.done(), files.write
        if done:  # that they belong to these blocks is seen from the rows
            blocks, _ = surveyed(cluster, blocks, state.widths)
    else:
        done, write = {}, _adder(to)
    if unknown := sorted(set(done) - {block.place.number for block in blocks}):
        raise InputError(
            f"{to} has the codes of block {unknown[0]}, which this corpus does not have; encode "
            "into an empty directory"
        )
    missing = [block for block in blocks if block.place.number not in done]
    found = encoded(cluster, missing, hash_function, state.widths, model.n_bits)
    start = 0
    for block in blocks:
        number = block.place.number
        codes = None if number in done else next(found)
        n = done[number].n_rows if codes is None else len(codes)
        if 0 <= block.place.n_rows != n:
            raise InputError(
                f"block {number} has {block.place.n_rows} rows, but {n} are in {to}; encode into "
                "an empty directory"
            )
        keys = np.arange(start, start + n) if ids is None else ids[start : start + n]
        if len(keys) != n:
            raise InputError(
                f"got {start + len(keys)} ids, but more rows: {start + n} and counting"
            )
        if codes is None and done[number].ids != checksum_of_ids(keys):
            raise InputError(
                f"the codes of block {number} in {to} have other ids than {keys[0]!r} and so on; "
                "encode into an empty directory"
            )
        if codes is not None and n:
            write(number, codes, keys)
        start += n
        if progress is not None:
            progress(n)
    if ids is not None and len(ids) != start:
        raise InputError(f"got {len(ids)} ids for {start} rows; the rows have been encoded")
    return start


def _adder(index: CodeTarget) -> Callable[[int, Codes, Any], None]:
    if not hasattr(index, "add"):
        raise InputError(
            f"codes go to a directory or to an index with add(codes, ids), got "
            f"{type(index).__name__}"
        )
    return lambda _, codes, ids: index.add(codes, ids)


_PREFIX, _SUFFIX, _MODEL, _IDS = "codes-", ".parquet", "hash_function", "ids"


class Kept(NamedTuple):
    """What a file that is there holds: so many rows, with ids of this checksum."""

    n_rows: int
    ids: str


class CodeFiles:
    """The files of one encoding, which an interrupted one is taken up from.

    Parameters
    ----------
    folder : made where it is missing
    hash_function : every file records what made its codes, by checksum
    """

    def __init__(self, folder: Path, n_bits: int, hash_function: HashFunction) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._n_bits = folder, n_bits
        self._made_by = checksum_of(hash_function)

    def done(self) -> dict[int, Kept]:
        """Return the blocks that are there, by number; refuse files of another model."""
        return {
            int(path.name[len(_PREFIX) : -len(_SUFFIX)]): self._kept(path) for path in self._paths()
        }

    def write(self, number: int, codes: Codes, ids: Any) -> None:
        """Write the codes of one block with their ids, durably, or leave nothing behind."""
        write = parquet_writer(codes, ids, {_MODEL: self._made_by, _IDS: checksum_of_ids(ids)})
        path = self._folder / f"{_PREFIX}{number:08d}{_SUFFIX}"
        with replacing(path) as temporary, temporary.open("wb") as out:
            write(out)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob(f"{_PREFIX}{'[0-9]' * 8}{_SUFFIX}"))

    def _kept(self, path: Path) -> Kept:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise MissingExtraError("pyarrow", extra="parquet", what="reading Parquet") from error
        try:
            found = parquet.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"{path} is no Parquet file, or is damaged: {error}") from error
        metadata = found.metadata or {}
        if metadata.get(b"n_bits") != str(self._n_bits).encode():
            raise FormatError(
                f"{path} does not hold codes of {self._n_bits} bits; encode into another directory"
            )
        if metadata.get(_MODEL.encode()) != self._made_by.encode():
            raise FormatError(
                f"{path} was written by another model, or by this one before it learned more; "
                "encode into another directory"
            )
        return Kept(int(found.num_rows), metadata.get(_IDS.encode(), b"").decode())


def checksum_of(hash_function: HashFunction) -> str:
    """Return a checksum of all that decides a code.

    >>> import numpy as np
    >>> from oasis.model.hash_functions import LinearMap
    >>> one, other = ({"image": np.full((8, 3), value)} for value in (1.0, 2.0))
    >>> checksum_of(LinearMap(one)) == checksum_of(LinearMap(dict(one)))
    True
    >>> checksum_of(LinearMap(one)) == checksum_of(LinearMap(other))
    False
    """
    digest = hashlib.sha256()
    for name, array in hash_function.arrays():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def checksum_of_ids(ids: Any) -> str:
    """Return a checksum of ids, integers or strings, in order.

    >>> checksum_of_ids(range(3)) == checksum_of_ids([0, 1, 2]) != checksum_of_ids([0, 2, 1])
    True
    """
    digest = hashlib.sha256()
    for each in ids:
        digest.update(f"{each!s}\0".encode())
    return digest.hexdigest()
