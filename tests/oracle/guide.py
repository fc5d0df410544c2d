"""Runs the Python of the guides, docs/python.md and docs/checkpoints.md, on a small network: guide.py FOLDER writes there what it writes,
and finds there net.pt and exported.pt2, which levin has written."""

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


docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
blocks = []
for name in ("python.md", "checkpoints.md"):
    blocks += re.findall(r"^```python\n(.*?)^```$", (docs / name).read_text(), re.MULTILINE | re.DOTALL)
os.chdir(sys.argv[1])
torch.manual_seed(0)
given = {"torch": torch, "Net": Net, "images": torch.randn(4, 1, 28, 28)}
for block in blocks:
    exec(block, given)
print(f"{len(blocks)} blocks")
