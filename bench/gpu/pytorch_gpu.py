"""PyTorch's side of the GPU benchmarks: one system on one work, with the commands of gpu_bench.cpp.

    python bench/gpu/pytorch_gpu.py --mode compile --folder FOLDER

Modes: eager; fused, the fused optimizer where PyTorch's default is another; compile, torch.compile of net and loss
with its defaults; reduce-overhead, its mode of that name; graph, the whole step by hand in one torch.cuda.CUDAGraph.
Of the loader: eager, or whole, batches by one indexing each.
"""

import argparse
import functools
import json
import sys
import time

import torch
from torch.nn import functional

import works


def make_optimizer(sizes, net, mode):
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if sizes["work"] == "resnet50":
        return torch.optim.SGD(trained, lr=sizes["lr"], momentum=0.9, fused=True)
    if sizes["work"] == "mlp":
        # Without a GPU there is nothing to capture, and PyTorch refuses the option.
        options = {} if mode == "eager" else {"fused": True, "capturable": mode == "graph" and torch.cuda.is_available()}
        return torch.optim.Adam(trained, lr=sizes["lr"], **options)
    return torch.optim.AdamW(trained, lr=sizes["lr"], fused=True)


class Training:
    def __init__(self, arguments):
        self.sizes, batches = works.read(arguments.folder)
        self.device = torch.device(arguments.device)
        net = works.make_net(self.sizes, arguments.folder)
        if self.sizes["work"] != "minilm":
            from safetensors.torch import load_file
            weights = load_file(f"{arguments.folder}/weights.safetensors")
            net.load_state_dict(weights, strict=False)
            assert set(weights) == {name for name, _ in net.named_parameters()}
        if self.sizes["work"] == "resnet50":
            net = net.to(memory_format=torch.channels_last)
        self.net = net.to(self.device)
        self.batches = [{name: self.placed(tensor) for name, tensor in batch.items()} for batch in batches]
        self.optimizer = make_optimizer(self.sizes, self.net, arguments.mode)
        self.num_parameters = sum(parameter.numel() for parameter in self.net.parameters())
        self.loss_of = self.loss
        if arguments.mode in ("compile", "reduce-overhead"):
            mode = None if arguments.mode == "compile" else arguments.mode
            self.loss_of = torch.compile(self.loss, mode=mode)
        self.is_replayed = arguments.mode == "reduce-overhead"
        if arguments.mode == "graph":
            self.step = functools.partial(self.graphed_step, torch.cuda.Stream())
            self.graph = None

    def placed(self, tensor):
        tensor = tensor.to(self.device)
        return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor

    def loss(self, batch):
        bf16 = self.sizes["precision"] == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            if "labels" in batch:
                return self.net(**batch).loss
            return functional.cross_entropy(self.net(batch["x"]).flatten(0, -2), batch["y"].flatten())

    def eager_step(self, batch):
        if self.is_replayed:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad()
        loss = self.loss_of(batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, number):
        return self.eager_step(self.batches[number % len(self.batches)])

    def graphed_step(self, stream, number):
        """The first three steps run as they are, where PyTorch's notes on CUDA graphs want them."""
        batch = self.batches[number % len(self.batches)]
        if number < 3:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                loss = self.eager_step(batch)
            torch.cuda.current_stream().wait_stream(stream)
            return loss
        if self.graph is None:
            self.static = {name: tensor.clone() for name, tensor in batch.items()}
            self.optimizer.zero_grad()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.static_loss = self.eager_step(self.static)
        for name, tensor in batch.items():
            self.static[name].copy_(tensor)
        self.graph.replay()
        return self.static_loss


class WholeBatches(torch.utils.data.Dataset):
    def __init__(self, *tensors):
        self.tensors = tensors

    def __getitem__(self, indices):
        return [tensor[indices] for tensor in self.tensors]

    def __len__(self):
        return len(self.tensors[0])


class Loading:
    num_parameters = 0

    def __init__(self, arguments):
        sizes, _ = works.read(arguments.folder)
        self.device = torch.device(arguments.device)
        count, side = sizes["samples"], sizes["side"]
        images = (torch.arange(count * 3 * side * side, dtype=torch.int32) % 251).float().view(count, 3, side, side)
        data = [images, torch.arange(count)]
        common = {"num_workers": arguments.workers, "pin_memory": self.device.type == "cuda",
                  "persistent_workers": arguments.workers > 0}
        if arguments.mode == "whole":
            ordered = torch.utils.data.SequentialSampler(range(count))
            self.loader = torch.utils.data.DataLoader(
                WholeBatches(*data), batch_size=None,
                sampler=torch.utils.data.BatchSampler(ordered, sizes["batch_size"], drop_last=True), **common)
        else:
            self.loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data),
                                                      batch_size=sizes["batch_size"], drop_last=True, **common)
        self.place = iter(self.loader)

    def step(self, number):
        batch = next(self.place, None)
        if batch is None:
            self.place = iter(self.loader)
            batch = next(self.place)
        image, _ = (tensor.to(self.device, non_blocking=True) for tensor in batch)
        return image.mean()


class Server:
    def __init__(self, session):
        self.session = session
        self.next = 0
        self.is_cuda = session.device.type == "cuda"

    def synchronize(self):
        if self.is_cuda:
            torch.cuda.synchronize()

    def run(self, steps):
        for _ in range(steps):
            loss = self.session.step(self.next)
            self.next += 1
        return loss

    def warm(self, steps):
        losses = [self.run(1).item() for _ in range(steps)]
        self.synchronize()
        return {"losses": losses}

    def time(self, before, steps):
        if before:
            self.run(before)
        self.synchronize()
        began = time.perf_counter()
        loss = self.run(steps)
        self.synchronize()
        return {"seconds": time.perf_counter() - began, "last_loss": loss.item()}

    def trim(self):
        if self.is_cuda:
            self.synchronize()
            torch.cuda.empty_cache()
        return {}

    def about(self):
        peak = torch.cuda.max_memory_allocated() if self.is_cuda else 0
        return {"parameters": self.session.num_parameters, "peak_mb": peak / 1e6, "replays": [], "refusals": []}

    def matmul(self, size):
        """TFLOP/s of a bf16 product of two square matrices."""
        a, b = (torch.randn(size, size, device=self.session.device, dtype=torch.bfloat16) for _ in range(2))
        out = torch.empty_like(a)
        for count in (5, 20):
            self.synchronize()
            began = time.perf_counter()
            for _ in range(count):
                torch.mm(a, b, out=out)
            self.synchronize()
            seconds = time.perf_counter() - began
        return {"tflops": 2 * size**3 * count / seconds / 1e12}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help="of gpu_bench; here the folder says it")
    parser.add_argument("--mode", default="eager", choices=["eager", "fused", "compile", "reduce-overhead", "graph", "whole"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--once", action="store_true", help="one step, then the end: what a start takes")
    arguments = parser.parse_args()
    make = Loading if works.read(arguments.folder)[0]["work"] == "loader" else Training
    server = Server(make(arguments))
    if arguments.once:
        server.run(1)
        server.synchronize()
        return print("first step done", flush=True)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        command, *numbers = line.split()
        print(json.dumps(getattr(server, command)(*map(int, numbers))), flush=True)


if __name__ == "__main__":
    main()
