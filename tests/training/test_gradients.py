import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training.gradients import value_and_grad


def numpy_of(x):
    return ops.convert_to_numpy(x)


def test_gradients_of_a_quadratic():
    w = keras.Variable([[1.0, 2.0], [3.0, 4.0]])
    b = keras.Variable([0.5, -0.5], trainable=False)
    unused = keras.Variable([7.0])
    x = np.array([[1.0, -1.0], [2.0, 0.5]], "float32")

    loss, gradients = value_and_grad(lambda: ops.sum((ops.matmul(x, w) + b) ** 2), [w, b, unused])

    residual = x @ numpy_of(w) + numpy_of(b)
    np.testing.assert_allclose(numpy_of(loss), (residual**2).sum(), rtol=1e-6)
    np.testing.assert_allclose(numpy_of(gradients[0]), 2 * x.T @ residual, rtol=1e-6)
    np.testing.assert_allclose(numpy_of(gradients[1]), 2 * residual.sum(0), rtol=1e-6)
    np.testing.assert_array_equal(numpy_of(gradients[2]), [0.0])


def test_tensors_are_the_arguments():
    w = keras.Variable([2.0, 3.0])
    x = np.array([1.0, 4.0], "float32")
    _, (by_w, by_x) = value_and_grad(lambda t: ops.sum(w * t * t), [w, x])
    np.testing.assert_allclose(numpy_of(by_w), [1.0, 16.0])
    np.testing.assert_allclose(numpy_of(by_x), [4.0, 24.0])


def test_a_tuple_comes_back_whole():
    w = keras.Variable([1.0, 2.0])
    (loss, extra), (gradient,) = value_and_grad(
        lambda: (ops.sum(w**2), {"w": w * 3, "none": None}), [w]
    )
    np.testing.assert_allclose(numpy_of(loss), 5.0)
    np.testing.assert_allclose(numpy_of(extra["w"]), [3.0, 6.0])
    assert extra["none"] is None
    np.testing.assert_allclose(numpy_of(gradient), [2.0, 4.0])


def test_a_loss_that_needs_no_variable_and_no_variables():
    w = keras.Variable([1.0])
    loss, (gradient,) = value_and_grad(lambda: ops.sum(ops.ones((2,))), [w])
    assert float(loss) == 2.0
    np.testing.assert_array_equal(numpy_of(gradient), [0.0])
    loss, gradients = value_and_grad(lambda: ops.sum(w), [])
    assert float(loss) == 1.0 and gradients == []


def test_embedding_gradients_are_dense():
    layer = keras.layers.Embedding(4, 2)
    layer.build()
    ids = np.array([[1, 1, 3]], "int32")
    _, (gradient,) = value_and_grad(lambda: ops.sum(layer(ids)), layer.trainable_variables)
    np.testing.assert_array_equal(numpy_of(gradient), [[0, 0], [2, 2], [0, 0], [1, 1]])


def test_state_is_kept_outside_fit():
    normalization = keras.layers.BatchNormalization(momentum=0.5)
    dropout = keras.layers.Dropout(0.5, seed=3)
    x = np.arange(12, dtype="float32").reshape(6, 2)
    normalization.build(x.shape)
    dropout.build(x.shape)
    seed = numpy_of(dropout.seed_generator.state.value).copy()

    def loss_fn():
        return ops.mean(dropout(normalization(x, training=True), training=True) ** 2)

    value_and_grad(loss_fn, normalization.trainable_variables)
    np.testing.assert_allclose(numpy_of(normalization.moving_mean), 0.5 * x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(
        numpy_of(normalization.moving_variance), 0.5 + 0.5 * x.var(0), rtol=1e-6
    )
    assert not np.array_equal(seed, numpy_of(dropout.seed_generator.state.value))


def penalty_problem():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(5, 3)).astype("float32")
    w1 = keras.Variable(rng.normal(size=(3, 4)).astype("float32"))
    w2 = keras.Variable(rng.normal(size=(4, 1)).astype("float32"))

    def penalty():
        def critic(inputs):
            return ops.sum(ops.matmul(ops.tanh(ops.matmul(inputs, w1)), w2))

        _, (slope,) = value_and_grad(critic, [x])
        return ops.mean((ops.sqrt(ops.sum(slope**2, axis=-1)) - 1.0) ** 2)

    def by_numpy(a, b):
        a, b = a.astype("float64"), b.astype("float64")
        slope = ((1 - np.tanh(x @ a) ** 2) * b[:, 0]) @ a.T
        return np.mean((np.sqrt((slope**2).sum(-1)) - 1) ** 2)

    return w1, w2, penalty, by_numpy


def test_nested_gradients_against_finite_differences():
    w1, w2, penalty, by_numpy = penalty_problem()
    loss, gradients = value_and_grad(penalty, [w1, w2])
    values = [numpy_of(w1), numpy_of(w2)]
    np.testing.assert_allclose(numpy_of(loss), by_numpy(*values), rtol=1e-5)
    for k, gradient in enumerate(gradients):
        expected = np.zeros(values[k].shape)
        for index in np.ndindex(*values[k].shape):
            up = [v.astype("float64") for v in values]
            down = [v.astype("float64") for v in values]
            up[k][index] += 1e-5
            down[k][index] -= 1e-5
            expected[index] = (by_numpy(*up) - by_numpy(*down)) / 2e-5
        np.testing.assert_allclose(numpy_of(gradient), expected, rtol=1e-4, atol=1e-6)


def test_nested_gradients_with_respect_to_variables():
    # One step of MAML on f(w) = sum(w**3) / 3: the inner step is w - a w**2.
    w = keras.Variable([1.0, 2.0])

    def outer():
        _, (inner,) = value_and_grad(lambda: ops.sum(w**3) / 3, [w])
        return ops.sum((w - 0.1 * inner) ** 2)

    _, (gradient,) = value_and_grad(outer, [w])
    value = np.array([1.0, 2.0])
    expected = 2 * (value - 0.1 * value**2) * (1 - 0.2 * value)
    np.testing.assert_allclose(numpy_of(gradient), expected, rtol=1e-6)


def test_added_losses_and_regularizers_are_seen():
    class Activity(keras.layers.Layer):
        def call(self, x):
            self.add_loss(ops.sum(x))
            return x

    inputs = keras.Input((2,))
    dense = keras.layers.Dense(1, use_bias=False, kernel_regularizer=keras.regularizers.L2(0.5))
    model = keras.Model(inputs, Activity()(dense(inputs)))
    x = np.array([[1.0, 2.0], [0.5, 1.0]], "float32")

    def loss_fn():
        model(x, training=True)
        return sum(model.losses)

    _, (gradient,) = value_and_grad(loss_fn, model.trainable_variables)
    expected = x.sum(0)[:, None] + numpy_of(dense.kernel)
    np.testing.assert_allclose(numpy_of(gradient), expected, rtol=1e-5)
    # A regulariser of a variable that is not differentiated has its value too.
    other = keras.Variable([1.0])
    loss, _ = value_and_grad(lambda: loss_fn() * other[0], [other])
    expected = (x @ numpy_of(dense.kernel)).sum() + 0.5 * (numpy_of(dense.kernel) ** 2).sum()
    np.testing.assert_allclose(numpy_of(loss), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "fn, variables, message",
    [
        (lambda: 1.0, "float", "float scalar"),
        (lambda: ops.ones((2,)), "float", "float scalar"),
        (lambda: ops.ones((), "int32"), "float", "float scalar"),
        (lambda: ops.ones(()), "int", "Only float"),
        (lambda: ops.ones(()), "bare", "must be a list"),
        (lambda: ops.ones(()), "object", "must hold"),
    ],
)
def test_bad_input(fn, variables, message):
    variables = {
        "float": [keras.Variable([1.0])],
        "int": [keras.Variable([1], dtype="int32", trainable=False)],
        "bare": keras.Variable([1.0]),
        "object": [object()],
    }[variables]
    with pytest.raises(ValueError, match=message):
        value_and_grad(fn, variables)
