"""Reads a file that levin wrote, by the Python library of its format, and compares the contents.

    read_levin.py safetensors FILE EXPECTED.json      {"tensors": {name: {"dtype", "shape",
                                                      "values"}}, "metadata": {key: text}}
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
    got = {"safetensors": read_safetensors, "events": read_events}[kind](path)
    expected = json.loads(pathlib.Path(expected_path).read_text())
    if got != expected:
        print(f"{kind} {path}\nread     {json.dumps(got)}\nexpected {json.dumps(expected)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
