"""Lightning with its defaults and one logged value on the bar. --mode off turns all of that off."""

import lightning
from torch.utils.data import DataLoader

import work


class Peer(lightning.LightningModule):
    def __init__(self, job, clock, logs):
        super().__init__()
        self.net = job.net()
        self.job, self.clock, self.logs = job, clock, logs

    def training_step(self, batch, _):
        self.clock()
        loss = self.job.loss(self.net, *batch)
        self.clock.keep(loss)
        if self.logs:
            self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return self.job.optimizer(self.parameters(), lr=self.job.lr)


def main():
    arguments = work.arguments()
    job = work.WORKS[arguments.work]
    clock = work.StepClock(arguments)
    off = arguments.mode == "off"
    module = Peer(job, clock, logs=not off)
    options = {"barebones": True} if off else {}
    if arguments.devices > 1:
        options |= {"devices": arguments.devices, "strategy": "ddp", "use_distributed_sampler": False,
                    "accumulate_grad_batches": arguments.accumulate}
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", **options)
    loader = DataLoader(job.batches(clock.last, trainer.global_rank), batch_size=None)
    trainer.fit(module, loader)
    if trainer.is_global_zero:
        clock.report()


if __name__ == "__main__":
    main()
