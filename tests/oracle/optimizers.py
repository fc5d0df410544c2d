"""torch.optim over 100 steps with given gradients."""

import torch

from draw import uniform

SHAPES = {"weight": (4, 3), "bias": (4,), "cube": (2, 2, 2)}
STEPS = 100
KEPT = (1, 10, 100)
STATES = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
CASES = {
    "sgd": ("SGD", dict(lr=0.1)),
    "sgd_momentum": ("SGD", dict(lr=0.1, momentum=0.9)),
    "sgd_nesterov": ("SGD", dict(lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)),
    "sgd_dampening": ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3)),
    "sgd_maximize": ("SGD", dict(lr=0.1, momentum=0.9, maximize=True)),
    "adam": ("Adam", dict(lr=0.01)),
    "adam_weight_decay": ("Adam", dict(lr=0.01, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.1)),
    "adam_amsgrad": ("Adam", dict(lr=0.01, amsgrad=True)),
    "adam_maximize": ("Adam", dict(lr=0.01, maximize=True)),
    "adamw": ("AdamW", dict(lr=0.01)),
    "adamw_weight_decay": ("AdamW", dict(lr=0.01, weight_decay=0.1)),
    "adamw_amsgrad": ("AdamW", dict(lr=0.01, weight_decay=0.1, amsgrad=True)),
}


def run(kind, options, dtype, initial, gradients, prefix):
    parameters = {
        name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in initial.items()
    }
    optimizer = getattr(torch.optim, kind)(list(parameters.values()), **options)
    tensors = {}
    for step in range(1, STEPS + 1):
        for name, parameter in parameters.items():
            parameter.grad = gradients[name][step - 1].to(dtype, copy=True)
        optimizer.step()
        if step in KEPT:
            for name, parameter in parameters.items():
                tensors[f"{prefix}.step{step}.{name}"] = parameter.detach().clone()
    for name, parameter in parameters.items():
        for key in STATES:
            if isinstance(value := optimizer.state[parameter].get(key), torch.Tensor):
                tensors[f"{prefix}.{key}.{name}"] = value.clone()
    return tensors


def make():
    initial = {name: uniform(f"initial {name}", shape) for name, shape in SHAPES.items()}
    gradients = {
        # Around one sign, so that the parameters go somewhere.
        name: uniform(f"gradient {name}", (STEPS, *shape)) + 0.25 for name, shape in SHAPES.items()
    }
    tensors = {f"initial.{name}": value for name, value in initial.items()}
    tensors |= {f"gradients.{name}": value for name, value in gradients.items()}
    for case, (kind, options) in CASES.items():
        for dtype in (torch.float32, torch.float64):
            prefix = f"{case}.{str(dtype).removeprefix('torch.')}"
            tensors |= run(kind, options, dtype, initial, gradients, prefix)
    return tensors, {case: {"kind": kind, **options} for case, (kind, options) in CASES.items()}
