"""Metrics by torchmetrics, over drawn data, in batches; torch_metrics_test.cpp reads them.

    python torch_metrics.py FOLDER     FOLDER gets data.safetensors and cases.json

A case has the metric's name in levin, its options, the keys of its data, the sizes of its batches, and torchmetrics' value: a
number or nested lists, null for NaN.
"""

import itertools
import json
import math
import pathlib
import sys
import warnings

import torch
import torchmetrics
from safetensors.torch import save_file
from torchmetrics import regression
from torchmetrics.text import Perplexity

from draw import integers, uniform

CLASSES, LABELS = 5, 3
SIZES = [16, 1, 23, 8]
SAMPLES = sum(SIZES)
STATS = {"Precision": {}, "Recall": {}, "Specificity": {}, "Accuracy": {}, "F1Score": {}, "FBetaScore": {"beta": 0.5}}
AVERAGES = ("micro", "macro", "weighted", "none")

data, cases = {}, []


def as_lists(value):
    if isinstance(value, list):
        return [as_lists(part) for part in value]
    return None if math.isnan(value) else float(value)


def shown(options):
    return {name: value for name, value in options.items() if value is not None}


def add(name, kind, options, found, wanted, double=False, **own):
    """The case of a metric; `own`: options that torchmetrics takes and levin writes otherwise."""
    metric = kind(**options, **own)
    if double:
        metric.set_dtype(torch.float64)
    for part, right in zip(data[found].split(SIZES), data[wanted].split(SIZES)):
        if part.numel() > 0:
            metric.update(part.double() if double else part, right.double() if double else right)
    cases.append({"metric": name, "options": shown({**options, **own}), "found": found, "wanted": wanted, "sizes": SIZES,
                  "value": as_lists(metric.compute().tolist())})


def keep(name, found, wanted):
    data[f"{name}.found"], data[f"{name}.wanted"] = found.clone().contiguous(), wanted.clone().contiguous()
    return f"{name}.found", f"{name}.wanted"


def ignoring(wanted, value):
    """Every fourth label, and all of the second batch, do not count."""
    wanted = wanted.clone()
    wanted[::4] = value
    wanted[SIZES[0]] = value
    return wanted


def classified(name, task, wanted, scores):
    """Inputs of a task: logits, probabilities with ties, 0 and 1 or classes; labels that do not count; classes without a sample."""
    logits = 3 * scores + 2 * (torch.nn.functional.one_hot(wanted, CLASSES).movedim(-1, 1) if task == "multiclass" else 2 * wanted - 1)
    normal = logits.softmax(1) if task == "multiclass" else logits.sigmoid()
    ties = (normal * 4).round() / 4
    classes = normal.argmax(1) if task == "multiclass" else (normal > 0.5).long()
    forms = {"logits": logits, "ties": ties, "classes": classes}
    if ".drawn" in name:
        forms["half"] = normal.half()
    for form, found in forms.items():
        yield form, None, *keep(f"{name}.{form}", found, wanted)
        if form == "ties" or (form == "logits" and ".drawn" in name):
            for ignore in (-1, 1):
                yield form, ignore, *keep(f"{name}.{form}.{ignore}", found, ignoring(wanted, ignore))


def stat_scores(task, form, ignore, found, wanted, sizes):
    has_scores = form != "classes"
    averages = ("micro",) if task == "binary" else AVERAGES
    is_drawn = ".drawn." in found
    thresholds = (0.5, 0.3) if task != "multiclass" and has_scores and is_drawn else (0.5,)
    top_ks = ((1, 2, 3) if is_drawn else (1, 2)) if task == "multiclass" and has_scores else (1,)
    for (name, own), average, threshold, top_k in itertools.product(STATS.items(), averages, thresholds, top_ks):
        options = {"task": task, **sizes, "average": average, "ignore_index": ignore}
        if task != "multiclass":
            options["threshold"] = threshold
        else:
            options["top_k"] = top_k
        for zero in (0, 1) if name in ("Precision", "Recall", "F1Score", "FBetaScore") and top_k == 1 and threshold == 0.5 else (0,):
            add(name, getattr(torchmetrics, name), {**options, **({"zero_division": 1} if zero else {})}, found, wanted, **own)
    for normalize in ("none", "true", "pred", "all") if form in ("ties", "classes") else ("none",):
        options = {"task": task, **sizes, "ignore_index": ignore}
        add("ConfusionMatrix", torchmetrics.ConfusionMatrix, options, found, wanted, normalize=normalize)


def curves(task, form, ignore, found, wanted, sizes):
    averages = {"binary": ("macro",), "multiclass": ("macro", "weighted", "none"), "multilabel": AVERAGES}[task]
    for average, thresholds in itertools.product(averages, (None, 2, 5, 100)):
        options = {"task": task, **sizes, "average": average, "thresholds": thresholds, "ignore_index": ignore}
        for name, kind in (("AUROC", torchmetrics.AUROC), ("AveragePrecision", torchmetrics.AveragePrecision)):
            add(name, kind, options, found, wanted)
        if task == "binary":
            for max_fpr in (0.1, 0.5, 1.0):
                add("AUROC", torchmetrics.AUROC, {**options, "max_fpr": max_fpr}, found, wanted)


def classification():
    shapes = {"flat": (SAMPLES,), "deep": (SAMPLES, 2)}
    for task, (shape_name, shape) in itertools.product(("binary", "multiclass", "multilabel"), shapes.items()):
        sizes = {"multiclass": {"num_classes": CLASSES}, "multilabel": {"num_labels": LABELS}, "binary": {}}[task]
        for kind in ("drawn", "absent", "alone"):
            name = f"{task}.{shape_name}.{kind}"
            if shape_name == "deep" and kind != "drawn":
                continue
            width = {"multiclass": (CLASSES,), "multilabel": (LABELS,), "binary": ()}[task]
            score_shape = (shape[0], *width, *shape[1:])
            label_shape = shape if task == "multiclass" else score_shape
            below = CLASSES if task == "multiclass" else 2
            labels = integers(name, label_shape, below)
            if kind == "absent":  # a class without samples, or a label that no sample has
                labels = labels.clamp(max=CLASSES - 2) if task == "multiclass" else labels * torch.tensor(
                    [1, 0, 1] if task == "multilabel" else 1)
            if kind == "alone":  # one class, or positives, alone
                labels = torch.zeros_like(labels) if task != "multilabel" else torch.ones_like(labels)
            for form, ignore, found, wanted in classified(name, task, labels, uniform(name + " scores", score_shape)):
                stat_scores(task, form, ignore, found, wanted, sizes)
                if form != "classes" and (form, ignore) not in left_out(task, kind):
                    curves(task, form, ignore, found, wanted, sizes)


def left_out(task, kind):
    """torchmetrics cannot compute the curve of a label all of whose samples are ignored."""
    return [("logits", 1), ("ties", 1)] if task == "multilabel" and kind == "alone" else []


def numbers():
    for outputs, offset in itertools.product((1, 3), (0.0, 50.0)):
        shape = (SAMPLES,) if outputs == 1 else (SAMPLES, outputs)
        name = f"numbers.{outputs}.{offset}"
        wanted = uniform(name, shape, 4.0) + offset
        found = wanted + uniform(name + " noise", shape, 2.0)
        keys = [keep(name, found, wanted), keep(name + ".ties", found.round(), wanted.round())]
        for found_key, wanted_key in keys:
            sized = {"num_outputs": outputs}
            add("MeanAbsoluteError", regression.MeanAbsoluteError, sized, found_key, wanted_key, double=True)
            for squared in (True, False):
                add("MeanSquaredError", regression.MeanSquaredError, {**sized, "squared": squared}, found_key, wanted_key, double=True)
            add("PearsonCorrCoef", regression.PearsonCorrCoef, sized, found_key, wanted_key, double=True)
            add("SpearmanCorrCoef", regression.SpearmanCorrCoef, sized, found_key, wanted_key, double=True)
            for multioutput, adjusted in itertools.product(("uniform_average", "raw_values", "variance_weighted"), (0, 5, SAMPLES - 1, 99)):
                add("R2Score", regression.R2Score, {"multioutput": multioutput, "adjusted": adjusted}, found_key, wanted_key, double=True)
                cases[-1]["options"].update(sized)
    # What does not vary.
    found, wanted = keep("numbers.constant", uniform("some", (SAMPLES,)), torch.full((SAMPLES,), 0.25))
    for one, other in ((found, wanted), (wanted, found), (wanted, wanted)):
        for name in ("R2Score", "SpearmanCorrCoef", "PearsonCorrCoef"):
            add(name, getattr(regression, name), {}, one, other, double=True)
    # Errors of tensors of any shape.
    keys = keep("numbers.deep", uniform("deep", (SAMPLES, 2, 3)), uniform("other", (SAMPLES, 2, 3)))
    for name in ("MeanAbsoluteError", "MeanSquaredError"):
        add(name, getattr(regression, name), {}, *keys, double=True)


def tokens():
    logits, labels = uniform("tokens", (SAMPLES, 7, 11), 4.0), integers("token labels", (SAMPLES, 7), 11)
    add("Perplexity", Perplexity, {}, *keep("tokens", logits, labels))
    for ignore in (-100, 3):
        add("Perplexity", Perplexity, {"ignore_index": ignore}, *keep(f"tokens.{ignore}", logits, ignoring(labels, ignore)))


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = pathlib.Path(sys.argv[1])
    classification()
    numbers()
    tokens()
    save_file(data, folder / "data.safetensors")
    (folder / "cases.json").write_text(json.dumps(cases))


if __name__ == "__main__":
    main()
