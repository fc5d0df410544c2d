"""Runs one of the Python files that the first comment of examples/18_from_python.cpp holds: from_python.py FILE FOLDER."""

import os
import pathlib
import re
import sys

import torch  # run_scripts.py imports it once for all

example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "18_from_python.cpp"
comment = [line[3:] for line in example.read_text().split("#include")[0].splitlines()]
files = {}
name = None
for line in comment:
    heading = re.match(r"(\w+\.py)\b.*:$", line)
    if heading:
        name = heading.group(1)
        files[name] = []
    elif name:
        files[name].append(line[2:])

os.chdir(sys.argv[2])
torch.manual_seed(3)
exec("\n".join(files[sys.argv[1]]), {})
