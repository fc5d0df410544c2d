"""Writes what PyTorch saves into a folder for levin to read: write_torch.py FOLDER."""

import collections
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


class Settings:
    """A class that levin does not know."""

    def __init__(self):
        self.width = 3


def write_files(folder):
    dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
              torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.uint16]
    tensors = {str(dtype): torch.arange(6).view(2, 3).to(dtype) for dtype in dtypes}
    everything = torch.arange(12.0)
    torch.save({
        "tensors": tensors,
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "tail": everything[4:],  # shares its storage
        "all": everything,
        "conjugated": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "numbers": {"int": -(2**40), "float": 0.5, "true": True, "none": None, 7: "seven"},
        "list": [1, (2, torch.tensor(3)), []],
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
    }, folder / "everything.pt")
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.nn.init.constant_(module[0].weight, 0.25)
    torch.save(module.state_dict(), folder / "pytorch_model.bin")
    torch.save({"state_dict": module.state_dict(), "epoch": 3, "hyper_parameters": Settings()},
               folder / "lightning.ckpt")
    torch.save(collections.OrderedDict(a=torch.ones(2)), folder / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(module, folder / "module.pt")
    torch.save(module, folder / "old_module.pt", _use_new_zipfile_serialization=False)
    torch.jit.script(module).save(folder / "script.pt")
    torch.export.save(torch.export.export(module.eval(), (torch.ones(4, 3),)), folder / "program.pt2")
    write_odd_tensors(folder)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.125)
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")


def write_odd_tensors(folder):
    odd = {
        "a": torch.arange(3.0),
        "b.tagged": torch.nn.Parameter(torch.arange(4.0)),
        "c.noted": torch.arange(5.0),
        "buffer": torch.nn.Buffer(torch.arange(6.0)),
        "sparse": torch.eye(3).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged),
        "meta": torch.empty(3, device="meta"),
        "quantized": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "pairs": torch.arange(12, dtype=torch.uint8).view(3, 4).view(torch.float4_e2m1fn_x2),
    }
    odd["b.tagged"].tag = "x"
    odd["c.noted"].note = 3
    torch.save(odd, folder / "odd.pt")
    torch.save(odd, folder / "old_odd.pt", _use_new_zipfile_serialization=False)
    save_file({"pairs": odd["pairs"], "a": odd["a"]}, folder / "pairs.safetensors")


def write_shards(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    dcp.save({
        "model": {
            "rows.weight": distribute_tensor(torch.arange(15.0).view(5, 3), mesh, [Shard(0)]),
            "columns": distribute_tensor(torch.arange(8).view(2, 4), mesh, [Shard(1)]),
            "bias": torch.full((2,), 0.5),
        },
        "optim": {"state": {0: {"step": torch.tensor(4.0)}}},
        "step": 5,
        "name": "run",
    }, checkpoint_id=folder / "distributed")
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    target = pathlib.Path(sys.argv[1])
    write_files(target)
    mp.spawn(write_shards, args=(target,), nprocs=2)
