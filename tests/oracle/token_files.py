"""Token files as NumPy writes them, and the windows of nanoGPT's get_batch, for token_files_test.cpp.

    python token_files.py FOLDER

Writes FOLDER/NAME.bin for each dtype, FOLDER/megatron.bin with megatron.idx (the format of Megatron-LM's IndexedDataset), and
FOLDER/wanted.safetensors: NAME.x, NAME.y, the windows of 16 tokens, and megatron.N, its sequences.
"""

import pathlib
import struct
import sys

import numpy as np
import safetensors.numpy

folder = pathlib.Path(sys.argv[1])
draw = np.random.default_rng(3)
wanted = {}
LENGTH = 16
for dtype in ("uint8", "uint16", "uint32", "int32", "int64"):
    high = min(np.iinfo(dtype).max, 2**40)
    draw.integers(0, high, 1003, dtype=dtype, endpoint=True).tofile(folder / f"{dtype}.bin")
    data = np.memmap(folder / f"{dtype}.bin", dtype=dtype, mode="r")
    starts = range(0, len(data) - LENGTH, LENGTH)
    wanted[f"{dtype}.x"] = np.stack([data[i : i + LENGTH].astype(np.int64) for i in starts])
    wanted[f"{dtype}.y"] = np.stack([data[i + 1 : i + 1 + LENGTH].astype(np.int64) for i in starts])

sequences = [draw.integers(0, 50257, length, dtype=np.uint16) for length in (5, 0, 900, 1, 33)]
lengths = np.array([len(sequence) for sequence in sequences], np.int32)
pointers = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64) * 2]).astype(np.int64)
(folder / "megatron.bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
with open(folder / "megatron.idx", "wb") as index:
    index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(sequences), 4))
    index.write(lengths.tobytes() + pointers.tobytes() + np.array([0, 2, 3, 5], np.int64).tobytes())
for i, sequence in enumerate(sequences):
    wanted[f"megatron.{i}"] = sequence.astype(np.int64)
safetensors.numpy.save_file(wanted, folder / "wanted.safetensors")
