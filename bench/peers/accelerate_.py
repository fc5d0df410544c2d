"""Hugging Face Accelerate: the plain loop with its four changed lines."""

from accelerate import Accelerator
from torch.utils.data import DataLoader

import work


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    net = job.net()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=arguments.accumulate,
                              mixed_precision="bf16" if arguments.precision == "bf16" else "no")
    net, optimizer, loader = accelerator.prepare(
        net, job.optimizer(net.parameters(), lr=job.lr),
        DataLoader(job.batches(clock.last, accelerator.process_index), batch_size=None))
    if accelerator.num_processes > 1:  # each has data of its own already
        loader = job.batches(clock.last, accelerator.process_index)
    for x, y in loader:
        clock()
        with accelerator.accumulate(net):
            loss = job.loss(net, x, y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        clock.keep(loss)
    if accelerator.is_main_process:
        clock.report()


if __name__ == "__main__":
    main()
