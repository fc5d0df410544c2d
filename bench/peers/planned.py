"""What `levin plan` forecasts of a training against what the training does: memory of all ranks (PSS),
collectives of a step by number and bytes, time of a step.

    python bench/peers/planned.py --levin-bin build/bin
    python bench/peers/planned.py --levin-bin build/bin --works gpt_10m --ranks 2 --rounds 3

Memory is the proportional set size (PSS: what processes share counts once) of all ranks, at its
highest during the steps, less that of the same program with a network of 10,000 parameters. The
forecast's is without the kind "process", which that takes away. Rates are those that
`levin env --measure` has found on the machine just before.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

import memory

MODES = {"single": (1, "", "auto"), "ddp": (0, "", "auto"), "zero1": (0, "zero1", "auto"),
         "zero2": (0, "zero2", "auto"), "zero3": (0, "zero3", "auto"), "fsdp": (0, "fsdp", "auto"),
         "ddp gloo": (0, "", "gloo"), "zero1 gloo": (0, "zero1", "gloo"),
         "zero3 gloo": (0, "zero3", "gloo"), "fsdp gloo": (0, "fsdp", "gloo")}
STEPS = {"mlp_sgd": 800, "mlp_10m": 16, "gpt_10m": 12, "mlp_100m": 8}
# A batch has so many numbers of float32 and of int64. A rank holds the data of all its steps.
BATCH = {"mlp_sgd": (32 * 64, 32), "mlp_10m": (64 * 784, 64), "gpt_10m": (0, 4 * 130),
         "mlp_100m": (16 * 4096, 16)}


def run(command):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([str(part) for part in command], cwd=folder, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        began = threading.Event()
        # Anonymous and shared memory: the library's files are shared with other programs.
        watch = memory.Watch(process.pid, began, ("Pss_Anon:", "Pss_Shmem:"), 0.02)
        watch.start()
        said = None
        for line in process.stdout:
            if "first step done" in line:
                began.set()
            if line.startswith('{"'):
                said = json.loads(line)
        watch.ended = True
        watch.join()
    if process.wait() != 0 or said is None:
        sys.exit(f"failed: {command}")
    return said, watch.most / 1e6


def train(arguments, work, mode, ranks):
    """What it says, and its memory in MB without the data set."""
    said, most = run(program(arguments, work, mode, ranks))
    batches = STEPS[work] + warmup(work) + 1
    floats, integers = BATCH[work]
    return said, most - ranks * batches * (4 * floats + 8 * integers) / 1e6


def warmup(work):
    return max(2, STEPS[work] // 4)


def program(arguments, work, mode, ranks):
    _, name, backend = MODES[mode]
    steps = STEPS[work]
    command = [arguments.levin_bin / "peer_levin", "--work", work, "--devices", ranks,
               "--backend", backend, "--steps", steps, "--warmup", warmup(work)]
    return [*command, "--mode", name] if name else command


def forecast(arguments, work, mode, ranks, cluster):
    strategy = "single" if ranks == 1 else mode.split()[0]
    command = [arguments.levin_bin / "levin", "plan", "--strategy", strategy, "--mesh",
               f"dp={ranks}", "--cluster", cluster, "--json",
               *program(arguments, work, mode, ranks)]
    text = subprocess.run([str(part) for part in command], check=True, capture_output=True,
                          text=True).stdout
    return json.loads(text)["forecasts"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--works", nargs="+", default=["mlp_10m", "gpt_10m"])
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cluster", help="a cluster's file; measured if it is not given")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.resolve()
    with tempfile.TemporaryDirectory() as folder:
        clusters = {}

        def cluster_of(backend, ranks):
            key = (backend, ranks)
            if arguments.cluster is not None or key in clusters:
                return clusters.get(key, arguments.cluster)
            clusters[key] = f"{folder}/{backend}_{ranks}.toml"
            subprocess.run([arguments.levin_bin / "levin", "env", "--measure", clusters[key],
                            "--ranks", str(ranks), "--backend", backend], check=True,
                           stdout=subprocess.DEVNULL)
            return clusters[key]

        print("| work | strategy | ranks | memory, MB | forecast | off | step, ms | forecast | off |")
        print("|---|---|---|---|---|---|---|---|---|")
        for work in arguments.works:
            for mode in arguments.modes:
                ranks = MODES[mode][0] or arguments.ranks
                planned = forecast(arguments, work, mode, ranks, cluster_of(MODES[mode][2], ranks))
                memory, step = [], []
                for _ in range(arguments.rounds):
                    tiny = train(arguments, "mlp_sgd", mode, ranks)[1]
                    said, most = train(arguments, work, mode, ranks)
                    memory.append(most - tiny)
                    step.append(said["step_us"] / 1e3)
                measured, ms = statistics.median(memory), statistics.median(step)
                expected = ranks * (planned["memory_bytes"] - planned["memory"]["process"]) / 1e6
                expected_ms = planned["step_s"] * 1e3
                print(f"| {work} | {mode} | {ranks} | {measured:.1f} | {expected:.1f} | "
                      f"{100 * (expected / measured - 1):+.1f} % | {ms:.1f} | {expected_ms:.1f} | "
                      f"{100 * (expected_ms / ms - 1):+.1f} % |", flush=True)


if __name__ == "__main__":
    main()
