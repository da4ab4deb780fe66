"""Plain adversarial loops, one a backend, over the same Keras networks as ours: for `workers.py`.

Each `plain_*` takes the two networks and the noise's size and returns `step(images)`: a
discriminator step on real and fake images in separate passes, then a generator step with the
non-saturating loss, both with Adam(2e-4, beta_1 = 0.5), as one would write it for that backend
alone.
"""

RATE, BETA = 2e-4, 0.5


def plain_tensorflow(generator, discriminator, latent_dim):
    """`tf.function` and `tf.GradientTape`."""
    import keras
    import tensorflow as tf

    adams = [keras.optimizers.Adam(RATE, beta_1=BETA) for _ in range(2)]
    for adam, network in zip(adams, (generator, discriminator), strict=True):
        adam.build(network.trainable_variables)

    def update(adam, network, loss_fn):
        variables = network.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([v.value for v in variables])
            loss = loss_fn()
        adam.apply(tape.gradient(loss, [v.value for v in variables]), variables)
        return loss

    @tf.function
    def step(images):
        size = (images.shape[0], latent_dim)
        fake = generator(tf.random.normal(size), training=True)

        def d_loss():
            real = tf.nn.softplus(-discriminator(images, training=True))
            return tf.reduce_mean(real + tf.nn.softplus(discriminator(fake, training=True)))

        def g_loss():
            fake = generator(tf.random.normal(size), training=True)
            return tf.reduce_mean(tf.nn.softplus(-discriminator(fake, training=True)))

        losses = update(adams[1], discriminator, d_loss)
        return losses, update(adams[0], generator, g_loss)

    return step


def plain_jax(generator, discriminator, latent_dim):
    """`jax.jit` of a function of the whole state."""
    import jax
    import jax.numpy as jnp
    import keras

    networks, softplus = (generator, discriminator), jax.nn.softplus
    adams = [keras.optimizers.Adam(RATE, beta_1=BETA) for _ in range(2)]
    for adam, network in zip(adams, networks, strict=True):
        adam.build(network.trainable_variables)

    def apply(network, weights, state, x):
        return network.stateless_call(weights, state, x, training=True)

    @jax.jit
    def step(weights, states, slots, key, images):
        (g, d), (g_state, d_state), (g_slots, d_slots) = weights, states, slots
        key, one, two = jax.random.split(key, 3)
        size = (images.shape[0], latent_dim)
        fake, g_state = apply(generator, g, g_state, jax.random.normal(one, size))

        def d_loss(d):
            real, state = apply(discriminator, d, d_state, images)
            logits, state = apply(discriminator, d, state, fake)
            return jnp.mean(softplus(-real) + softplus(logits)), state

        (loss, d_state), gradient = jax.value_and_grad(d_loss, has_aux=True)(d)
        d, d_slots = adams[1].stateless_apply(d_slots, gradient, d)

        def g_loss(g):
            fake, state = apply(generator, g, g_state, jax.random.normal(two, size))
            logits, other = apply(discriminator, d, d_state, fake)
            return jnp.mean(softplus(-logits)), (state, other)

        (other, states), gradient = jax.value_and_grad(g_loss, has_aux=True)(g)
        g, g_slots = adams[0].stateless_apply(g_slots, gradient, g)
        return ((g, d), states, (g_slots, d_slots), key), (loss, other)

    carried = (
        tuple([v.value for v in n.trainable_variables] for n in networks),
        tuple([v.value for v in n.non_trainable_variables] for n in networks),
        tuple([v.value for v in adam.variables] for adam in adams),
        jax.random.key(0),
    )

    def run(images):
        nonlocal carried
        carried, losses = step(*carried, images)
        return losses

    return run


def plain_torch(generator, discriminator, latent_dim):
    """Eager PyTorch with its own autograd and its own Adam."""
    import torch

    softplus = torch.nn.functional.softplus
    weights = [[v.value for v in n.trainable_variables] for n in (generator, discriminator)]
    adams = [torch.optim.Adam(w, RATE, betas=(BETA, 0.999), eps=1e-7) for w in weights]

    def update(adam, weights, loss):
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        adam.step()
        return loss.detach()

    def step(images):
        images = torch.as_tensor(images)
        with torch.no_grad():
            fake = generator(torch.randn(len(images), latent_dim), training=True)
        real = softplus(-discriminator(images, training=True)).mean()
        loss = real + softplus(discriminator(fake, training=True)).mean()
        d_loss = update(adams[1], weights[1], loss)
        fake = generator(torch.randn(len(images), latent_dim), training=True)
        loss = softplus(-discriminator(fake, training=True)).mean()
        return d_loss, update(adams[0], weights[0], loss)

    return step
