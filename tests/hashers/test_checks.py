"""The conformance checks find a hasher that breaks a rule, and name the rule."""

import numpy as np
import pytest

from oasis.baselines import RandomProjection
from oasis.errors import CheckError, InputError
from oasis.hashers.checks import CHECKS, N_BITS, check_hasher


def sound(seed, kind=RandomProjection):
    return kind(N_BITS, random_state=seed)


def test_a_sound_hasher_passes():
    check_hasher(sound)


class Unseeded(RandomProjection):
    def _fit(self, X, rng):
        return super()._fit(X, np.random.default_rng())


class Forgets(RandomProjection):
    def _learn(self, old, chunk):
        return super()._learn(None, chunk)


class WritesFirst(RandomProjection):
    def partial_fit(self, X, y, classes=None):
        self.round_ = getattr(self, "round_", 0) + 1
        return super().partial_fit(X, y, classes)


class SpoilsInput(RandomProjection):
    def partial_fit(self, X, y, classes=None):
        super().partial_fit(X, y, classes)
        if isinstance(X, dict) and isinstance(X.get("image"), np.ndarray):
            X["image"][:] = 0
        return self


class DependsOnOthers(RandomProjection):
    def project(self, X):
        found = super().project(X)
        return found - found.mean(axis=0) * 3


class KeepsFeatures(RandomProjection):
    def partial_fit(self, X, y, classes=None):
        super().partial_fit(X, y, classes)
        self.kept_ = [*getattr(self, "kept_", []), X]
        return self


class Unpacked(RandomProjection):
    def encode(self, X):
        return (self.project(X) > 0).astype(np.uint8)


class ChangesWhenAsked(RandomProjection):
    def encode(self, X):
        self.asked_ = getattr(self, "asked_", 0) + 1
        return super().encode(X)


@pytest.mark.parametrize(
    ("kind", "check", "message"),
    [
        (Unseeded, "same_seed_gives_same_codes", "two hashers of one seed gave different codes"),
        (Forgets, "classes_and_samples_are_counted", "n_seen_ is 20, expected 40"),
        (WritesFirst, "a_refused_chunk_changes_nothing", "refused for another width changed"),
        (SpoilsInput, "inputs_stay_as_they_were", "X or y was changed"),
        (DependsOnOthers, "encoding_is_row_wise", "has a different code when it is encoded alone"),
        (KeepsFeatures, "memory_does_not_grow_with_samples", "memory grew from"),
        (Unpacked, "codes_have_the_promised_shape_and_type", r"encode has shape \(30, 16\)"),
        (ChangesWhenAsked, "encoding_changes_nothing", "encode changed the hasher"),
    ],
)
def test_a_broken_rule_is_found_and_named(kind, check, message):
    def make(seed):
        return sound(seed, kind)

    with pytest.raises(CheckError, match=message):
        CHECKS[f"check_{check}"](make)
    with pytest.raises(CheckError):
        check_hasher(make)


def test_a_check_that_does_not_exist_cannot_be_left_out():
    with pytest.raises(InputError, match="there is no check 'check_speed'; the checks are check_"):
        check_hasher(sound, leave_out=["check_speed"])
    check_hasher(
        lambda seed: sound(seed, KeepsFeatures),
        leave_out=["check_memory_does_not_grow_with_samples"],
    )
