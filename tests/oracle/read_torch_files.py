"""Opens files of weights that levin wrote in torch.save's format and compares what is in them.

    read_torch_files.py tensors FILE EXPECTED.json   {"tensors": {name: {"dtype", "shape", "bytes"}}, "shared": [[name, ...]]}:
                                                     each tensor bit for bit, names that share a storage, and the records
                                                     of the archive
    read_torch_files.py views FILE EXPECTED.json     the same without the records: torch.save refuses views of two dtypes
    read_torch_files.py module FILE                  a state dict that Net takes, tied weights too
    read_torch_files.py export FOLDER                writes Net as net.pt2, and a state dict of other values as state.pt
    read_torch_files.py trained FOLDER               Net with trained.pt gives "y" of outputs.pt for its "x"
    read_torch_files.py many FILE                    "0", "1" and so on to "65999", each its number
    read_torch_files.py large FILE                   "large" of more than 4 GB, which ends in 7, and "later" behind it
Exit code 1 and the difference when the contents are not the expected ones.
"""

import collections
import json
import pathlib
import sys
import zipfile

import torch


class Net(torch.nn.Module):
    """The module of written_torch_files_test.cpp."""

    def __init__(self):
        super().__init__()
        self.wte = torch.nn.Embedding(11, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.lm_head = torch.nn.Linear(4, 11, bias=False)
        self.lm_head.weight = self.wte.weight
        self.register_buffer("mask", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.lm_head(self.norm(self.wte(x)) * self.mask)


def opened(path):
    """The file in each way in which torch.load opens it."""
    for options in ({"weights_only": True}, {"weights_only": True, "mmap": True}, {"weights_only": False},
                    {"weights_only": True, "map_location": "cpu"}):
        state = torch.load(path, **options)
        assert type(state) is collections.OrderedDict, f"{options}: got a {type(state)}"
        yield options, state


def bytes_of(tensor):
    if tensor.numel() == 0:
        return ""
    tensor = tensor.contiguous()
    start = tensor.storage_offset() * tensor.element_size()
    storage = tensor.untyped_storage()
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage, start, (tensor.nbytes,), (1,)).tolist()).hex()


def check_records(path, state):
    """Checksums, alignment, and the records that torch.save writes for the same tensors."""
    torch.save(state, path + ".again")
    with zipfile.ZipFile(path) as ours, zipfile.ZipFile(path + ".again") as theirs:
        assert ours.testzip() is None, "a checksum is wrong"
        names = [[name.split("/", 1)[1] for name in archive.namelist()] for archive in (ours, theirs)]
        assert names[0] == names[1], f"got the records {names[0]}, torch.save writes {names[1]}"
        for record in ours.infolist():
            assert record.compress_type == zipfile.ZIP_STORED, f"{record.filename} is compressed"
            with open(path, "rb") as file:
                file.seek(record.header_offset + 26)
                name, extra = (int.from_bytes(file.read(2), "little") for _ in range(2))
            start = record.header_offset + 30 + name + extra
            assert "/data/" not in record.filename or start % 64 == 0, f"{record.filename} begins at {start}"
            own = record.filename.split("/", 1)[1]
            if own not in ("data.pkl", ".data/serialization_id"):
                assert ours.read(record) == theirs.read(theirs.namelist()[0].split("/")[0] + "/" + own), own


def check_tensors(path, expected):
    for options, state in opened(path):
        assert list(state) == sorted(expected["tensors"]), f"{options}: got {list(state)}"
        for name, wanted in expected["tensors"].items():
            tensor = state[name]
            got = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                   "strides": list(tensor.stride()), "bytes": bytes_of(tensor)}
            assert got == wanted, f"{options}: {name} is {got}, wanted {wanted}"
            assert not tensor.requires_grad and tensor.device.type == "cpu" and tensor.is_leaf
        groups = collections.defaultdict(list)
        for name, tensor in state.items():
            if tensor.numel() > 0:
                groups[tensor.untyped_storage().data_ptr()].append(name)
        shared = sorted(names for names in groups.values() if len(names) > 1)
        assert shared == sorted(expected["shared"]), f"{options}: {shared} share, wanted {expected['shared']}"


def check_module(path):
    for options, state in opened(path):
        assert state["wte.weight"].data_ptr() == state["lm_head.weight"].data_ptr(), options
        for assign in (False, True):
            net = Net()
            print(net.load_state_dict(state, strict=True, assign=assign))
            for name, value in net.state_dict().items():
                assert torch.equal(value, state[name]) and value.dtype == state[name].dtype, name
            net.norm(torch.randn(5, 4)).sum().backward()
            assert torch.equal(net.mask, torch.arange(4.0))
        assert net.lm_head.weight.data_ptr() == net.wte.weight.data_ptr()


def export(folder):
    program = torch.export.export(Net().train(), (torch.arange(6),))
    torch.export.save(program, folder + "/net.pt2")
    torch.save(Net().state_dict(), folder + "/state.pt")


def check_trained(folder):
    net = Net().eval()
    net.load_state_dict(torch.load(folder + "/trained.pt", weights_only=True), strict=True)
    outputs = torch.load(folder + "/outputs.pt", weights_only=True)
    torch.testing.assert_close(net(outputs["x"]), outputs["y"])


def check_many(path):
    state = torch.load(path, weights_only=True)
    assert len(state) == 66000 and all(value.item() == int(name) for name, value in state.items())


def check_large(path):
    for options in ({}, {"mmap": True}):
        state = torch.load(path, weights_only=True, **options)
        large = state["large"]
        assert large.numel() > 2**32 and large[-1].item() == 7 and large[0].item() == 5, options
        assert torch.equal(state["later"], torch.arange(5.0)), options


if __name__ == "__main__":
    kind, file, *rest = sys.argv[1:]
    if kind in ("tensors", "views"):
        check_tensors(file, json.loads(pathlib.Path(rest[0]).read_text()))
        if kind == "tensors":
            check_records(file, torch.load(file))
    else:
        {"module": check_module, "export": export, "trained": check_trained, "many": check_many, "large": check_large}[kind](file)
