"""The work that every Python peer does; work.h is the same in C++.

Data and first weights come from a formula, so that all of them compute the same losses.
"""

import argparse
import dataclasses
import json
import math
import time
import typing

import torch
from torch import nn
from torch.nn import functional

from gpt import GPT

torch.set_num_threads(1)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--mode", default="", help="a variant of this peer")
    parser.add_argument("--steps", type=int, default=1, help="timed steps")
    parser.add_argument("--warmup", type=int, default=1, help="steps before them")
    parser.add_argument("--workers", type=int, default=0, help="of the loader")
    parser.add_argument("--images", type=int, default=60000, help="of the loader")
    parser.add_argument("--accumulate", type=int, default=1, help="batches a step")
    parser.add_argument("--devices", type=int, default=1, help="ranks that the peer starts itself")
    parser.add_argument("--precision", default="float32", choices=["float32", "bf16"])
    parser.add_argument("--trace", help="folder that kills.py reads")
    return parser.parse_args()


def formula(count, seed):
    """float32 in [-0.5, 0.5]: a hash of seed * 2^24 + index, the same in every language."""
    mask = 0xFFFFFFFF
    v = torch.arange(count, dtype=torch.int64) + (seed << 24)
    v = (v * 2654435761) & mask
    v = ((v ^ (v >> 15)) * 2246822519) & mask
    v = v ^ (v >> 13)
    return (v.double() / 4294967296.0 - 0.5).float()


def integers(count, seed, below):
    return ((formula(count, seed) + 0.5) * below).long().clamp_(max=below - 1)


def fill(model):
    """Weights of two dims or more: formula * 2 / sqrt(size of a row); norms 1; biases 0."""
    with torch.no_grad():
        for seed, (name, parameter) in enumerate(model.named_parameters(), start=1):
            if parameter.dim() > 1:
                values = formula(parameter.numel(), seed).view_as(parameter)
                parameter.copy_(values * (2.0 / math.sqrt(parameter[0].numel())))
            else:
                parameter.fill_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0)
    return model


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10))


def mlp_wide():
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10))


def mlp_10m():
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                         nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


def mlp_100m():
    layers = [layer for _ in range(6) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(4096, 10))


def gpt_10m():
    return GPT(vocab_size=256, n_positions=64, n_embd=320, n_layer=8, n_head=8)


def gpt():
    return GPT(vocab_size=256, n_positions=64, n_embd=128, n_layer=4, n_head=4)


def classify(net, x, y):
    return functional.cross_entropy(net(x), y)


def next_token(net, x, y):
    return functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


def samples(shape):
    def make(count, seed):
        """The class of a sample is the largest of its first ten values: something to learn."""
        x = formula(count * math.prod(shape), seed).view(count, *shape)
        return x, x.flatten(1)[:, :10].argmax(1)
    return make


def tokens(count, seed):
    ids = integers(count * 65, seed, 256).view(count, 65)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


@dataclasses.dataclass
class Work:
    make_net: typing.Callable
    loss: typing.Callable
    data: typing.Callable
    batch_size: int
    optimizer: type
    lr: float

    def net(self):
        return fill(self.make_net())

    def batches(self, count, rank=0):
        """Rank 0's; every other has data of its own."""
        x, y = self.data(count * self.batch_size, 1000 + rank)
        return list(zip(x.split(self.batch_size), y.split(self.batch_size)))


WORKS = {
    "mlp_sgd": Work(mlp, classify, samples((64,)), 32, torch.optim.SGD, 0.01),
    "mlp_adam": Work(mlp, classify, samples((64,)), 32, torch.optim.Adam, 1e-3),
    "mlp_wide_sgd": Work(mlp_wide, classify, samples((784,)), 128, torch.optim.SGD, 0.01),
    "mlp_wide_adam": Work(mlp_wide, classify, samples((784,)), 128, torch.optim.Adam, 1e-3),
    "cnn": Work(cnn, classify, samples((1, 28, 28)), 64, torch.optim.Adam, 1e-3),
    "gpt": Work(gpt, next_token, tokens, 8, torch.optim.AdamW, 3e-4),
    "mlp_10m": Work(mlp_10m, classify, samples((784,)), 64, torch.optim.Adam, 1e-3),
    "mlp_100m": Work(mlp_100m, classify, samples((4096,)), 16, torch.optim.Adam, 1e-3),
    "gpt_10m": Work(gpt_10m, next_token, tokens, 4, torch.optim.AdamW, 3e-4),
}


class StepClock:
    """Called at the top of each training step, so that what it times is whole steps."""

    def __init__(self, arguments):
        self.first_timed = arguments.warmup + 1
        self.last = arguments.warmup + arguments.steps + 1
        self.count = 0

    def __call__(self):
        self.count += 1
        if self.count == self.first_timed:
            self.began = time.perf_counter()
        if self.count == self.last:
            self.ended = time.perf_counter()
        if self.count == 2:
            print("first step done", flush=True)

    def keep(self, loss):
        if self.count == 1:
            self.first_loss = loss.detach()
        if self.count == self.last:
            self.last_loss = loss.detach()

    def report(self):
        assert self.count == self.last, f"{self.count} steps were run, wanted {self.last}"
        microseconds = (self.ended - self.began) * 1e6 / (self.last - self.first_timed)
        # On a line of its own, whatever a progress bar has written before.
        print("\n" + json.dumps({"step_us": microseconds, "first_loss": self.first_loss.item(),
                                 "last_loss": self.last_loss.item()}), flush=True)
