"""Runs of Lightning with callbacks that change weights and learning rates: stochastic weight averaging (SWA), averages of the
weights (EMA), and staged unfreezing. lightning_callbacks_test.cpp trains the same with levin's callbacks.

    lightning_callbacks.py FOLDER

writes start.safetensors (data and first weights, in float64), and for each case CASE.safetensors (weights at the end) and
CASE.json: {"rates": rates of the parameter groups in each step, by group; "resumed": how far the weights of a run that resumed
from epoch 5 are from those of the run without interruption; "moved": how far that resumed run has moved the backbone; "stepped":
how far the parameters at the end are from SWA's averages}.

With batch norm, Lightning's SWA ends with an epoch for the statistics. In its last batch the optimizer takes a step with the
gradients of the epoch before. CASE.safetensors has the averages then, as they are before that step.
"""

import json
import logging
import pathlib
import sys
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BackboneFinetuning, EMAWeightAveraging, ModelCheckpoint, StochasticWeightAveraging, WeightAveraging
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 8


class Net(pl.LightningModule):
    def __init__(self, norm, optimizer, groups, schedule):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Tanh())
        self.head = nn.Linear(8, 3)
        self.how = optimizer, groups, schedule
        self.rates = []

    def training_step(self, batch, index):
        self.rates.append([group["lr"] for group in self.optimizers().param_groups])
        x, y = batch
        return nn.functional.cross_entropy(self.head(self.backbone(x)), y)

    def configure_optimizers(self):
        kind, groups, schedule = self.how
        parts = {"all": [{"params": self.parameters()}], "head": [{"params": self.head.parameters()}],
                 "two": [{"params": self.backbone.parameters(), "lr": 0.05}, {"params": self.head.parameters()}]}[groups]
        optimizer = torch.optim.Adam(parts, lr=0.02) if kind == "adam" else torch.optim.SGD(parts, lr=0.1, momentum=0.9)
        return ([optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]) if schedule else optimizer


def halfway(average, value, count):
    return average + (value - average) / 2


CASES = {
    "swa_cos": (dict(), lambda: StochasticWeightAveraging(0.03, swa_epoch_start=0.5, annealing_epochs=3)),
    "swa_linear": (dict(groups="two", schedule=False),
                   lambda: StochasticWeightAveraging([0.01, 0.2], swa_epoch_start=3, annealing_epochs=2, annealing_strategy="linear")),
    "swa_at_once": (dict(optimizer="adam"), lambda: StochasticWeightAveraging(0.03, swa_epoch_start=4, annealing_epochs=0)),
    "swa_avg_fn": (dict(), lambda: StochasticWeightAveraging(0.03, annealing_epochs=2, avg_fn=halfway)),
    "swa_norm": (dict(norm=True), lambda: StochasticWeightAveraging(0.03, swa_epoch_start=0.5, annealing_epochs=3)),
    "ema": (dict(norm=True), lambda: EMAWeightAveraging(decay=0.9, update_every_n_steps=2, update_starting_at_step=3)),
    "ema_by_epoch": (dict(norm=True), lambda: EMAWeightAveraging(decay=0.7, update_every_n_steps=0, update_starting_at_epoch=2, use_buffers=False)),
    "mean": (dict(), lambda: WeightAveraging()),
    "avg_fn": (dict(), lambda: WeightAveraging(avg_fn=halfway)),
    "finetuning": (dict(groups="head", norm=True),
                   lambda: BackboneFinetuning(unfreeze_backbone_at_epoch=2, lambda_func=lambda epoch: 1.5, backbone_initial_ratio_lr=0.3)),
    "finetuning_adam": (dict(groups="head", norm=True, optimizer="adam"),
                        lambda: BackboneFinetuning(unfreeze_backbone_at_epoch=3, should_align=False, train_bn=False)),
    "finetuning_rate": (dict(groups="head", schedule=False),
                        lambda: BackboneFinetuning(unfreeze_backbone_at_epoch=1, lambda_func=lambda epoch: 1 + 1 / epoch, backbone_initial_lr=0.01)),
}


def net_of(start, norm=False, optimizer="sgd", groups="all", schedule=True):
    net = Net(norm, optimizer, groups, schedule).double()
    # The layers of a net with and without batch norm have other numbers.
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name in start:
                parameter.copy_(start[name])
    return net


def fit(net, callback, data, folder=None, ckpt_path=None):
    keep = ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1, every_n_epochs=1) if folder else None
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_checkpointing=folder is not None,
                         enable_progress_bar=False, enable_model_summary=False, callbacks=[callback] + ([keep] if keep else []))
    trainer.fit(net, DataLoader(data, batch_size=8), ckpt_path=ckpt_path, weights_only=False)
    return {name: value.clone() for name, value in net.state_dict().items()}


def main(folder):
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(5)
    x = torch.randn(40, 6, dtype=torch.float64)
    y = (x.sum(1) > 0).long() + (x[:, 0] > 1)
    start = {name: parameter.detach().clone() for name, parameter in Net(False, "sgd", "all", False).double().named_parameters()}
    save_file(dict(start, x=x, y=y), folder / "start.safetensors")
    for name, (options, callback) in CASES.items():
        net, averaging = net_of(start, **options), callback()
        with tempfile.TemporaryDirectory() as kept:
            weights = fit(net, averaging, TensorDataset(x, y), kept)
            again = fit(net_of(start, **options), callback(), TensorDataset(x, y), ckpt_path=f"{kept}/epoch=4.ckpt")
            saved = torch.load(f"{kept}/epoch=4.ckpt", weights_only=False)["state_dict"]
        off = max((weights[key] - again[key]).abs().max().item() for key in weights)
        moved = (again["backbone.0.weight"] - saved["backbone.0.weight"]).abs().max().item()
        averages = dict(averaging._average_model.named_parameters()) if name.startswith("swa") else {}
        stepped = max([(weights[key] - average).abs().max().item() for key, average in averages.items()], default=0.0)
        save_file(weights | {key: average.detach().clone() for key, average in averages.items()}, folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps({"rates": net.rates, "resumed": off, "moved": moved, "stepped": stepped}))


main(pathlib.Path(sys.argv[1]))
