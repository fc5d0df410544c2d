"""torch.nn.utils.clip_grad_norm_ and clip_grad_value_."""

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from draw import uniform

SHAPES = {"weight": (4, 3), "bias": (4,), "cube": (2, 2, 2)}
NORM_CASES = {
    "norm2": dict(max_norm=0.5, norm_type=2.0),
    "norm2_loose": dict(max_norm=100.0, norm_type=2.0),
    "norm1": dict(max_norm=0.5, norm_type=1.0),
    "norm_inf": dict(max_norm=0.5, norm_type=float("inf")),
}
CLIP_VALUE = 0.25


def make():
    gradients = {name: uniform(f"clipped {name}", shape) for name, shape in SHAPES.items()}
    tensors = {f"gradients.{name}": value for name, value in gradients.items()}
    facts = {}

    def clip(case, function):
        parameters = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in SHAPES.items()}
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].clone()
        result = function(list(parameters.values()))
        for name, parameter in parameters.items():
            tensors[f"{case}.{name}"] = parameter.grad
        return result

    for case, options in NORM_CASES.items():
        total = clip(case, lambda parameters: clip_grad_norm_(parameters, **options))
        named = {key: "inf" if value == float("inf") else value for key, value in options.items()}
        facts[case] = {**named, "total_norm": total.item()}
    clip("value", lambda parameters: clip_grad_value_(parameters, CLIP_VALUE))
    facts["value"] = {"clip_value": CLIP_VALUE}
    return tensors, facts
