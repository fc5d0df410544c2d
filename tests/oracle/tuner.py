"""What Lightning's Tuner finds for the settings of tuner_test.cpp: `tuner.py settings.json answers.json`.

A setting of "lr_find" gives the rates, the smoothed losses and the suggestion. One of "scale_batch_size" gives the
sizes that were tried and the size that was found, where a batch of more than "fits" samples is out of memory.
"""

import json
import logging
import math
import sys
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.tuner import Tuner, batch_size_scaling

logging.getLogger("lightning.pytorch").setLevel(logging.CRITICAL)
warnings.simplefilter("ignore")


def samples(count):
    x = [[math.sin(0.7 * i + 1.3 * j) for j in range(3)] for i in range(count)]
    y = [[math.cos(0.3 * i)] for i in range(count)]
    return torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)


class Net(pl.LightningModule):
    def __init__(self, setting):
        super().__init__()
        self.setting, self.lr, self.batch_size = setting, 0.1, 2
        self.a, self.b = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
        self.double()
        with torch.no_grad():
            for k, parameter in enumerate(self.parameters()):
                values = [0.5 * math.sin(1 + i + 5 * k) for i in range(parameter.numel())]
                parameter.copy_(torch.tensor(values, dtype=torch.float64).reshape(parameter.shape))

    def train_dataloader(self):
        size = self.setting.get("batch_size", self.batch_size)
        dataset = torch.utils.data.TensorDataset(*samples(self.setting["samples"]))
        return torch.utils.data.DataLoader(dataset, batch_size=size)

    def training_step(self, batch, index):
        x, y = batch
        if index in self.setting.get("without_loss", []):
            return None
        return torch.nn.functional.mse_loss(self.b(torch.tanh(self.a(x))), y)

    def configure_optimizers(self):
        if self.setting.get("optimizer") == "adamw":
            return torch.optim.AdamW(self.parameters(), lr=self.lr)
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)]


def answer(setting):
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=setting.get("max_epochs"),
            accumulate_grad_batches=setting.get("accumulate", 1),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        net = Net(setting)
        options = setting["options"]
        if setting["call"] == "scale_batch_size":
            tried = []

            def run(trainer, params):
                tried.append(trainer.lightning_module.batch_size)
                if tried[-1] > setting["fits"]:
                    raise RuntimeError("CUDA out of memory. Tried to allocate")

            batch_size_scaling._try_loop_run = run
            batch_size_scaling.garbage_collection_cuda = lambda: None  # as slow as all else
            found = Tuner(trainer).scale_batch_size(net, **options)
            return {"found": found, "tried": tried}
        found = Tuner(trainer).lr_find(net, update_attr=False, **options)
        losses = [None if math.isnan(loss) else loss for loss in found.results["loss"]]
        return {"rates": found.results["lr"], "losses": losses, "suggestion": found.suggestion()}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump([answer(setting) for setting in settings], file)
