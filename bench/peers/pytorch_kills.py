"""What kills.py kills under torchrun: PyTorch DDP that saves every ten steps and goes on from there
when it is started again, as PyTorch's elastic examples do. The same as peer_levin --trace."""

import itertools
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import work

SAVE_EVERY = 10


def save(path, net, optimizer, step):
    """A new file takes the old one's name only once it is whole."""
    torch.save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
               path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def load(path, net, optimizer):
    """The step to go on from; 0 where nothing was saved."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    net.module.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def main():
    arguments = work.arguments()
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    job = work.WORKS[arguments.work]
    net = DistributedDataParallel(job.net())
    optimizer = job.optimizer(net.parameters(), lr=job.lr)
    batches = job.batches(arguments.steps, rank)
    folder = pathlib.Path(arguments.trace)
    checkpoint = folder / "checkpoint.pt"
    first = load(checkpoint, net, optimizer)
    with open(folder / str(rank), "a") as out:
        out.write(f"{attempt} {os.getpid()}\n")
    with open(folder / "steps", "a", buffering=1) as steps:
        for step in itertools.count(first + 1):
            x, y = batches[(step - 1) % len(batches)]
            job.loss(net, x, y).backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                steps.write(f"{attempt} {step} {time.monotonic():.6f}\n")
            if rank == 0 and step % SAVE_EVERY == 0:
                save(checkpoint, net, optimizer, step)


if __name__ == "__main__":
    main()
