"""Where levin means to differ from Lightning: changes to Lightning, each as narrow as can be.

The ids are those of the table in docs/lightning.md; lightning_grid_test.cpp checks that each of
them shows in some setting, and that there are no others.
"""

import contextlib
import copy
import dataclasses
import json

from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loops import fit_loop, training_epoch_loop
from lightning.pytorch.loops.optimization import automatic
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors import checkpoint_connector
from lightning.pytorch.trainer.connectors.logger_connector import logger_connector
from lightning.pytorch.trainer.states import TrainerFn

IDS = frozenset(
    {
        "callbacks-last",
        "count-of-one",
        "epoch-means-resumed",
        "group-mean",
        "last-at-end",
        "last-is-link",
        "manual-steps",
        "metrics-resumed",
        "resumed-before-start",
        "row-step",
        "save-last",
        "skipped-batch",
        "stop-inside-epoch",
        "stop-without-validation",
        "validation-waits",
    }
)
_active = frozenset()


def possible(setting):
    """Those that a setting is to show. What shows in nearly all need not be tried in all."""
    text, trainer = json.dumps(setting), setting.get("trainer", {})
    ids = set()
    if '"look"' in text:
        ids |= {"callbacks-last", "row-step"}
    if trainer.get("accumulate_grad_batches", 1) > 1:
        ids |= {"group-mean", "validation-waits"}
    if any(word in text for word in ("max_steps", "max_time", '"stop"', "early_stopping")):
        ids |= {"stop-inside-epoch", "stop-without-validation"}
    if '"checkpoint"' in text:
        ids |= {"last-at-end", "last-is-link", "save-last"}
    if '"from"' in text:
        ids |= {"epoch-means-resumed", "metrics-resumed", "resumed-before-start"}
    if trainer.get("val_check_interval") == 1 and "callbacks" in setting:
        ids |= {"count-of-one"}
    if '"skip"' in text:
        ids |= {"skipped-batch"}
    if '"manual"' in text:
        ids |= {"manual-steps"}
    return ids


@contextlib.contextmanager
def active(ids):
    global _active
    before, _active = _active, frozenset(ids)
    try:
        yield
    finally:
        _active = before


# group-mean: a group of batches that the epoch's end cut short is divided by its own size.

_training_step = automatic._AutomaticOptimization._training_step


def training_step(self, kwargs):
    trainer = self.trainer
    accumulate = trainer.accumulate_grad_batches
    if "group-mean" not in _active or accumulate == 1:
        return _training_step(self, kwargs)
    start = kwargs["batch_idx"] - kwargs["batch_idx"] % accumulate
    try:
        trainer.accumulate_grad_batches = min(accumulate, trainer.num_training_batches - start)
        return _training_step(self, kwargs)
    finally:
        trainer.accumulate_grad_batches = accumulate


automatic._AutomaticOptimization._training_step = training_step


# validation-waits: it is held once the group of batches that its interval ends in is complete.
# stop-without-validation: that a run is to stop makes no validation due.

_EpochLoop = training_epoch_loop._TrainingEpochLoop
_should_accumulate = _EpochLoop._should_accumulate
_should_check_val_fx = _EpochLoop._should_check_val_fx


def should_check_val_fx(self, data_fetcher):
    stops = self.trainer.should_stop
    if "stop-without-validation" in _active:
        self.trainer.should_stop = False
    due = _should_check_val_fx(self, data_fetcher)
    self.trainer.should_stop = stops
    if "validation-waits" not in _active:
        return due
    waited = getattr(self, "_waiting", False)
    self._waiting = (due or waited) and _should_accumulate(self)
    return (due or waited) and not self._waiting


_EpochLoop._should_check_val_fx = should_check_val_fx


# skipped-batch: where training_step skips, its group goes on with what the others gave, and a group
# of which nothing is left takes no step: no hook of it, no count, no schedule, no row.

_run = automatic._AutomaticOptimization.run
_update_train_step_metrics = logger_connector._LoggerConnector.update_train_step_metrics


def run(self, optimizer, batch_idx, kwargs):
    loop = self.trainer.fit_loop.epoch_loop
    loop._left_out = False
    if "skipped-batch" not in _active:
        return _run(self, optimizer, batch_idx, kwargs)
    if batch_idx % self.trainer.accumulate_grad_batches == 0:
        self._has_gradients = False
    closure = self._make_closure(kwargs, optimizer, batch_idx)
    step_fn, skipped = closure._step_fn, []
    closure._zero_grad_fn = None
    closure._step_fn = lambda: self._begin_group(step_fn(), skipped, batch_idx, optimizer)
    closure()
    self._has_gradients = self._has_gradients or not skipped
    if not _should_accumulate(loop):
        loop._left_out = not self._has_gradients
        if loop._left_out:
            self.trainer.logger.forget_rates()
        if self._has_gradients:
            self._optimizer_step(batch_idx, lambda: closure._result.loss)
    return {} if skipped else closure.consume_result().asdict()


def begin_group(self, result, skipped, batch_idx, optimizer):
    if result.closure_loss is None:
        skipped.append(True)
    elif not self._has_gradients:
        self._on_before_zero_grad(optimizer)
        self._optimizer_zero_grad(batch_idx, optimizer)
    return result


def should_accumulate(self):
    return _should_accumulate(self) or self._left_out


def update_train_step_metrics(self):
    if not self.trainer.fit_loop.epoch_loop._left_out:
        _update_train_step_metrics(self)


_EpochLoop._left_out = False
_EpochLoop._should_accumulate = should_accumulate
automatic._AutomaticOptimization.run = run
automatic._AutomaticOptimization._begin_group = begin_group
logger_connector._LoggerConnector.update_train_step_metrics = update_train_step_metrics


# stop-inside-epoch: an epoch that the run ends in has not ended; its values are logged.

_on_advance_end = fit_loop._FitLoop.on_advance_end


def on_advance_end(self):
    batches = self.epoch_loop.batch_progress
    inside = not batches.is_last_batch and batches.current.ready < self.max_batches
    if "stop-inside-epoch" not in _active or not inside:
        return _on_advance_end(self)
    connector = self.trainer._logger_connector
    connector.epoch_end_reached()
    connector.on_epoch_end()
    self.epoch_loop._batches_that_stepped -= 1
    connector.update_train_epoch_metrics()
    self.epoch_loop._batches_that_stepped += 1


fit_loop._FitLoop.on_advance_end = on_advance_end


# manual-steps: the global step counts the training steps that updated, not the optimizers' steps.

_global_step = _EpochLoop.global_step.fget


def global_step(self):
    module = self.trainer.lightning_module
    if "manual-steps" not in _active or module is None or module.automatic_optimization:
        return _global_step(self)
    steps = self.manual_optimization.optim_step_progress.total.completed
    counted, at = getattr(self, "_counted", (0, 0))
    return counted if steps == at or self._in_step else counted + 1


def manual_advance(self, kwargs):
    loop = self.trainer.fit_loop.epoch_loop
    before = self.optim_step_progress.total.completed
    loop._in_step = True
    _manual_advance(self, kwargs)
    loop._in_step = False
    after = self.optim_step_progress.total.completed
    loop._left_out = after == before and "skipped-batch" in _active
    counted = getattr(loop, "_counted", (0, 0))[0]
    loop._counted = (counted + (after > before), after)


_EpochLoop._in_step = False
_EpochLoop.global_step = property(global_step)
_Manual = training_epoch_loop._ManualOptimization
_manual_advance = _Manual.advance
_Manual.advance = manual_advance


# save-last: on unless set. last-at-end: the run's end is a newest checkpoint too.
# last-is-link: `last` is a link to the newest, which is kept beside the best.


class Checkpoint(ModelCheckpoint):
    newest = None

    def _save_checkpoint(self, trainer, filepath):
        super()._save_checkpoint(trainer, filepath)
        progress = trainer.fit_loop.epoch_progress.current
        ended = progress.ready == progress.completed and progress.completed > 0
        self.newest = f"epoch={trainer.current_epoch - ended}-step={trainer.global_step}"

    def on_train_end(self, trainer, pl_module):
        super().on_train_end(trainer, pl_module)
        if "last-at-end" not in _active or not self.save_last or trainer.fast_dev_run:
            return
        if trainer.global_step not in (0, self._last_global_step_saved):
            self._save_last_checkpoint(trainer, self._monitor_candidates(trainer))

    def _should_save_on_train_epoch_end(self, trainer):
        often = validates_often(trainer) and self._save_on_train_epoch_end is None
        return not often and super()._should_save_on_train_epoch_end(trainer)


# count-of-one: val_check_interval = 1 is after each batch, and 1.0 after each epoch. Lightning's
# callbacks take both for the latter, where it is not set when they look.


def validates_often(trainer):
    is_one = type(trainer.val_check_interval) is int and trainer.val_check_interval == 1
    return "count-of-one" in _active and is_one and sum(trainer.num_val_batches) > 0


class Stopping(EarlyStopping):
    def on_train_start(self, trainer, pl_module):
        if self.looks_unset and validates_often(trainer):
            self._check_on_train_epoch_end = False

    def __init__(self, **options):
        super().__init__(**options)
        self.looks_unset = options.get("check_on_train_epoch_end") is None


def checkpoint_options(options):
    if "save-last" in _active and "save_last" not in options:
        return {**options, "save_last": True}
    return options


def files(kept, newest):
    """What is kept, as levin's folder would show it."""
    if "last-is-link" in _active and newest:
        kept |= {"last": newest, "kept": sorted({*kept["kept"], newest})}
    return kept


# row-step: a row has the number of steps that were taken, not the index of the last.


def row_step(trainer, step):
    if "row-step" not in _active or trainer.state.fn != TrainerFn.FITTING or _step_of_evaluation[0]:
        return step
    # Validation comes before a step is counted, unless there was none.
    return step + (not (trainer.validating and trainer.fit_loop.epoch_loop._left_out))


_step_of_evaluation = [False]
_Connector = logger_connector._LoggerConnector
_update_eval_step_metrics = _Connector.update_eval_step_metrics


def update_eval_step_metrics(self, step):
    _step_of_evaluation[0] = True
    _update_eval_step_metrics(self, step)
    _step_of_evaluation[0] = False


_Connector.update_eval_step_metrics = update_eval_step_metrics


# callbacks-last: of a hook, the module is told first.

_LAST = ("on_train_batch_end", "on_train_epoch_end")
_call_callback_hooks, _call_lightning_module_hook = (
    call._call_callback_hooks,
    call._call_lightning_module_hook,
)
_waiting_calls = []


def call_callback_hooks(trainer, hook_name, *arguments, monitoring_callbacks=None, **options):
    def now():
        _call_callback_hooks(
            trainer, hook_name, *arguments, monitoring_callbacks=monitoring_callbacks, **options
        )

    if "callbacks-last" in _active and hook_name in _LAST and monitoring_callbacks is not True:
        _waiting_calls.append((hook_name, now))
    else:
        now()


def call_lightning_module_hook(trainer, hook_name, *arguments, **options):
    result = _call_lightning_module_hook(trainer, hook_name, *arguments, **options)
    if _waiting_calls and _waiting_calls[0][0] == hook_name:
        _waiting_calls.pop()[1]()
    return result


call._call_callback_hooks = call_callback_hooks
call._call_lightning_module_hook = call_lightning_module_hook


# epoch-means-resumed: a resumed epoch's mean is over the whole of it.

_saved_values = {}


def save_values(trainer, checkpoint):
    """Beside the checkpoint: values know their trainer, and cannot be pickled."""
    place = checkpoint["values"] = len(_saved_values)
    results = trainer.fit_loop.epoch_loop._results
    values = {key: copy.copy(metric) for key, metric in results.items()}
    _saved_values[place] = values, dict(trainer.callback_metrics)


def load_values(trainer, checkpoint):
    loop = trainer.fit_loop.epoch_loop
    values, metrics = _saved_values[checkpoint["values"]]
    if "metrics-resumed" in _active:
        loop._resumed_metrics = metrics
    if "epoch-means-resumed" not in _active:
        return
    loop._resumed = values
    for metric in loop._resumed.values():
        metric.meta = copy.copy(metric.meta)
        sync = metric.meta.sync
        metric.meta.sync = dataclasses.replace(sync, fn=trainer.strategy.reduce)


_on_run_start = _EpochLoop.on_run_start


def on_run_start(self, data_fetcher):
    _on_run_start(self, data_fetcher)
    values, self._resumed = self._resumed, None
    if values and self.batch_progress.current.ready > 0:
        self._results.update(values)
        self.trainer._logger_connector._first_loop_iter = True  # what comes next is not the first


# metrics-resumed: callback_metrics are part of a checkpoint.

_restore_training_state = checkpoint_connector._CheckpointConnector.restore_training_state


def restore_training_state(self):
    _restore_training_state(self)
    loop = self.trainer.fit_loop.epoch_loop
    self.trainer._logger_connector._callback_metrics.update(loop._resumed_metrics)


_EpochLoop._resumed_metrics = {}
checkpoint_connector._CheckpointConnector.restore_training_state = restore_training_state
_EpochLoop._resumed = None
_EpochLoop.on_run_start = on_run_start


# resumed-before-start: a resumed run stands at its epoch and step before it is told of loading.


def told(parts):
    if "resumed-before-start" not in _active:
        return parts
    at = next((place for place, part in enumerate(parts) if part[0] == "on_load_checkpoint"), None)
    if at is None:
        return parts
    _, epoch, step = next(part for part in parts if part[0] in ("on_train_start", "on_fit_end"))
    early = ("on_load_checkpoint", "on_fit_start")
    return [(hook, epoch, step) if hook in early else (hook, *rest) for hook, *rest in parts]
