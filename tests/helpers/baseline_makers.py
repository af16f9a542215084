"""Makers of 16 bits of the rivals and the controls: ``make(seed)`` returns a new one."""

import hasher_checks
import toy

from oasis.baselines import (
    CHOICE,
    DOCH,
    FOMH,
    HCFW,
    ITQ,
    IWOMH,
    LEMON,
    OMHDQ,
    SAPMH,
    THOR,
    PCASign,
    RandomProjection,
)

N_BITS = hasher_checks.N_BITS
VECTORS = toy.class_vectors(10)


def omhdq(seed=0, **options):
    return OMHDQ(N_BITS, **{"n_anchors": 25, "sigma": "mean", "random_state": seed} | options)


def sapmh(seed=0, **options):
    options = {"n_anchors": 25, "sigma": "mean", "k": 8, "max_iter": 6} | options
    return SAPMH(N_BITS, random_state=seed, **options)


def thor(seed=0, **options):
    return THOR(N_BITS, VECTORS, random_state=seed, **options)


def iwomh(seed=0, **options):
    return IWOMH(N_BITS, toy.NAMES, VECTORS, random_state=seed, **options)


def hcfw(seed=0, **options):
    return HCFW(N_BITS, VECTORS, random_state=seed, **options)


def doch(seed=0, **options):
    return DOCH(N_BITS, random_state=seed, **options)


def choice(seed=0, **options):
    return CHOICE(N_BITS, **{"n_anchors": 25, "random_state": seed} | options)


def fomh(seed=0, **options):
    return FOMH(N_BITS, **{"n_anchors": 25, "sigma": "mean", "random_state": seed} | options)


def lemon(seed=0, **options):
    return LEMON(N_BITS, random_state=seed, **options)


def random_projection(seed=0):
    return RandomProjection(N_BITS, random_state=seed)


def pca_sign(seed=0):
    return PCASign(N_BITS, random_state=seed)


def itq(seed=0):
    return ITQ(N_BITS, random_state=seed)


def itq_refit(seed=0):
    return ITQ(N_BITS, refit=True, n_iter=10, random_state=seed)
