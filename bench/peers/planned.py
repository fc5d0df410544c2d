"""What `levin plan` forecasts of a training against what the training does: memory of all ranks, or with --times
the time of a step.

    python bench/peers/planned.py --levin-bin build/bin
    python bench/peers/planned.py --levin-bin build/bin --works gpt_10m --ranks 4 --rounds 3
    python bench/peers/planned.py --levin-bin build/bin --times --rounds 5 --modes ddp fsdp

Memory is the proportional set size (PSS: what processes share counts once) of all ranks, at its
highest during the steps, less that of the same program with a network of 10,000 parameters. The
forecast's is without the kind "process", which that takes away.

Times need a quiet machine with a core for each rank. `levin env --measure` measures its rates before and after
the rounds of each row, and the forecast is the mean of both; the table says how far the two are apart, and
the load of the machine during the row.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

import memory

# Ranks (0: as asked), the peer's mode, the strategy of the forecast, the backend.
MODES = {"single": (1, "", "single", "auto"), "ddp": (0, "", "ddp", "auto"),
         "zero1": (0, "zero1", "zero1", "auto"), "zero2": (0, "zero2", "zero2", "auto"),
         "zero3": (0, "zero3", "zero3", "auto"), "fsdp": (0, "fsdp", "fsdp", "auto"),
         "hsdp": (0, "hsdp", "fsdp", "auto"),
         "ddp gloo": (0, "", "ddp", "gloo"), "zero1 gloo": (0, "zero1", "zero1", "gloo"),
         "zero2 gloo": (0, "zero2", "zero2", "gloo"), "zero3 gloo": (0, "zero3", "zero3", "gloo"),
         "fsdp gloo": (0, "fsdp", "fsdp", "gloo"), "hsdp gloo": (0, "hsdp", "fsdp", "gloo")}
STEPS = {"mlp_sgd": 200, "mlp_10m": 16, "gpt_10m": 12, "mlp_100m": 8}
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


def warmup(work):
    return max(2, STEPS[work] // 4)


def program(arguments, work, mode, ranks):
    _, name, _, backend = MODES[mode]
    command = [arguments.levin_bin / "peer_levin", "--work", work, "--devices", ranks,
               "--backend", backend, "--steps", STEPS[work], "--warmup", warmup(work)]
    return [*command, "--mode", name] if name else command


def memory_of(arguments, work, mode, ranks):
    """In MB, without the data set."""
    most = run(program(arguments, work, mode, ranks))[1]
    batches = STEPS[work] + warmup(work) + 1
    floats, integers = BATCH[work]
    return most - ranks * batches * (4 * floats + 8 * integers) / 1e6


def forecast(arguments, work, mode, ranks, cluster):
    mesh = f"dp=2,fsdp={ranks // 2}" if mode.startswith("hsdp") else f"dp={ranks}"
    command = [arguments.levin_bin / "levin", "plan", "--strategy", MODES[mode][2], "--mesh", mesh,
               "--cluster", cluster, "--json", *program(arguments, work, mode, ranks)]
    text = subprocess.run([str(part) for part in command], check=True, capture_output=True,
                          text=True).stdout
    return json.loads(text)["forecasts"][0]


def backend_of(mode):
    return "shm" if MODES[mode][3] == "auto" else MODES[mode][3]


def any_cluster(folder, mode, ranks):
    """For memory alone, to which the rates do not matter."""
    path = pathlib.Path(folder) / f"{backend_of(mode)}_{ranks}.toml"
    path.write_text(f"""memory_bytes = 1e10
float32_flops_per_s = 1e11
bytes_per_s = 1e10
ranks_per_node = {ranks}
[inside]
backend = "{backend_of(mode)}"
all_reduce_bytes_per_s = 1e9
""")
    return path


def measured_cluster(arguments, folder, mode, ranks):
    path = pathlib.Path(folder) / "measured.toml"
    path.unlink(missing_ok=True)
    subprocess.run([str(part) for part in (arguments.levin_bin / "levin", "env", "--measure", path,
                                           "--ranks", ranks, "--backend", backend_of(mode))],
                   check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # as the peer's ranks have
    return path


def off(expected, measured):
    return f"{100 * (expected / measured - 1):+.1f} %"


def compare_memory(arguments, folder, rows):
    print("| work | strategy | ranks | memory, MB | forecast | off |\n|---|---|---|---|---|---|")
    for work, mode, ranks in rows:
        planned = forecast(arguments, work, mode, ranks, any_cluster(folder, mode, ranks))
        measured = statistics.median(
            memory_of(arguments, work, mode, ranks) - memory_of(arguments, "mlp_sgd", mode, ranks)
            for _ in range(arguments.rounds))
        expected = ranks * (planned["memory_bytes"] - planned["memory"]["process"]) / 1e6
        print(f"| {work} | {mode} | {ranks} | {measured:.1f} | {expected:.1f} | "
              f"{off(expected, measured)} |", flush=True)


def compare_times(arguments, folder, rows):
    print("| work | strategy | ranks | ms a step, of each round | forecasts | off | load |\n"
          "|---|---|---|---|---|---|---|")
    for work, mode, ranks in rows:
        def planned():
            cluster = arguments.cluster or measured_cluster(arguments, folder, mode, ranks)
            return forecast(arguments, work, mode, ranks, cluster)["step_s"] * 1e3
        expected = [planned()]
        rounds = [run(program(arguments, work, mode, ranks))[0]["step_us"] / 1e3
                  for _ in range(arguments.rounds)]
        expected.append(planned())
        print(f"| {work} | {mode} | {ranks} | {' '.join(f'{ms:.1f}' for ms in rounds)} | "
              f"{' '.join(f'{ms:.1f}' for ms in expected)} | "
              f"{off(statistics.mean(expected), statistics.median(rounds))} | "
              f"{os.getloadavg()[0]:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--works", nargs="+", default=["mlp_10m", "gpt_10m"])
    parser.add_argument("--modes", nargs="+", choices=list(MODES))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--times", action="store_true", help="times instead of memory")
    parser.add_argument("--cluster", help="a cluster's file for --times; measured if it is not given")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.resolve()
    # A copy of the parameters is sharded over two ranks at least.
    modes = arguments.modes or [mode for mode in MODES
                                if arguments.ranks >= 4 or not mode.startswith("hsdp")]
    rows = [(work, mode, MODES[mode][0] or arguments.ranks)
            for work in arguments.works for mode in modes]
    with tempfile.TemporaryDirectory() as folder:
        compare = compare_times if arguments.times else compare_memory
        compare(arguments, folder, rows)


if __name__ == "__main__":
    main()
