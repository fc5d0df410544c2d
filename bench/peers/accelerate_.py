"""Hugging Face Accelerate: the plain loop with its four changed lines."""

from accelerate import Accelerator
from torch.utils.data import DataLoader

import work


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    accelerator = Accelerator(cpu=True)
    net, optimizer, loader = accelerator.prepare(
        net, job.optimizer(net.parameters(), lr=job.lr),
        DataLoader(job.batches(clock.last), batch_size=None))
    for x, y in loader:
        clock()
        optimizer.zero_grad()
        loss = job.loss(net, x, y)
        accelerator.backward(loss)
        optimizer.step()
        clock.keep(loss)
    clock.report()


if __name__ == "__main__":
    main()
