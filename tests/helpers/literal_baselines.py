"""FOMH and LEMON as published: slow, r x n, similarities written out, every old sample kept."""

from __future__ import annotations

import numpy as np


def sign(M):
    return np.where(M > 0, 1.0, -1.0)


def label_matrix(label_sets, names):
    """L, (n, c): raw 0/1 labels."""
    return np.array([[float(name in row) for name in names] for row in label_sets])


def signs(rng, n, r):
    return np.where(rng.random((n, r)) < 0.5, -1.0, 1.0).T


class LiteralFOMH:
    """Everything r x n."""

    def __init__(
        self,
        n_bits,
        n_anchors,
        sigma,
        alpha=1e-5,
        beta=0.1,
        gamma=1e-3,
        rho=0.1,
        n_iter=10,
        seed=0,
    ):
        self.r, self.n_anchors, self.sigma = n_bits, n_anchors, sigma
        self.alpha, self.beta, self.gamma, self.rho = alpha, beta, gamma, rho
        self.n_iter, self.rng = n_iter, np.random.default_rng(seed)
        self.anchors, self.n_last = None, None

    def phi(self, name, X):
        """(p + 1, n): one row per anchor, and one of ones."""
        columns = []
        for x in X:
            row = [
                np.exp(-(np.linalg.norm(x - a) ** 2) / (2 * self.sigma[name] ** 2))
                for a in self.anchors[name]
            ]
            columns.append([*row, 1.0])
        return np.array(columns).T

    def partial_fit(self, X, label_sets, names):
        r, n = self.r, len(label_sets)
        if self.anchors is None:
            rows = self.rng.choice(n, size=min(n, self.n_anchors), replace=False)
            self.anchors = {name: values[rows] for name, values in X.items()}
            if self.sigma == "mean":
                self.sigma = {
                    name: np.sqrt(
                        np.mean(
                            [[((x - a) ** 2).sum() for a in self.anchors[name]] for x in X[name]]
                        )
                    )
                    for name in X
                }
            self.mu = dict.fromkeys(X, 1 / len(X))
            p = len(rows) + 1
            self.old_BK = {name: np.zeros((r, p)) for name in X}
            self.old_KK = {name: np.zeros((p, p)) for name in X}
        if n != self.n_last:
            self.B, self.Z = signs(self.rng, n, r), signs(self.rng, n, r)
            self.Gm = self.B - self.Z
            self.D = self.rng.standard_normal((n, r)).T
            self.n_last = n
        L = label_matrix(label_sets, names)
        S = 2 * L @ L.T - np.ones((n, n))
        phi = {name: self.phi(name, values) for name, values in X.items()}
        eye = np.eye(r)
        for _ in range(self.n_iter):
            W, BK, KK = {}, {}, {}
            for name in X:
                mu = self.mu[name]
                BK[name] = self.old_BK[name] + self.B @ phi[name].T
                KK[name] = self.old_KK[name] + phi[name] @ phi[name].T
                ridge = self.gamma * np.eye(len(KK[name]))
                W[name] = (BK[name] / mu) @ np.linalg.inv(KK[name] / mu + ridge)
            self.B = sign(
                sum(2 / self.mu[name] * W[name] @ phi[name] for name in X)
                + 2 * self.alpha * r * self.D @ S
                - self.alpha * self.D @ self.D.T @ self.Z
                + 2 * self.beta * self.D
                + self.rho * self.Z
                - self.Gm
            )
            self.D = np.linalg.inv(self.alpha * self.B @ self.B.T + self.beta * eye) @ (
                self.alpha * r * self.B @ S + self.beta * self.B
            )
            self.Z = sign(-self.alpha * self.D @ self.D.T @ self.B + self.rho * self.B + self.Gm)
            self.Gm = self.Gm + self.rho * (self.B - self.Z)
            e = {name: np.linalg.norm(self.B - W[name] @ phi[name]) for name in X}
            self.mu = {name: e[name] / sum(e.values()) for name in X}
        self.W, self.old_BK, self.old_KK = W, BK, KK
        return self.encode(X)

    def encode(self, X):
        n = len(next(iter(X.values())))
        mu, codes = dict.fromkeys(X, 0.5), []
        for start in range(0, n, 1000):
            phi = {name: self.phi(name, values[start : start + 1000]) for name, values in X.items()}
            for _ in range(5):
                B = sign(sum(2 * mu[name] * self.W[name] @ phi[name] for name in X))
                mu = {name: 1 / (2 * np.linalg.norm(B - self.W[name] @ phi[name])) for name in X}
            codes.append(B.T)
        return np.vstack(codes)


class LiteralLEMON:
    """n x r; all sums over all samples, with inverses, n x n centring and the terms in ones."""

    def __init__(self, n_bits, alpha=1e4, beta=1e4, gamma=0.1, xi=1.0, n_iter=5, seed=0):
        self.r, self.alpha, self.beta, self.gamma, self.xi = n_bits, alpha, beta, gamma, xi
        self.n_iter, self.rng, self.seen = n_iter, np.random.default_rng(seed), []

    def partial_fit(self, X, label_sets, names):
        """``names`` are all classes of the stream: later ones are columns of zeros until then."""
        r, n = self.r, len(label_sets)
        L = label_matrix(label_sets, names)
        lengths = np.linalg.norm(L, axis=1, keepdims=True)
        G = np.divide(L, lengths, out=np.zeros_like(L), where=lengths > 0)
        B = signs(self.rng, n, r).T
        V = self.rng.standard_normal((n, r))
        Q, upper = np.linalg.qr(self.rng.standard_normal((r, r)))
        R = Q @ np.diag(np.sign(np.diag(upper)))
        self.rng.standard_normal((n, max(0, min(r, n - 1))))
        J = np.eye(n) - np.ones((n, n)) / n

        def total(left, right, now_left, now_right):
            old = [each[left].T @ each[right] for each in self.seen]
            return sum(old) + now_left.T @ now_right

        ones = np.ones((n, 1))
        for _ in range(self.n_iter):
            P = np.linalg.inv(total("V", "V", V, V) + self.gamma * np.eye(r)) @ total(
                "V", "L", V, L
            )
            Z = (
                B @ R.T
                + self.beta * L @ P.T
                + 2 * self.alpha * r * G @ total("G", "B", G, B)
                - self.alpha * r * ones @ total("one", "B", ones, B)
            )
            left, s, right = np.linalg.svd(J @ Z, full_matrices=False)
            if s[-1] <= max(n, r) * np.finfo(float).eps * s[0]:
                raise RuntimeError("V is not unique here")
            V = np.sqrt(n) * left @ right
            A, _, Ct = np.linalg.svd(total("B", "V", B, V))
            R = Ct.T @ A.T
            B = sign(2 * self.alpha * r * G @ total("G", "V", G, V) + V @ R)
        self.seen.append({"B": B, "V": V, "L": L, "G": G, "one": ones, "X": X})
        self.W = {}
        for name in X:
            everything = np.vstack([each["X"][name] for each in self.seen])
            codes = np.vstack([each["B"] for each in self.seen])
            XX = everything.T @ everything
            self.W[name] = codes.T @ everything @ np.linalg.inv(XX + self.xi * np.eye(len(XX)))
        return B
