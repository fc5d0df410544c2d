"""PyTorch's numbers for tests/gpu/reference_test.cpp, on the device that the test computes on.

    python3 reference.py FOLDER...

In each, case.json says what to train: {"device": "cuda", "net": "mlp", "dtype": "bfloat16", "optimizer": "SGD",
"lr": 0.1, "max_norm": 0.0, "overflows": [3], "scaler": {...} or null}. tensors.safetensors has the
initial weights, "inputs" [steps, batch, ...] and "labels" [steps, batch]. reference.json gets {"losses": [...],
"scales": [...], "weights": {name: [...]}, "torch": "2.11.0"}; a loss's scale is the one that it was multiplied by.
"""

import json
import math
import struct
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


def read_safetensors(path):
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def network(name):
    nn = torch.nn
    if name == "mlp":
        return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 3),
    )


def train(case, tensors):
    device = case["device"]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    inputs, labels = tensors.pop("inputs").to(device), tensors.pop("labels").to(device)
    module = network(case["net"])
    module.load_state_dict(tensors)
    module.to(device).train()
    optimizer = getattr(torch.optim, case["optimizer"])(module.parameters(), lr=case["lr"])
    scaled = case["scaler"] is not None
    scaler = torch.amp.GradScaler(device, enabled=scaled, **(case["scaler"] or {}))
    losses, scales = [], []
    for step in range(len(inputs)):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=getattr(torch, case["dtype"])):
            outputs = module(inputs[step])
        loss = cross_entropy(outputs.float(), labels[step])
        losses.append(loss.item())
        if step in case["overflows"]:
            loss = loss * math.inf
        scales.append(scaler.get_scale())
        scaler.scale(loss).backward()
        if case["max_norm"] > 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), case["max_norm"])
        scaler.step(optimizer)
        scaler.update()
    weights = {name: value.double().flatten().tolist() for name, value in module.state_dict().items()}
    return {"losses": losses, "scales": scales, "weights": weights, "torch": torch.__version__}


def main():
    for folder in map(Path, sys.argv[1:]):
        case = json.loads((folder / "case.json").read_text())
        facts = train(case, read_safetensors(folder / "tensors.safetensors"))
        (folder / "reference.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
