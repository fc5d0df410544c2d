"""What levin's loggers wrote, read by TensorBoard, json and Pillow, for loggers_test.cpp.

    python loggers.py FOLDER

FOLDER/tensors.safetensors holds the tensors that were logged, and FOLDER/version_0 the event file and metrics.jsonl.
torch.utils.tensorboard's SummaryWriter writes the same into FOLDER/expected; both are compared message by message.
"""

import io
import json
import math
import pathlib
import sys

import numpy as np
import safetensors.torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

folder = pathlib.Path(sys.argv[1])
tensors = safetensors.torch.load_file(folder / "tensors.safetensors")


def values_of(path):
    """Summary values by tag and step."""
    values = {}
    for file in sorted(path.glob("events*")):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                values[value.tag, event.step] = value
    return values


writer = SummaryWriter(folder / "expected")
for name, image in tensors.items():
    if name.startswith("image"):
        format = name.split(" ")[1]
        writer.add_image(name, image, 5, dataformats=format)
    elif name.startswith("histogram"):
        writer.add_histogram(name, image[image.isfinite()], 6)
writer.add_text("said", "**hello** \u00fc", 7)
params = {"lr": 0.001, "epochs": 3.0, "kind": "adam", "zip": "007"}
experiment, start, end = hparams(params, {"hp_metric": -1, "val_acc": 0})
for summary in (experiment, start, end):
    writer.file_writer.add_summary(summary)
writer.close()

got, wanted = values_of(folder / "version_0"), values_of(folder / "expected")
compared = 0
for (tag, step), expected in wanted.items():
    value = got[tag, 9 if tag == "_hparams_/session_end_info" else step or 0]
    if tag.startswith("image"):
        mine, theirs = (np.asarray(Image.open(io.BytesIO(one.image.encoded_image_string))) for one in (value, expected))
        if value.image.colorspace == 1:  # SummaryWriter writes a gray channel three times
            assert expected.image.colorspace == 3 and (theirs == theirs[..., :1]).all(), tag
            theirs = theirs[..., 0]
        else:
            assert value.image.colorspace == expected.image.colorspace, tag
        for field in ("height", "width"):
            assert getattr(value.image, field) == getattr(expected.image, field), (tag, field)
        assert mine.shape == theirs.shape and (mine == theirs).all(), tag
    elif tag.startswith("histogram"):
        mine, theirs = value.histo, expected.histo
        assert list(mine.bucket_limit) == list(theirs.bucket_limit), tag
        assert list(mine.bucket) == list(theirs.bucket), tag
        for field in ("min", "max", "num"):
            assert getattr(mine, field) == getattr(theirs, field), (tag, field)
        for field in ("sum", "sum_squares"):  # numpy adds in another order
            assert math.isclose(getattr(mine, field), getattr(theirs, field), rel_tol=1e-12, abs_tol=1e-12), (tag, field)
    elif tag == "_hparams_/session_start_info":
        session = [HParamsPluginData.FromString(one.metadata.plugin_data.content) for one in (value, expected)]
        # A truth value is a number in SummaryWriter, for bool is a kind of int.
        assert session[0].session_start_info.hparams.pop("shuffle").bool_value
        assert session[0] == session[1], tag
    elif tag == "_hparams_/experiment":
        mine, theirs = (HParamsPluginData.FromString(one.metadata.plugin_data.content).experiment for one in (value, expected))
        infos = {info.name: info for info in mine.hparam_infos}
        assert infos.pop("shuffle").type == 2  # DATA_TYPE_BOOL
        assert infos == {info.name: info for info in theirs.hparam_infos}, tag
        assert list(mine.metric_infos) == list(theirs.metric_infos), tag
    else:
        assert value == expected, (tag, value, expected)
    compared += 1
assert compared == len(tensors) + 1 + 3, compared

board = EventAccumulator(str(folder / "version_0"), size_guidance={"images": 0, "histograms": 0, "tensors": 0})
board.Reload()
assert board.Scalars("hp_metric")[0].value == -1
assert [(scalar.step, scalar.value) for scalar in board.Scalars("loss")] == [(3, 0.5)]
# A tag that is no UTF-8 would make the whole file unreadable.
assert "bad \ufffd" in board.Tags()["scalars"], board.Tags()
nodes = {node.name: node for node in board.Graph().node}
assert set(nodes) == {"net/0/weight", "net/0/bias", "net/0/Linear", "net/1/ReLU", "net/2/weight", "net/2/bias", "net/2/Linear"}, set(nodes)
assert list(nodes["net/1/ReLU"].input) == ["net/0/Linear"]
assert list(nodes["net/2/Linear"].input) == ["net/1/ReLU", "net/2/weight", "net/2/bias"]
assert [dim.size for dim in nodes["net/0/weight"].attr["_output_shapes"].list.shape[0].dim] == [3, 2]
assert nodes["net/0/weight"].attr["dtype"].type == 1

rows = [json.loads(line) for line in (folder / "version_0/metrics.jsonl").read_text().splitlines()]
assert rows[0] == {"step": 3, "epoch": 1, "loss": 0.1, "big": 1e300}, rows[0]
assert math.isnan(float(rows[1]["nan"])) and float(rows[1]["low"]) == -math.inf and float(rows[1]["high"]) == math.inf
assert rows[1]["\u00fc \"quoted\"\n"] == 2
import pandas  # noqa: E402

frame = pandas.read_json(folder / "version_0/metrics.jsonl", lines=True)
assert frame["loss"][0] == 0.1 and list(frame["step"]) == [3, 4]
print("all equal")
