"""Reads a file that levin wrote, by the Python library of its format, and compares the contents.

    read_levin.py safetensors FILE EXPECTED.json      {"tensors": {name: {"dtype", "shape",
                                                      "values"}}, "metadata": {key: text}}
    read_levin.py weights FOLDER EXPECTED.json        {reader: {name: {"dtype", ...}}}, what
                                                      safetensors, transformers (of several files)
                                                      and torch.distributed.checkpoint make of the
                                                      weights in a checkpoint's folder
    read_levin.py events FOLDER EXPECTED.json         {"scalars": {tag: [[step, value], ...]},
                                                      "texts": {tag: [[step, text], ...]}}
Exit code 1 and the difference when the contents are not the expected ones.
"""

import json
import pathlib
import sys

import safetensors
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read_safetensors(path):
    with safetensors.safe_open(path, framework="pt") as file:
        tensors = {}
        for name in file.keys():
            tensor = file.get_tensor(name)
            tensors[name] = {"dtype": str(tensor.dtype).removeprefix("torch."),
                             "shape": list(tensor.shape),
                             "values": tensor.flatten().tolist()}
        return {"tensors": tensors, "metadata": file.metadata() or {}}


def described(tensors):
    return {name: {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                   "values": tensor.flatten().tolist()} for name, tensor in tensors.items()}


def module_of(tensors):
    """A module whose state dict has these names, all zeros."""
    import torch

    root = torch.nn.Module()
    for name, tensor in tensors.items():
        *parents, leaf = name.split(".")
        module = root
        for parent in parents:
            if not hasattr(module, parent):
                module.add_module(parent, torch.nn.Module())
            module = getattr(module, parent)
        module.register_buffer(leaf, torch.zeros_like(tensor))
    return root


def read_weights(folder):
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp
    from transformers.trainer_utils import load_sharded_checkpoint

    tensors = {}
    for file in pathlib.Path(folder).glob("model*.safetensors"):
        tensors |= safetensors.torch.load_file(file)
    readers = {"safetensors": described(tensors)}
    if (pathlib.Path(folder) / "model.safetensors.index.json").exists():
        module = module_of(tensors)
        load_sharded_checkpoint(module, folder, strict=True, prefer_safe=True)
        readers["transformers"] = described(module.state_dict())
    state = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(path=folder))
    readers["torch.distributed.checkpoint"] = described(state)
    return readers


def read_events(folder):
    # 0: keep every event instead of a sample of them.
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    scalars, texts = {tag: events.Scalars(tag) for tag in tags["scalars"]}, {}
    for tag in tags["tensors"]:
        texts[tag.removesuffix("/text_summary")] = [
            [event.step, event.tensor_proto.string_val[0].decode()] for event in events.Tensors(tag)]
    return {"scalars": {tag: [[event.step, event.value] for event in series]
                        for tag, series in scalars.items()},
            "texts": texts}


def main():
    kind, path, expected_path = sys.argv[1:]
    got = {"safetensors": read_safetensors, "weights": read_weights, "events": read_events}[kind](path)
    expected = json.loads(pathlib.Path(expected_path).read_text())
    if got != expected:
        print(f"{kind} {path}\nread     {json.dumps(got)}\nexpected {json.dumps(expected)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
