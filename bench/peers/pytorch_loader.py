"""PyTorch's DataLoader over uint8 images in memory: normalised one by one, or --mode whole batches."""

import json
import time

import torch
from torch.utils.data import DataLoader, Dataset

import work

BATCH_SIZE, MEAN, STD = 64, 0.2860, 0.3530


def images_and_labels(count):
    v = torch.arange(count * 784, dtype=torch.int32).mul_(31).bitwise_right_shift_(3)
    return v.bitwise_and_(255).to(torch.uint8).view(count, 1, 28, 28), torch.arange(count) % 10


class Images(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index].float().div_(255.0).sub_(MEAN).div_(STD), self.labels[index]


def whole_batches(images, labels):
    for indices in torch.randperm(len(images)).split(BATCH_SIZE):
        yield images[indices].float().div_(255.0).sub_(MEAN).div_(STD), labels[indices]


def main():
    arguments = work.arguments()
    images, labels = images_and_labels(arguments.images)
    loader = DataLoader(Images(images, labels), batch_size=BATCH_SIZE, shuffle=True,
                        num_workers=arguments.workers, persistent_workers=arguments.workers > 0)
    def epoch(batches, with_mean):
        began, total, count = time.perf_counter(), 0.0, 0
        for x, y in batches:
            count += len(y)
            if with_mean:
                total += x.sum(dtype=torch.float64).item()
        return time.perf_counter() - began, total / (count * 784)

    def batches():
        return whole_batches(images, labels) if arguments.mode == "whole" else loader

    _, mean = epoch(batches(), True)  # starts the workers, too
    seconds, epochs = 0.0, 0
    while seconds < 1.0:
        seconds += epoch(batches(), False)[0]
        epochs += 1
    rate = arguments.images * epochs / seconds
    print("\n" + json.dumps({"images_per_s": rate, "mean": mean}))


if __name__ == "__main__":
    main()
