"""The data, model, callback and logger of the settings: they tell what they are told of."""

import math
import time

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import Logger

import lightning_meant as meant
import lightning_settings
from lightning_record import BATCH_SIZE, LETTERS, shown, shown_metrics

FIRST_SAMPLE = {"train": 0, "val": 100, "test": 200}
CALLBACK_HOOKS = (
    "setup",
    "teardown",
    "on_fit_start",
    "on_fit_end",
    "on_sanity_check_start",
    "on_sanity_check_end",
    "on_train_start",
    "on_train_end",
    "on_train_epoch_start",
    "on_train_epoch_end",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_validation_start",
    "on_validation_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
    "on_test_start",
    "on_test_end",
    "on_test_batch_start",
    "on_test_batch_end",
    "on_load_checkpoint",
)


class Samples(torch.utils.data.Dataset):
    def __init__(self, part, size):
        self.first, self.size = FIRST_SAMPLE[part], size

    def __len__(self):
        return self.size

    def __getitem__(self, place):
        i = self.first + place
        return {
            "x": torch.tensor([math.sin(0.7 * i + 1.3 * j) for j in range(3)], dtype=torch.float64),
            "y": torch.tensor([math.cos(0.3 * i)], dtype=torch.float64),
            "i": torch.tensor(float(i), dtype=torch.float64),
        }


class Loader(torch.utils.data.DataLoader):
    """In order, and saved with its place: a run resumed inside an epoch reads on from there."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.done = self.skipped = 0

    def __iter__(self):
        skipped, self.skipped = self.skipped, 0
        self.done = skipped
        for index, batch in enumerate(super().__iter__()):
            if index < skipped:
                continue
            self.done += 1
            yield batch
        self.done = 0

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.skipped = state["done"] % len(self)


def loader(part, batches, tail, ranks):
    """So many batches on each rank."""
    size = ranks * (BATCH_SIZE * (batches - 1) + tail) if batches > 0 else 0
    samples = Samples(part, size)
    kind = Loader if part == "train" else torch.utils.data.DataLoader
    if ranks > 1 and size > 0:
        sampler = torch.utils.data.DistributedSampler(samples, shuffle=False)
        return kind(samples, batch_size=BATCH_SIZE, sampler=sampler)
    return kind(samples, batch_size=BATCH_SIZE, shuffle=False)


class Rows(Logger):
    def __init__(self, case):
        super().__init__()
        self.case = case
        self.rated_batch = None

    name = property(lambda self: "rows")
    version = property(lambda self: 0)
    save_dir = property(lambda self: None)

    def log_hyperparams(self, *arguments, **options):
        pass

    def log_metrics(self, metrics, step=None):
        trainer, record = self.case.trainer, self.case.record
        epoch = metrics.get("epoch", trainer.current_epoch)
        step = meant.row_step(trainer, step)
        rates = {key: value for key, value in metrics.items() if key.startswith("lr-")}
        rest = {key: value for key, value in metrics.items() if key != "epoch" and key not in rates}
        if rates:
            row = [step, int(epoch), shown_metrics(rates)]
            if record.rate_rows[-1:] != [row]:  # once for each batch of a group
                record.rate_rows.append(row)
                self.rated_batch = trainer.fit_loop.total_batch_idx
        if rest:
            record.rows.append([step, int(epoch), shown_metrics(rest)])

    def forget_rates(self):
        """Of this batch, which takes no step."""
        if self.rated_batch == self.case.trainer.fit_loop.total_batch_idx:
            self.case.record.rate_rows.pop()


class Model(pl.LightningModule):
    def __init__(self, case):
        super().__init__()
        self.case = [case]
        self.a, self.b = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
        with torch.no_grad():
            for k, parameter in enumerate(self.parameters()):
                values = [0.5 * math.sin(1 + i + 5 * k) for i in range(parameter.numel())]
                parameter.copy_(torch.tensor(values, dtype=torch.float64).reshape(parameter.shape))
        self.automatic_optimization = not self.setting.get("manual", False)
        self.calls, self.steps = {}, 0

    setting = property(lambda self: self.case[0].setting)
    record = property(lambda self: self.case[0].record)

    def tell(self, hook, in_step=False):
        self.record.module.tell(hook, self.current_epoch, self.global_step)
        if not in_step:
            self.log_from(hook)

    def log_from(self, hook, loss=None):
        for entry in self.setting.get("log", [lightning_settings.LOSS, lightning_settings.VAL]):
            if entry["in"] != hook:
                continue
            # Counted by place, so that the same name logged elsewhere has numbers of its own.
            key = (hook, entry["name"])
            calls = self.calls[key] = self.calls.get(key, -1) + 1
            value = loss.detach() if entry["value"] == "loss" else math.sin(0.5 * calls + len(hook))
            if entry["value"] == "rise":
                value = 0.25 * calls
            if entry["value"] == "fall":
                value = 1.0 - 0.25 * calls
            options = {
                key: entry[key] for key in ("prog_bar", "on_step", "on_epoch") if key in entry
            }
            if "reduce" in entry:
                options["reduce_fx"] = entry["reduce"]
            if self.trainer.world_size > 1:
                options["sync_dist"] = not options.get("on_step", hook == "training_step")
            self.log(entry["name"], value, **options)

    def loss(self, batch):
        return torch.nn.functional.mse_loss(self.b(self.a(batch["x"])), batch["y"])

    def read(self, kind, batch, index):
        first, rows = int(batch["i"][0].item()), batch["i"].numel()
        self.record.read(kind, self.current_epoch, index, first, rows)

    def training_step(self, batch, index):
        self.tell("training_step", in_step=True)
        self.read("t", batch, index)
        optimizers = self.optimizers()
        optimizers = optimizers if isinstance(optimizers, list) else [optimizers]
        self.record.rate([shown(o.param_groups[0]["lr"]) for o in optimizers])
        step, self.steps = self.steps, self.steps + 1
        if step in self.setting.get("sleep", []):
            time.sleep(1.2)
        if step in self.setting.get("stop", []):
            self.trainer.should_stop = True
        loss = self.loss(batch)
        self.log_from("training_step", loss)
        if step in self.setting.get("skip", []):
            return None
        if not self.automatic_optimization:
            self.optimize(loss, optimizers, index)
        return loss

    def optimize(self, loss, optimizers, index):
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        optimizers[0].step()
        if len(optimizers) > 1 and index % 2 == 0:
            optimizers[1].step()

    def validation_step(self, batch, index):
        self.tell("validation_step", in_step=True)
        self.read("v", batch, index)
        self.log_from("validation_step", self.loss(batch))

    def test_step(self, batch, index):
        self.tell("test_step", in_step=True)
        self.read("s", batch, index)
        self.log_from("test_step", self.loss(batch))

    def configure_optimizers(self):
        kind = self.setting.get("optimizer", "sgd")
        if kind == "two":
            return [
                torch.optim.SGD(self.a.parameters(), lr=0.1),
                torch.optim.SGD(self.b.parameters(), lr=0.05),
            ]
        if kind == "adam":
            optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        else:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.5)
        schedule = self.setting.get("schedule")
        if not schedule:
            return optimizer
        if schedule["kind"] == "lambda":
            scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 1.0 / (1.0 + step)
            )
        elif schedule["kind"] == "linear":
            total = self.trainer.estimated_stepping_batches
            scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer, lambda step: 1.0 - min(1.0, step / max(1, total))
            )
        elif schedule["kind"] == "plateau":
            names = (
                "mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr")
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
                optimizer, **{name: schedule[name] for name in names})
        else:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, schedule["size"], 0.5)
        interval = "epoch" if schedule["kind"] == "epoch" else "step"
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": schedule.get("interval", interval),
                "frequency": schedule.get("frequency", 1),
                "monitor": "score",
            },
        }

    def on_train_batch_start(self, batch, index):
        self.tell("on_train_batch_start")
        if [self.current_epoch, index] == self.setting.get("leave"):
            return -1


def module_hook(name):
    def hook(self, *arguments, **options):
        self.tell(name)
        if name.endswith("batch_transfer"):
            return arguments[0]

    return hook


def save(self, checkpoint):
    meant.save_values(self.trainer, checkpoint)


def load(self, checkpoint):
    self.tell("on_load_checkpoint")
    meant.load_values(self.trainer, checkpoint)


Model.on_save_checkpoint, Model.on_load_checkpoint = save, load
for hook_name in LETTERS:
    if not hook_name.startswith("on_sanity") and hook_name not in Model.__dict__:
        setattr(Model, hook_name, module_hook(hook_name))


class Listener(Callback):
    """Told of each hook, and looks at callback_metrics where callbacks decide."""

    def __init__(self, case):
        self.case = case

    def look(self, hook, trainer):
        self.case.record.look(LETTERS[hook], shown_metrics(trainer.callback_metrics))


def callback_hook(name):
    def hook(self, trainer, module, *arguments, **options):
        record = self.case.record
        record.callback.tell(name, trainer.current_epoch, trainer.global_step)
        looks = name in ("on_validation_end", "on_train_epoch_end", "on_test_end")
        if name == "on_train_batch_end" and self.case.setting.get("look", False):
            looks = True
        if looks and not trainer.sanity_checking:
            self.look(name, trainer)

    return hook


for hook_name in CALLBACK_HOOKS:
    setattr(Listener, hook_name, callback_hook(hook_name))
