"""Learning rates of torch's and transformers' schedules."""

import torch
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

BASE_LR = 0.1
STEPS = 30
CASES = {
    "constant": (get_constant_schedule_with_warmup, dict(num_warmup_steps=0)),
    "constant_warmup": (get_constant_schedule_with_warmup, dict(num_warmup_steps=5)),
    "linear": (get_linear_schedule_with_warmup, dict(num_warmup_steps=0, num_training_steps=STEPS)),
    "linear_warmup": (
        get_linear_schedule_with_warmup, dict(num_warmup_steps=5, num_training_steps=STEPS)),
    "cosine": (get_cosine_schedule_with_warmup, dict(num_warmup_steps=0, num_training_steps=STEPS)),
    "cosine_warmup": (
        get_cosine_schedule_with_warmup, dict(num_warmup_steps=5, num_training_steps=STEPS)),
    "step": (torch.optim.lr_scheduler.StepLR, dict(step_size=7, gamma=0.3)),
}


def rates(factory, options):
    """The learning rate of optimizer step 0, 1, ..., STEPS."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE_LR)
    schedule = factory(optimizer, **options)
    values = []
    for _ in range(STEPS + 1):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return values


def make():
    facts = {
        name: {"lr": BASE_LR, **options, "values": rates(factory, options)}
        for name, (factory, options) in CASES.items()
    }
    return {}, facts
