"""Learning from, and encoding, what does not fit one machine, on a Dask cluster.

A chunk comes in blocks of rows. Whatever is as long as the chunk, or as long as a block is wide,
is done on the workers: the sums ``X'X`` and ``X'B``, the products ``X W'``, the Z, V and B steps,
the latter with a tree of QR factorisations (SPEC section 2). What comes back are sums, and the
r x r, f x r and d x d algebra is done here.

What equals a round in one piece
    The draws are the same, row for row, for the same seed, however the chunk is cut. So the codes
    are the same wherever the value before the sign is above rounding, about 1e-9 of its size for
    float64 features and 1e-6 for float32 ones with ``queries="codes"``. It is not where a model
    that has learned nothing gets a chunk with a single label set, whose codes are random in exact
    arithmetic, nor with ``alpha=0``. Sums agree to rounding; ``sum V'V`` of a chunk with no more
    rows than bits and fewer label sets does not, as nothing determines it. For the same blocks on
    as many threads everything is the same, bit by bit, from run to run.

Passes over the features
    One for a model with ``queries="labels"``, ``2 n_iter`` for ``queries="codes"``; one more if
    the sizes of delayed blocks are not known, and one over blocks with rows that are not learned
    from. A block that is not persisted is read anew in each, by the task that needs it.

Memory
    Of a worker: for each of its threads one block, `oasis.scale.dask.blocks.TILE_ROWS` scaled rows
    of it, and up to five d x d sums; for each row of its blocks what
    `oasis.scale.dask.cluster_rows` says. Here: the state of the model, the labels and the packed
    codes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from oasis.arrays import Rows
from oasis.codes import Codes, pack
from oasis.errors import InputError
from oasis.hashers.chunk import (
    check_labels,
)
from oasis.hashers.protocol import (
    Labels,
)
from oasis.model import OASIS
from oasis.model.file import State
from oasis.model.hash_functions import (
    LabelCoder,
)
from oasis.model.updates import (
    alternate,
)
from oasis.scale.dask.blocks import (
    Block,
    Place,
    blocks_of,
    groups_of,
    read_queries,
    surveyed,
    tiles,
    widths_of,
)
from oasis.scale.dask.cluster import Cluster
from oasis.scale.dask.cluster_rows import CodedRows, Part, RelaxedRows, Setting
from oasis.scale.dask.code_files import CodeFiles, HashFunction, Kept, checksum_of_ids
from oasis.scale.dask.feature_sums import FeatureSums, feature_sums

if TYPE_CHECKING:
    from distributed import Client, Future


class CodeTarget(Protocol):
    """What takes codes: `oasis.index.HammingIndex`, or anything else with this method."""

    def add(self, codes: Codes, ids: Any, /) -> Any:
        """Take codes (n, n_bits / 8) with as many ids."""


def partial_fit(
    model: OASIS,
    X: Any,
    y: Labels,
    *,
    sizes: Sequence[int] | None = None,
    client: Client | None = None,
) -> OASIS:
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
    it was, and so does a cluster that fails. A worker that dies is replaced by Dask, and what it
    had is made again.

    Notes
    -----
    A chunk always goes into the full sum of X'X, also one that is small enough for `OASIS` to
    spare itself the factorisation; the solution is the same.

    Examples
    --------
    >>> import numpy as np, dask.array as da
    >>> from distributed import Client
    >>> rng = np.random.default_rng(0)
    >>> image, labels = rng.random((40, 20)), [["sky"], ["sea"], ["sky", "sea"], ["cat"]] * 10
    >>> model = OASIS(16, labels="orthogonal", random_state=0)
    >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
    ...     model = partial_fit(model, {"image": da.from_array(image, chunks=(15, 20))}, labels)
    >>> alone = OASIS(16, labels="orthogonal", random_state=0).partial_fit({"image": image}, labels)
    >>> bool((model.codes_ == alone.codes_).all())
    True
    """
    cluster = Cluster(client)
    old: State | None = getattr(model, "state_", None)
    widths = widths_of(X, old.widths if old else None)
    if widths is not None:
        model.begin(widths)  # parameters, before any block is read
    blocks, widths = surveyed(cluster, blocks_of(cluster, X, sizes), widths)
    if not blocks:
        raise InputError("the chunk is empty; expected at least one sample")
    n_samples = sum(block.place.n_rows for block in blocks)
    label_sets = check_labels(y, n_samples)
    state, codes = _learn(cluster, model, model.begin(widths), blocks, label_sets)
    model.state_, model.codes_ = state, codes
    return model


def encode(
    model: OASIS,
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
    hash_function = state.hash_function(model.normalize)
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
    encoded = _encoded(cluster, missing, hash_function, model.n_bits)
    start = 0
    for block in blocks:
        number = block.place.number
        codes = None if number in done else next(encoded)
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


def _learn(
    cluster: Cluster,
    model: OASIS,
    state: State,
    blocks: Sequence[Block],
    label_sets: list[tuple[str, ...]],
) -> tuple[State, Codes]:
    """Return the state after the chunk, and the chunk's codes; nothing is changed."""
    learns = np.ones(len(label_sets), dtype=bool)
    if model.unlabelled == "encode":
        learns = np.array([bool(names) for names in label_sets])
    codes = np.zeros((len(label_sets), model.n_bits // 8), dtype=np.uint8)
    learned = state.grown(label_sets) if learns.any() else state
    L = learned.labels.indicator(label_sets)
    parts = [_part(cluster, group, learns, L) for group in groups_of(cluster, blocks)]
    setting = Setting(
        learned.labels.closed(),
        model.weights,
        model.n_bits,
        int(learns.sum()),
        model.normalize,
        state.widths,
    )
    # where nothing is learned, this is what looks at every block
    features = feature_sums(cluster, parts, setting, model.delta, model.queries == "labels")
    if learns.any():
        rng = learned.rng()
        if model.codes == "classes":
            learned = learned.with_codewords(L[learns], rng)
        learned, coded = _learn_rows(cluster, model, learned, parts, setting, features, rng)
        for place, each in coded:
            codes[place.rows][learns[place.rows]] = each
    if not learns.all():
        rest = [block for block in blocks if not learns[block.place.rows].all()]
        coder = learned.coder(model.normalize)
        chosen = [np.flatnonzero(~learns[block.place.rows]) for block in rest]
        for block, rows, each in zip(
            rest, chosen, _encoded(cluster, rest, coder, model.n_bits, chosen), strict=True
        ):
            codes[block.place.first_row + rows] = each
    return replace(learned, n_seen=state.n_seen + len(label_sets)), codes


def _part(
    cluster: Cluster, blocks: list[Block], learns: npt.NDArray[np.bool_], L: sp.csr_array
) -> Part:
    rows = [np.flatnonzero(learns[block.place.rows]) for block in blocks]
    in_chunk = [block.place.first_row + each for block, each in zip(blocks, rows, strict=True)]
    return Part(
        blocks,
        [
            None if len(each) == block.place.n_rows else each
            for block, each in zip(blocks, rows, strict=True)
        ],
        [len(each) for each in rows],
        cluster.constant(L[np.concatenate(in_chunk)]),
    )


def _learn_rows(
    cluster: Cluster,
    model: OASIS,
    state: State,
    parts: Sequence[Part],
    setting: Setting,
    features: Mapping[str, FeatureSums],
    rng: np.random.Generator,
) -> tuple[State, Iterator[tuple[Place, Codes]]]:
    """Return the state after the rows that are learned, and their codes by block."""
    fits = {name: each.fit(state.ridges[name]) for name, each in features.items()}
    filled = [part for part in parts if any(part.sizes)]
    if model.codes == "classes":
        rows = CodedRows.of_classes(cluster, filled, setting, state.codewords)
    else:
        hints = fits if model.queries == "codes" else {}
        rows = relaxed = RelaxedRows(cluster, filled, setting, hints, rng)
        for _ in alternate(relaxed, state.sums, relaxed.U, model.weights, model.n_iter):
            pass
        state = replace(state, sums=state.sums.joined(relaxed.sums()))
    targets = (
        rows.targets()
        if model.queries == "codes"
        else {name: each.targets for name, each in features.items()}
    )
    for name, fit in fits.items():
        fit.solve(targets[name])
    learned = replace(
        state,
        codebook=state.codebook.joined(rows.book()),
        ridges={name: fit.finish() for name, fit in fits.items()},
        generator=dict(rng.bit_generator.state),
    )
    return learned, rows.codes()


def _encoded(
    cluster: Cluster,
    blocks: Sequence[Block],
    hash_function: HashFunction | LabelCoder,
    n_bits: int,
    chosen: Sequence[Rows | None] | None = None,
) -> Iterator[Codes]:
    """Yield the codes of the blocks, or of chosen rows of each, in order; few are under way."""
    function = cluster.constant(hash_function)
    under_way: deque[Future] = deque()
    n_ahead = 2 * cluster.n_threads
    for block, rows in zip(blocks, chosen or [None] * len(blocks), strict=True):
        under_way.append(cluster.submit(_codes, block.source, block.place, rows, function, n_bits))
        if len(under_way) >= n_ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _codes(
    source: Any,
    place: Place,
    rows: Rows | None,
    hash_function: HashFunction | LabelCoder,
    n_bits: int,
) -> Codes:
    X = read_queries(source, place, hash_function.widths)
    n = next(iter(X.values())).shape[0] if rows is None else len(rows)
    codes = np.empty((n, n_bits // 8), dtype=np.uint8)
    for where, tile in tiles(X, rows, normalize=False):  # the hash function does that itself
        codes[where] = pack(hash_function.project(tile))
    return codes


def _adder(index: CodeTarget) -> Callable[[int, Codes, Any], None]:
    if not hasattr(index, "add"):
        raise InputError(
            f"codes go to a directory or to an index with add(codes, ids), got "
            f"{type(index).__name__}"
        )
    return lambda _, codes, ids: index.add(codes, ids)
