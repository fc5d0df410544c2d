"""Which part of a tensor each rank holds under DTensor."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

# Sizes of the whole, of the mesh, and the dim that each axis shards (None: it replicates).
CASES = [
    ([8], [4], [0]),
    ([5], [4], [0]),
    ([3], [4], [0]),
    ([7], [3], [0]),
    ([0], [2], [0]),
    ([1], [8], [0]),
    ([5, 3], [4], [1]),
    ([5, 7], [2, 3], [0, 1]),
    ([5, 7], [2, 3], [1, 0]),
    ([10], [2, 2], [0, 0]),
    ([7], [2, 2], [0, 0]),
    ([5], [2, 3], [0, 0]),
    ([9], [3, 2], [0, 0]),
    ([3], [2, 4], [0, 0]),
    ([6, 5], [2, 2], [None, 1]),
    ([6, 5], [2, 2], [0, None]),
    ([9, 4], [2, 2, 2], [0, 1, 0]),
    ([11], [2, 2, 2], [0, 0, 0]),
    ([4, 5, 3], [2, 2, 2], [2, 0, 1]),
]


def parts(whole, mesh, dims):
    """The part of each rank: elements are numbered in the order of the whole."""
    size = torch.Size(mesh).numel()
    locals_ = []
    for rank in range(size):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
        tensor = torch.arange(torch.Size(whole).numel()).reshape(whole)
        placements = [Replicate() if dim is None else Shard(dim) for dim in dims]
        device_mesh = init_device_mesh("cpu", mesh)
        tensor = distribute_tensor(tensor, device_mesh, placements, src_data_rank=None)
        locals_.append(tensor.to_local())
        dist.destroy_process_group()
    return locals_


def make():
    facts = {}
    for whole, mesh, dims in CASES:
        locals_ = parts(whole, mesh, dims)
        facts[f"{whole} on {mesh} by {dims}"] = {
            "whole": whole, "mesh": mesh, "dims": dims,
            "sizes": [list(local.shape) for local in locals_],
            "elements": [local.flatten().tolist() for local in locals_]}
    return {}, facts
