"""Numbers that are the same on every machine and with every version of torch."""

import math
import random

import torch


def uniform(seed, shape, scale=1.0):
    """float32 in (-scale, scale), from Python's Mersenne Twister."""
    source = random.Random(seed)
    values = [scale * (2.0 * source.random() - 1.0) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).float().reshape(shape)


def integers(seed, shape, below):
    """int64 in [0, below)."""
    source = random.Random(seed)
    values = [source.randrange(below) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.int64).reshape(shape)
