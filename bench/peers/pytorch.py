"""Plain PyTorch: the loop of its own tutorials. --mode fused takes the fused optimizer, --mode
compile the network through torch.compile."""

import contextlib
import functools

import torch
from torch.utils.data import DataLoader

import work


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    forward = torch.compile(net) if arguments.mode == "compile" else net
    # A context of its own each time: autocast's cannot be entered twice.
    autocast = contextlib.nullcontext
    if arguments.precision == "bf16":
        autocast = functools.partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    options = {"fused": True} if arguments.mode == "fused" else {}
    optimizer = job.optimizer(net.parameters(), lr=job.lr, **options)
    for x, y in DataLoader(job.batches(clock.last), batch_size=None):
        clock()
        optimizer.zero_grad()
        with autocast():
            loss = job.loss(forward, x, y)
        loss.backward()
        optimizer.step()
        clock.keep(loss)
    clock.report()


if __name__ == "__main__":
    main()
