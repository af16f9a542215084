"""What every room shares about arrays: sparse matrices at the border, rows of any length."""

import numpy as np
import pytest
import scipy.sparse as sp

from oasis import OASIS
from oasis.arrays import checked_csr, unit_rows
from oasis.baselines import LEMON, OMHDQ
from oasis.client import Client
from oasis.errors import InputError
from oasis.features.embedders import Function
from oasis.hashers.checks import MALFORMED, example_chunk, shuffled_csr
from oasis.hashers.chunk import check_labels
from oasis.hashers.modalities import Modalities
from oasis.metrics import mean_average_precision

DENSE = np.where(np.arange(60).reshape(10, 6) % 7 < 4, np.arange(60.0).reshape(10, 6) + 1, 0)


def taken_apart(kind, **parts):
    matrix = getattr(sp, f"{kind}_array")(DENSE)
    for name, change in parts.items():
        setattr(matrix, name, change(getattr(matrix, name)))
    return matrix


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia", "dok", "lil"])
@pytest.mark.parametrize("make", ["array", "matrix"])
def test_every_sparse_format_becomes_csr(kind, make):
    matrix = checked_csr(getattr(sp, f"{kind}_{make}")(DENSE))
    assert isinstance(matrix, sp.csr_array)
    assert np.array_equal(matrix.toarray(), DENSE)


def test_unsorted_and_duplicate_entries_are_csr_too():
    loose = shuffled_csr(DENSE)
    before = [each.copy() for each in (loose.data, loose.indices, loose.indptr)]
    assert np.array_equal(checked_csr(loose).toarray(), DENSE)
    after = (loose.data, loose.indices, loose.indptr)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_what_is_stored_past_the_last_row_is_left_out():
    matrix = sp.csr_array(DENSE)
    n_entries = matrix.nnz
    matrix.data = np.append(matrix.data, [np.nan, np.nan])
    matrix.indices = np.append(matrix.indices, np.int32([99, -1]))
    checked = checked_csr(matrix)
    assert len(checked.data) == len(checked.indices) == n_entries
    assert np.array_equal(checked.toarray(), DENSE)


@pytest.mark.parametrize("spoil", MALFORMED.values(), ids=MALFORMED)
def test_malformed_csr_is_refused(spoil):
    with pytest.raises(InputError, match=r"^has "):
        checked_csr(spoil(DENSE))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (taken_apart("csr", indices=lambda at: at + 1), "has column index 6, expected 0 to 5"),
        (taken_apart("csr", indices=lambda at: at - 1), "has column index -1, expected 0 to 5"),
        (
            taken_apart("csr", indices=lambda at: at + 0.5),
            "column indices that are not a vector of",
        ),
        (taken_apart("csr", indptr=list), "has indptr that are not a vector of integers"),
        (taken_apart("csr", indptr=lambda ends: ends + 1), "indptr that begins with 1, expected 0"),
        (taken_apart("csr", indptr=lambda ends: ends[:-1]), "of length 10, expected 11"),
        (taken_apart("csr", indptr=lambda ends: ends * 2), "ends with .*, but .* indices"),
        (taken_apart("csc", indices=lambda at: at + 1), "has row index 10, expected 0 to 9"),
        (taken_apart("bsr", indices=lambda at: at + 9), "has block column index"),
        (taken_apart("coo", row=lambda at: at - 1), "has row index -1, expected 0 to 9"),
        (taken_apart("coo", col=lambda at: at + 1), "has column index 6, expected 0 to 5"),
        (taken_apart("coo", data=lambda data: data[:-1]), "expected one for each of its"),
        (sp.coo_array(np.ones(3)), r"must be two-dimensional, got shape \(3,\)"),
    ],
)
def test_the_fault_of_a_sparse_matrix_is_named(matrix, message):
    with pytest.raises(InputError, match=message):
        checked_csr(matrix)


def test_every_border_refuses_malformed_csr():
    bad = MALFORMED["a column far out of range"](DENSE)
    bad_labels = MALFORMED["a column far out of range"]((DENSE > 0).astype(np.uint8))
    codes = np.zeros((10, 2), dtype=np.uint8)
    embedder = Function("mine", lambda raws: bad, 6)
    for subject, use in (
        ("modality 'text' has column", lambda: Modalities({"text": bad})),
        ("modality 'text' has column", lambda: Client("http://127.0.0.1:1").search({"text": bad})),
        (
            "matrix of labels has column",
            lambda: check_labels(bad_labels, 10, classes=list("abcdef")),
        ),
        (
            "query_labels has column",
            lambda: mean_average_precision(codes, codes, bad_labels, (DENSE > 0).astype(int)),
        ),
        (
            "base_labels has column",
            lambda: mean_average_precision(codes, codes, (DENSE > 0).astype(int), bad_labels),
        ),
        ("embedder 'mine' returned has column", lambda: embedder.embed(list(range(10)))),
    ):
        with pytest.raises(InputError, match=subject):
            use()


def truth(values):
    """Unit rows with integers of any size: no under- or overflow."""
    from fractions import Fraction
    from math import isqrt

    rows = []
    for row in values.tolist():
        exact = [Fraction(value) for value in row]
        squares = sum(value * value for value in exact)
        if not squares:
            rows.append([0.0] * len(row))
            continue
        # the root of p / q, to 60 digits
        root = Fraction(isqrt(squares.numerator * squares.denominator << 400), 1 << 200)
        root /= squares.denominator
        rows.append([float(value / root) for value in exact])
    return np.array(rows)


EXTREMES = [0, 1e-45, 1e-30, 1e-20, 1e-16, 1, 1e16, 1e19, 1e30, 3e38]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    ("dtype", "lengths", "close"),
    [
        (np.float32, EXTREMES, 1e-6),
        (np.float64, [*EXTREMES, 5e-324, 1e-300, 1e-155, 1e155, 1e200, 1.7e308], 1e-14),
    ],
)
def test_unit_rows_are_right_whatever_their_length(make, dtype, lengths, close):
    rng = np.random.default_rng(0)
    shape = np.where(
        rng.random((len(lengths), 40)) < 0.5, rng.uniform(-1, 1, (len(lengths), 40)), 0
    )
    shape[:, 3] = 1  # the smallest numbers have no fractions
    values = (shape * np.array(lengths)[:, None]).astype(dtype)
    units = unit_rows(make(values))
    units = units.toarray() if sp.issparse(units) else units
    assert units.dtype == dtype
    assert np.allclose(units, truth(values), rtol=close, atol=close)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("dtype", "factor"), [(np.float32, 2.0**-90), (np.float64, 2.0**700)])
def test_a_model_gives_the_codes_of_scaled_rows(make, dtype, factor):
    X, y = example_chunk(60, dtype=np.float32)
    usual = {name: values.astype(dtype) for name, values in X.items()}
    scaled = {name: make(values * dtype(factor)) for name, values in usual.items()}
    plain, extreme = OASIS(16, random_state=0), OASIS(16, random_state=0)
    plain.partial_fit({name: make(values) for name, values in usual.items()}, y)
    extreme.partial_fit(scaled, y)
    assert np.array_equal(plain.codes_, extreme.codes_)
    assert np.array_equal(plain.encode(usual), plain.encode(scaled))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_features_too_large_for_sums_are_refused_in_clear_words(make):
    X, y = example_chunk(60, dtype=np.float32)
    large = {name: make(values * np.float32(1e30)) for name, values in X.items()}
    huge = {name: make(values.astype(np.float64) * 1e200) for name, values in X.items()}
    few = {name: values[:1] for name, values in huge.items()}
    for hasher in (OASIS.paper(16, labels="orthogonal", random_state=0), LEMON(16, random_state=0)):
        hasher.partial_fit(large, y)  # the squares are in range of float64
        for X, labels in ((huge, y), (few, y[:1])):
            with pytest.raises(InputError, match="overflow: features this large cannot be used"):
                hasher.partial_fit(X, labels)


def test_features_too_small_for_a_kernel_are_refused_in_clear_words():
    X, y = example_chunk(60, dtype=np.float32)
    small = {name: values * np.float32(1e-30) for name, values in X.items()}
    with pytest.raises(InputError, match="underflow: features this small cannot be used"):
        OMHDQ(16, n_anchors=25, sigma="mean", random_state=0).partial_fit(small, y)
