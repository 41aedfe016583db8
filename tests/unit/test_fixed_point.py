"""Sums as integers: the same whatever the order, as good as doubles, and never past the end of int64."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ConfigError
from elastic.worker.fixed_point import BITS, NOT_FINITE, exponents, from_integers, headroom, to_integers, wide

SINGLES = st.floats(allow_nan=False, allow_infinity=False, width=32)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
MOST = float(np.finfo(np.float32).max)
LEAST = float(np.finfo(np.float32).smallest_normal)


def agreed(terms: Sequence[Any], dtype: tf.DType = tf.float32) -> tf.Tensor:
    return tf.reduce_max([exponents([tf.constant(term, dtype)]) for term in terms], axis=0)


def integers(terms: Sequence[Any], most: int | None = None, dtype: tf.DType = tf.float32) -> list[Any]:
    """Return each term of one sum as Python integers."""
    scale = agreed(terms, dtype)
    return [
        to_integers([tf.constant(term, dtype)], scale, most or len(terms))[0].numpy().astype(object) for term in terms
    ]


def summed(terms: Sequence[Any], dtype: tf.DType = tf.float32) -> Any:
    total = np.sum(np.array(integers(terms, dtype=dtype)), axis=0).astype(np.int64)
    return from_integers([tf.constant(total)], agreed(terms, dtype), len(terms), [dtype])[0].numpy()


@given(st.lists(st.lists(SINGLES, min_size=3, max_size=3), min_size=1, max_size=9), st.data())
def test_a_sum_is_the_same_in_any_order_and_grouping(terms: list[list[float]], data: st.DataObject) -> None:
    """Shuffle the terms, cut them into workers, and let each worker add up its own first."""
    with np.errstate(over="raise"):
        whole = [i.astype(np.int64) for i in integers(terms)]
        expected = sum(whole[1:], whole[0])
        order = data.draw(st.permutations(range(len(terms))))
        cuts = sorted(data.draw(st.lists(st.integers(1, len(terms)), max_size=4)))
        workers = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(terms)], strict=True) if a < b]
        partial = [sum((whole[i] for i in mine[1:]), whole[mine[0]]) for mine in workers]
        found = sum(partial[1:], partial[0])
    assert found.tolist() == expected.tolist()


@given(st.lists(SINGLES, min_size=1, max_size=9))
def test_a_sum_is_that_of_the_numbers_to_less_than_a_unit_a_term_and_one_rounding(terms: list[float]) -> None:
    found, exact = float(summed([[t] for t in terms])[0]), math.fsum(terms)
    unit = 2.0 ** (float(agreed([[t] for t in terms])[0]) + headroom(len(terms)) - BITS)
    if abs(exact) < MOST:
        assert abs(found - exact) <= len(terms) * unit + abs(exact) * 2.0**-23


@given(st.lists(DOUBLES, min_size=1, max_size=9))
def test_doubles_are_summed_as_well(terms: list[float]) -> None:
    found, exact = float(summed([[t] for t in terms], tf.float64)[0]), math.fsum(t / 16 for t in terms) * 16
    unit = 2.0 ** (float(agreed([[t] for t in terms], tf.float64)[0]) + headroom(len(terms)) - BITS)
    if math.isfinite(exact):
        assert abs(found - exact) <= len(terms) * unit + abs(exact) * 2.0**-52


@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("number", [MOST, 1.0 - 2.0**-24, 1.0, 3.0, 2.0**-64, LEAST])
def test_the_largest_terms_there_can_be_stay_below_the_end_of_int64(terms: int, sign: float, number: float) -> None:
    scale = exponents([tf.constant([sign * number])])
    (one,) = to_integers([tf.constant([sign * number])], scale, terms)
    total = int(one[0]) * terms  # a Python integer, which has no end
    assert abs(total) < 2**BITS
    assert abs(int(one[0])) < 2 ** (BITS - headroom(terms))
    (back,) = from_integers([tf.constant([total], tf.int64)], scale, terms, [tf.float64])
    assert float(back[0]) == pytest.approx(sign * number * terms, rel=2.0**-22 if number > LEAST else 1.0)


@pytest.mark.parametrize(("terms", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)])
def test_headroom_is_the_logarithm_rounded_up(terms: int, bits: int) -> None:
    assert headroom(terms) == bits == math.ceil(math.log2(terms))


@pytest.mark.parametrize(
    ("number", "exponent"),
    [(1.0, 1), (0.99, 0), (-1.5, 1), (2.0, 2), (MOST, 128), (0.0, -64), (-0.0, -64), (LEAST / 8, -64), (2.0**-70, -64)],
)
def test_an_exponent_is_the_smallest_power_of_two_above_every_number(number: float, exponent: int) -> None:
    assert exponents([tf.constant([0.0, number])]).numpy().tolist() == [exponent]


def test_tensors_have_scales_of_their_own() -> None:
    tensors = [tf.constant([1e30, 1.0]), tf.constant([[1e-12], [3e-12]]), tf.constant(0.0, tf.float64)]
    scale = exponents(tensors)
    found = from_integers(to_integers(tensors, scale, 2), scale, 2, [t.dtype for t in tensors])
    np.testing.assert_allclose(found[1].numpy(), tensors[1].numpy(), rtol=1e-7)
    assert float(found[0][0]) == pytest.approx(1e30)
    assert (found[2].dtype, float(found[2])) == (tf.float64, 0.0)


def test_small_numbers_beside_large_ones_keep_all_their_bits() -> None:
    terms = [[1.0, 1.2345678e-9], [-1.0, 8.7654321e-9], [0.0, -1.0e-8]]
    expected = np.array(terms, np.float32).astype(np.float64).sum(axis=0).astype(np.float32)
    np.testing.assert_array_equal(summed(terms), expected)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_sum_to_zeros(zero: float) -> None:
    assert summed([[zero, zero], [zero, zero]]).tolist() == [0.0, 0.0]


def test_denormal_numbers_count_as_zeros_or_as_what_they_are_but_alike_in_any_order() -> None:
    terms = [[LEAST / 2], [LEAST / 4], [LEAST], [-LEAST / 2]]
    assert (
        len({float(summed([terms[i] for i in order])[0]) for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1])}) == 1
    )
    assert abs(float(summed(terms)[0])) <= 2 * LEAST


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, -math.nan])
def test_what_is_not_finite_in_any_term_makes_the_whole_sum_nan_and_no_other(bad: float) -> None:
    terms = [[tf.constant([1.0, 2.0]), tf.constant([5.0])], [tf.constant([bad, 2.0]), tf.constant([6.0])]]
    scale = tf.reduce_max([exponents(term) for term in terms], axis=0)
    assert float(scale[0]) == NOT_FINITE
    whole = [to_integers(term, scale, 2) for term in terms]
    assert [part[0].numpy().tolist() for part in whole] == [[0, 0], [0, 0]]
    found = from_integers([a + b for a, b in zip(*whole, strict=True)], scale, 2, [tf.float32, tf.float32])
    assert np.isnan(found[0].numpy()).all()
    assert found[1].numpy().tolist() == [11.0]


def test_a_sum_beyond_the_largest_number_is_infinite() -> None:
    assert summed([[MOST], [MOST]]).tolist() == [math.inf]


@pytest.mark.parametrize("dtype", [tf.int32, tf.uint8, tf.int64, tf.bool])
def test_counts_are_summed_exactly(dtype: tf.DType) -> None:
    terms = [tf.cast(tf.constant([1, 0]), dtype), tf.cast(tf.constant([1, 1]), dtype)]
    tensors = [tf.cast(term, wide(dtype)) for term in terms]
    scale = tf.reduce_max([exponents([t]) for t in tensors], axis=0)
    whole = [to_integers([t], scale, 2)[0] for t in tensors]
    assert from_integers([whole[0] + whole[1]], scale, 2, [tf.int64])[0].numpy().tolist() == [2, 1]


def test_no_numbers_need_no_scale() -> None:
    scale = exponents([tf.zeros([0]), tf.zeros([2, 0], tf.float64)])
    assert [t.shape.as_list() for t in to_integers([tf.zeros([0]), tf.zeros([2, 0])], scale, 4)] == [[0], [2, 0]]
    assert exponents([]).shape == [0]


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="found a variable of type complex64, expected numbers"):
        wide(tf.complex64)
