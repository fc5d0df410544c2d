"""What PyTorch Lightning does in each setting of lightning_settings.py.

The peer of lightning_grid.cpp, which trains the same model on the same data with levin. Where levin
means to differ, lightning_meant.py gives Lightning the wanted behaviour, so that all else compares.
"""

import contextlib
import logging
import os
import pathlib
import shutil
import socket
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import LearningRateMonitor

import lightning_meant as meant
import lightning_settings
from lightning_model import Listener, Model, Rows, loader
from lightning_record import Record, shown, shown_metrics

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Case:
    """A setting on its way through its commands."""

    def __init__(self, setting, folder):
        self.setting, self.folder = setting, pathlib.Path(folder)
        self.trainer = self.record = self.newest = None
        self.ranks = setting.get("ranks", 1)
        self.module = Model(self)
        self.train = loader("train", setting.get("train", 5), setting.get("tail", 4), self.ranks)
        self.val = loader("val", setting.get("val", 2), setting.get("val_tail", 4), self.ranks)
        self.test = loader("test", 2, 3, self.ranks)

    def callbacks(self):
        made = []
        self.early = self.checkpoint = None
        for kind, options in self.setting.get("callbacks", []):
            if kind == "early_stopping":
                self.early = meant.Stopping(**options)
                made.append(self.early)
            elif kind == "checkpoint":
                options = meant.checkpoint_options(options)
                self.checkpoint = meant.Checkpoint(dirpath=str(self.folder / "kept"), **options)
                made.append(self.checkpoint)
            else:
                made.append(LearningRateMonitor(**options))
        return [*made, Listener(self)]

    def make_trainer(self, options):
        options = {**lightning_settings.DEFAULTS, **options, "devices": self.ranks}
        if self.ranks > 1:
            options |= {"strategy": "ddp", "use_distributed_sampler": False}
        callbacks = self.callbacks()
        self.trainer = pl.Trainer(
            accelerator="cpu",
            precision="64-true",
            logger=Rows(self),
            callbacks=callbacks,
            enable_checkpointing=self.checkpoint is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=str(self.folder),
            **options,
        )

    def run(self):
        return [self.run_command(*command) for command in self.commands()]

    def commands(self):
        return self.setting.get("do", [["fit", {}]])

    def run_command(self, name, options):
        self.record = Record(self.ranks)
        if name == "fit":
            return self.fit(options)
        result = getattr(self.trainer, name)(
            self.module, self.val if name == "validate" else self.test, verbose=False
        )
        facts = self.record.facts()
        facts["result"] = shown_metrics(result[0]) if result else {}
        facts["end"] = [self.trainer.current_epoch, self.trainer.global_step]
        return facts

    def fit(self, options):
        options = {**self.setting.get("trainer", {}), **options}
        resume = options.pop("from", None)
        if resume:
            self.module = Model(self)
            resume = str(self.folder / "kept" / f"{resume}.ckpt")
        self.make_trainer(options)
        self.trainer.fit(
            self.module,
            self.train,
            self.val if self.setting.get("val", 2) else None,
            ckpt_path=resume,
            weights_only=False,
        )
        self.record.look("end", shown_metrics(self.trainer.callback_metrics))
        facts = self.record.facts()
        facts["end"] = [self.trainer.current_epoch, self.trainer.global_step]
        facts["weights"] = [
            shown(w) for p in self.module.parameters() for w in p.flatten().tolist()
        ]
        if self.early:
            stopped = self.early.stopping_reason.value != 0
            facts["early"] = [
                self.early.stopped_epoch if stopped else -1,
                shown(self.early.best_score),
            ]
        if self.checkpoint:
            facts["files"] = self.files()
        return facts

    def files(self):
        """What is kept, the newest that `last` stands for, and the best with its score."""
        kept = sorted(path.stem for path in (self.folder / "kept").glob("*.ckpt"))
        best = self.checkpoint.best_model_path
        score = self.checkpoint.best_model_score
        self.newest = self.checkpoint.newest or self.newest
        last = self.newest if "last" in kept else None
        return meant.files(
            {
                "kept": [name for name in kept if name != "last"],
                "last": last,
                "best": pathlib.Path(best).stem if best else "",
                "score": None if score is None else shown(score),
            },
            self.newest,
        )


def refused(error):
    """Whether Lightning throws since the setting makes no sense."""
    known = (
        "You requested to check",
        "conditioned on metric",
        "could not find the monitored key",
        "must be less than or equal",
    )
    return any(text in str(error) for text in known)


def run(setting, wanted):
    """What Lightning with the meant differences `wanted` does; "refused": it throws."""
    torch.set_default_dtype(torch.float64)
    try:
        with scratch() as folder, meant.active(wanted):
            return Case(setting, folder).run()
    except Exception as error:
        if not refused(error):
            raise
        return "refused"
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def scratch():
    """A folder; of several ranks the first's, which leave it together."""
    if not torch.distributed.is_initialized():
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    is_first = torch.distributed.get_rank() == 0
    folder = [tempfile.mkdtemp() if is_first else None]
    torch.distributed.broadcast_object_list(folder)
    yield folder[0]
    torch.distributed.barrier()
    if is_first:
        shutil.rmtree(folder[0])


def compare(setting):
    """What levin is to do, and which meant differences show in it."""
    wanted = run(setting, meant.IDS)
    tried = sorted(meant.possible(setting))
    shows = [name for name in tried if run(setting, meant.IDS - {name}) != wanted]
    return {"setting": setting, "wanted": wanted, "meant": shows}


def of_ranks(number):
    return {
        name: setting
        for name, setting in lightning_settings.settings().items()
        if setting.get("ranks", 1) == number
    }


def run_on_rank(rank, ranks, port, settings, queue):
    """In a process of its own: what Lightning calls a launcher's environment."""
    os.environ |= {
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    queue.put((rank, {name: compare(setting) for name, setting in settings.items()}))


def run_on_ranks(ranks, settings):
    """For each setting the first rank's record, and the main things of the others'."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [
        context.Process(target=run_on_rank, args=(rank, ranks, port, settings, queue))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    made = dict(queue.get() for _ in processes)
    for process in processes:
        process.join()
    for name, facts in made[0].items():
        for rank in range(1, ranks):
            others = [
                {
                    key: record[key]
                    for key in ("module", "batches", "weights", "end")
                    if key in record
                }
                for record in made[rank][name]["wanted"]
            ]
            facts.setdefault("others", []).append(others)
    return made[0]


def make():
    alone = {name: compare(setting) for name, setting in of_ranks(1).items()}
    return {}, alone | run_on_ranks(2, of_ranks(2))
