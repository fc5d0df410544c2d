"""A step of a model of one number with an optimizer that does nothing, by hand and by Accelerate: what
is left is what the loop costs. Prints {"by hand": us, "Accelerate": us} of a step."""

import json
import sys
import time

import torch
from accelerate import Accelerator


class OneNumber(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


class NoOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        return None


def microseconds(step, steps):
    for _ in range(steps // 10):
        step()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps * 1e6


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    torch.set_num_threads(1)
    x = torch.ones(1)

    model = OneNumber()
    optimizer = NoOptimizer(model.parameters())

    def by_hand():
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()

    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(OneNumber())
    its_optimizer = accelerator.prepare(NoOptimizer(prepared.parameters()))

    def by_accelerate():
        with accelerator.accumulate(prepared):
            its_optimizer.zero_grad()
            accelerator.backward(prepared(x))
            its_optimizer.step()

    print(json.dumps({"by hand": microseconds(by_hand, steps),
                      "Accelerate": microseconds(by_accelerate, steps)}))


if __name__ == "__main__":
    main()
