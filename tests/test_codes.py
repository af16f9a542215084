"""Packed bits against a loop over bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oasis.codes import check_codes, check_n_bits, hamming, pack, unpack, words
from oasis.errors import InputError


def bit_arrays(max_rows=6):
    shapes = st.tuples(st.integers(0, max_rows), st.sampled_from([8, 16, 24, 32, 64, 72, 128]))
    return shapes.flatmap(lambda shape: arrays(np.bool_, shape))


@settings(deadline=None)
@given(bits=bit_arrays())
def test_pack_puts_bit_i_into_byte_i_over_8_least_significant_first(bits):
    codes = pack(bits.astype(float) * 2 - 1)
    assert codes.shape == (len(bits), bits.shape[1] // 8)
    for row, column in np.ndindex(bits.shape):
        assert bool(codes[row, column // 8] >> (column % 8) & 1) == bits[row, column]


@settings(deadline=None)
@given(bits=bit_arrays())
def test_unpack_inverts_pack(bits):
    signs = np.where(bits, 1, -1).astype(np.int8)
    assert np.array_equal(unpack(pack(signs)), signs)


def test_zero_packs_as_a_clear_bit():
    assert pack(np.zeros((1, 8)))[0, 0] == 0


@settings(deadline=None)
@given(data=st.data())
def test_hamming_counts_differing_bits(data):
    a = data.draw(bit_arrays())
    b = data.draw(arrays(np.bool_, (3, a.shape[1])))
    expected = (a[:, None, :] != b[None, :, :]).sum(axis=2)
    found = hamming(pack(a.astype(int)), pack(b.astype(int)))
    assert found.dtype == np.int32 and np.array_equal(found, expected)


def test_hamming_counts_a_byte_that_differs_in_all_bits_as_eight():
    assert hamming(np.array([[0]], np.uint8), np.array([[255]], np.uint8))[0, 0] == 8


def test_words_are_as_wide_as_the_row_allows():
    for n_bytes, itemsize in ((1, 1), (2, 2), (3, 1), (4, 4), (6, 2), (8, 8), (16, 8)):
        view = words(np.zeros((2, n_bytes), np.uint8))
        assert view.itemsize == itemsize and view.shape == (2, n_bytes // itemsize)


@pytest.mark.parametrize("n_bits", [0, -8, 7, 12, 8.0, "8", None, True])
def test_n_bits_must_be_a_positive_multiple_of_eight(n_bits):
    with pytest.raises(InputError, match="positive multiple of 8"):
        check_n_bits(n_bits)


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((2, 8), np.int64), "uint8"),
        (np.zeros(8, np.uint8), "shape"),
        (np.zeros((2, 4), np.uint8), "codes have 32 bits, expected 64"),
    ],
)
def test_codes_of_another_kind_are_refused(codes, message):
    with pytest.raises(InputError, match=message):
        check_codes(codes, 64)


def test_pack_refuses_a_length_that_fills_no_bytes():
    with pytest.raises(InputError, match="multiple of 8"):
        pack(np.zeros((2, 7)))
