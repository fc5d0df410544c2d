"""Steps in bf16-mixed and in float32, by levin, by PyTorch's autocast and by Accelerate.

    python bench/peers/precision.py --levin-bin build/bin --out bench/PRECISION.md
"""

import argparse
import pathlib
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
    results = {}
    for _ in range(arguments.rounds):
        measure_round(arguments, results)
    text = "\n".join(["# Mixed precision, levin and its peers", "",
                      *report.machine_lines(machine.describe(arguments.levin_bin.parent),
                                            arguments.rounds), "",
                      *(line for work in arguments.works for line in table(work, results))])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
