"""The estimator base does what scikit-learn's does, without importing it."""

import subprocess
import sys

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.utils.validation import check_is_fitted

from oasis.errors import InputError
from oasis.hashers.protocol import Estimator


def made_on(base):
    class OnlineThing(base):
        def __init__(
            self, n_bits=64, alpha=1.0, a_long_name="x", another_name="y", third=None, inner=None
        ):
            self.n_bits = n_bits
            self.alpha = alpha
            self.a_long_name = a_long_name
            self.another_name = another_name
            self.third = third
            self.inner = inner

        def fit(self, X, y):
            self.seen_ = len(X)
            return self

    return OnlineThing


Ours, Theirs = made_on(Estimator), made_on(BaseEstimator)


def test_repr_shows_what_differs_from_default_and_shortens_a_long_value():
    assert repr(Ours(8, alpha=2.0)) == repr(Theirs(8, alpha=2.0))
    text = repr(Ours(third=list(range(10_000))))
    assert len(text) < 300 and "..." in text


def test_parameters_are_those_of_scikit_learn():
    ours, theirs = Ours(8, inner=Ours(16)), Theirs(8, inner=Theirs(16))
    assert list(ours.get_params()) == list(theirs.get_params())
    assert ours.get_params()["inner__n_bits"] == 16
    assert ours.set_params(alpha=3.0, inner__n_bits=24) is ours
    assert (ours.alpha, ours.inner.n_bits) == (3.0, 24)


def test_an_unknown_parameter_is_refused_and_nothing_is_set():
    model = Ours()
    with pytest.raises(InputError, match="OnlineThing has no parameter 'bits'; it has a_long_name"):
        model.set_params(alpha=2.0, bits=8)
    assert model.alpha == 1.0


def test_a_constructor_must_name_its_parameters():
    class Loose(Estimator):
        def __init__(self, **options):
            pass

    with pytest.raises(TypeError, match=r"takes \*options; an estimator names each"):
        Loose().get_params()


def test_clone_copies_parameters_and_forgets_what_was_learned():
    inner = Ours(16).fit([1], [1])
    fresh = clone(Ours(8, inner=inner).fit([1, 2], [1, 2]))
    assert fresh.n_bits == 8 and fresh.inner.n_bits == 16 and fresh.inner is not inner
    assert not hasattr(fresh, "seen_") and not hasattr(fresh.inner, "seen_")


def test_check_is_fitted_knows_whether_anything_was_learned():
    with pytest.raises(SklearnNotFitted):
        check_is_fitted(Ours())
    check_is_fitted(Ours().fit([1], [1]))


@pytest.mark.slow
def test_the_hashers_do_not_import_scikit_learn_or_scipy():
    code = (
        "import sys, oasis.hashers.learner, oasis.labels; "
        "print(sorted({'sklearn', 'scipy', 'pandas'} & {n.partition('.')[0] for n in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
