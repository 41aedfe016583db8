"""Random numbers of a step that depend on what is computed, not on who computes it.

Keras keeps the state of its random numbers in one variable for each `SeedGenerator` (two integers: a
seed, and how often it was drawn from). Here each gets a value mixed from the job's seed, the
generator's number in the model and where in the training the samples are. The mixing is the
finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
2014), once for each word that goes in.
"""

import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MASK = 0xFFFFFFFFFFFFFFFF


def seed_states(model: keras.Model) -> list[tf.Variable]:
    """Return the states of the model's seed generators, in an order of the model's, and of Keras's own.

    Keras makes its own, for whoever draws without a generator, when it is first needed. Here it is
    needed now, and Python's random numbers are not to notice.
    """
    before = random.getstate()
    everyones = global_seed_generator()
    random.setstate(before)
    generators = [g for layer in model._flatten_layers() for g in layer._seed_generators]
    states = [g.state.value for g in [*generators, everyones]]
    return list({id(state): state for state in states}.values())


class Seeds:
    """Sets seed generators by where the training is.

    Args:
        states: of the generators, integers [2] each; their order counts.
        seed: of the job.
    """

    def __init__(self, states: list[tf.Variable], seed: int) -> None:
        self.states = states
        keys = [_mix(_mix(seed & _MASK) ^ number) for number in range(len(states))]
        self._keys: NDArray[np.uint64] = np.array(keys, np.uint64)

    def set(self, step: Any, shard: Any, piece: Any) -> None:
        """Give every generator the state for this place: steps up to 2^64, shards and pieces to 2^32."""
        if not self.states:
            return
        step, shard, piece = (tf.cast(word, tf.uint64) for word in (step, shard, piece))
        place = tf.bitwise.bitwise_or(tf.bitwise.left_shift(shard, _u64(32)), piece)
        mixed = _mixed(tf.bitwise.bitwise_xor(tf.constant(self._keys), _mixed(step)))
        mixed = _mixed(tf.bitwise.bitwise_xor(mixed, place))
        high, low = tf.bitwise.right_shift(mixed, _u64(32)), tf.bitwise.bitwise_and(mixed, _u64(0xFFFFFFFF))
        values = tf.cast(tf.stack([high, low], axis=1), tf.uint32)
        for state, value in zip(self.states, tf.unstack(values, len(self.states)), strict=True):
            state.assign(tf.cast(value, state.dtype))


def _mixed(value: tf.Tensor) -> tf.Tensor:
    """Return the finaliser of each uint64."""
    value += _u64(_GOLDEN)
    for shift, factor in _ROUNDS:
        value = tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, _u64(shift))) * _u64(factor)
    return tf.bitwise.bitwise_xor(value, tf.bitwise.right_shift(value, _u64(31)))


def _mix(value: int) -> int:
    """Do the same to a Python integer below 2^64."""
    value = (value + _GOLDEN) & _MASK
    for shift, factor in _ROUNDS:
        value = ((value ^ (value >> shift)) * factor) & _MASK
    return value ^ (value >> 31)


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
