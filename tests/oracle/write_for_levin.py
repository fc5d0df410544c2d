"""Writes a safetensors file by Python's library for levin to read: write_for_levin.py FILE."""

import sys

import safetensors.torch
import torch

NUMBERS = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}


def main():
    # 0, 1, ..., 5 in each dtype (all but the first true in bool).
    tensors = {name: torch.arange(6).view(2, 3).to(dtype) for name, dtype in NUMBERS.items()}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 4)}
    safetensors.torch.save_file(tensors, sys.argv[1], metadata={"note": "caf\u00e9"})


if __name__ == "__main__":
    main()
