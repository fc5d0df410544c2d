"""Results as Markdown: medians [smallest..largest] and ratios of levin to each peer."""

import statistics

# What levin promises of its ratio to a peer: (section, peer) -> (is_lower_bound, bound).
LIMITS = {
    ("mlp_sgd", "LibTorch by hand"): (False, 1.05),
    ("mlp_sgd", "PyTorch"): (False, 0.38),
    ("mlp_sgd", "Lightning"): (False, 0.10),
    ("mlp_adam", "LibTorch by hand"): (False, 1.05),
    ("mlp_adam", "PyTorch"): (False, 0.30),
    ("mlp_adam", "Lightning"): (False, 0.10),
    ("start", "PyTorch"): (False, 0.15),
    ("memory", "PyTorch"): (False, 0.5),
    ("loader", "PyTorch, 0 workers"): (True, 12.0),
    ("loader", "levin, 1 workers"): (False, 1.0),
    ("loader", "levin, 2 workers"): (False, 1.0),
}
TITLES = {
    "mlp_sgd": "MLP 64-128-10, batch 32, SGD",
    "mlp_adam": "MLP 64-128-10, batch 32, Adam",
    "cnn": "CNN on 28x28, batch 64, Adam",
    "gpt": "GPT, 4 layers, d=128, T=64, batch 8, AdamW",
}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values):
    return f"{number(statistics.median(values))} [{number(min(values))}..{number(max(values))}]"


def ratio(ours, theirs):
    """The median over rounds of the ratio within a round, which a slow moment of the machine spares."""
    return statistics.median(a / b for a, b in zip(ours, theirs))


def limit(section, name, value):
    if (section, name) not in LIMITS:
        return ""
    is_lower_bound, bound = LIMITS[section, name]
    met = value >= bound if is_lower_bound else value <= bound
    return f"at {'least' if is_lower_bound else 'most'} {bound:g}: {'yes' if met else 'NO'}"


def table(section, heading, series, reference="levin"):
    lines = [f"| {heading[0]} | {heading[1]} | levin / this | promised |", "|---|---|---|---|"]
    for name, values in series.items():
        shown = promised = ""
        if reference in series and name != reference:
            value = ratio(series[reference], values)
            shown, promised = f"{value:.3g}", limit(section, name, value)
        lines.append(f"| {name} | {spread(values)} | {shown} | {promised} |")
    return lines


def machine_lines(machine, rounds):
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}; "
        f"load {machine['load_before']} before the run.",
        f"{machine['compiler']}, {machine['build_type']}; torch {machine['torch']}, "
        f"Lightning {machine['lightning']}, Accelerate {machine['accelerate']}, "
        f"DeepSpeed {machine['deepspeed']}, Python {machine['python']}; {machine['date']}.",
        "",
        f"{rounds} round{'s' if rounds > 1 else ''}. In each round every system runs once, in turn, with one thread. "
        "Median [smallest..largest]; a ratio is the median of the rounds' ratios. "
        "[peers/README.md](peers/README.md) says what is compared.",
    ]


def markdown(results):
    lines = ["# levin and its peers", "", *machine_lines(results["machine"], results["rounds"])]
    for work, series in results["steps"].items():
        lines += ["", f"## {TITLES[work]}", *table(work, ("", "us a step"), series)]
    if start := results["start"]:
        lines += ["", "## From process start to the first finished step, MLP, SGD"]
        lines += table("start", ("", "s"), {name: of["seconds"] for name, of in start.items()})
        lines += ["", "## Peak resident memory of that process"]
        lines += table("memory", ("", "MB"), {name: of["peak_mb"] for name, of in start.items()})
    if loader := results["loader"]:
        lines += ["", "## Loader: uint8 images 28x28 normalised to float, batch 64, shuffled"]
        lines += table("loader", ("", "images/s"), loader, "levin, 0 workers")
    return "\n".join(lines) + "\n"
