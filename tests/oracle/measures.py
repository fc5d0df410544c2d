"""Lightning's Throughput, peak FLOP/s, FLOPs of a step, norms of gradients and psutil's numbers, for measures_test.cpp.

    python measures.py FOLDER     FOLDER gets data.safetensors, wanted.json and two folders like /proc
"""

import json
import pathlib
import sys
from unittest import mock

import psutil
import torch
from lightning.fabric.utilities import throughput
from lightning.pytorch.utilities import grad_norm
from safetensors.torch import save_file

from draw import uniform


def rates(world_size, with_lengths, with_flops):
    """After each of nine updates, whose times are those of measures_test.cpp."""
    one = throughput.Throughput(available_flops=2.5e6, world_size=world_size, window_size=4)
    after, time, samples, lengths = [], 0.0, 0, 0
    for i in range(9):
        time += 0.25 + 0.125 * (i % 3)
        samples += 8 + i % 2
        lengths += 100 + 7 * i
        one.update(time=time, batches=i + 1, samples=samples, lengths=lengths if with_lengths else None,
                   flops=1000 + 10 * i if with_flops else None)
        after.append(one.compute())
    return after


def peaks(names):
    found = {}
    for name in names:
        found[name] = {}
        with mock.patch("torch.cuda.get_device_name", return_value=name), \
             mock.patch("lightning.fabric.accelerators.cuda._is_ampere_or_later", return_value=True):
            for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
                torch.set_float32_matmul_precision("highest")
                found[name][str(dtype)] = throughput.get_available_flops(torch.device("cuda"), dtype)
            torch.set_float32_matmul_precision("high")
            found[name]["tf32"] = throughput.get_available_flops(torch.device("cuda"), torch.float32)
            torch.set_float32_matmul_precision("highest")
    return found


NAMES = ["NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090",
         "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4080", "NVIDIA L4", "NVIDIA RTX A6000", "NVIDIA A40", "NVIDIA A10G",
         "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 3080",
         "NVIDIA GeForce RTX 3070", "Tesla T4", "Quadro RTX 5000", "NVIDIA GeForce RTX 2080 SUPER",
         "NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 2070 SUPER", "NVIDIA TITAN RTX",
         "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB", "Tesla V100S-PCIE-32GB", "AMD Instinct MI300X"]


def step_flops():
    """The model of measures_test.cpp: forward, and with backward."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.ReLU(),
                                torch.nn.ConvTranspose2d(6, 4, 2, stride=2), torch.nn.Flatten(2), torch.nn.Linear(256, 10),
                                torch.nn.Flatten(), torch.nn.Linear(40, 7, bias=False))
    x = torch.zeros(5, 3, 8, 8)
    return {"forward": throughput.measure_flops(model, lambda: model(x)),
            "both": throughput.measure_flops(model, lambda: model(x), lambda y: y.sum())}


def norms(folder):
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(5, 3), "b": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4)),
                                 "unused": torch.nn.Linear(2, 2)})
    tensors = {}
    for name, parameter in model.named_parameters():
        if not name.startswith("unused"):
            parameter.grad = uniform(name, tuple(parameter.shape))
            tensors[name] = parameter.grad
    save_file(tensors, folder / "data.safetensors")
    return {str(p): {name: float(value) for name, value in grad_norm(model, p).items()} for p in (1.0, 2.0, 3.5, "inf")}


def cpu(folder):
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    stats = ["cpu  1000 20 300 5000 60 7 8 9 11 3\n", "cpu  1500 25 420 5400 90 9 10 12 31 4\n"]
    (proc / "meminfo").write_text("MemTotal:  16000000 kB\nMemFree:  2000000 kB\nMemAvailable:  6123456 kB\nBuffers:  100000 kB\n"
                                  "Cached:  3000000 kB\nSwapTotal:  4000000 kB\nSwapFree:  3456789 kB\nShmem: 1000 kB\nActive: 5 kB\nInactive: 6 kB\nSlab: 7 kB\n")
    (proc / "vmstat").write_text("pswpin 0\npswpout 0\n")
    (proc / "stat").write_text(stats[0])
    psutil.PROCFS_PATH = str(proc)
    psutil.cpu_percent()
    (proc / "stat").write_text(stats[1])
    wanted = {"cpu_percent": psutil.cpu_percent(), "cpu_vm_percent": psutil.virtual_memory().percent,
              "cpu_swap_percent": psutil.swap_memory().percent, "cpu_available_bytes": psutil.virtual_memory().available}
    (proc / "stat").write_text(stats[0])
    (folder / "stat_later").write_text(stats[1])
    return wanted


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    wanted = {"rates": {f"{world} {int(lengths)} {int(flops)}": rates(world, lengths, flops)
                        for world in (1, 3) for lengths in (False, True) for flops in (False, True)},
              "peaks": peaks(NAMES), "flops": step_flops(), "norms": norms(folder), "cpu": cpu(folder)}
    (folder / "wanted.json").write_text(json.dumps(wanted))
