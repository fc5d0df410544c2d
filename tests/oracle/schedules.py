"""Learning rates of torch's and transformers' schedules."""

import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_cosine_with_hard_restarts_schedule_with_warmup,
    get_inverse_sqrt_schedule,
    get_linear_schedule_with_warmup,
    get_polynomial_decay_schedule_with_warmup,
    get_wsd_schedule,
)

import draw

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
    "step": (StepLR, dict(step_size=7, gamma=0.3)),
    "multi_step": (MultiStepLR, dict(milestones=[3, 11, 12, 25], gamma=0.4)),
    "multi_step_twice": (MultiStepLR, dict(milestones=[6, 6, 20], gamma=0.5)),
    "exponential": (ExponentialLR, dict(gamma=0.87)),
    "polynomial": (
        get_polynomial_decay_schedule_with_warmup,
        dict(num_warmup_steps=4, num_training_steps=24, lr_end=2e-3, power=2.0)),
    "polynomial_default": (
        get_polynomial_decay_schedule_with_warmup, dict(num_warmup_steps=0, num_training_steps=STEPS)),
    "polynomial_torch": (PolynomialLR, dict(total_iters=20, power=1.5)),
    "one_cycle": (OneCycleLR, dict(max_lr=BASE_LR, total_steps=STEPS + 1, cycle_momentum=False)),
    "one_cycle_linear": (
        OneCycleLR,
        dict(max_lr=BASE_LR, total_steps=STEPS + 1, pct_start=0.41, anneal_strategy="linear",
             cycle_momentum=False, div_factor=10.0, final_div_factor=50.0)),
    "one_cycle_three": (
        OneCycleLR,
        dict(max_lr=BASE_LR, total_steps=STEPS + 1, pct_start=0.25, cycle_momentum=False,
             three_phase=True)),
    "one_cycle_falls": (
        OneCycleLR, dict(max_lr=BASE_LR, total_steps=STEPS + 1, pct_start=0.0, cycle_momentum=False)),
    "restarts": (
        get_cosine_with_hard_restarts_schedule_with_warmup,
        dict(num_warmup_steps=3, num_training_steps=27, num_cycles=3)),
    "warm_restarts": (CosineAnnealingWarmRestarts, dict(T_0=7)),
    "warm_restarts_longer": (CosineAnnealingWarmRestarts, dict(T_0=3, T_mult=2, eta_min=0.004)),
    "wsd": (get_wsd_schedule, dict(num_warmup_steps=5, num_decay_steps=9, num_training_steps=28)),
    "wsd_linear": (
        get_wsd_schedule,
        dict(num_warmup_steps=6, num_decay_steps=8, num_stable_steps=10, warmup_type="cosine",
             decay_type="linear", min_lr_ratio=0.1)),
    "wsd_sqrt": (
        get_wsd_schedule,
        dict(num_warmup_steps=6, num_decay_steps=8, num_stable_steps=10, warmup_type="1-sqrt",
             decay_type="1-sqrt", min_lr_ratio=0.05)),
    "wsd_waves": (
        get_wsd_schedule,
        dict(num_warmup_steps=0, num_decay_steps=20, num_stable_steps=5, num_cycles=1.5)),
    "inverse_sqrt": (get_inverse_sqrt_schedule, dict(num_warmup_steps=5)),
    "inverse_sqrt_timescale": (get_inverse_sqrt_schedule, dict(num_warmup_steps=5, timescale=12)),
    "inverse_sqrt_cold": (get_inverse_sqrt_schedule, dict(num_warmup_steps=0)),
    "sequential": (
        lambda optimizer: SequentialLR(
            optimizer,
            [
                ExponentialLR(optimizer, 0.9),
                StepLR(optimizer, 4, 0.5),
                get_linear_schedule_with_warmup(optimizer, 0, STEPS + 1 - 20),
            ],
            [8, 20],
        ),
        {}),
    "chained": (
        lambda optimizer: ChainedScheduler(
            [MultiStepLR(optimizer, [5, 9], 0.5), ExponentialLR(optimizer, 0.95)]),
        {}),
}

# ReduceLROnPlateau over values that fall, stay and jump.
PLATEAUS = {
    "plateau": dict(patience=2),
    "plateau_max": dict(mode="max", factor=0.5, patience=1, threshold=0.2),
    "plateau_abs": dict(threshold_mode="abs", threshold=0.05, factor=0.3, patience=0, cooldown=2),
    "plateau_max_abs": dict(mode="max", threshold_mode="abs", threshold=0.1, patience=1),
    "plateau_least": dict(factor=0.2, patience=0, min_lr=1e-3),
    "plateau_eps": dict(factor=0.5, patience=0, eps=0.01),
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


def plateau(options):
    """The rate after each value, and the scheduler's state at the end."""
    noise = draw.uniform("plateau", (STEPS,)).double().tolist()
    values = [1.0 / (1 + step // 3) + 0.3 * noise[step] for step in range(STEPS)]
    values[7] = float("nan")
    optimizer = torch.optim.SGD(
        [dict(params=[torch.nn.Parameter(torch.zeros(1))], lr=rate) for rate in (0.1, 0.01)])
    schedule = ReduceLROnPlateau(optimizer, **options)
    rates = []
    for value in values:
        schedule.step(value)
        rates.append([group["lr"] for group in optimizer.param_groups])
    counts = {name: schedule.state_dict()[name]
              for name in ("best", "num_bad_epochs", "cooldown_counter")}
    # JSON has no NaN.
    given = [None if value != value else value for value in values]
    return {**options, "given": given, "rates": rates, "counts": counts}


def make():
    facts = {
        name: {"lr": BASE_LR, **options, "values": rates(factory, options)}
        for name, (factory, options) in CASES.items()
    }
    facts |= {name: plateau(options) for name, options in PLATEAUS.items()}
    return {}, facts
