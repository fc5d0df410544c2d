"""PyTorch's DistributedDataParallel over gloo, started by torchrun."""

import contextlib

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import work


def main():
    arguments = work.arguments()
    dist.init_process_group("gloo")
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = DistributedDataParallel(job.net())
    optimizer = job.optimizer(net.parameters(), lr=job.lr)
    for i, (x, y) in enumerate(job.batches(clock.last, dist.get_rank())):
        clock()
        ends_group = (i + 1) % arguments.accumulate == 0
        with contextlib.nullcontext() if ends_group else net.no_sync():
            loss = job.loss(net, x, y)
            (loss / arguments.accumulate).backward()
        if ends_group:
            optimizer.step()
            optimizer.zero_grad()
        clock.keep(loss)
    if dist.get_rank() == 0:
        clock.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
