"""Steps in bf16-mixed and in float32, by levin, by PyTorch's autocast and by Accelerate, and what
levin's engine and Accelerate add to a step that computes nothing.

    python bench/peers/precision.py --levin-bin build/bin --out bench/PRECISION.md
"""

import argparse
import json
import pathlib
import subprocess
import sys

import machine
import measure
import report

HERE = pathlib.Path(__file__).parent
WORKS = {  # timed steps, warm-up steps
    "mlp_sgd": (1000, 100),
    "cnn": (60, 5),
    "gpt": (40, 5),
}
LOSS_TOLERANCE = 3e-2  # relative: one rounding more or less in bfloat16 is a hundredth


def systems(arguments):
    return {
        "levin": [arguments.levin_bin / "peer_levin"],
        "PyTorch": [sys.executable, HERE / "pytorch.py"],
        "Accelerate": [sys.executable, HERE / "accelerate_.py"],
    }


def measure_round(arguments, results):
    for work in arguments.works:
        steps, warmup = WORKS[work]
        for precision in ("float32", "bf16"):
            losses = {}
            for name, command in systems(arguments).items():
                said = measure.run([*command, "--work", work, "--precision", precision,
                                    "--steps", str(steps), "--warmup", str(warmup)]).said
                results.setdefault((work, precision), {}).setdefault(name, []).append(
                    said["step_us"])
                losses[name] = said["last_loss"]
                print(f"{work:10} {precision:8} {name:12} {said['step_us']:12.1f} us a step",
                      file=sys.stderr)
            if max(losses.values()) - min(losses.values()) > LOSS_TOLERANCE * max(losses.values()):
                sys.exit(f"{work}, {precision}: not the same work, the losses are {losses}")


def measure_empty(arguments, empty):
    """Loops by hand and through the engine, the model being one number."""
    of_levin = subprocess.run(
        [arguments.levin_bin / "bench_engine", "--benchmark_format=json"], check=True, text=True,
        capture_output=True, env=measure.environment()).stdout
    names = {"by_hand/libtorch_backward": "LibTorch by hand", "by_hand/levin_backward":
             "levin's backward by hand", "through_the_engine/float32": "levin"}
    for run in json.loads(of_levin)["benchmarks"]:
        if run["name"] in names:
            empty.setdefault(names[run["name"]], []).append(run["real_time"] / 1000)
    said = measure.run([sys.executable, HERE / "empty_step.py"]).said
    empty.setdefault("PyTorch by hand", []).append(said["by hand"])
    empty.setdefault("Accelerate", []).append(said["Accelerate"])


def empty_table(empty):
    lines = ["## A step that computes nothing, microseconds", "",
             "The model has one number and the optimizer does nothing, so only the loop takes time.", "",
             "| | a step | more than by hand |", "|---|---|---|"]
    by_hand = {"levin": "LibTorch by hand", "levin's backward by hand": "LibTorch by hand",
               "Accelerate": "PyTorch by hand"}
    for name, values in empty.items():
        more = ""
        if name in by_hand:
            differences = [a - b for a, b in zip(values, empty[by_hand[name]])]
            more = f"{report.statistics.median(differences):+.1f}"
            if name == "levin":
                own = [a - b for a, b in zip(values, empty["levin's backward by hand"])]
                more += f" ({report.statistics.median(own):+.1f} with levin's backward in both)"
        lines.append(f"| {name} | {report.spread(values)} | {more} |")
    return [*lines, ""]


def table(work, results):
    lines = [f"## {report.TITLES[work]}, microseconds a step", "",
             "| | float32 | bf16-mixed | levin / this, bf16-mixed | bf16-mixed / float32 |",
             "|---|---|---|---|---|"]
    ours = results[work, "bf16"]["levin"]
    for name, half in results[work, "bf16"].items():
        whole = results[work, "float32"][name]
        lines.append(f"| {name} | {report.spread(whole)} | {report.spread(half)} | "
                     f"{report.ratio(ours, half):.3g} | {report.ratio(half, whole):.3g} |")
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    results, empty = {}, {}
    for _ in range(arguments.rounds):
        measure_empty(arguments, empty)
        measure_round(arguments, results)
    text = "\n".join(["# Mixed precision, levin and its peers", "",
                      *report.machine_lines(machine.describe(arguments.levin_bin.parent),
                                            arguments.rounds), "",
                      *empty_table(empty), *(line for work in arguments.works for line in table(work, results))])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
