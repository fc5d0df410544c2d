"""Plain PyTorch: the loop of its own tutorials. --mode fused takes the fused optimizer."""

from torch.utils.data import DataLoader

import work


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    options = {"fused": True} if arguments.mode == "fused" else {}
    optimizer = job.optimizer(net.parameters(), lr=job.lr, **options)
    for x, y in DataLoader(job.batches(clock.last), batch_size=None):
        clock()
        optimizer.zero_grad()
        loss = job.loss(net, x, y)
        loss.backward()
        optimizer.step()
        clock.keep(loss)
    clock.report()


if __name__ == "__main__":
    main()
