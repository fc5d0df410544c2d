"""Metrics of tasks by scikit-learn, seqeval and scipy, over data that task_metrics_test.cpp reads.

    python task_metrics.py FOLDER     FOLDER gets data.safetensors and wanted.json
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from scipy.stats import spearmanr
from seqeval.metrics import f1_score as entity_f1
from sklearn.metrics import accuracy_score, f1_score, log_loss, top_k_accuracy_score

from draw import integers, uniform

IGNORED = -100
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]


def classes(data, wanted):
    """Of 200 texts and 6 classes, of which labels have 5; every ninth does not count."""
    scores, labels = uniform("class scores", (200, 6)), integers("classes", (200,), 5)
    scores[::2].scatter_(1, labels[::2, None], 2.0)
    labels[::9] = IGNORED
    data.update({"classes.scores": scores, "classes.labels": labels})
    counts = labels != IGNORED
    right, found = labels[counts].numpy(), scores.argmax(1)[counts].numpy()
    wanted.update({"accuracy": accuracy_score(right, found), "f1_macro": f1_score(right, found, average="macro", zero_division=0),
                   "top_3": top_k_accuracy_score(right, scores[counts].numpy(), k=3, labels=range(6))})


def two_classes(data, wanted):
    scores, labels = uniform("two scores", (90, 2)), integers("two", (90,), 2)
    data.update({"two.scores": scores, "two.labels": labels})
    wanted["f1_binary"] = f1_score(labels.numpy(), scores.argmax(1).numpy(), average="binary")
    data["two.classes"] = scores.argmax(1)


def entities(data, wanted):
    """Tags at random, half of them right: entities that begin with I, that touch, that change their type."""
    labels, found = integers("tags", (40, 15), len(TAGS)), integers("other tags", (40, 15), len(TAGS))
    found = torch.where(integers("which", (40, 15), 4) > 0, labels, found)
    labels[:, 12:][integers("ends", (40, 3), 2) == 1] = IGNORED
    data.update({"entities.found": found, "entities.labels": labels})
    names = [[[TAGS[value] for value, label in zip(row, right) if label != IGNORED] for row, right in zip(table.tolist(), labels.tolist())]
             for table in (labels, found)]
    wanted["entity_f1"] = entity_f1(*names)


def numbers(data, wanted):
    """With ties on both sides."""
    found, labels = (uniform("found", (150,)) * 20).round(), (uniform("right", (150,)) * 4).round()
    found = (found + 3 * labels).round()
    data.update({"numbers.found": found, "numbers.labels": labels})
    wanted["spearman"] = spearmanr(found.numpy(), labels.numpy()).statistic


def neighbours(data, wanted):
    texts = uniform("texts", (120, 8))
    answers = texts + uniform("noise", (120, 8), 0.9)
    data.update({"neighbours.texts": texts, "neighbours.answers": answers})
    cosines = torch.nn.functional.cosine_similarity(texts.double()[:, None], answers.double()[None], dim=-1).numpy()
    for k in (1, 3, 10):
        wanted[f"recall_{k}"] = top_k_accuracy_score(range(120), cosines, k=k, labels=range(120))


def tokens(data, wanted):
    """Perplexity: log_loss is the mean of -log p over all tokens that count."""
    scores, labels = uniform("token scores", (5, 30, 11), 3.0), integers("tokens", (5, 30), 11)
    labels[1, 4:] = IGNORED
    labels[3, :25] = IGNORED
    data.update({"tokens.scores": scores, "tokens.labels": labels})
    counts = labels != IGNORED
    mean = log_loss(labels[counts].numpy(), scores[counts].double().softmax(-1).numpy(), labels=range(11))
    wanted["perplexity"] = float(torch.tensor(mean, dtype=torch.float64).exp())


def main():
    folder, data, wanted = pathlib.Path(sys.argv[1]), {}, {}
    for make in (classes, two_classes, entities, numbers, neighbours, tokens):
        make(data, wanted)
    save_file(data, folder / "data.safetensors")
    (folder / "wanted.json").write_text(json.dumps({name: float(value) for name, value in wanted.items()}))


if __name__ == "__main__":
    main()
