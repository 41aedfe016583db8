from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from elastic.worker.seeds import Seeds, _mix, _mixed, seed_states


def variables(count: int = 3) -> list[tf.Variable]:
    return [tf.Variable([7, 7], dtype=tf.int64, trainable=False) for _ in range(count)]


def values(states: list[tf.Variable]) -> list[tuple[int, ...]]:
    return [tuple(state.numpy().tolist()) for state in states]


def at(seed: int, step: int, shard: int, piece: int, count: int = 3) -> list[tuple[int, ...]]:
    states = variables(count)
    Seeds(states, seed).set(step, shard, piece)
    return values(states)


def test_seeds_are_a_function_of_the_place() -> None:
    assert at(1, 2, 3, 4) == at(1, 2, 3, 4)


def test_every_word_of_the_place_counts() -> None:
    places = [(1, 2, 3, 4), (2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4), (1, 2, 3, 5), (1, 2, 4, 3), (-1, 2, 3, 4)]
    found = [state for place in places for state in at(*place)]
    assert len(set(found)) == len(places) * 3
    assert all(0 <= word < 2**32 for state in found for word in state)


def test_a_traced_function_follows_the_place() -> None:
    states = variables()
    seeds = Seeds(states, 1)
    traced = tf.function(lambda step: seeds.set(step, 3, 4), autograph=False)
    for step in (2, 3):
        traced(tf.constant(step, tf.int64))
        assert values(states) == at(1, step, 3, 4)


@given(st.integers(0, 2**64 - 1))
def test_the_mixing_is_that_of_python_integers(value: int) -> None:
    assert int(_mixed(tf.constant(value, tf.uint64))) == _mix(value)


def test_the_mixing_is_splitmix64() -> None:
    """First outputs for seed 1234567 of the reference implementation (prng.di.unimi.it/splitmix64.c)."""
    golden = 0x9E3779B97F4A7C15
    assert [_mix(1234567 + i * golden & (2**64 - 1)) for i in range(2)] == [6457827717110365317, 3203168211198807973]


def test_generators_are_found_in_nested_layers_and_each_once() -> None:
    shared = keras.layers.Dropout(0.5)
    inner = keras.Sequential([keras.Input((2,)), keras.layers.GaussianNoise(0.1), shared])
    model = keras.Sequential([keras.Input((2,)), shared, inner, keras.layers.RandomFlip()])
    expected = [v.value for v in model.variables if "seed_generator_state" in v.path]
    found = seed_states(model)
    assert {id(v) for v in expected} <= {id(v) for v in found}
    assert len(found) == len({id(v) for v in found})


@pytest.mark.parametrize("seed", [None, 3])
def test_a_layer_draws_what_its_place_says(seed: Any) -> None:
    """Whatever was drawn before, and whatever seed the layer was given."""
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5, seed=seed)])
    seeds = Seeds(seed_states(model), 9)
    x = np.ones((2, 64), np.float32)
    draws = []
    for shard in (0, 1, 0):
        model(x, training=True)
        seeds.set(5, shard, 0)
        draws.append(model(x, training=True).numpy().tolist())
    assert draws[0] == draws[2] != draws[1]
