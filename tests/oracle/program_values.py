"""The tensors of a program's result and a loss of them, for exported_programs.py and program_exports.py."""

import torch


def leaves(output):
    found = torch.utils._pytree.tree_leaves(output)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]


def loss_of(output):
    """The same number in the tests: the mean of the squares of each real or complex output, summed."""
    total = torch.zeros((), dtype=torch.float64)
    for leaf in leaves(output):
        if leaf.is_complex():
            leaf = torch.view_as_real(leaf)
        if leaf.is_floating_point():
            total = total + leaf.double().square().mean()
    return total
