"""What Lightning does for the settings of loops_test.cpp: `loops.py settings.json answers.json`.

The answer has the order of the module's functions, and the metrics at the end: of several validation loaders, of the
hooks that replace a part of the Trainer's work, and of a resumed run.
"""

import json
import logging
import sys
import tempfile
import warnings

import lightning.pytorch as pl
import torch

logging.getLogger("lightning.pytorch").setLevel(logging.CRITICAL)
warnings.simplefilter("ignore")


def loader(of):
    start, count, size = of
    numbers = torch.arange(start, start + count, dtype=torch.float64).reshape(-1, 1)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers), batch_size=size)


class Net(pl.LightningModule):
    def __init__(self, setting):
        super().__init__()
        self.setting, self.events = setting, []
        self.layer = torch.nn.Linear(1, 1).double()
        with torch.no_grad():
            self.layer.weight.fill_(0.5)
            self.layer.bias.fill_(0.25)

    def note(self, *event):
        self.events.append(list(event))

    def train_dataloader(self):
        return loader(self.setting["train"])

    def val_dataloader(self):
        return [loader(of) for of in self.setting["val"]]

    def test_dataloader(self):
        return self.val_dataloader()

    def loss(self, batch):
        return (self.layer(batch[0] / 100) - 1).square().mean()

    def training_step(self, batch, index):
        self.note("training_step", index)
        return self.loss(batch)

    def evaluate(self, batch):
        loss = self.loss(batch)
        self.log("loss", loss)
        self.log("both", loss, on_step=True, on_epoch=True)
        self.log("sum", batch[0].sum(), reduce_fx="sum")

    def validation_step(self, batch, index, dataloader_idx=0):
        self.note("validation_step", index, dataloader_idx)
        self.evaluate(batch)

    def test_step(self, batch, index, dataloader_idx=0):
        self.note("test_step", index, dataloader_idx)
        self.evaluate(batch)

    def on_validation_epoch_end(self):
        self.log("epochs", 1.0)

    def on_before_batch_transfer(self, batch, dataloader_idx):
        self.note("on_before_batch_transfer")
        return batch

    def transfer_batch_to_device(self, batch, device, dataloader_idx):
        self.note("transfer_batch_to_device")
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def on_after_batch_transfer(self, batch, dataloader_idx):
        self.note("on_after_batch_transfer")
        return batch

    def on_before_zero_grad(self, optimizer):
        self.note("on_before_zero_grad")

    def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
        self.note("optimizer_zero_grad")
        super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def on_before_backward(self, loss):
        self.note("on_before_backward")

    def backward(self, loss):
        self.note("backward")
        super().backward(loss)

    def on_after_backward(self):
        self.note("on_after_backward")

    def on_before_optimizer_step(self, optimizer):
        self.note("on_before_optimizer_step")

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        self.note("configure_gradient_clipping", gradient_clip_val or 0.0)
        super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    # It is noted where the parameters change.
    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        self.note("optimizer_step")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def trainer_of(setting, folder, epochs):
    return pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **setting.get("trainer", {}),
    )


def answer(setting):
    with tempfile.TemporaryDirectory() as folder:
        net = Net(setting)
        if setting["call"] == "fit":
            trainer = trainer_of(setting, folder, setting["epochs"])
            trainer.fit(net)
        elif setting["call"] == "resume":
            first = trainer_of(setting, folder, 1)
            first.fit(net)
            first.save_checkpoint(folder + "/first.ckpt")
            net = Net(setting)
            trainer = trainer_of(setting, folder, setting["epochs"])
            trainer.fit(net, ckpt_path=folder + "/first.ckpt")
        else:
            trainer = trainer_of(setting, folder, 1)
            getattr(trainer, setting["call"])(net, verbose=False)
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        weights = [net.layer.weight.item(), net.layer.bias.item()]
        return {"events": net.events, "metrics": metrics, "weights": weights}


with open(sys.argv[1]) as settings, open(sys.argv[2], "w") as answers:
    json.dump([answer(setting) for setting in json.load(settings)], answers)
