"""Steps that levin replays, beside its own eager ones, plain PyTorch's and torch.compile's; what
recording costs an operator.

    python bench/peers/replay.py --levin-bin build/bin --out bench/REPLAY.md
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
    "mlp_sgd": (3000, 300),
    "mlp_adam": (3000, 300),
    "cnn": (60, 8),
    "gpt": (60, 8),
}
PROMISED = {"mlp_sgd": 0.20, "mlp_adam": 0.15, "cnn": 1.0, "gpt": 0.95}  # of PyTorch's eager step
LOSS_TOLERANCE = 1e-3  # relative; levin's own two must be the same bits
LEVIN = "levin, replay"


def systems(arguments):
    pytorch = [sys.executable, HERE / "pytorch.py"]
    return {
        LEVIN: [arguments.levin_bin / "peer_levin", "--mode", "replay"],
        "levin, replay, each step checked": [arguments.levin_bin / "peer_levin", "--mode",
                                             "replay_every"],
        "levin, replay, never checked": [arguments.levin_bin / "peer_levin", "--mode",
                                         "replay_unchecked"],
        "levin, replay by hand": [arguments.levin_bin / "peer_replay"],
        "levin, eager": [arguments.levin_bin / "peer_levin"],
        "PyTorch, eager": pytorch,
        "PyTorch, torch.compile": [*pytorch, "--mode", "compile"],
    }


def measure_round(arguments, times, memory):
    for work in arguments.works:
        steps, warmup = WORKS[work]
        losses = {}
        for name, command in systems(arguments).items():
            outcome = measure.run([*command, "--work", work, "--steps", str(steps), "--warmup",
                                   str(warmup)])
            times.setdefault(work, {}).setdefault(name, []).append(outcome.said["step_us"])
            memory.setdefault(work, {}).setdefault(name, []).append(outcome.peak_mb)
            losses[name] = outcome.said["last_loss"]
            print(f"{work:10} {name:24} {outcome.said['step_us']:12.1f} us a step",
                  file=sys.stderr)
        if losses[LEVIN] != losses["levin, eager"]:
            sys.exit(f"{work}: a replayed step is not the eager one, the losses are {losses}")
        if max(losses.values()) - min(losses.values()) > LOSS_TOLERANCE * max(losses.values()):
            sys.exit(f"{work}: not the same work, the losses are {losses}")


def measure_recording(arguments, costs):
    """Microseconds an operator: recording less running."""
    said = subprocess.run(
        [arguments.levin_bin / "bench_graph", "--benchmark_format=json",
         "--benchmark_filter=^(eager|traced|recorded|checked)$"], check=True, text=True, capture_output=True,
        env=measure.environment()).stdout
    each = {run["name"]: run["real_time"] / run["operators"] for run in json.loads(said)["benchmarks"]}
    unit = {run["time_unit"] for run in json.loads(said)["benchmarks"]}
    assert unit == {"ns"}, unit
    for name, series in costs.items():
        series.append((each[name] - each["eager"]) / 1000)


def table(work, times, memory):
    eager = "PyTorch, eager"
    value = report.ratio(times[LEVIN], times[eager])
    lines = [f"## {report.TITLES[work]}", "",
             f"{LEVIN} / {eager}: {value:.3g}, wanted at most {PROMISED[work]:g}: "
             f"{'yes' if value <= PROMISED[work] else 'NO'}", "",
             "| | us a step | this / PyTorch, eager | peak memory, MB |", "|---|---|---|---|"]
    for name, series in times.items():
        lines.append(f"| {name} | {report.spread(series)} | "
                     f"{report.ratio(series, times[eager]):.3g} | {report.spread(memory[name])} |")
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    times, memory, costs = {}, {}, {"traced": [], "recorded": [], "checked": []}
    for _ in range(arguments.rounds):
        measure_recording(arguments, costs)
        measure_round(arguments, times, memory)
    text = "\n".join(["# Compiled steps (--compile replay), levin and its peers", "",
                      *report.machine_lines(machine.describe(arguments.levin_bin.parent),
                                            arguments.rounds), "",
                      "levin's replayed and eager steps end with the same loss, bit for bit; otherwise "
                      "the script does not write this page.", "",
                      f"Recording adds {report.spread(costs['traced'])} us to an operator. With "
                      f"what the host does it adds {report.spread(costs['recorded'])} us, and with a comparison to "
                      f"the recording before {report.spread(costs['checked'])} us.", "",
                      *(line for work in arguments.works
                        for line in table(work, times[work], memory[work]))])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
