"""DOCH and CHOICE as published: slow, everything ever seen is kept, inverses, one bit at a time."""

from __future__ import annotations

import numpy as np
from literal_baselines import label_matrix, sign, signs
from literal_rivals import kernel


class LiteralStream:
    """Classes in order of arrival and everything seen; a subclass has ``learn``."""

    def __init__(self, n_bits, seed=0, **options):
        self.r, self.rng, self.classes, self.seen = n_bits, np.random.default_rng(seed), [], []
        for name, value in options.items():
            setattr(self, name, value)

    def partial_fit(self, X, label_sets):
        named = dict.fromkeys(name for names in label_sets for name in names)
        self.classes += [name for name in named if name not in self.classes]
        return self.learn(X, label_matrix(label_sets, self.classes))


def padded(matrix, n_columns):
    return np.pad(matrix, ((0, 0), (0, n_columns - matrix.shape[1])))


class LiteralDOCH(LiteralStream):
    """n x r."""

    def __init__(self, n_bits, alpha, theta=0.1, n_anchors=50, n_iter=3, seed=0):
        super().__init__(n_bits, seed, alpha=alpha, theta=theta, n_anchors=n_anchors, n_iter=n_iter)

    def learn(self, X, L):
        (n, c), r, alpha = L.shape, self.r, self.alpha
        B = signs(self.rng, n, r).T
        P = self.rng.standard_normal((r, c))
        for _ in range(7):
            for _ in range(self.n_iter):
                old = [(each["B"], padded(each["L"], c)) for each in self.seen] or [(B.copy(), L)]
                order = self.rng.permutation(max(len(codes) for codes, _ in old))
                anchors, shared = [], []
                for codes, labels in old:
                    for row in [i for i in order if i < len(codes)][: self.n_anchors]:
                        anchors.append(codes[row])
                        shared.append(L @ labels[row] > 0)
                A, S = np.array(anchors), np.array(shared).T.astype(float)
                for k in range(r):
                    likelihood = 1 / (1 + np.exp(-alpha * B @ A.T))
                    p = alpha * (S - likelihood) @ A[:, k] + len(A) / 4 * alpha**2 * B[:, k]
                    others = [j for j in range(r) if j != k]
                    q = 2 * (L @ P[k] - B[:, others] @ (P[others] @ P[k]))
                    B[:, k] = sign(p + self.theta * q)
            codes = np.vstack([*(each["B"] for each in self.seen), B])
            labels = np.vstack([*(padded(each["L"], c) for each in self.seen), L])
            P = np.linalg.pinv(codes.T @ codes) @ codes.T @ labels
        self.seen.append({"B": B, "L": L, "X": X})
        self.W = {}
        for name in X:
            F = np.vstack([each["X"][name] for each in self.seen])
            self.W[name] = np.linalg.pinv(F.T @ F) @ F.T @ codes
        return B

    def project(self, X):
        return sum(values @ self.W[name] for name, values in X.items())


class LiteralCHOICE(LiteralStream):
    """r x n, with n x n centring."""

    def __init__(self, n_bits, vectors=None, n_anchors=2000, centre="first", seed=0, **options):
        defaults = {"alpha": 1e-3, "beta": 1e4, "eta": 1, "gamma": 1, "xi": 1e-4, "rho": 0.1}
        defaults |= {"vectors": vectors, "n_anchors": n_anchors, "centre": centre, "n_iter": 7}
        super().__init__(n_bits, seed, **defaults | options)

    def learn(self, X, L):
        n, r, alpha, beta = len(L), self.r, self.alpha, self.beta
        if not self.seen:
            rows = self.rng.choice(n, size=min(self.n_anchors, n), replace=False)
            self.anchors = {name: values[rows] for name, values in X.items()}
            self.first = X
        K = {name: self.phi(name, values) for name, values in X.items()}
        G = L @ self.relations()
        lengths = np.linalg.norm(G, axis=1, keepdims=True)
        G = np.divide(G, lengths, out=np.zeros_like(G), where=lengths > 0).T
        for each in self.seen:
            each["G"] = padded(each["G"].T, len(self.classes)).T
        B = signs(self.rng, n, r)
        self.rng.standard_normal((n, max(0, min(r, n - 1))))
        Zb, Q = B, np.zeros((r, n))
        W = {name: np.zeros((r, len(values))) for name, values in K.items()}
        J = np.eye(n) - np.ones((n, n)) / n
        now = {"G": G, **K}

        def total(left, right, **new):
            there = now | new
            return there[left] @ there[right].T + sum(e[left] @ e[right].T for e in self.seen)

        weight = self.eta * self.gamma
        for _ in range(self.n_iter):
            Z = B + alpha * r * total("B", "G", B=B) @ G
            left, s, right = np.linalg.svd(Z @ J, full_matrices=False)
            if s[-1] <= max(n, r) * np.finfo(float).eps * s[0]:
                raise RuntimeError("V is not unique here")
            V = np.sqrt(n) * left @ right
            P = (
                (beta * total("B", "G", B=B) + weight * sum(W[m] @ total("G", m).T for m in K))
                @ np.linalg.pinv(total("G", "G"))
                / (beta + weight)
            )
            for m in K:
                ridge = self.xi * np.eye(len(K[m]))
                W[m] = (total("B", m, B=B) + self.gamma * P @ total("G", m)) @ np.linalg.inv(
                    (1 + self.gamma) * total(m, m) + ridge
                )
            B = sign(
                2 * V
                - alpha * total("V", "V", V=V) @ Zb
                + 2 * alpha * r * total("V", "G", V=V) @ G
                + 2 * beta * P @ G
                + 2 * self.eta * sum(W[m] @ K[m] for m in K)
                + self.rho * Zb
                - Q
            )
            Zb = sign(self.rho * B + Q - alpha * total("V", "V", V=V) @ B)
            Q = Q + self.rho * (B - Zb)
        self.seen.append(now | {"B": B, "V": V})
        self.W = W
        return B.T

    def relations(self):
        if self.vectors is None:
            return np.eye(len(self.classes))
        E = np.array([self.vectors[name] for name in self.classes])
        E /= np.linalg.norm(E, axis=1, keepdims=True)
        return E @ E.T

    def phi(self, name, X):
        source = X if self.centre == "batch" else self.first[name]
        squares = [((x - a) ** 2).sum() for x in source for a in self.anchors[name]]
        sigma = np.sqrt(np.mean(squares))
        mean = kernel(source, self.anchors[name], sigma, False).mean(axis=1, keepdims=True)
        return kernel(X, self.anchors[name], sigma, False) - mean

    def project(self, X):
        return sum((self.W[name] @ self.phi(name, values)).T for name, values in X.items())
