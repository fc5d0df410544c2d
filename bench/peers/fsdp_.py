"""PyTorch's FSDP2 (fully_shard) over gloo, each layer or block a unit; --mode compile: each of them compiled by
torch.compile first, as torchtitan does; --mode zero: its ZeroRedundancyOptimizer beside
DistributedDataParallel. Started by torchrun."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import work
from gpt import GPT


def units(net):
    return net.transformer.h if isinstance(net, GPT) else [part for part in net if list(part.parameters())]


def main():
    arguments = work.arguments()
    dist.init_process_group("gloo")
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    if arguments.mode == "zero":
        net = DistributedDataParallel(net)
        optimizer = ZeroRedundancyOptimizer(net.parameters(), job.optimizer, lr=job.lr)
    else:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for unit in units(net):
            if arguments.mode == "compile":
                unit.compile()
            fully_shard(unit, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = job.optimizer(net.parameters(), lr=job.lr)
    for x, y in job.batches(clock.last, dist.get_rank()):
        clock()
        loss = job.loss(net, x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        clock.keep(loss)
    if dist.get_rank() == 0:
        clock.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
