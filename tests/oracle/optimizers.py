"""torch.optim, transformers' Adafactor and Lion over 100 steps with given gradients."""

import torch
from transformers.optimization import Adafactor

from draw import uniform

SHAPES = {"weight": (4, 3), "bias": (4,), "cube": (2, 2, 2)}
STEPS = 100
KEPT = (1, 10, 100)
STATES = (
    "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col")
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
    "rmsprop": ("RMSprop", dict(lr=0.01)),
    "rmsprop_all": (
        "RMSprop",
        dict(lr=0.01, alpha=0.9, eps=1e-6, weight_decay=0.1, momentum=0.5, centered=True)),
    "adagrad": ("Adagrad", dict(lr=0.1)),
    "adagrad_all": (
        "Adagrad",
        dict(lr=0.1, lr_decay=0.01, weight_decay=0.1, initial_accumulator_value=0.2, eps=1e-6)),
    "nadam": ("NAdam", dict(lr=0.01)),
    "nadam_l2": (
        "NAdam", dict(lr=0.01, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.1, momentum_decay=0.02)),
    "nadam_decoupled": (
        "NAdam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "radam": ("RAdam", dict(lr=0.01)),
    "radam_l2": ("RAdam", dict(lr=0.01, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.1)),
    "radam_decoupled": (
        "RAdam", dict(lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    "lion": ("Lion", dict(lr=0.01)),
    "lion_weight_decay": ("Lion", dict(lr=0.01, betas=[0.95, 0.98], weight_decay=0.1)),
    "adafactor": ("Adafactor", dict()),
    "adafactor_warmup": ("Adafactor", dict(warmup_init=True)),
    "adafactor_lr": (
        "Adafactor",
        dict(lr=0.01, relative_step=False, scale_parameter=False, beta1=0.9, weight_decay=0.1)),
    "adafactor_all": (
        "Adafactor",
        dict(lr=0.01, eps=[1e-20, 0.05], clip_threshold=0.7, decay_rate=-0.6, relative_step=False)),
    "muon": ("Muon", dict(lr=0.02)),
    "muon_plain": (
        "Muon", dict(lr=0.02, weight_decay=0.0, momentum=0.8, nesterov=False, ns_steps=3,
                     ns_coefficients=[2.0, -1.5, 0.5], adjust_lr_fn="match_rms_adamw")),
}


class Lion(torch.optim.Optimizer):
    """Program 1 of "Symbolic Discovery of Optimization Algorithms" (arXiv 2302.06675):

    update = sign(interp(g, m, beta1)); m = interp(g, m, beta2); w -= lr * (update + wd * w)
    """

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                m = self.state[w].setdefault("exp_avg", torch.zeros_like(w))
                update = torch.sign((1 - beta1) * w.grad + beta1 * m)
                w -= group["lr"] * (update + group["weight_decay"] * w)
                self.state[w]["exp_avg"] = (1 - beta2) * w.grad + beta2 * m


CLASSES = {"Lion": Lion, "Adafactor": Adafactor}


def run(kind, options, dtype, initial, gradients, prefix):
    parameters = {
        name: torch.nn.Parameter(value.to(dtype, copy=True))
        for name, value in initial.items()
        if kind != "Muon" or value.dim() == 2
    }
    make_optimizer = CLASSES.get(kind) or getattr(torch.optim, kind)
    optimizer = make_optimizer(list(parameters.values()), **options)
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
