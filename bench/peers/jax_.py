"""jax.jit: the whole step one program, parameters and optimizer state donated, batches as NumPy
arrays. Networks and optimizers written out, as JAX's own tutorials do."""

import math

import jax
import jax.numpy as jnp

import work


def linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def mlp(p, x):
    layers = sorted({int(name.split(".")[0]) for name in p})
    for layer in layers[:-1]:
        x = jax.nn.relu(linear(p, layer, x))
    return linear(p, layers[-1], x)


def convolution(p, name, x):
    y = jax.lax.conv_general_dilated(x, p[f"{name}.weight"], (1, 1), "SAME")
    return y + p[f"{name}.bias"][:, None, None]


def pool(x):
    window = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def cnn(p, x):
    x = pool(jax.nn.relu(convolution(p, "0", x)))
    x = pool(jax.nn.relu(convolution(p, "3", x)))
    return linear(p, "7", x.reshape(x.shape[0], -1))


def norm(p, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def project(p, name, x):
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


def attention(p, name, x, heads=4):
    batch, length, width = x.shape
    shape = (batch, length, heads, width // heads)
    q, k, v = (y.reshape(shape).transpose(0, 2, 1, 3)
               for y in jnp.split(project(p, f"{name}.c_attn", x), 3, axis=2))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(width // heads)
    visible = jnp.tril(jnp.ones((length, length), bool))
    y = jax.nn.softmax(jnp.where(visible, scores, -jnp.inf), -1) @ v
    return project(p, f"{name}.c_proj", y.transpose(0, 2, 1, 3).reshape(x.shape))


def gpt(p, ids):
    at = "transformer."
    x = p[f"{at}wte.weight"][ids] + p[f"{at}wpe.weight"][: ids.shape[1]]
    for i in range(4):
        block = f"{at}h.{i}."
        x = x + attention(p, f"{block}attn", norm(p, f"{block}ln_1", x))
        y = project(p, f"{block}mlp.c_fc", norm(p, f"{block}ln_2", x))
        x = x + project(p, f"{block}mlp.c_proj", jax.nn.gelu(y, approximate=True))
    return norm(p, f"{at}ln_f", x) @ p[f"{at}wte.weight"].T


def cross_entropy(scores, labels):
    scores = scores.reshape(-1, scores.shape[-1])
    picked = jnp.take_along_axis(jax.nn.log_softmax(scores), labels.reshape(-1, 1), 1)
    return -picked.mean()


def sgd(lr):
    def update(p, gradients, state):
        return {name: p[name] - lr * g for name, g in gradients.items()}, state
    return (lambda p: ()), update


def adam(lr, weight_decay=0.0, b1=0.9, b2=0.999, eps=1e-8):
    def init(p):
        zeros = {name: jnp.zeros_like(value) for name, value in p.items()}
        return jnp.zeros(()), zeros, {name: jnp.zeros_like(value) for name, value in p.items()}

    def update(p, gradients, state):
        step, first, second = state
        step = step + 1
        new, new_first, new_second = {}, {}, {}
        for name, g in gradients.items():
            m = new_first[name] = b1 * first[name] + (1 - b1) * g
            v = new_second[name] = b2 * second[name] + (1 - b2) * g * g
            scale = jnp.sqrt(v) / jnp.sqrt(1 - b2**step) + eps
            new[name] = p[name] * (1 - lr * weight_decay) - lr / (1 - b1**step) * m / scale
        return new, (step, new_first, new_second)
    return init, update


OPTIMIZERS = {"SGD": sgd, "Adam": adam, "AdamW": lambda lr: adam(lr, weight_decay=0.01)}


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    forward = gpt if arguments.work == "gpt" else cnn if arguments.work == "cnn" else mlp
    p = {name: jnp.asarray(value.detach().numpy()) for name, value in job.net().named_parameters()}
    init, update = OPTIMIZERS[job.optimizer.__name__](job.lr)
    state = init(p)

    def step(p, state, x, y):
        loss, gradients = jax.value_and_grad(lambda p: cross_entropy(forward(p, x), y))(p)
        p, state = update(p, gradients, state)
        return p, state, loss

    step = jax.jit(step, donate_argnums=(0, 1))
    batches = [(x.numpy(), y.numpy()) for x, y in job.batches(clock.last)]
    losses = []
    for x, y in batches:
        if clock.count + 1 in (clock.first_timed, clock.last):
            jax.block_until_ready(p)
        clock()
        p, state, loss = step(p, state, x, y)
        losses.append(loss)
        if clock.count in (1, clock.last):
            clock.keep(Loss(loss))
    clock.report()


class Loss:
    """As a tensor of PyTorch."""

    def __init__(self, value):
        self.value = value

    def detach(self):
        return self

    def item(self):
        return float(self.value)


if __name__ == "__main__":
    main()
