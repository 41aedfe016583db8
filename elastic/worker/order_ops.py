"""The order of an epoch (see `order`) as TensorFlow ops: the same numbers, bit for bit.

What changes from epoch to epoch is read from a variable, so that a function that uses the order
is traced once.
"""

import tensorflow as tf

from elastic.worker.order import MIX, ROUNDS, grid, keys


class Order:
    """The order of n samples, in whatever epoch was last begun.

    Args:
        n: the number of samples.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        with tf.device("/CPU:0"):
            self._keys = tf.Variable(keys(0, 0), trainable=False)

    def begin(self, seed: int, epoch: int) -> None:
        """Let what follows be of this epoch."""
        self._keys.assign(keys(seed, epoch))

    def indices(self, positions: tf.Tensor) -> tf.Tensor:
        """Return the sample index at each of these positions, int64 [k] both.

        A position outside of the epoch, which a pipeline that works ahead of what it is told may ask
        for, has the index of the nearest one inside: the walk from an outside cell need not end.
        """
        if self._n <= 1:
            return tf.zeros_like(positions)
        positions = tf.clip_by_value(positions, 0, self._n - 1)
        n, of_epoch = _u64(self._n), tf.unstack(self._keys.read_value())

        def walk(values: tf.Tensor) -> list[tf.Tensor]:
            return [tf.where(values >= n, self._feistel(values, of_epoch), values)]

        values = self._feistel(tf.cast(positions, tf.uint64), of_epoch)
        values = tf.while_loop(lambda values: tf.reduce_any(values >= n), walk, [values])[0]
        return tf.cast(values, tf.int64)

    def seeds(self, indices: tf.Tensor) -> tf.Tensor:
        """Return a seed for each sample, int32 [k, 2], of (job seed, epoch, index) and nothing else."""
        of_epoch = tf.unstack(self._keys.read_value())
        values = tf.cast(indices, tf.uint64)
        halves = [_mixed(values, key) for key in of_epoch[ROUNDS : ROUNDS + 2]]
        return tf.stack([tf.bitcast(tf.cast(half, tf.uint32), tf.int32) for half in halves], axis=-1)

    def _feistel(self, values: tf.Tensor, of_epoch: list[tf.Tensor]) -> tf.Tensor:
        rows, columns = (_u64(side) for side in grid(self._n))
        left = values // columns
        right = values - left * columns
        for i in range(0, ROUNDS, 2):
            left = (left + _mixed(right, of_epoch[i])) % rows
            right = (right + _mixed(left, of_epoch[i + 1])) % columns
        return left * columns + right


def _mixed(values: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    shift = _u64(32)
    mixed = (values + key) * _u64(MIX[0])
    mixed = tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, shift)) * _u64(MIX[1])
    return tf.bitwise.right_shift(mixed, shift)


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)
