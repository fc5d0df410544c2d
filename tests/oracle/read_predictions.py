"""Reads files of predictions that levin wrote, by numpy and safetensors, and compares them with the rows that they are to hold.

    read_predictions.py EXPECTED.safetensors FILE...

A file's name ends in npy, csv or safetensors. EXPECTED has the tensor "rows"; the files, one after the other, have these rows. Exit
code 1 and the difference otherwise.
"""

import sys

import numpy
from safetensors.numpy import load_file


def rows_of(path, like):
    if path.endswith(".npy"):
        return numpy.load(path, allow_pickle=False)
    if path.endswith(".csv"):
        with open(path, encoding="ascii") as file:
            names = file.readline().strip().split(",")
        columns = int(numpy.prod(like.shape[1:]))
        wanted = ["prediction"] if columns == 1 else [f"prediction_{i}" for i in range(columns)]
        if names != wanted:
            sys.exit(f"{path} has the columns {names}")
        table = numpy.loadtxt(path, delimiter=",", skiprows=1, dtype="float64" if like.dtype.kind == "f" else "int64", ndmin=2)
        return table.reshape((-1, *like.shape[1:])).astype(like.dtype)
    tensors = load_file(path)
    if list(tensors) != ["predictions"]:
        sys.exit(f"{path} has {list(tensors)}")
    return tensors["predictions"]


wanted = load_file(sys.argv[1])["rows"]
parts = [rows_of(path, wanted) for path in sys.argv[2:]]
got = numpy.concatenate(parts)
if got.dtype != wanted.dtype or got.shape != wanted.shape or not numpy.array_equal(got, wanted):
    sys.exit(f"got {got.dtype} {got.shape}\n{got}\nwanted {wanted.dtype} {wanted.shape}\n{wanted}")
