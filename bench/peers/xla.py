"""Steps on XLA, beside LibTorch's eager ones and jax.jit's, on one core of the CPU.

    python bench/peers/xla.py --levin-bin build/bin --out bench/XLA.md
"""

import argparse
import pathlib
import sys

import machine
import measure
import report

HERE = pathlib.Path(__file__).parent
WORKS = {  # timed steps, warm-up steps
    "mlp_sgd": (3000, 300),
    "mlp_wide_sgd": (150, 20),
    "mlp_wide_adam": (150, 20),
    "cnn": (60, 8),
    "gpt": (60, 8),
}
LEVIN, CALLED = "levin, XLA, --compile replay", "levin, XLA"
EAGER, JAX = "LibTorch by hand, eager", "jax.jit"
PROMISED = {  # the most that levin's step takes of another's
    ("mlp_wide_sgd", EAGER): 1.0,
    ("mlp_wide_adam", EAGER): 0.9,
    ("mlp_wide_sgd", JAX): 1.1,
    ("mlp_wide_adam", JAX): 1.1,
    ("gpt", JAX): 1.1,
}
CALLED_PROMISED = {"mlp_sgd": 1.6, "mlp_wide_sgd": 1.05, "mlp_wide_adam": 1.05, "gpt": 1.05}  # of a replayed step
HOST_US = 60  # of the step whose arithmetic is next to nothing
TITLES = {
    "mlp_wide_sgd": "MLP 784-1024-1024-10, batch 128, SGD",
    "mlp_wide_adam": "MLP 784-1024-1024-10, batch 128, Adam",
}
LOSS_TOLERANCE = 1e-2  # relative: sums in another order, hundreds of steps later
# One thread for each of them: that of the program, and those that XLA would start share its core.
ONE_CORE = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}


def systems(arguments):
    return {
        LEVIN: [arguments.levin_bin / "peer_levin", "--mode", "xla_replay"],
        CALLED: [arguments.levin_bin / "peer_levin", "--mode", "xla"],
        EAGER: [arguments.levin_bin / "peer_libtorch"],
        JAX: [sys.executable, HERE / "jax_.py"],
    }


def measure_round(arguments, times, starts):
    for work in arguments.works:
        steps, warmup = WORKS[work]
        losses = {}
        for name, command in systems(arguments).items():
            outcome = measure.run([*command, "--work", work, "--steps", str(steps), "--warmup",
                                   str(warmup)], arguments.core, ONE_CORE)
            times.setdefault(work, {}).setdefault(name, []).append(outcome.said["step_us"])
            starts.setdefault(work, {}).setdefault(name, []).append(outcome.seconds_to_first_step)
            losses[name] = outcome.said["last_loss"]
            print(f"{work:14} {name:24} {outcome.said['step_us']:12.1f} us a step",
                  file=sys.stderr)
        if max(losses.values()) - min(losses.values()) > LOSS_TOLERANCE * max(losses.values()):
            sys.exit(f"{work}: not the same work, the losses are {losses}")


def table(work, times, starts):
    lines = [f"## {TITLES.get(work) or report.TITLES[work]}", "",
             "| | us a step | levin / this | promised | seconds to the first step |",
             "|---|---|---|---|---|"]
    for name, series in times.items():
        ratio = report.ratio(times[LEVIN], series)
        bound = PROMISED.get((work, name))
        promised = "" if bound is None else (
            f"at most {bound:g}: {'yes' if ratio <= bound else 'NO'}")
        shown = "" if name == LEVIN else f"{ratio:.3g}"
        lines.append(f"| {name} | {report.spread(series)} | {shown} | {promised} | "
                     f"{report.spread(starts[name])} |")
    if work in CALLED_PROMISED:
        called, most = report.ratio(times[CALLED], times[LEVIN]), CALLED_PROMISED[work]
        lines += ["", f"A step that is called takes {called:.3g} times a replayed one (at most {most:g}: "
                  f"{'yes' if called <= most else 'NO'})."]
    if work == "mlp_sgd":
        host = sorted(times[LEVIN])[len(times[LEVIN]) // 2]
        lines += ["", f"All of levin's replayed step, its arithmetic too, takes {host:.3g} us: what the host "
                  f"does for a step is at most that (at most {HOST_US}: "
                  f"{'yes' if host <= HOST_US else 'NO'})."]
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0, help="the one that all run on")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    times, starts = {}, {}
    for _ in range(arguments.rounds):
        measure_round(arguments, times, starts)
    text = "\n".join(["# XLA, levin and its peers", "",
                      *report.machine_lines(machine.describe(arguments.levin_bin.parent),
                                            arguments.rounds),
                      f"jax {machine.version_of('jax')}, jaxlib {machine.version_of('jaxlib')}. Each "
                      "system, with its compiler and the threads of its runtime, runs on the same "
                      "single core. levin is its Trainer with its DataLoader and a logged loss; "
                      "jax.jit is a bare loop over arrays in memory.", "",
                      *(line for work in arguments.works
                        for line in table(work, times[work], starts[work]))])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
