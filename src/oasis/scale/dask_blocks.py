"""A Dask cluster, and blocks of rows that its workers read for themselves, one at a time.

Every task is a pure function of its arguments, and its arguments are tasks or part of the task
itself, never data that a single worker holds. So results that are lost with a worker are computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from oasis.arrays import Matrix, Rows, unit_rows
from oasis.errors import InputError, MissingExtraError
from oasis.hashers.chunk import check_features, check_samples

if TYPE_CHECKING:
    from distributed import Client, Future

TILE_ROWS = 4096
"""Rows of a block that are selected and scaled at a time: no worker copies a whole block."""


class Cluster:
    """The operations of a Dask client that a round needs.

    Parameters
    ----------
    client : distributed.Client or None
        None: the one that was made last in this process.
    """

    def __init__(self, client: Client | None) -> None:
        try:
            import distributed
        except ImportError as error:
            raise MissingExtraError(
                "dask[distributed]", extra="scale", what="learning past one machine"
            ) from error
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError as error:
                raise InputError(
                    "no Dask client is running; make one, such as distributed.Client(), or pass "
                    "client="
                ) from error
        self.client = client

    @property
    def n_threads(self) -> int:
        """How many tasks the workers do at a time."""
        return max(1, sum(int(n) for n in self.client.nthreads().values()))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Start one task; futures among the arguments, in lists and mappings too, are awaited."""
        return self.client.submit(function, *arguments, pure=False)

    def constant(self, value: Any) -> Future:
        """Return a future of the value: sent once, and sent again if its worker is lost."""
        return self.submit(_itself, value)

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return what the tasks returned; raise what one of them raised."""
        return list(self.client.gather(list(futures)))

    def total(self, parts: Sequence[Future]) -> Any:
        """Return the sum of large parts: a task adds at most two, and only the total is sent here.

        The order, and so the rounding, depends on the number of parts alone.

        >>> import numpy as np
        >>> from distributed import Client
        >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
        ...     cluster = Cluster(client)
        ...     cluster.total([cluster.constant((n, np.ones(2))) for n in (1, 2, 3)])
        (6, array([3., 3.]))
        """
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [self.submit(_plus, *pair) if pair[1:] else pair[0] for pair in pairs]
        return parts[0].result()


def _plus(a: Any, b: Any) -> Any:
    """Return the sum of two arrays, tuples of them, or what has a method ``joined``."""
    if isinstance(a, tuple):
        return tuple(_plus(*pair) for pair in zip(a, b, strict=True))
    return a.joined(b) if hasattr(a, "joined") else a + b


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Recipe:
    """A lazy block, or one modality of it, computed inside the task that uses it.

    As a task of its own, its result would stay in memory until the next task uses it, together with
    the block that the worker reads meanwhile.
    """

    made_of: Any  # a dask collection of one block, with no more than its own part of the graph

    def read(self) -> Any:
        import dask

        return dask.compute(self.made_of, scheduler="synchronous")[0]


@dataclass(frozen=True)
class Place:
    """The position of a block.

    Attributes
    ----------
    number : position among the blocks as given
    n_rows : its samples; -1 if unknown before it is read
    first_row : position of its first sample in the chunk
    """

    number: int
    n_rows: int = -1
    first_row: int = 0

    @property
    def rows(self) -> slice:
        return slice(self.first_row, self.first_row + self.n_rows)


@dataclass(frozen=True)
class Block:
    """One block of a chunk.

    Attributes
    ----------
    source : a `Recipe`, a future, or a mapping of modality to either. It is a separate argument of
        every task, so that Dask replaces futures in it by their results.
    place : its position
    """

    source: Any
    place: Place


def blocks_of(cluster: Cluster, X: Any, sizes: Sequence[int] | None = None) -> list[Block]:
    """Return the blocks of X, in order; nothing is read.

    Parameters
    ----------
    X : mapping of modality to a dask array, or a sequence of delayed objects or futures
    sizes : rows of each delayed block, where they are known
    """
    if isinstance(X, Mapping):
        if sizes is not None:
            raise InputError("sizes are for delayed blocks; dask arrays know their own")
        return _array_blocks(cluster, X)
    if isinstance(X, (str, bytes)) or not isinstance(X, Sequence) or not X:
        raise InputError(
            "X must map modality names to dask arrays, or be a sequence of delayed blocks that "
            f"give such mappings, got {'nothing' if not X else type(X).__name__}"
        )
    if sizes is not None and len(sizes) != len(X):
        raise InputError(f"got sizes of {len(sizes)} blocks, but {len(X)} blocks")
    sources = [_delayed_source(cluster, block, number) for number, block in enumerate(X)]
    if sizes is None:
        return [Block(source, Place(number)) for number, source in enumerate(sources)]
    return _placed(sources, [int(size) for size in sizes])


def widths_of(X: Any, known: Mapping[str, int] | None, whole: bool = True) -> dict[str, int] | None:
    """Return the number of features of each modality if it is known without reading X.

    ``whole`` says that X must have all modalities that are known.
    """
    if not isinstance(X, Mapping):
        return None if known is None else dict(known)
    _check_arrays(X)
    # one row of zeros stands for the data: names, types and widths are those of the arrays
    row = {name: np.zeros((1, array.shape[1]), array.dtype) for name, array in X.items()}
    checked = check_samples(row, known) if whole else check_features(row, known)
    return {name: int(x.shape[1]) for name, x in checked.items()}


def surveyed(
    cluster: Cluster, blocks: Sequence[Block], widths: Mapping[str, int] | None
) -> tuple[list[Block], dict[str, int]]:
    """Return the blocks with their rows, empty ones left out, and the widths of the modalities.

    Blocks with an unknown number of rows are read for it; the first one also if widths are unknown.
    """
    unknown = [block for block in blocks if block.place.n_rows < 0]
    if widths is None and not unknown:
        unknown = list(blocks[:1])
    sources = [block.source for block in unknown]
    found = cluster.gather([cluster.submit(_survey, source, widths) for source in sources])
    if widths is None:
        widths = found[0][1]
    sizes = {block.place.number: n for block, (n, _) in zip(unknown, found, strict=True)}
    sizes |= {b.place.number: b.place.n_rows for b in blocks if b.place.n_rows >= 0}
    sizes = dict(sorted(sizes.items()))
    placed = _placed([block.source for block in blocks], list(sizes.values()))
    return [block for block in placed if block.place.n_rows], dict(widths)


def read_samples(source: Any, place: Place, widths: Mapping[str, int]) -> dict[str, Matrix]:
    """Return the checked features of a block to learn from; called on a worker."""
    X = check_samples(_read(source), widths, place.first_row)
    _check_size(place, X)
    return X


def read_queries(source: Any, place: Place, widths: Mapping[str, int]) -> dict[str, Matrix]:
    """Return the features of a block to encode, any of the modalities; called on a worker."""
    X = check_features(_read(source), widths)
    _check_size(place, X)
    return X


def places(n: int) -> Iterator[slice]:
    """Yield slices of at most `TILE_ROWS` that cover n rows.

    >>> list(places(5000))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    for start in range(0, n, TILE_ROWS):
        yield slice(start, min(start + TILE_ROWS, n))


def tiles(
    X: Mapping[str, Matrix], rows: Rows | None, normalize: bool
) -> Iterator[tuple[slice, dict[str, Matrix]]]:
    """Yield the chosen rows of a block, in order, in small pieces.

    Parameters
    ----------
    rows : which rows, None for all of them
    normalize : whether each is scaled to unit length

    Yields
    ------
    Where the piece stands among the chosen rows, and its features.
    """
    n = next(iter(X.values())).shape[0] if rows is None else len(rows)
    for place in places(n):
        chosen = place if rows is None else rows[place]
        tile = {name: matrix[chosen] for name, matrix in X.items()}
        yield place, {name: unit_rows(x) for name, x in tile.items()} if normalize else tile


def groups_of(cluster: Cluster, blocks: Sequence[Block]) -> list[list[Block]]:
    """Divide the blocks among the threads of the cluster, about as many rows to each.

    Blocks that are in the memory of workers are grouped by worker, so that none is moved.
    """
    from distributed import Future

    n_threads = cluster.n_threads
    held: dict[Any, list[Block]] = {}
    for block in blocks:
        futures = [
            each
            for each in (
                block.source.values() if isinstance(block.source, dict) else [block.source]
            )
            if isinstance(each, Future)
        ]
        holders = cluster.client.who_has(futures[:1]).values() if futures else ()
        held.setdefault(next((where for each in holders for where in each), None), []).append(block)
    groups: list[list[Block]] = []
    for members in held.values():
        n_groups = max(1, round(n_threads * len(members) / len(blocks)))
        edges = np.linspace(0, len(members), min(n_groups, len(members)) + 1).round().astype(int)
        groups += [members[a:b] for a, b in pairwise(edges)]
    return groups


def _read(source: Any) -> Any:
    if isinstance(source, Recipe):
        return source.read()
    if isinstance(source, Mapping):
        return {
            name: each.read() if isinstance(each, Recipe) else each for name, each in source.items()
        }
    return source


def _survey(source: Any, widths: Mapping[str, int] | None) -> tuple[int, dict[str, int]]:
    X = check_features(_read(source), widths)
    return int(next(iter(X.values())).shape[0]), {name: x.shape[1] for name, x in X.items()}


def _check_size(place: Place, X: Mapping[str, Matrix]) -> None:
    n = next(iter(X.values())).shape[0]
    if n != place.n_rows >= 0:
        raise InputError(f"block {place.number} has {n} rows, expected {place.n_rows}")


def _placed(sources: Sequence[Any], sizes: Sequence[int]) -> list[Block]:
    starts = accumulate(sizes, initial=0)
    return [
        Block(source, Place(number, size, start))
        for number, (source, size, start) in enumerate(zip(sources, sizes, starts, strict=False))
    ]


def _delayed_source(cluster: Cluster, block: Any, number: int) -> Any:
    import dask
    from dask.delayed import Delayed
    from distributed import Future, futures_of

    if isinstance(block, Future):
        return block
    if not isinstance(block, Delayed):
        raise InputError(f"block {number} is a {type(block).__name__}, expected a delayed object")
    if futures_of(block):
        return cluster.client.compute(block)
    return Recipe(dask.optimize(block)[0])


def _check_arrays(X: Mapping[str, Any]) -> None:
    import dask.array as da

    for name, array in X.items():
        if not isinstance(array, da.Array):
            raise InputError(
                f"modality {name!r} is a {type(array).__name__}, expected a dask array; give "
                "delayed blocks for anything else"
            )
        if array.ndim != 2:
            raise InputError(
                f"modality {name!r} must have shape (n_samples, n_features), got {array.shape}"
            )
        if np.isnan(array.shape).any():
            raise InputError(
                f"modality {name!r} does not know its own shape; call its compute_chunk_sizes()"
            )
    n_rows = {name: int(array.shape[0]) for name, array in X.items()}
    if len(set(n_rows.values())) > 1:
        raise InputError(f"modalities differ in their number of samples: {n_rows}")


def _array_blocks(cluster: Cluster, X: Mapping[str, Any]) -> list[Block]:
    import dask
    from distributed import futures_of

    if not X:
        raise InputError("X has no modality; expected at least one")
    _check_arrays(X)
    sizes = next(iter(X.values())).chunks[0]
    columns: dict[str, list[Any]] = {}
    for name, array in X.items():
        by_rows = array.rechunk((sizes, -1))
        parts = [by_rows.blocks[i] for i in range(len(sizes))]
        if futures_of(by_rows):
            columns[name] = cluster.client.compute(parts)
        else:
            columns[name] = [Recipe(dask.optimize(part)[0]) for part in parts]
    sources = [{name: parts[i] for name, parts in columns.items()} for i in range(len(sizes))]
    return _placed(sources, [int(size) for size in sizes])
