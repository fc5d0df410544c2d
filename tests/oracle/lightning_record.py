"""What a fit, a validate or a test did, in a short form in which differences can be told."""

import math

import lightning_meant as meant

BATCH_SIZE = 4
# One letter a hook; those that levin has too.
LETTERS = {
    "prepare_data": "p",
    "setup": "s",
    "configure_model": "m",
    "teardown": "q",
    "on_fit_start": "f",
    "on_fit_end": "F",
    "on_sanity_check_start": "y",
    "on_sanity_check_end": "Y",
    "on_train_start": "t",
    "on_train_end": "T",
    "on_train_epoch_start": "e",
    "on_train_epoch_end": "E",
    "on_before_batch_transfer": "x",
    "on_after_batch_transfer": "X",
    "on_train_batch_start": "b",
    "on_train_batch_end": "B",
    "training_step": "S",
    "on_before_zero_grad": "z",
    "on_before_backward": "d",
    "on_after_backward": "D",
    "on_before_optimizer_step": "o",
    "on_validation_start": "v",
    "on_validation_end": "V",
    "on_validation_epoch_start": "w",
    "on_validation_epoch_end": "W",
    "on_validation_batch_start": "c",
    "on_validation_batch_end": "C",
    "validation_step": "n",
    "on_test_start": "h",
    "on_test_end": "H",
    "on_test_epoch_start": "j",
    "on_test_epoch_end": "J",
    "on_test_batch_start": "k",
    "on_test_batch_end": "K",
    "test_step": "N",
    "on_load_checkpoint": "l",
}


def shown(value):
    """A number as the golden file keeps it."""
    value = float(value)
    if math.isnan(value) or math.isinf(value):
        return str(value)
    return float(f"{value:.7g}")


def shown_metrics(metrics):
    return {name: shown(value) for name, value in sorted(metrics.items())}


class Story:
    """Hooks as text, a letter each; '+' and '^': the global step and the epoch went on."""

    def __init__(self):
        self.parts = []

    def tell(self, hook, epoch, step):
        self.parts.append((hook, epoch, step))

    def text(self):
        text, before = "", (0, 0)
        for hook, epoch, step in meant.told(self.parts):
            if epoch != before[0]:
                text += "^" if epoch == before[0] + 1 else f"<e{epoch}>"
            if step != before[1]:
                text += "+" if step == before[1] + 1 else f"<s{step}>"
            before = epoch, step
            text += LETTERS[hook]
        return text


def shortened(text):
    """abcabcabc as (abc)3, where that is shorter; the test reads it back."""
    result, at = "", 0
    while at < len(text):
        best = (0, 1, 1)
        for length in range(2, 60):
            unit = text[at : at + length]
            if len(unit) < length or "(" in unit:
                break
            count = 1
            while text[at + count * length : at + (count + 1) * length] == unit:
                count += 1
            saved = (count - 1) * length - 2 - len(str(count))
            if saved > best[0]:
                best = (saved, length, count)
        saved, length, count = best
        if saved <= 0:
            result += text[at]
            at += 1
        else:
            result += f"({text[at:at + length]}){count}"
            at += length * count
    return result


class Record:
    """What one fit, validate or test did."""

    def __init__(self, ranks):
        self.stride = BATCH_SIZE * ranks
        self.module, self.callback = Story(), Story()
        self.batches, self.rates, self.rows, self.rate_rows, self.metrics = [], [], [], [], []
        self.stretch, self.seen = None, {}

    def read(self, kind, epoch, index, first, rows):
        """One batch; those that follow one another stand as one, t0.0-3:0x4."""
        stretch = self.stretch
        follows = stretch and stretch[:2] == [kind, epoch] and stretch[3] + 1 == index
        if (
            follows
            and stretch[4] + self.stride * (index - stretch[2]) == first
            and stretch[5] == rows
        ):
            stretch[3] = index
            self.batches.pop()
        else:
            self.stretch = stretch = [kind, epoch, index, index, first, rows]
        last = "" if stretch[2] == stretch[3] else f"-{stretch[3]}"
        self.batches.append(f"{kind}{epoch}.{stretch[2]}{last}:{stretch[4]}x{rows}")

    def rate(self, rates):
        if self.rates and self.rates[-1][0] == rates:
            self.rates[-1][1] += 1
        else:
            self.rates.append([rates, 1])

    def look(self, where, metrics):
        """callback_metrics: what is new in them since the last look; null: what is gone."""
        new = {name: value for name, value in metrics.items() if self.seen.get(name) != value}
        gone = {name: None for name in self.seen if name not in metrics}
        self.seen = metrics
        self.metrics.append([where, {**new, **gone}])

    def facts(self):
        return {
            "module": shortened(self.module.text()),
            "callback": shortened(self.callback.text()),
            "batches": " ".join(self.batches),
            "rates": self.rates,
            "rows": self.rows,
            "rate_rows": self.rate_rows,
            "metrics": self.metrics,
        }
