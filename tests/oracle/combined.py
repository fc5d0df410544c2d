"""Batches of Lightning's CombinedLoader, for combined_loader_test.cpp.

    python combined.py FOLDER

Writes FOLDER/combined.txt. A case begins with a line "case MODE SIZE BATCH_SIZE ..." with a pair for each of the loaders a, b, c, ...
The lines after it are "length N", and for two epochs the batches, "a 0 1 2 b 0 1" with the samples of each loader, and "end".
"""

import itertools
import pathlib
import sys

import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import DataLoader

FORMS = ((1, 1), (4, 2), (5, 2), (6, 4), (15, 5), (3, 3), (2, 5))
PAIRS = [*itertools.product(FORMS, FORMS), *itertools.product(FORMS[1:4], FORMS[2:5], FORMS[4:]), *((form,) for form in FORMS)]
WITHOUT = [((0, 2), (5, 2)), ((5, 2), (0, 2)), ((0, 1), (0, 1)), ((4, 2), (0, 1), (5, 2))]


def text_of(parts):
    return " ".join(f"{name} {' '.join(str(i) for i in batch.tolist())}" for name, batch in parts if batch is not None)


with open(pathlib.Path(sys.argv[1]) / "combined.txt", "w") as file:
    for mode in ("min_size", "max_size_cycle", "max_size", "sequential"):
        for sizes in PAIRS + ([] if mode == "max_size_cycle" else WITHOUT):
            print("case", mode, *itertools.chain(*sizes), file=file)
            names = "abc"[: len(sizes)]
            loaders = {name: DataLoader(torch.arange(size), batch_size=batch) for name, (size, batch) in zip(names, sizes)}
            combined = CombinedLoader(loaders, mode)
            iter(combined)
            print("length", len(combined), file=file)
            for _ in range(2):
                for batch, _, index in combined:
                    parts = [(names[index], batch)] if mode == "sequential" else batch.items()
                    print(text_of(parts), file=file)
                print("end", file=file)
