"""torch.autocast and torch.amp.GradScaler over 24 steps of a small network."""

import torch
from torch.nn.functional import cross_entropy

from draw import integers, uniform

SHAPES = {"0.weight": (16, 6), "0.bias": (16,), "2.weight": (3, 16), "2.bias": (3,)}
STEPS = 24
BATCH = 8
# The losses of these steps are multiplied by infinity.
OVERFLOWS = (3, 4, 11)
SCALER = dict(init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=4)
MAX_NORM = 0.5
CASES = {
    "bf16": dict(dtype="bfloat16", optimizer="SGD", lr=0.1, scaled=False, clipped=False),
    "fp16_sgd": dict(dtype="float16", optimizer="SGD", lr=0.1, scaled=True, clipped=False),
    "fp16_clipped": dict(dtype="float16", optimizer="SGD", lr=0.1, scaled=True, clipped=True),
    "fp16_adamw": dict(dtype="float16", optimizer="AdamW", lr=0.01, scaled=True, clipped=False),
}


def network(initial):
    module = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    module.load_state_dict(initial)
    return module


def run(case, initial, inputs, labels):
    module = network(initial)
    optimizer = getattr(torch.optim, case["optimizer"])(module.parameters(), lr=case["lr"])
    # The learning rate halves every eighth step that was taken.
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", enabled=case["scaled"], **SCALER)
    facts = {"losses": [], "scales": [], "rates": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=getattr(torch, case["dtype"])):
            loss = cross_entropy(module(inputs[step]).float(), labels[step])
        facts["losses"].append(loss.item())
        if case["scaled"] and step in OVERFLOWS:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if case["clipped"]:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(module.parameters(), MAX_NORM)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= before:
            schedule.step()
        facts["scales"].append(scaler.get_scale())
        facts["rates"].append(optimizer.param_groups[0]["lr"])
    return {name: value.detach().clone() for name, value in module.state_dict().items()}, facts


def make():
    initial = {name: uniform(f"amp {name}", shape, 0.4) for name, shape in SHAPES.items()}
    inputs = uniform("amp inputs", (STEPS, BATCH, 6))
    labels = integers("amp labels", (STEPS, BATCH), 3)
    tensors = {f"initial.{name}": value for name, value in initial.items()}
    tensors |= {"inputs": inputs, "labels": labels}
    facts = {"scaler": SCALER, "max_norm": MAX_NORM, "overflows": list(OVERFLOWS), "cases": {}}
    for name, case in CASES.items():
        weights, seen = run(case, initial, inputs, labels)
        tensors |= {f"{name}.{parameter}": value for parameter, value in weights.items()}
        facts["cases"][name] = {**case, **seen}
    return tensors, facts
