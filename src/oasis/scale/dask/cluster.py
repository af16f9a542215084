"""Tasks on the workers of a Dask cluster: constants, maps over blocks, and sums of results.

Every task is a pure function of its arguments, and its arguments are tasks or part of the task
itself, never data that a single worker holds. So results that are lost with a worker are computed
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from oasis.arrays import Array
from oasis.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from distributed import Client, Future

FAN = 8
"""Number of parts of a sum, or of a QR factorisation, that one task combines."""


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

    def map(
        self, function: Callable[..., Any], *columns: Sequence[Any], common: Sequence[Any] = ()
    ) -> list[Future]:
        """Start one task for each row of the columns, with the common arguments after them."""
        return [
            self.submit(function, *arguments, *common) for arguments in zip(*columns, strict=True)
        ]

    def constant(self, value: Any) -> Future:
        """Return a future of the value: sent once, and sent again if its worker is lost."""
        return self.submit(_itself, value)

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Return what the tasks returned; raise what one of them raised."""
        return list(self.client.gather(list(futures)))

    def total(self, parts: Sequence[Future]) -> Any:
        """Return the sum of all parts, added in order: by a tree on the workers, the last few here.

        The order, and so the rounding, depends on the number of parts alone.
        """
        while len(parts) > FAN:
            parts = self._joined(parts, FAN)
        return added(*self.gather(parts))

    def large_total(self, parts: Sequence[Future]) -> Any:
        """Return the sum of large parts: a task adds at most two, and only the total is sent here.

        >>> import numpy as np
        >>> from distributed import Client
        >>> with Client(processes=False, n_workers=1, dashboard_address="127.0.0.1:0") as client:
        ...     cluster = Cluster(client)
        ...     cluster.large_total(cluster.map(np.ones, [2, 2, 2]))
        array([3., 3.])
        """
        while len(parts) > 1:
            parts = self._joined(parts, 2)
        return parts[0].result()

    def _joined(self, parts: Sequence[Future], fan: int) -> list[Future]:
        groups = [parts[i : i + fan] for i in range(0, len(parts), fan)]
        return [self.submit(added, *group) if group[1:] else group[0] for group in groups]

    def qr(self, factors: Sequence[Future]) -> tuple[list[Any], Array]:
        """Join the triangular factors of blocks: the upper part of a QR tree.

        Parameters
        ----------
        factors : futures of (q_i, m), R of each block

        Returns
        -------
        For each block the (q_i, q) matrix, or its future, that turns its own Q into its rows of
        the whole Q; and the R (q, m) of the whole.
        """
        if len(factors) <= FAN:
            return stacked_qr(*self.gather(factors))
        groups = [factors[i : i + FAN] for i in range(0, len(factors), FAN)]
        joined = [self.submit(stacked_qr, *group) for group in groups]
        upper, R = self.qr([self.submit(_second, pair) for pair in joined])
        turns = [
            self.submit(_turned, pair, i, top)
            for pair, top, group in zip(joined, upper, groups, strict=True)
            for i in range(len(group))
        ]
        return turns, R


def added(*parts: Any) -> Any:
    """Return the sum of arrays, of tuples of them, or of what has a method ``joined``."""
    return reduce(_plus, parts)


def stacked_qr(*factors: Array) -> tuple[list[Array], Array]:
    """Return the Q of matrices on top of each other, cut back into theirs, and R.

    >>> import numpy as np
    >>> parts, R = stacked_qr(np.array([[3.0]]), np.array([[4.0]]))
    >>> abs(R.round(6)), abs(np.vstack(parts).round(6)).ravel()
    (array([[5.]]), array([0.6, 0.8]))
    """
    Q, R = np.linalg.qr(np.vstack(factors))
    ends = np.cumsum([len(factor) for factor in factors])
    return np.split(Q, ends[:-1]), R


def _turned(pair: tuple[list[Array], Array], i: int, top: Array) -> Array:
    return pair[0][i] @ top


def _plus(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(_plus(*pair) for pair in zip(a, b, strict=True))
    return a.joined(b) if hasattr(a, "joined") else a + b


def _itself(value: Any) -> Any:
    return value


def _second(pair: Iterable[Any]) -> Any:
    _, second = pair
    return second
