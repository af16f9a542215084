"""OMH-DQ, SAPMH, THOR, IW-OMH and HCFW as published: slow, similarities formed, inverses, loops."""

from __future__ import annotations

import copy

import numpy as np
import scipy.linalg
from literal_baselines import label_matrix, sign, signs


def rotation(rng, r):
    Q, upper = np.linalg.qr(rng.standard_normal((r, r)))
    return Q @ np.diag(np.sign(np.diag(upper)))


def polar(M):
    left, _, right = np.linalg.svd(M)
    return left @ right


def similarity(L):
    return 2 * L @ L.T - np.ones((len(L), len(L)))


def kernel(X, anchors, sigma, bias):
    """(p, n), one row per anchor, and one of ones if asked for."""
    columns = []
    for x in X:
        row = [np.exp(-(np.linalg.norm(x - a) ** 2) / (2 * sigma**2)) for a in anchors]
        columns.append([*row, 1.0] if bias else row)
    return np.array(columns).T


class LiteralBatch:
    """Anchors, widths and kernels of everything seen; a subclass trains on phi (p, n) and L."""

    bias = True

    def __init__(self, n_bits, n_anchors, sigma, seed=0, **options):
        self.r, self.n_anchors, self.asked, self.seed = n_bits, n_anchors, sigma, seed
        for name, value in options.items():
            setattr(self, name, value)

    def fit(self, X, label_sets, names):
        self.rng = np.random.default_rng(self.seed)
        n = len(label_sets)
        rows = np.sort(self.rng.choice(n, size=min(n, self.n_anchors), replace=False))
        self.anchors = {name: values[rows] for name, values in X.items()}
        self.sigma = self.asked
        if self.asked == "mean":
            self.sigma = {
                name: np.sqrt(
                    np.mean([[((x - a) ** 2).sum() for a in self.anchors[name]] for x in X[name]])
                )
                for name in X
            }
        self.train(self.phi(X), label_matrix(label_sets, names))
        return self.encode(X)

    def phi(self, X):
        return {
            name: kernel(values, self.anchors[name], self.sigma[name], self.bias)
            for name, values in X.items()
        }


class LiteralOMHDQ(LiteralBatch):
    """Everything r x n. ``steps`` lists (objective before, after) of every W and H step."""

    def __init__(self, *args, **options):
        defaults = {"alpha": 1e-3, "beta": 1e-5, "delta": 1e-3, "lam": 1e5, "n_iter": 9}
        super().__init__(*args, **defaults | {"query_weights": "published"} | options)

    def train(self, phi, L):
        r, n, alpha, beta, lam = self.r, len(L), self.alpha, self.beta, self.lam
        S = similarity(L)
        B, Zb = signs(self.rng, n, r), signs(self.rng, n, r)
        R, Zr = rotation(self.rng, r), rotation(self.rng, r)
        Gb, Gr = B - Zb, R - Zr
        H = (beta * R.T @ B + alpha * r * R.T @ B @ S) / (beta + alpha)
        mu = dict.fromkeys(phi, 1 / 2)
        W = self.w_step(phi, H, mu)
        self.steps = []

        def objective():
            total = beta * np.sum((B - R @ H) ** 2) + alpha * np.sum((r * S - B.T @ R @ H) ** 2)
            for name in phi:
                total += np.sum((H - W[name] @ phi[name]) ** 2) / mu[name]
                total += self.delta * np.sum(W[name] ** 2)
            return total

        for _ in range(self.n_iter):
            e = {name: np.linalg.norm(B - W[name] @ phi[name]) for name in phi}
            mu = {name: e[name] / sum(e.values()) for name in phi}
            before = objective()
            W = self.w_step(phi, H, mu)
            self.steps.append((before, objective()))
            R = polar(
                2 * beta * B @ H.T
                + 2 * alpha * r * (2 * (B @ L) @ (H @ L).T - np.outer(B.sum(1), H.sum(1)))
                - alpha * B @ B.T @ Zr @ H @ H.T
                + lam * Zr
                - Gr
            )
            before = objective()
            H = np.linalg.inv(
                (sum(1 / mu[name] for name in phi) + beta) * np.eye(r) + alpha * R.T @ B @ B.T @ R
            ) @ (
                sum(W[name] @ phi[name] / mu[name] for name in phi)
                + beta * R.T @ B
                + alpha * r * R.T @ B @ S
            )
            self.steps.append((before, objective()))
            B = sign(
                2 * beta * R @ H
                + 2 * alpha * r * R @ H @ S
                - alpha * R @ H @ H.T @ R.T @ Zb
                + lam * Zb
                - Gb
            )
            Zb = sign(-alpha * R @ H @ H.T @ R.T @ B + lam * B + Gb)
            Zr = polar(-alpha * B @ B.T @ R @ H @ H.T + lam * R + Gr)
            Gb, Gr = B - Zb, R - Zr
        self.W, self.B = W, B

    def w_step(self, phi, H, mu):
        return {
            name: (H @ K.T / mu[name])
            @ np.linalg.inv(K @ K.T / mu[name] + self.delta * np.eye(len(K)))
            for name, K in phi.items()
        }

    def encode(self, X):
        phi = self.phi(X)
        n = len(next(iter(X.values())))
        B = signs(copy.deepcopy(self.rng), n, self.r)
        for _ in range(4):
            e = {name: np.linalg.norm(B - self.W[name] @ phi[name]) for name in X}
            if self.query_weights == "inverse":
                e = {name: 1 / e[name] for name in X}
            mu = {name: e[name] / sum(e.values()) for name in X}
            B = sign(2 * sum(mu[name] * self.W[name] @ phi[name] for name in X))
        return B.T


class LiteralSAPMH(LiteralBatch):
    """n x r, as published."""

    bias = False

    def __init__(self, *args, **options):
        defaults = {"k": 128, "theta": 1e-4, "rho": 1e-6, "lam": 100.0, "max_iter": 99}
        defaults |= {"w_weight": "mu", "mu_features": "own"}
        super().__init__(*args, **defaults | options)

    def train(self, phi, L):
        phi = {name: K.T for name, K in phi.items()}
        r, n, k, theta, rho, lam = self.r, len(L), self.k, self.theta, self.rho, self.lam
        S = similarity(L)
        mu = dict.fromkeys(phi, 1 / 2)
        B, Z = signs(self.rng, n, r).T, signs(self.rng, n, r).T
        Gm = B - Z
        H = self.rng.standard_normal((n, k))

        def u_step():
            return {
                name: np.linalg.inv(mu[name] * H.T @ H + lam * np.eye(k)) @ (mu[name] * H.T @ K)
                for name, K in phi.items()
            }

        def w_step():
            # the program has mu of the last view here, where the derivation has rho
            weight = rho if self.w_weight == "rho" else mu["text"]
            return (
                np.linalg.inv(H.T @ H)
                @ (theta * H.T @ B + rho * H.T @ S @ B)
                @ np.linalg.inv(theta * np.eye(r) + weight * B.T @ B)
            )

        U = u_step()
        W = w_step()
        before = np.inf
        self.objectives = []
        for step in range(1, self.max_iter + 1):
            H = (
                sum(mu[name] * K @ U[name].T for name, K in phi.items())
                + theta * B @ W.T
                + rho * S @ B @ W.T
            ) @ np.linalg.inv(
                sum(mu[name] * U[name] @ U[name].T for name in phi)
                + theta * W @ W.T
                + rho * W @ B.T @ B @ W.T
            )
            U = u_step()
            W = w_step()
            B = sign(
                2 * theta * H @ W
                + 2 * rho * r * S @ H @ W
                - rho * Z @ W.T @ H.T @ H @ W
                + 0.01 * Z
                - Gm
            )
            Z = sign(-rho * B @ W.T @ H.T @ H @ W + 0.1 * B + Gm)
            Gm = Gm + 0.1 * (B - Z)
            mu = {name: 1 / (2 * np.linalg.norm(K - H @ U[name])) for name, K in phi.items()}
            F = objective(phi, S, B, H, U, W, mu, theta, rho, lam)
            self.objectives.append(F)
            if step >= 4 and before - F < 0.01:
                break
            before = F
        self.U, self.W = U, W

    def encode(self, X):
        phi = {name: K.T for name, K in self.phi(X).items()}
        n, theta, W = len(next(iter(X.values()))), self.theta, self.W
        rng = copy.deepcopy(self.rng)
        B = signs(rng, n, self.r).T
        H = rng.standard_normal((n, self.k))
        source = {name: phi["image" if self.mu_features == "first" else name] for name in phi}

        def mu_step():
            return {name: 1 / (2 * np.linalg.norm(source[name] - H @ self.U[name])) for name in phi}

        mu = mu_step()
        before = np.inf
        for step in range(1, 10):
            H = (
                sum(mu[name] * K @ self.U[name].T for name, K in phi.items()) + theta * B @ W.T
            ) @ np.linalg.inv(
                sum(mu[name] * self.U[name] @ self.U[name].T for name in phi) + theta * W @ W.T
            )
            B = sign(H @ W)
            mu = mu_step()
            F = sum(mu[name] * np.sum((K - H @ self.U[name]) ** 2) for name, K in phi.items())
            F += theta * np.sum((B - H @ W) ** 2)
            if step >= 4 and before - F < 0.001:
                break
            before = F
        return B


def objective(phi, S, B, H, U, W, mu, theta, rho, lam):
    """SAPMH's objective, with S and phi as n x n and n x p."""
    total = theta * np.sum((B - H @ W) ** 2) + rho * np.sum((S - B @ (H @ W).T) ** 2)
    for name, K in phi.items():
        total += mu[name] * np.sum((K - H @ U[name]) ** 2) + lam * np.sum(U[name] ** 2)
    return total


class LiteralTHOR:
    """n x r; all sums over all samples, with the terms in ones."""

    def __init__(
        self, n_bits, vectors, alpha=10.0, beta=100.0, gamma=10.0, theta=0.1, n_iter=1, seed=0
    ):
        self.r, self.vectors = n_bits, vectors
        self.alpha, self.beta, self.gamma, self.theta = alpha, beta, gamma, theta
        self.n_iter, self.rng, self.seen = n_iter, np.random.default_rng(seed), []
        self.P = np.eye(128) if n_bits == 128 else self.rng.standard_normal((n_bits, 128))
        self.classes, self.C = [], np.zeros((n_bits, 0))

    def add_classes(self, label_sets):
        old = len(self.classes)
        for names in label_sets:
            for name in names:
                if name not in self.classes:
                    self.classes.append(name)
        if len(self.classes) == old:
            return
        T = self.P @ scipy.linalg.hadamard(128)[:, : len(self.classes)]
        T_o, T_n = T[:, :old], T[:, old:]
        A = np.array([[self.cosine(a, b) for b in self.classes] for a in self.classes])
        weight = self.r if old else self.alpha
        C = np.linalg.inv(T_n @ T_n.T + T_o @ T_o.T + self.alpha * np.eye(self.r)) @ (
            weight * T_o @ A[:old, old:] + weight * T_n @ A[old:, old:] + self.alpha * T_n
        )
        self.C = np.hstack([self.C, C])

    def cosine(self, a, b):
        u, v = self.vectors[a], self.vectors[b]
        return u @ v / (np.linalg.norm(u) * np.linalg.norm(v))

    def partial_fit(self, X, label_sets):
        r, n = self.r, len(label_sets)
        self.add_classes(label_sets)
        L = label_matrix(label_sets, self.classes)
        for each in self.seen:  # old samples lack the new classes
            each["G"] = np.pad(each["G"], ((0, 0), (0, L.shape[1] - each["G"].shape[1])))
        lengths = np.linalg.norm(L, axis=1, keepdims=True)
        G = np.divide(L, lengths, out=np.zeros_like(L), where=lengths > 0)
        B = signs(self.rng, n, r).T
        self.rng.standard_normal((n, max(0, min(r, n - 1))))
        J = np.eye(n) - np.ones((n, n)) / n
        ones = np.ones((n, 1))

        def total(left, right, now_left, now_right):
            return sum(each[left].T @ each[right] for each in self.seen) + now_left.T @ now_right

        for _ in range(self.n_iter):
            Z = self.theta * B + self.beta * r * (
                2 * G @ total("G", "B", G, B) - ones @ total("one", "B", ones, B)
            )
            left, s, right = np.linalg.svd(J @ Z, full_matrices=False)
            if s[-1] <= max(n, r) * np.finfo(float).eps * s[0]:
                raise RuntimeError("V is not unique here")
            V = np.sqrt(n) * left @ right
            B = sign(
                r * L @ self.C.T
                + self.beta
                * r
                * (2 * G @ total("G", "V", G, V) - ones @ total("one", "V", ones, V))
                + self.theta * V
            )
        self.seen.append({"B": B, "V": V, "G": G, "one": ones, "X": X})
        codes = np.vstack([each["B"] for each in self.seen])
        self.W = {}
        for name in X:
            F = np.vstack([each["X"][name] for each in self.seen])
            self.W[name] = scipy.linalg.solve_sylvester(
                codes.T @ codes, self.gamma * F.T @ F, (1 + self.gamma) * codes.T @ F
            )
        return B


class LiteralIWOMH:
    """Class codes bit by bit, and everything ever seen."""

    def __init__(self, n_bits, names, vectors, alpha=100.0, theta=1.0, delta=1.0, seed=0):
        rng = np.random.default_rng(seed)
        self.names, self.theta, self.delta = names, theta, delta
        E = np.array([vectors[name] / np.linalg.norm(vectors[name]) for name in names])
        C = np.where(rng.random((n_bits, len(names))) < 0.5, -1.0, 1.0)
        self.start = C.copy()
        for _ in range(5):
            Q = np.linalg.inv(C @ C.T + alpha * np.eye(n_bits)) @ C @ E
            for i in range(n_bits):
                others = [j for j in range(n_bits) if j != i]
                C[i] = sign(Q[i] @ E.T - (Q[i] @ Q[others].T) @ C[others])
        self.C, self.X, self.B = C, {}, np.zeros((0, n_bits))

    def partial_fit(self, X, label_sets):
        B = np.sign(label_matrix(label_sets, self.names) @ self.C.T)
        self.B = np.vstack([self.B, B])
        self.W, self.R = {}, {}
        for name, values in X.items():
            self.X[name] = np.vstack([*([self.X[name]] if name in self.X else []), values])
            F = self.X[name]
            eye = np.eye(F.shape[1])
            W = self.B.T @ F @ np.linalg.inv(F.T @ F + self.theta * eye)
            self.R[name] = np.linalg.inv(F.T @ F + self.delta * eye) @ (
                F.T @ self.B - F.T @ F @ W.T
            )
            self.W[name] = W
        return B

    def project(self, X):
        h = {name: np.abs(values @ self.R[name]).sum(axis=1) for name, values in X.items()}
        largest = max(each.max() for each in h.values())
        return np.array(
            [
                sum((largest - h[name][i]) * self.W[name] @ X[name][i] for name in X)
                for i in range(len(next(iter(X.values()))))
            ]
        )


class LiteralHCFW(LiteralIWOMH):
    """Codes of new classes beside those of known ones; everything ever seen is kept."""

    def __init__(self, n_bits, vectors, theta=1.0, delta=1.0, ridge_on="entries", seed=0):
        self.r, self.vectors, self.theta, self.delta = n_bits, vectors, theta, delta
        self.ridge_on, self.rng = ridge_on, np.random.default_rng(seed)
        self.names, self.C, self.X, self.B = [], np.zeros((n_bits, 0)), {}, np.zeros((0, n_bits))

    def partial_fit(self, X, label_sets):
        named = dict.fromkeys(name for names in label_sets for name in names)
        new = [name for name in named if name not in self.names]
        if new:
            self.C = np.hstack([self.C, self.codes(new)])
        self.names = self.names + new
        B = super().partial_fit(X, label_sets)
        if self.ridge_on == "entries":
            for name, F in self.X.items():
                A = F.T @ F + self.delta * np.ones((F.shape[1], F.shape[1]))
                self.R[name] = np.linalg.pinv(A) @ (F.T @ self.B - F.T @ F @ self.W[name].T)
        return B

    def codes(self, new):
        E, E_old = (
            np.array([self.vectors[name] / np.linalg.norm(self.vectors[name]) for name in names])
            for names in (new, self.names or new)
        )
        C, C_old = np.where(self.rng.random((self.r, len(new))) < 0.5, -1.0, 1.0), self.C
        E_old = E_old[: C_old.shape[1]]
        for _ in range(5):
            W = np.linalg.pinv(C @ C.T + C_old @ C_old.T) @ (C @ E + C_old @ E_old)
            for i in range(self.r):
                others = [j for j in range(self.r) if j != i]
                C[i] = sign(W[i] @ E.T - (W[i] @ W[others].T) @ C[others])
        return C
