"""Runs the Python of docs/python.md: guide.py FOLDER writes there what it writes, of a small network."""

import os
import pathlib
import re
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 10)

    def forward(self, image):
        return self.head(self.norm(self.conv(image)).relu().mean((2, 3)))


guide = pathlib.Path(__file__).resolve().parents[2] / "docs/python.md"
blocks = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.MULTILINE | re.DOTALL)
os.chdir(sys.argv[1])
torch.manual_seed(0)
given = {"Net": Net, "images": torch.randn(4, 1, 28, 28)}
for block in blocks:
    exec(block, given)
print(f"{len(blocks)} blocks")
