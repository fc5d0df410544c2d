"""Runs the same work by levin and its peers, in turn, and writes medians and ratios.

    python bench/peers/run.py --levin-bin build/bin                       the table, to the terminal
    python bench/peers/run.py --levin-bin build/bin --out bench/RESULTS.md
    python bench/peers/run.py --levin-bin build/bin --quick               a minute, no figures to quote

Run by the Python that has the peers (requirements.txt). It imports none of them itself, so that the
memory of the programs it starts is theirs alone.
"""

import argparse
import json
import pathlib
import sys

import machine
import measure
import report

HERE = pathlib.Path(__file__).parent
WORKS = {  # timed steps, warm-up steps
    "mlp_sgd": (2000, 200),
    "mlp_adam": (2000, 200),
    "cnn": (60, 5),
    "gpt": (40, 5),
}
QUICK_STEPS = (20, 5)
LOSS_TOLERANCE = 1e-3  # relative: the order of sums differs, and Adam makes it grow


def systems(arguments):
    """Command lines without the work, by name."""
    python = [sys.executable]
    return {
        "levin": [arguments.levin_bin / "peer_levin"],
        "levin barebones": [arguments.levin_bin / "peer_levin", "--mode", "barebones"],
        "LibTorch by hand": [arguments.levin_bin / "peer_libtorch"],
        "PyTorch": [*python, HERE / "pytorch.py"],
        "PyTorch, fused optimizer": [*python, HERE / "pytorch.py", "--mode", "fused"],
        "Accelerate": [*python, HERE / "accelerate_.py"],
        "Lightning, all off": [*python, HERE / "lightning_.py", "--mode", "off"],
        "Lightning": [*python, HERE / "lightning_.py"],
    }


def loaders(arguments):
    levin = [arguments.levin_bin / "peer_levin", "--work", "loader"]
    pytorch = [sys.executable, HERE / "pytorch_loader.py", "--work", "loader"]
    commands = {f"levin, {n} workers": [*levin, "--workers", str(n)] for n in (0, 1, 2)}
    commands |= {f"PyTorch, {n} workers": [*pytorch, "--workers", str(n)] for n in (0, 1, 2)}
    commands["PyTorch, whole batches by indexing"] = [*pytorch, "--mode", "whole"]
    if arguments.quick:
        commands = {name: [*command, "--images", "3200"] for name, command in commands.items()}
    return commands


def agree(kind, values):
    """Ends the program when systems that should have computed the same did not."""
    reference_name, reference = next(iter(values.items()))
    for name, value in values.items():
        if not abs(value - reference) <= LOSS_TOLERANCE * abs(reference):
            sys.exit(f"{kind}: {name} got {value}, {reference_name} {reference}: not the same work")


def measure_steps(arguments, commands, results):
    for work in arguments.works:
        steps, warmup = QUICK_STEPS if arguments.quick else WORKS[work]
        options = ["--work", work, "--steps", str(steps), "--warmup", str(warmup)]
        first, last = {}, {}
        for name, command in commands.items():
            said = measure.run([*command, *options]).said
            results["steps"].setdefault(work, {}).setdefault(name, []).append(said["step_us"])
            first[name], last[name] = said["first_loss"], said["last_loss"]
            print(f"{work:10} {name:28} {said['step_us']:12.1f} us a step", file=sys.stderr)
        agree(f"{work}, first loss", first)
        agree(f"{work}, last loss", last)


def measure_start(commands, results):
    for name, command in commands.items():
        if name == "PyTorch, fused optimizer":
            continue
        outcome = measure.run([*command, "--work", "mlp_sgd"])
        series = results["start"].setdefault(name, {"seconds": [], "peak_mb": []})
        series["seconds"].append(outcome.seconds_to_first_step)
        series["peak_mb"].append(outcome.peak_mb)
        print(f"{'start':10} {name:28} {outcome.seconds_to_first_step:12.3f} s", file=sys.stderr)


def measure_loaders(arguments, results):
    means = {}
    for name, command in loaders(arguments).items():
        said = measure.run(command).said
        results["loader"].setdefault(name, []).append(said["images_per_s"])
        means[name] = said["mean"]
        print(f"{'loader':10} {name:36} {said['images_per_s']:12.0f} images/s", file=sys.stderr)
    agree("loader, mean of the pixels", means)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin",
                        help="folder of peer_levin and peer_libtorch")
    parser.add_argument("--rounds", type=int, help="default 7, with --quick 1")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--only", nargs="+", choices=["steps", "start", "loader"],
                        default=["steps", "start", "loader"])
    parser.add_argument("--without", nargs="+", default=[], metavar="SYSTEM",
                        help="leave out, as \"Lightning\" \"Accelerate\"")
    parser.add_argument("--quick", action="store_true", help="few steps: proves that all of it runs")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    parser.add_argument("--json", type=pathlib.Path, help="every single value; beside --out if unset")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 7)
    return arguments


def main():
    arguments = parse_arguments()
    commands = {name: command for name, command in systems(arguments).items()
                if name not in arguments.without}
    for command in commands.values():
        if not pathlib.Path(command[0]).exists():
            sys.exit(f"no {command[0]}; build it with -DLEVIN_BUILD_BENCH=ON, or name its folder "
                     "by --levin-bin")
    results = {"machine": machine.describe(arguments.levin_bin.parent), "rounds": arguments.rounds,
               "steps": {}, "start": {}, "loader": {}}
    for _ in range(arguments.rounds):
        if "steps" in arguments.only:
            measure_steps(arguments, commands, results)
        if "start" in arguments.only:
            measure_start(commands, results)
        if "loader" in arguments.only:
            measure_loaders(arguments, results)
    text = report.markdown(results)
    print(text)
    if arguments.out:
        arguments.out.write_text(text)
    if json_path := arguments.json or (arguments.out and arguments.out.with_suffix(".json")):
        json_path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
