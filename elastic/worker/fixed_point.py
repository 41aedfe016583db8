"""Sums of floats that do not depend on the order of their terms: as integers, on a common scale.

Float addition rounds, so its result depends on who adds what first. Integer addition does not: it
is exact, associative and commutative while nothing overflows. So each term becomes a 64-bit integer,
its multiple of a power of two that all terms of a tensor share, and integers are what is added up.

*No overflow.* Let a sum have at most n terms, h = ceil(log2 n) (`headroom`), and let E be an integer
with |x| < 2^E for every number x in any of the terms (`exponents`, of which the largest over all
workers is taken). A term becomes q = trunc(x * 2^k) with k = 62 - h - E, hence |q| < 2^(62-h). Any
sum of some of these is in size at most n * max|q| < 2^h * 2^(62-h) = 2^62, below the 2^63 where int64
ends. So no partial sum overflows, however the terms are grouped, on the way through one worker or
through any ring or tree of workers.

*Precision.* x * 2^k is exact in x's own type, except below its normal numbers, where truncation makes
it zero however the hardware treats such numbers. Truncation costs less than one unit, 2^(E+h-62).
With E the smallest possible (the largest number is at least 2^(E-1)), n terms lose less than
n * 2^(h-61) of the largest: 2^-57 for four. A single-precision number loses no bit at all unless it
is smaller than the largest of its tensor by a factor of 2^(37-h) or more. A sum comes back rounded
once, to the nearest number of the type: a function of the integer alone.

*Small numbers.* E is never taken below -64 (single) or -896 (double precision), so that 2^k and the
units are normal numbers. A tensor of zeros has that E, and sums to zeros.

*Infinity, NaN.* A tensor that holds one in any term has the exponent `NOT_FINITE`, which wins the
maximum, so all workers know it; its terms become zeros and its sum NaN throughout, for everyone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from elastic.errors import ConfigError

BITS = 62
NOT_FINITE = 4096.0


@dataclass(frozen=True, slots=True)
class _Format:
    """How a type of float looks.

    Attributes:
        integer: the type of integer with as many bits.
        fraction: bits of the fraction, below those of the exponent.
        offset: what the exponent's bits are above E, the smallest with |x| < 2^E.
        smallest: the least E that is used.
    """

    integer: tf.DType
    fraction: int
    offset: int
    smallest: int


_FORMATS = {tf.float32: _Format(tf.int32, 23, 126, -64), tf.float64: _Format(tf.int64, 52, 1022, -896)}


def headroom(terms: int) -> int:
    """Return the bits that a sum of so many terms may need beyond those of one: ceil(log2 terms)."""
    return (terms - 1).bit_length()


def wide(dtype: tf.DType) -> tf.DType:
    """Return the type in which numbers of a type are summed: it holds them exactly (integers up to 2^53)."""
    if dtype in (tf.float32, tf.float16, tf.bfloat16):
        return tf.float32
    if dtype == tf.float64 or dtype.is_integer or dtype.is_bool:
        return tf.float64
    raise ConfigError(f"deterministic: found a variable of type {dtype.name}, expected numbers")


def exponents(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the smallest usable E with |x| < 2^E for all numbers of each tensor, as float64 [tensors].

    It reads bits, not numbers, so that NaN is larger than anything.

    Args:
        tensors: of types that `wide` returns.
    """
    if not tensors:
        return tf.zeros([0], tf.float64)
    return tf.stack([_exponent(tensor) for tensor in tensors])


def _exponent(tensor: tf.Tensor) -> tf.Tensor:
    form = _FORMATS[tensor.dtype]
    bits = tf.bitwise.bitwise_and(tf.bitcast(tensor, form.integer), tf.constant(form.integer.max, form.integer))
    top = tf.bitwise.right_shift(tf.reduce_max(bits), tf.constant(form.fraction, form.integer))
    field = tf.maximum(tf.cast(top, tf.float64), 0.0)  # of no numbers at all, the largest is the smallest integer
    found = tf.maximum(field - form.offset, form.smallest)
    return tf.where(field > 2 * form.offset + 2, tf.constant(NOT_FINITE, tf.float64), found)


def to_integers(tensors: Sequence[tf.Tensor], agreed: tf.Tensor, terms: int) -> list[tf.Tensor]:
    """Return tensors as int64, ready to be summed.

    Args:
        tensors: one term of each sum, of types that `wide` returns.
        agreed: the largest exponents over all terms of all workers, float64 [tensors].
        terms: how many terms a sum has at most, over all workers.
    """
    scales = tf.unstack(_power_of_two(BITS - headroom(terms) - agreed), len(tensors))
    finite = tf.unstack(agreed < NOT_FINITE, len(tensors))

    def scaled(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.cast(t * tf.cast(scale, t.dtype), tf.int64) for t, scale in zip(tensors, scales, strict=True)]

    def scaled_if_finite() -> list[tf.Tensor]:
        return scaled([tf.where(good, t, tf.zeros_like(t)) for t, good in zip(tensors, finite, strict=True)])

    return tf.cond(tf.reduce_all(finite), lambda: scaled(tensors), scaled_if_finite)


def from_integers(
    totals: Sequence[tf.Tensor], agreed: tf.Tensor, terms: int, types: Sequence[tf.DType]
) -> list[tf.Tensor]:
    """Return sums over all workers as numbers of these types; NaN throughout where a term was not finite.

    Args:
        totals: the sums of what `to_integers` returned.
        agreed, terms: as there.
        types: what to return; integers are rounded to.
    """
    units = tf.where(agreed < NOT_FINITE, _power_of_two(agreed + headroom(terms) - BITS), float("nan"))
    return [
        _number(t, unit, dtype) for t, unit, dtype in zip(totals, tf.unstack(units, len(types)), types, strict=True)
    ]


def _number(total: tf.Tensor, unit: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    number = tf.cast(total, wide(dtype)) * tf.cast(unit, wide(dtype))
    return tf.cast(number if dtype.is_floating else tf.round(number), dtype)


def _power_of_two(power: tf.Tensor) -> tf.Tensor:
    """Return 2^power, exactly, as float64; 1 where that has no such power."""
    power = tf.where(tf.abs(power) < 1023.0, power, 0.0)
    return tf.bitcast(tf.bitwise.left_shift(tf.cast(power, tf.int64) + 1023, tf.constant(52, tf.int64)), tf.float64)
