"""Generative Adversarial Nets.

Ian Goodfellow, Jean Pouget-Abadie, Mehdi Mirza, Bing Xu, David Warde-Farley, Sherjil Ozair, Aaron
Courville, Yoshua Bengio, NeurIPS 2014, arXiv:1406.2661.

Implemented: algorithm 1 with k discriminator steps (section 4), the saturating and the
non-saturating loss of the generator (section 3), the value function and the divergence it stands
for (equation 1, theorem 1), and the networks of section 5 (their sizes are in the authors' code,
https://github.com/goodfeli/adversarial): rectified linear generator, maxout discriminator with
dropout.

Departures: logits in place of probabilities; networks that know a label (Mirza and Osindero 2014,
arXiv:1411.1784); losses of later papers (`kerasmodels.training.adversarial`); Gaussian noise by
default; any Keras optimizer rather than gradient descent with momentum.
"""

import contextlib

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import plain_numbers, takes_numpy_numbers
from kerasmodels.models.gan_checks import (
    check_arguments,
    check_compile,
    check_data,
    check_integer,
    check_labels,
    check_networks,
    check_rows,
    check_sample_shape,
    check_weights,
)
from kerasmodels.training import PortableModel, value_and_grad
from kerasmodels.training.adversarial import (
    ADVERSARIAL_LOSSES,
    JensenShannon,
    ValueFunction,
    gradient_penalty,
)
from kerasmodels.training.checked_inputs import ChecksInputs
from kerasmodels.training.input_checks import visible_array


@contextlib.contextmanager
def _without_gradients():
    """Spares PyTorch the record it would keep for a backward pass; the others keep none."""
    if keras.backend.backend() != "torch":
        yield
        return
    import torch

    with torch.no_grad():
        yield


def _inputs(x, labels):
    """What a network is called with."""
    return x if labels is None else [x, labels]


@keras.saving.register_keras_serializable(package="kerasmodels")
class GAN(ChecksInputs, PortableModel):
    """A generator and a discriminator that learn from each other: algorithm 1.

    A step of `fit` takes a batch of B rows apart into k = `discriminator_steps` minibatches of
    m = B // k rows; the B % k rows that remain are left out. The discriminator takes one optimizer
    step on each of them, against m fresh samples; then the generator takes one, on m fresh samples.
    Data and samples go through the discriminator in separate passes.

    All passes of training, the ones that only make samples for the discriminator too, run with
    `training=True`, as in the usual PyTorch loop: batch normalization uses the statistics of the
    minibatch, and each pass moves the moving ones (the generator's k + 1 times a step, the
    discriminator's 2k + 1 times, of which k by data; once more a minibatch in a gradient penalty);
    dropout is active. `evaluate` and `generate` run with `training=False`. A generator's gradient
    passes through the discriminator and changes none of its weights. Losses that the layers add,
    such as those of regularizers, are added to their own network's loss.

    `discriminator.trainable = False` before `compile` has the discriminator stand still: its steps
    only report, its batch normalization and dropout act as in inference, and the generator goes on
    learning from it; likewise `generator.trainable = False`. As everywhere in Keras `compile` must
    be called again after a change.

    On PyTorch `keras.layers.SpectralNormalization` cannot be in the discriminator: it overwrites
    its kernel in the second pass, while the first one still needs it for the gradient.

    `fit(x)` takes data alone, `fit(x, y)` with `num_classes` also integer labels (batch,). Samples
    then get the labels of the minibatch they stand beside. Sample weights are refused.

    Reported: `d_loss`, `g_loss`; `d_real` and `d_fake`, the mean of D on data and on samples;
    `value`, the value function; `jsd`, the Jensen-Shannon divergence estimated from D. For the
    "least_squares" and "wasserstein" losses D's output is no logit: `d_real` and `d_fake` are its
    plain means, and the last two are left out.

    Args:
        generator: A built model of noise `(batch, latent_dim)`, or of
            `[noise, labels (batch,) int32]`, to samples.
        discriminator: A built model of samples, or of `[samples, labels]`, to logits `(batch, 1)`
            or `(batch,)`: without a sigmoid.
        latent_dim: Size of the noise.
        discriminator_steps: Algorithm 1's k.
        generator_loss: `"non_saturating"` or `"minimax"`; or `"least_squares"` or `"wasserstein"`,
            which change the discriminator's loss too.
        gradient_penalty: Weight of the penalty of the Wasserstein loss; the others have none.
        num_classes: Number of labels, or `None` for networks without labels.
        noise: `"normal"`, N(0, 1), or `"uniform"`, U(-1, 1).
        seed: Of the noise.
        dtype: Dtype or policy; with `"mixed_float16"` losses are scaled. The networks keep theirs.
        name: Name of the model.

    Raises:
        ValueError: If an argument is not one of those, `latent_dim` does not fit the generator or
            the generator the discriminator, the networks share a layer, or the discriminator ends
            in a sigmoid.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import models

    gan = models.GAN(
        models.mlp_generator((28, 28, 1), latent_dim=100),
        models.maxout_discriminator((28, 28, 1)),
        latent_dim=100,
    )
    gan.compile(
        optimizer={
            "generator": keras.optimizers.Adam(2e-4, beta_1=0.5),
            "discriminator": keras.optimizers.Adam(2e-4, beta_1=0.5),
        }
    )
    images = np.random.default_rng(0).uniform(-1, 1, (1000, 28, 28, 1))  # yours, in [-1, 1]
    gan.fit(images, batch_size=100, epochs=50)
    samples = gan.generate(16, seed=1)  # (16, 28, 28, 1)
    ```
    """

    @takes_numpy_numbers
    def __init__(
        self,
        generator,
        discriminator,
        latent_dim,
        discriminator_steps=1,
        generator_loss="non_saturating",
        gradient_penalty=10.0,
        num_classes=None,
        noise="normal",
        seed=None,
        dtype=None,
        name=None,
        **kwargs,
    ):
        super().__init__(dtype=dtype, name=name, **kwargs)
        check_arguments(
            latent_dim, discriminator_steps, generator_loss, gradient_penalty, num_classes, noise
        )
        self.latent_dim = latent_dim
        self.discriminator_steps = discriminator_steps
        self.generator_loss = generator_loss
        self.gradient_penalty = gradient_penalty
        self.num_classes = num_classes
        self.noise = noise
        self.seed = seed
        self.sample_shape = check_networks(generator, discriminator, latent_dim, num_classes)
        self.generator = generator
        self.discriminator = discriminator
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
        self.d_real_tracker = keras.metrics.Mean(name="d_real")
        self.d_fake_tracker = keras.metrics.Mean(name="d_fake")
        self._is_classifier = generator_loss in ("non_saturating", "minimax")
        if self._is_classifier:
            self.value_tracker = ValueFunction()
            self.jsd_tracker = JensenShannon()
        self.built = True

    def call(self, inputs, training=None):
        """The generator's samples; `inputs` are its own."""
        return self.generator(inputs, training=training)

    def compile(self, optimizer="rmsprop", **kwargs):
        """As `keras.Model.compile`, with an optimizer for each network and no losses or metrics.

        Args:
            optimizer: `{"generator": optimizer, "discriminator": optimizer}`.
            **kwargs: `steps_per_execution`, `jit_compile`, `run_eagerly`, `auto_scale_loss`.

        Raises:
            ValueError: If an optimizer is missing, losses or metrics are given, or PyTorch is to
                compile a gradient penalty.
        """
        check_compile(self, optimizer, kwargs)
        super().compile(optimizer, **kwargs)

    def fit(self, x=None, y=None, batch_size=None, *args, **kwargs):
        """As `keras.Model.fit`, after a look at the data.

        Args:
            x: Data, or what yields it in batches.
            y: Labels if there are `num_classes`.
            batch_size: Rows in a batch: `discriminator_steps` minibatches.
            *args: Keras's arguments.
            **kwargs: Keras's arguments.

        Returns:
            Keras's `History`.

        Raises:
            ValueError: If the data do not fit the networks, or a batch has fewer rows than
                `discriminator_steps`.
        """
        x = check_data(self, x, y, batch_size, kwargs)
        return super().fit(x, y, batch_size, *args, **kwargs)

    _instead_of_text = (
        "read image files into an array with values in the generator's range, for example those of "
        "`data.ImageFolder`, uint8, by `x / 127.5 - 1`"
    )

    def _checked(self, x, targets, with_targets):
        """Looks at arrays; of streams `fit` looks at the first batch."""
        self._refuse_text(x)
        if with_targets and hasattr(x, "shape"):
            self._check(x, *targets)
        return x

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        labels = visible_array(targets)
        if labels is not None and self.num_classes is not None:
            check_labels(labels, self.num_classes)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`, on fresh samples; weights are refused."""
        check_weights(kwargs)  # Keras drops them where there are no targets
        return super().evaluate(*args, **kwargs)

    def sample_noise(self, batch_size, seed=None):
        """Draws the generator's noise; a subclass may draw it from another distribution.

        Args:
            batch_size: Number of rows, an integer or a scalar tensor.
            seed: An integer, or by default the model's own seed generator.

        Returns:
            float32 `(batch_size, latent_dim)`.
        """
        seed = self.seed_generator if seed is None else plain_numbers(seed)
        shape = (batch_size, self.latent_dim)
        if self.noise == "uniform":
            return keras.random.uniform(shape, -1.0, 1.0, dtype="float32", seed=seed)
        return keras.random.normal(shape, dtype="float32", seed=seed)

    def training_step(self, data):
        """The body of algorithm 1: k steps of the discriminator, one of the generator."""
        for real, labels in self._minibatches(*self._unpack(data)):
            self._report_discriminator(*self._discriminator_step(real, labels))
        rows = ops.shape(real)[0]  # the last minibatch has the size, and lends its labels
        g_loss = self._generator_step(rows, labels)
        self.g_loss_tracker.update_state(g_loss, sample_weight=rows)
        return self.get_metrics_result()

    def validation_step(self, data):
        """Losses and metrics on one batch and as many fresh samples; nothing is updated."""
        x, labels = self._unpack(data)
        rows = ops.shape(x)[0]
        fake = self._samples(rows, labels, training=False)
        result, _ = value_and_grad(self._discriminator_loss(x, fake, labels, training=False), [])
        self._report_discriminator(*result)
        _, loss_fn = ADVERSARIAL_LOSSES[self.generator_loss]
        g_loss = self._regularized(loss_fn(result[2]), self.generator)
        self.g_loss_tracker.update_state(g_loss, sample_weight=rows)
        return self.get_metrics_result()

    def _discriminator_step(self, real, labels):
        """Ascends V on m rows of data and m samples; returns loss and logits."""
        with _without_gradients():  # the samples are given, here
            fake = self._samples(ops.shape(real)[0], labels, training=True)
        loss_fn = self._discriminator_loss(real, fake, labels, training=True)
        return self._update("discriminator", loss_fn)

    def _generator_step(self, rows, labels):
        """Descends the generator's loss on m samples; returns it."""
        noise = self.sample_noise(rows)
        _, adversarial_loss = ADVERSARIAL_LOSSES[self.generator_loss]

        def loss_fn():
            fake = self.generator(_inputs(noise, labels), training=True)
            logits = self.discriminator(_inputs(fake, labels), training=True)
            return self._regularized(adversarial_loss(logits), self.generator)

        return self._update("generator", loss_fn)

    def _discriminator_loss(self, real, fake, labels, training):
        """The function that the discriminator minimizes: loss and logits on data and samples."""
        adversarial_loss, _ = ADVERSARIAL_LOSSES[self.generator_loss]
        penalized = self.generator_loss == "wasserstein" and self.gradient_penalty > 0
        if penalized:
            mix = keras.random.uniform((ops.shape(real)[0],), seed=self.seed_generator)

        def discriminator(x):
            return self.discriminator(_inputs(x, labels), training=training)

        def loss_fn():
            real_logits, fake_logits = discriminator(real), discriminator(fake)  # (m, 1)
            loss = adversarial_loss(real_logits, fake_logits)
            loss = self._regularized(loss, self.discriminator)
            if penalized:
                penalty = gradient_penalty(discriminator, real, fake, mix)
                loss = loss + self.gradient_penalty * penalty
            return loss, real_logits, fake_logits

        return loss_fn

    def _update(self, name, loss_fn):
        variables = getattr(self, name).trainable_variables
        if not variables:  # frozen by the user
            return value_and_grad(loss_fn, [])[0]
        return self.minimize(loss_fn, variables, optimizer=name)

    def _regularized(self, loss, network):
        return sum((ops.cast(term, "float32") for term in network.losses), start=loss)

    def _samples(self, rows, labels, training):
        return self.generator(_inputs(self.sample_noise(rows), labels), training=training)

    def _report_discriminator(self, loss, real_logits, fake_logits):
        self.d_loss_tracker.update_state(loss, sample_weight=ops.shape(real_logits)[0])
        real, fake = ops.cast(real_logits, "float32"), ops.cast(fake_logits, "float32")
        if self._is_classifier:
            self.value_tracker.update_state(real, fake)
            self.jsd_tracker.update_state(real, fake)
            real, fake = ops.sigmoid(real), ops.sigmoid(fake)
        self.d_real_tracker.update_state(real)
        self.d_fake_tracker.update_state(fake)

    def _unpack(self, data):
        """float32 data and int32 labels (or `None`) of a batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        check_weights({"sample_weight": sample_weight})
        x = ops.cast(check_sample_shape(x, self.sample_shape), "float32")
        if (y is None) != (self.num_classes is None):
            raise ValueError(
                "Labels `y` are given if and only if the GAN has `num_classes`; without them call "
                f"fit(x). Received: num_classes={self.num_classes}, labels={y}"
            )
        if y is not None:
            if len(y.shape) > 1 and any(size != 1 for size in y.shape[1:]):
                raise ValueError(
                    f"Labels must be integers (batch,). Received: `y` of shape {tuple(y.shape)}"
                )
            y = ops.cast(ops.reshape(y, (-1,)), "int32")
        return x, y

    def _minibatches(self, x, labels):
        """Pairs of m rows of data and their labels, k of them."""
        k = self.discriminator_steps
        if k == 1:
            return [(x, labels)]
        check_rows(x.shape[0], k)
        size = ops.shape(x)[0] // k
        # Where the number of rows is known at run time alone, 0 rows a minibatch must not pass: no
        # array of 0 numbers has the shape (k, 1, ...), and the error shows the scope's name.
        with keras.name_scope("a_batch_has_fewer_rows_than_discriminator_steps"):
            height = ops.maximum(size, 1) if x.shape[0] is None else size
            x = ops.reshape(x[: size * k], (k, height, *x.shape[1:]))
        if labels is None:
            return [(x[i], None) for i in range(k)]
        labels = ops.reshape(labels[: size * k], (k, height))
        return [(x[i], labels[i]) for i in range(k)]

    def generate(self, n, seed=None, labels=None, batch_size=256):
        """Draws samples, in inference mode.

        Several threads may call this at the same time, as long as none of them trains the model;
        without `seed` two of them may draw the same samples.

        Args:
            n: Number of samples.
            seed: An integer repeats the samples on the same backend, whatever `batch_size`. Without
                it the model's own random state moves on, and so do the samples.
            labels: With `num_classes`, integers `(n,)`; by default 0, 1, 2, ... in turn.
            batch_size: How many samples are made at a time.

        Returns:
            float32 numpy array `(n, ...)`.

        Raises:
            ValueError: If `n` or `batch_size` is not a positive integer, or labels do not fit.
        """
        n, batch_size = plain_numbers((n, batch_size))
        check_integer("n", n)
        check_integer("batch_size", batch_size)
        if self.num_classes is None and labels is not None:
            raise ValueError(f"This GAN has no `num_classes`. Received: labels={labels}")
        if self.num_classes is not None:
            labels = np.arange(n) % self.num_classes if labels is None else np.asarray(labels)
            check_labels(labels, self.num_classes)
            if labels.shape != (n,):
                raise ValueError(f"`labels` must be ({n},). Received: shape {labels.shape}")
        with _without_gradients():
            noise = ops.convert_to_numpy(self.sample_noise(n, seed))
            size, parts = min(n, batch_size), []
            for start in range(0, n, size):
                # Every part has the same size, so that backends compile once.
                rows = np.arange(start, start + size) % n
                part = None if labels is None else labels[rows].astype("int32")
                inputs = keras.tree.map_structure(ops.convert_to_tensor, _inputs(noise[rows], part))
                samples = self.generator(inputs, training=False)
                parts.append(ops.convert_to_numpy(ops.cast(samples, "float32")))
        return np.concatenate(parts)[:n]

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "generator": keras.saving.serialize_keras_object(self.generator),
            "discriminator": keras.saving.serialize_keras_object(self.discriminator),
            "latent_dim": self.latent_dim,
            "discriminator_steps": self.discriminator_steps,
            "generator_loss": self.generator_loss,
            "gradient_penalty": self.gradient_penalty,
            "num_classes": self.num_classes,
            "noise": self.noise,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds it from `get_config`'s result."""
        config = dict(config)
        for name in ("generator", "discriminator"):
            config[name] = keras.saving.deserialize_keras_object(
                config[name], custom_objects=custom_objects
            )
        return cls(**config)
