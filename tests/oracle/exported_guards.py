"""Programs of torch.export whose inputs must have certain sizes, and which sizes Python takes.

    exported_guards.py FOLDER

For each network: FOLDER/NAME.pt2, and FOLDER/taken.json: by network a list of [sizes of each input, whether Python takes them].
"""

import inspect
import itertools
import json
import pathlib
import sys
import warnings

import torch
from torch import nn
from torch.export import Dim

warnings.filterwarnings("ignore")


def network(function):
    class Own(nn.Module):
        def forward(self, *args):
            raise NotImplementedError

    # With the function's own names of arguments.
    names = ", ".join(str(each) for each in inspect.signature(function).parameters.values())
    namespace = {"function": function}
    exec(f"def forward(self, {names}):\n    return function({names})", namespace)
    Own.forward = namespace["forward"]
    return Own()


# The example's sizes, and which dims are dynamic.
NETWORKS = {
    "equal": (lambda x, y: x.sum(1) + y.sum(1), [(4, 3), (4, 5)], [(0,), (0,)]),
    "even": (lambda x: x + 1 if x.shape[0] % 2 == 0 else x, [(6, 3)], [(0,)]),
    "odd": (lambda x: x + 1 if x.shape[0] % 2 == 0 else x, [(5, 3)], [(0,)]),
    "halves": (lambda x: x.reshape(x.shape[0] // 2, 2, 3), [(6, 3)], [(0,)]),
    "longer": (lambda x, y: x * y.sum() if x.shape[0] > 2 * y.shape[0] else x, [(9, 3), (3, 3)], [(0,), (0,)]),
    "shorter": (lambda x, y: x * y.sum() if x.shape[0] > 2 * y.shape[0] else x, [(5, 3), (3, 3)], [(0,), (0,)]),
    "different": (lambda x, y: x + y.sum() if x.shape[0] != y.shape[0] else x, [(5, 3), (3, 3)], [(0,), (0,)]),
    "between": (lambda x: x + 1 if 4 <= x.shape[0] < 9 else x, [(6, 3)], [(0,)]),
    "joined": (lambda x, y: torch.cat([x, y]).view(-1, 4), [(6, 2), (4, 2)], [(0,), (0,)]),
    "square": (lambda x: x @ x, [(5, 5)], [(0, 1)]),
    "product": (lambda x, y: x if x.shape[0] * y.shape[0] == 12 else x + y.sum(), [(4, 3), (3, 3)], [(0,), (0,)]),
    "nested": (lambda x, pair: x + pair[0].sum() + pair[1].sum() if x.shape[0] == 2 * pair[1].shape[0] else x,
               [(8, 3), [(2, 3), (4, 3)]], [(0,), [(), (0,)]]),
    "star": (lambda *parts: parts[0] + parts[1].sum() if parts[0].shape[0] % parts[1].shape[0] == 0 else parts[0],
             [(6, 3), (3, 3)], [[(0,), (0,)]]),
    "largest": (lambda x, y: x if max(x.shape[0], y.shape[0]) == 6 else x + y.sum(), [(6, 3), (3, 3)], [(0,), (0,)]),
}


def tensors(sizes):
    return tuple(tensors(each) if isinstance(each, list) else torch.ones(each) for each in sizes)


def specs(dims):
    return tuple(specs(each) if isinstance(each, list) else {dim: Dim.AUTO for dim in each} for each in dims)


def flat(sizes):
    return [one for each in sizes for one in (flat(each) if isinstance(each, list) else [list(each)])]


def variants(sizes, dims):
    """The sizes with all dynamic dims of all inputs from 2 to 12: of 1, programs say that they take none, and Python lets it pass."""
    if len(dims) < len(sizes):  # *parts
        dims = dims[0]
    places = [(i, j, dim) for i, each in enumerate(dims)
              for j, inner in enumerate(each if isinstance(each, list) else [each]) for dim in inner]
    for numbers in itertools.product(range(2, 13), repeat=len(places)):
        made = [[list(one) for one in each] if isinstance(each, list) else list(each) for each in sizes]
        for number, (i, j, dim) in zip(numbers, places):
            (made[i][j] if isinstance(sizes[i], list) else made[i])[dim] = number
        yield [[tuple(one) for one in each] if isinstance(sizes[i], list) else tuple(each) for i, each in enumerate(made)]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    taken = {}
    for name, (function, sizes, dims) in NETWORKS.items():
        program = torch.export.export(network(function), tensors(sizes), dynamic_shapes=specs(dims))
        torch.export.save(program, folder / f"{name}.pt2")
        module, taken[name] = program.module(), []
        for tried in variants(sizes, dims):
            try:
                module(*tensors(tried))
                taken[name].append([flat(tried), True])
            except (AssertionError, RuntimeError):
                taken[name].append([flat(tried), False])
    (folder / "taken.json").write_text(json.dumps(taken))


main()
