"""The formulas, transcribed as they stand: slow, with every old sample kept. The tests' truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


def loss(old, new, U, Ws, *, alpha=10.0, beta=1.0, gamma=1.0, theta=1.0, delta=1.0):
    """The loss of one round, with its n x n similarities written out.

    ``old`` and ``new`` are dicts with B, V, G and X (a list with one matrix per modality).
    """
    r = new["B"].shape[1]

    def sq(A):
        return float((A * A).sum())

    total = sq(new["B"] - new["V"])
    total += alpha * (
        sq(r * new["G"] @ new["G"].T - new["B"] @ new["V"].T)
        + sq(r * old["G"] @ new["G"].T - old["B"] @ new["V"].T)
        + sq(r * new["G"] @ old["G"].T - new["B"] @ old["V"].T)
    )
    total += beta * (sq(new["G"] - new["V"] @ U.T) + sq(old["G"] - old["V"] @ U.T) + theta * sq(U))
    for X_new, X_old, W in zip(new["X"], old["X"], Ws, strict=True):
        total += gamma * (sq(new["B"] - X_new @ W.T) + sq(old["B"] - X_old @ W.T) + delta * sq(W))
    return total


def represent(label_sets, vectors):
    """G: the sum of a sample's class vectors, scaled to unit length; zero without a label."""
    width = len(next(iter(vectors.values())))
    G = np.zeros((len(label_sets), width))
    for row, names in enumerate(label_sets):
        total = np.zeros(width)
        for name in names:
            total += np.asarray(vectors[name], dtype=float)
        length = np.linalg.norm(total)
        if length > 0:
            G[row] = total / length
    return G


@dataclass
class LiteralOASIS:
    """One round after another on everything ever seen, with inverses and full matrices.

    Only where V is unique, that is where the centred Z has full column rank and n > r, can codes
    be compared one by one.
    """

    n_bits: int
    vectors: dict
    alpha: float = 10.0
    beta: float = 1.0
    gamma: float = 1.0
    theta: float = 1.0
    delta: float = 1.0
    n_iter: int = 3
    seed: int = 0
    B: np.ndarray | None = None
    V: np.ndarray | None = None
    G: np.ndarray | None = None
    X: dict = field(default_factory=dict)
    W: dict = field(default_factory=dict)

    def partial_fit(self, X, label_sets):
        r = self.n_bits
        if self.B is None:
            self.rng = np.random.default_rng(self.seed)
            width = len(next(iter(self.vectors.values())))
            self.B, self.V, self.G = np.zeros((0, r)), np.zeros((0, r)), np.zeros((0, width))
            self.X = {name: np.zeros((0, matrix.shape[1])) for name, matrix in X.items()}
        n = len(label_sets)
        G = represent(label_sets, self.vectors)
        B = np.where(self.rng.random((n, r)) < 0.5, -1.0, 1.0)
        U = self.rng.standard_normal((G.shape[1], r))
        self.rng.standard_normal((n, max(0, min(r, n - 1))))
        W = {name: np.zeros((r, matrix.shape[1])) for name, matrix in X.items()}
        J = np.eye(n) - np.ones((n, n)) / n
        for _ in range(self.n_iter):
            BG = self.B.T @ self.G + B.T @ G
            Z = self.alpha * r * G @ BG.T + B + self.beta * G @ U
            P, s, Qt = np.linalg.svd(J @ Z, full_matrices=False)
            if s[-1] <= max(n, r) * np.finfo(float).eps * s[0]:
                raise RuntimeError("V is not unique here")
            V = np.sqrt(n) * P @ Qt
            GV = self.G.T @ self.V + G.T @ V
            VV = self.V.T @ self.V + V.T @ V
            U = GV @ np.linalg.inv(VV + self.theta * np.eye(r))
            XW = sum(X[name] @ W[name].T for name in X)
            B = np.where(self.alpha * r * G @ GV + V + self.gamma * XW > 0, 1.0, -1.0)
            for name in X:
                everything = np.vstack([self.X[name], X[name]])
                BX = np.vstack([self.B, B]).T @ everything
                XX = everything.T @ everything
                W[name] = BX @ np.linalg.inv(XX + self.delta * np.eye(XX.shape[0]))
        self.B, self.V, self.G = (
            np.vstack([self.B, B]),
            np.vstack([self.V, V]),
            np.vstack([self.G, G]),
        )
        self.X = {name: np.vstack([self.X[name], X[name]]) for name in X}
        self.W = W
        return B
