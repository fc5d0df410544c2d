"""PyTorch's side of exported.py: writes programs of torch.export, trains eagerly, loads.

    pytorch_exported.py export FOLDER              # all programs but the large one
    pytorch_exported.py export_large FILE          # 1 GB of weights
    pytorch_exported.py train WORK                 # as many steps as a line of its input says
    pytorch_exported.py load FILE
"""

import json
import pathlib
import sys
import time

import torch
from torch import nn
from torch.export import Dim, export, save

import work

BATCHES = 32
NODES = 200


class Calls(nn.Module):
    """Small operators, one after another."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x, y):
        for _ in range(NODES):
            if self.kind == "add":
                x = torch.add(x, y)
            elif self.kind == "scale":
                x = torch.mul(x, 1.001)
            else:
                x = x.view(x.size(0), 1)
        return x


def chain():
    return nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.ReLU())))


class Regions(nn.Module):
    """The chain, each of whose linear layers stands in a region of torch.no_grad()."""

    def __init__(self):
        super().__init__()
        self.layers = chain()

    def forward(self, x):
        for linear, relu in zip(self.layers[::2], self.layers[1::2]):
            with torch.no_grad():
                x = linear(x)
            x = relu(x)
        return x


def large():
    return nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(16)))


def write(net, inputs, path, dynamic=None):
    save(export(net.train(), inputs, dynamic_shapes=dynamic), path)


def write_all(folder):
    batch = {0: Dim("batch", max=512)}
    for name in ("mlp_sgd", "mlp_adam", "cnn", "gpt"):
        job = work.WORKS[name]
        write(job.net(), job.batches(1)[0][:1], folder / f"{name}.pt2", (batch,))
    small = (torch.ones(4, 1), torch.ones(4, 1))
    for kind in ("add", "scale", "view"):
        dynamic = (batch, None) if kind == "view" else None
        write(Calls(kind), small, folder / f"{kind}.pt2", dynamic)
    for name, net in (("chain", chain()), ("regions", Regions())):
        write(net, (torch.ones(4, 512),), folder / f"{name}.pt2", ({0: Dim("batch", max=65536)},))


def train(name):
    job = work.WORKS[name]
    net, batches = job.net(), job.batches(BATCHES)
    optimizer = job.optimizer(net.parameters(), lr=job.lr)
    done = 0
    for line in sys.stdin:
        count = int(line)
        began = time.perf_counter()
        for _ in range(count):
            x, y = batches[done % BATCHES]
            optimizer.zero_grad()
            loss = job.loss(net, x, y)
            loss.backward()
            optimizer.step()
            done += 1
        microseconds = (time.perf_counter() - began) * 1e6 / count
        print(json.dumps({"step_us": microseconds, "loss": loss.item()}), flush=True)


def load(path):
    began = time.perf_counter()
    program = torch.export.load(path)
    loaded = time.perf_counter()
    program.module()
    print(json.dumps({"load_s": loaded - began, "module_s": time.perf_counter() - began}))


def main():
    command, argument = sys.argv[1:]
    if command == "export":
        write_all(pathlib.Path(argument))
    elif command == "export_large":
        write(large(), (torch.ones(2, 4096),), argument)
    elif command == "train":
        train(argument)
    else:
        load(argument)


if __name__ == "__main__":
    main()
