"""Accuracy in plain torch, also over batches of different size."""

from draw import integers, uniform

SAMPLES, CLASSES = 37, 10
BATCHES = [16, 16, 5]


def accuracy(logits, labels, k):
    hits = (logits.topk(k, dim=1).indices == labels[:, None]).any(dim=1)
    return hits.double().mean().item()


def make():
    logits = uniform("logits", (SAMPLES, CLASSES))
    labels = integers("labels", (SAMPLES,), CLASSES)
    # Every third sample right, so that top-1 is not mere chance.
    logits[::3].scatter_(1, labels[::3, None], 2.0)
    facts = {"batches": BATCHES}
    for k in (1, 5):
        parts = zip(logits.split(BATCHES), labels.split(BATCHES))
        facts[f"top{k}"] = accuracy(logits, labels, k)
        facts[f"top{k}_batches"] = [accuracy(*part, k) for part in parts]
    return {"logits": logits, "labels": labels}, facts
