"""The settings in which levin is held against Lightning: drawn at random, the same each time.

A setting names only what differs from the defaults of lightning_grid.py and lightning_grid.cpp.
"""

import random

LOSS = {"in": "training_step", "name": "loss", "value": "loss"}
VAL = {"in": "validation_step", "name": "val", "value": "loss"}
DEFAULTS = {"max_epochs": 2, "num_sanity_val_steps": 0}  # of both peers


class Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *values):
        return self.random.choice(values)

    def now_and_then(self, chance):
        return self.random.random() < chance


def loop(draw, busy=0.35):
    """Options of the loop: each with the chance `busy` to be other than its default."""
    trainer, setting = {}, {"trainer": {}}
    setting["train"] = train = draw.one(3, 4, 5, 6, 7)
    if draw.now_and_then(0.5):
        setting["tail"] = draw.one(1, 2, 3)
    setting["val"] = draw.one(0, 1, 2, 2, 3)
    if draw.now_and_then(0.5):
        setting["val_tail"] = draw.one(1, 2)
    trainer["log_every_n_steps"] = draw.one(1, 1, 2, 3)

    def some():
        return draw.now_and_then(busy)

    if some():
        trainer["max_epochs"] = draw.one(1, 3)
    else:
        trainer["max_epochs"] = 2
    if some():
        trainer["max_steps"] = draw.one(1, 3, 4, 6, 9)
        if draw.now_and_then(0.3):
            trainer["max_epochs"] = -1
    if some():
        trainer["accumulate_grad_batches"] = draw.one(2, 3)
    batches = train
    if some():
        limit = draw.one(0.5, 0.8, 2, 3, train)
        trainer["limit_train_batches"] = limit
        batches = limit if isinstance(limit, int) else int(limit * train)
    if some():
        trainer["limit_val_batches"] = draw.one(0, 1, 0.5)
    if some():
        trainer["val_check_interval"] = draw.one(0.5, 0.34, *range(1, batches + 1))
    if some():
        trainer["check_val_every_n_epoch"] = 2
    trainer["num_sanity_val_steps"] = draw.one(0, 1, 2, -1) if some() else 0
    if some():
        trainer["gradient_clip_val"] = draw.one(0, 0.05, 0.3)
        trainer["gradient_clip_algorithm"] = draw.one("norm", "value")
    if some():
        setting["optimizer"] = "adam"
    if some():
        setting["schedule"] = {
            "kind": draw.one("step", "lambda", "epoch", "linear"),
            "size": draw.one(1, 2, 3),
        }
        if setting["schedule"]["kind"] in ("lambda", "linear"):
            setting["schedule"]["size"] = 0
    setting["trainer"] = trainer
    setting["log"] = [draw.one(LOSS, LOSS | {"on_epoch": True}), VAL]
    return setting


def loops(draw):
    setting = loop(draw, 0.4)
    if setting["val"] == 1 and setting["trainer"].get("limit_val_batches") == 0.5:
        setting["trainer"]["limit_val_batches"] = 1
    if draw.now_and_then(0.15):
        setting["trainer"]["fast_dev_run"] = draw.one(1, 2)
    if draw.now_and_then(0.2):
        setting["trainer"]["min_epochs"] = draw.one(1, 2)
    return setting


HOOKS = {
    "on_train_start": "epoch",
    "on_train_epoch_start": "epoch",
    "on_train_epoch_end": "epoch",
    "on_train_batch_start": "both",
    "on_train_batch_end": "both",
    "training_step": "both",
    "on_before_zero_grad": "both",
    "on_before_backward": "both",
    "on_after_backward": "both",
    "on_before_optimizer_step": "both",
    "on_validation_start": "epoch",
    "on_validation_epoch_start": "epoch",
    "on_validation_epoch_end": "epoch",
    "on_validation_batch_start": "both",
    "on_validation_batch_end": "both",
    "validation_step": "both",
}


def logs(draw):
    """Values logged from every hook, with every way of when."""
    setting = loop(draw, 0.12)
    entries = []
    names = ["one", "two", "three"]
    for name in names[: draw.one(1, 2, 3)]:
        hook = draw.one(*HOOKS)
        value = "wave"
        if hook in ("training_step", "validation_step"):
            value = draw.one("loss", "wave")
        entry = {"in": hook, "name": name, "value": value}
        if HOOKS[hook] == "both" and draw.now_and_then(0.75):
            step, epoch = draw.one((True, False), (False, True), (True, True))
            entry |= {"on_step": step, "on_epoch": epoch}
        if draw.now_and_then(0.2):
            entry["reduce"] = draw.one("sum", "min", "max")
        if draw.now_and_then(0.2):
            entry["prog_bar"] = True
        entries.append(entry)
    if draw.now_and_then(0.35):  # the same name in training and validation
        on_step, on_epoch = draw.one((True, False), (False, True), (True, True))
        entries.append(
            {
                "in": "training_step",
                "name": "same",
                "value": "loss",
                "on_step": on_step,
                "on_epoch": on_epoch,
            }
        )
        entries.append({"in": "validation_step", "name": "same", "value": "loss"})
    setting["log"] = entries
    setting["look"] = draw.now_and_then(0.4)
    return setting


def monitored(draw):
    """What is logged for a callback to monitor, and its name."""
    kind = draw.one("val", "val", "train_epoch", "train_step", "same", "both", "epoch_end")
    if kind == "val":
        value = draw.one("loss", "rise", "fall", "wave")
        return [LOSS, VAL | {"value": value}], "val"
    if kind == "train_epoch":
        return [LOSS | {"on_step": False, "on_epoch": True}, VAL], "loss"
    if kind == "train_step":
        return [LOSS, VAL], "loss"
    if kind == "same":
        return [LOSS | {"name": "same"}, VAL | {"name": "same", "value": "wave"}], "same"
    if kind == "both":
        return [LOSS | {"on_step": True, "on_epoch": True}, VAL], draw.one(
            "loss", "loss_epoch", "loss_step"
        )
    return [LOSS, {"in": "on_train_epoch_end", "name": "end", "value": "wave"}], "end"


def early_stopping(draw):
    setting = loop(draw, 0.12)
    setting["trainer"]["max_epochs"] = draw.one(4, 5, 6)
    setting["train"] = draw.one(2, 3, 4)
    setting["val"] = draw.one(0, 1, 2, 2)
    for name in ("limit_train_batches", "val_check_interval", "limit_val_batches", "max_steps"):
        setting["trainer"].pop(name, None)
    setting["log"], monitor = monitored(draw)
    if setting["val"] == 0 and monitor == "val":
        setting["val"] = 2
    options = {"monitor": monitor, "patience": draw.one(0, 1, 1, 2), "mode": draw.one("min", "max")}
    if draw.now_and_then(0.3):
        options["min_delta"] = draw.one(0.05, 0.2)
    if draw.now_and_then(0.2):
        options["stopping_threshold"] = draw.one(0.3, 0.6)
    if draw.now_and_then(0.2):
        options["divergence_threshold"] = draw.one(0.1, 0.9)
    if draw.now_and_then(0.35):
        options["check_on_train_epoch_end"] = draw.one(True, False)
    if monitor == "end" and options.get("check_on_train_epoch_end") is False:
        del options["check_on_train_epoch_end"]
    if draw.now_and_then(0.25):
        setting["trainer"]["min_epochs"] = draw.one(2, 3)
    if draw.now_and_then(0.25):
        setting["trainer"]["min_steps"] = draw.one(3, 5, 7)
    if setting["val"] > 0 and setting["train"] > 2 and draw.now_and_then(0.3):
        setting["trainer"]["val_check_interval"] = draw.one(0.5, 1, 2)
    if setting["val"] == 0:
        setting["trainer"].pop("check_val_every_n_epoch", None)
    setting["callbacks"] = [["early_stopping", options]]
    if draw.now_and_then(0.3):
        setting["callbacks"].append(
            ["checkpoint", {"monitor": monitor, "mode": options["mode"], "save_last": False}]
        )
    return setting


def checkpoint_options(draw, monitor):
    options = {}
    if draw.now_and_then(0.75):
        options["monitor"] = monitor
        options["mode"] = draw.one("min", "max")
    options["save_top_k"] = draw.one(-1, 0, 1, 1, 2) if "monitor" in options else draw.one(-1, 0, 1)
    if draw.now_and_then(0.75):
        options["save_last"] = draw.one(True, False, False)
    way = draw.one("", "", "steps", "epochs")
    if way == "steps":
        options["every_n_train_steps"] = draw.one(1, 2, 3)
    if way == "epochs":
        options["every_n_epochs"] = draw.one(1, 2)
    if way != "steps" and draw.now_and_then(0.4):
        options["save_on_train_epoch_end"] = draw.one(True, False)
    return options


def checkpoints(draw):
    setting = loop(draw, 0.15)
    setting["trainer"]["max_epochs"] = draw.one(2, 3, 4)
    setting["log"], monitor = monitored(draw)
    if setting["val"] == 0 and monitor == "val":
        setting["val"] = 2
    if monitor == "val":
        setting["trainer"].pop("limit_val_batches", None)
    if setting["val"] == 0:
        setting["trainer"].pop("check_val_every_n_epoch", None)
    options = checkpoint_options(draw, monitor)
    if monitor == "end" and options.get("monitor"):
        options["save_on_train_epoch_end"] = True
        options.pop("every_n_train_steps", None)
    setting["callbacks"] = [["checkpoint", options]]
    return setting


def resumes(draw):
    """A run that is saved, ends, and goes on with more epochs or steps."""
    setting = loop(draw, 0.15)
    trainer = setting["trainer"]
    for name in (
        "max_steps",
        "limit_train_batches",
        "val_check_interval",
        "check_val_every_n_epoch",
    ):
        trainer.pop(name, None)
    if setting.get("schedule", {}).get("kind") == "linear":
        setting["schedule"] = {"kind": "step", "size": 2}
    trainer.pop("max_epochs")
    setting["val"] = draw.one(0, 1, 2)
    accumulate = trainer.get("accumulate_grad_batches", 1)
    per_epoch = -(-setting["train"] // accumulate)
    kind = draw.one("end", "end", "end", "inside", "inside", "done")
    if kind == "inside":
        step = draw.one(*range(1, per_epoch)) if per_epoch > 1 else 1
        options = {"every_n_train_steps": step, "save_top_k": -1, "save_last": False}
        epoch = 0 if step < per_epoch else 1
        source = f"epoch={0 if step < per_epoch else 0}-step={step}"
        first = {"max_epochs": 1}
    else:
        options = {"save_top_k": -1, "save_last": False}
        epoch = draw.one(0, 1)
        source = f"epoch={epoch}-step={(epoch + 1) * per_epoch}"
        first = {"max_epochs": draw.one(epoch + 1, 2)}
        options["save_on_train_epoch_end"] = True
        if setting["val"] and draw.now_and_then(0.3):
            options["save_on_train_epoch_end"] = False
    setting["callbacks"] = [["checkpoint", options]]
    if kind == "done":
        second = {"max_epochs": epoch + 1}
    else:
        second = {"max_epochs": draw.one(2, 3) + (kind == "end")}
    setting["do"] = [["fit", first], ["fit", {**second, "from": source}]]
    return setting


def manual(draw):
    setting = loop(draw, 0.2)
    setting["manual"] = True
    setting.pop("schedule", None)
    setting["optimizer"] = draw.one("sgd", "adam", "two", "two")
    for name in ("accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm"):
        setting["trainer"].pop(name, None)
    if draw.now_and_then(0.3):
        setting["skip"] = [draw.one(0, 1, 2, 3)]
    if draw.now_and_then(0.5):
        setting["log"] = setting["log"] + [
            {
                "in": draw.one(
                    "on_before_backward", "on_after_backward", "on_before_optimizer_step"
                ),
                "name": "hook",
                "value": "wave",
                "on_step": True,
                "on_epoch": draw.one(True, False),
            }
        ]
    return setting


def stops(draw):
    """Steps left out, epochs left, and runs that are told to stop or run out of time."""
    setting = loop(draw, 0.15)
    kind = draw.one("skip", "skip", "leave", "leave", "stop", "stop", "stop", "time")
    total = setting["train"] * 2
    if kind == "skip":
        setting["skip"] = sorted({draw.one(*range(total)) for _ in range(draw.one(1, 2, 3))})
    elif kind == "leave":
        setting["leave"] = [draw.one(0, 1), draw.one(*range(setting["train"]))]
    elif kind == "stop":
        setting["stop"] = [draw.one(*range(total))]
    else:
        setting["sleep"] = [draw.one(1, 2, 3)]
        setting["trainer"]["max_time"] = "00:00:00:01"
        setting["trainer"].pop("max_steps", None)
    if kind in ("stop", "time"):
        if draw.now_and_then(0.4):
            setting["trainer"]["min_epochs"] = draw.one(1, 2)
        if draw.now_and_then(0.4):
            setting["trainer"]["min_steps"] = draw.one(2, 4, 6)
    return setting


def afterwards(draw):
    """What comes after a fit: validate, test, another fit of the same module and loaders."""
    setting = loop(draw, 0.12)
    setting["val"] = draw.one(1, 2, 3)
    setting["do"] = [["fit", {}]]
    for _ in range(draw.one(1, 2)):
        setting["do"].append([draw.one("validate", "test", "fit"), {}])
    setting["log"] = setting["log"] + [{"in": "test_step", "name": "test", "value": "loss"}]
    if draw.now_and_then(0.4):
        setting["log"].append(
            {"in": draw.one("on_test_epoch_end", "on_test_start"), "name": "end", "value": "wave"}
        )
    if draw.now_and_then(0.3):
        setting["log"][-1] = {
            "in": "test_step",
            "name": "step",
            "value": "wave",
            "on_step": True,
            "on_epoch": draw.one(True, False),
        }
    return setting


def rates(draw):
    setting = loop(draw, 0.2)
    setting["schedule"] = {
        "kind": draw.one("step", "lambda", "linear", "epoch"),
        "size": draw.one(1, 2),
    }
    setting["callbacks"] = [["rates", {"logging_interval": "step"}]]
    if draw.now_and_then(0.2):
        setting["schedule"] = {"kind": "step", "size": 1}
        setting["skip"] = [draw.one(0, 1, 2)]
    return setting


def epochs(draw):
    """Schedules by epoch: every one or every second, over cut, skipped and resumed epochs."""
    make = draw.one(loops, resumes, stops)
    setting = make(draw)
    while "sleep" in setting or "stop" in setting:
        setting = make(draw)
    setting["trainer"].pop("limit_val_batches", None)  # a save after validation needs one
    setting["schedule"] = {
        "kind": "epoch", "size": draw.one(1, 2), "frequency": draw.one(1, 1, 2)
    }
    return setting


def plateaus(draw):
    """ReduceLROnPlateau of values that improve, stay and get worse."""
    setting = loop(draw, 0.15)
    trainer = setting["trainer"]
    for name in (
        "max_steps", "limit_val_batches", "val_check_interval", "check_val_every_n_epoch",
        "limit_train_batches",
    ):
        trainer.pop(name, None)
    setting["val"] = draw.one(1, 2)
    trainer["max_epochs"] = draw.one(4, 6)
    hook = draw.one("validation_step", "training_step", "on_train_epoch_end", "on_validation_epoch_end")
    entry = {"in": hook, "name": "score", "value": draw.one("wave", "wave", "rise", "fall")}
    if hook == "training_step":
        entry |= {"on_step": False, "on_epoch": True}
    setting["schedule"] = {
        "kind": "plateau",
        "mode": draw.one("min", "max"),
        "factor": draw.one(0.5, 0.1),
        "patience": draw.one(0, 0, 1),
        "threshold": draw.one(1e-4, 0.1),
        "threshold_mode": draw.one("rel", "abs"),
        "cooldown": draw.one(0, 0, 1),
        "min_lr": draw.one(0.0, 0.02),
        "interval": "epoch",
        "frequency": draw.one(1, 1, 2),
    }
    if draw.now_and_then(0.3):  # several validations an epoch
        entry["in"] = draw.one("validation_step", "on_validation_epoch_end")
        entry.pop("on_step", None), entry.pop("on_epoch", None)
        trainer.pop("accumulate_grad_batches", None)
        setting["train"], trainer["val_check_interval"] = draw.one(4, 6), 2
        setting["schedule"] |= {"interval": "step", "frequency": 2}
    setting["log"] = [LOSS, VAL, entry]
    return setting


def plateaus_on_ranks(draw):
    setting = plateaus(draw)
    setting["ranks"] = 2
    return setting


def on_ranks(draw):
    """A part of all that on two ranks; a value is of a step, or of an epoch over all ranks."""
    make = draw.one(loops, loops, early_stopping, checkpoints, stops, rates, manual)
    setting = make(draw)
    while "skip" in setting or "sleep" in setting or "leave" in setting:
        setting = make(draw)
    return of_two(setting)


def resumes_on_ranks(draw):
    """Runs of two ranks that go on from what they saved."""
    return of_two(resumes(draw))


def of_two(setting):
    for entry in setting["log"]:
        if entry.get("on_epoch"):
            entry["on_step"] = False
    setting["ranks"] = 2
    return setting


FAMILIES = {
    "loop": (loops, 70),
    "log": (logs, 55),
    "early": (early_stopping, 40),
    "checkpoint": (checkpoints, 40),
    "resume": (resumes, 26),
    "manual": (manual, 18),
    "stop": (stops, 34),
    "after": (afterwards, 18),
    "rate": (rates, 12),
    "ranks": (on_ranks, 36),
    "ranks_resume": (resumes_on_ranks, 8),
    "epoch": (epochs, 16),
    "plateau": (plateaus, 24),
    "ranks_plateau": (plateaus_on_ranks, 6),
}


# A save by steps whose monitor is not there yet: levin makes it as soon as it is, at the epoch's end;
# Lightning in the middle of the next group of batches, or after a later validation beside others.
# ranks_resume7 goes on from a save in an epoch's last step: levin holds that epoch's validation, Lightning
# leaves it out.
LEFT_OUT = ("checkpoint5", "checkpoint6", "checkpoint13", "ranks_resume7")


def settings():
    made = {}
    for seed, (family, (make, count)) in enumerate(FAMILIES.items()):
        draw = Draw(seed)
        for number in range(count):
            made[f"{family}{number}"] = shorter(make(draw))
    return {name: setting for name, setting in made.items() if name not in LEFT_OUT}


def shorter(setting):
    """Without what is so by default."""
    short = {
        key: value for key, value in setting.items() if value is not False and value != [LOSS, VAL]
    }
    kept = {
        key: value for key, value in setting["trainer"].items() if value != DEFAULTS.get(key, ...)
    }
    return short | {"trainer": kept}
