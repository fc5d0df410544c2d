"""The same training on two ranks, one thread each, by levin and its peers, in turn.

    python bench/peers/ranks.py --levin-bin build/bin
    python bench/peers/ranks.py --levin-bin build/bin --out bench/RANKS.md
    python bench/peers/ranks.py --levin-bin build/bin --only collectives
    python bench/peers/ranks.py --levin-bin build/bin --quick

Run by the Python that has the peers (requirements.txt).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import kills
import machine
import measure
import report

HERE = pathlib.Path(__file__).parent
WORKS = {"mlp_10m": "MLP 784-2048-2048-2048-10 (10 M), batch 64 a rank, Adam",
         "gpt_10m": "GPT, 8 layers, d=320, T=64 (10 M), batch 4 a rank, AdamW"}
# What levin promises of its ratio to PyTorch DDP, by work and system.
LIMITS = {("mlp_10m", "levin"): 0.65, ("gpt_10m", "levin"): 0.90,
          ("mlp_10m", "levin over gloo"): 0.9, ("gpt_10m", "levin over gloo"): 1.0}
LOSS_TOLERANCE = 1e-3
PARTS = ["steps", "collectives", "kills"]


def systems(arguments):
    levin = [arguments.levin_bin / "peer_levin", "--devices", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return {
        "levin": levin,
        "levin over gloo": [*levin, "--backend", "gloo"],
        "PyTorch DDP": [*torchrun, HERE / "pytorch_ddp.py"],
        "Accelerate": [*torchrun, HERE / "accelerate_.py"],
        "Lightning": [sys.executable, HERE / "lightning_.py", "--devices", "2"],
        "DeepSpeed": [*torchrun, HERE / "deepspeed_.py"],
    }


def systems_that_run(arguments, results):
    """All but those that fail at two steps of the small MLP; why is kept."""
    running = {}
    for name, command in systems(arguments).items():
        why = failure_of([*command, "--work", "mlp_sgd"])
        if why is None:
            running[name] = command
            continue
        if name in ("levin", "PyTorch DDP"):  # what all others are compared with
            sys.exit(f"{name} cannot run here: {why}")
        results["cannot_run"][name] = why
        print(f"{name} cannot run here: {why}", file=sys.stderr)
    return running


def failure_of(command):
    """None, or the line that says what went wrong: a traceback's first error, else the last line."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = subprocess.run([str(part) for part in command], cwd=folder, text=True,
                                     env=measure.environment(), capture_output=True, timeout=120)
        except subprocess.TimeoutExpired:
            return "no end within 120 s"
    if outcome.returncode == 0:
        return None
    lines = [line.strip() for line in outcome.stderr.splitlines() if line.strip()]
    return next((line for line in lines if "Error: " in line), lines[-1] if lines else "no word")


def measure_steps(arguments, results):
    for work in arguments.works:
        for accumulate in (1, 4):
            options = ["--work", work, "--steps", str(arguments.steps),
                       "--warmup", str(arguments.warmup), "--accumulate", str(accumulate)]
            losses = {}
            for name, command in arguments.systems.items():
                said = measure.run([*command, *options]).said
                key = f"{work}/{accumulate}"
                results["steps"].setdefault(key, {}).setdefault(name, []).append(said["step_us"])
                losses[name] = said["last_loss"]
                print(f"{key:12} {name:20} {said['step_us'] / 1e3:10.1f} ms", file=sys.stderr)
            for name, loss in losses.items():
                if abs(loss - losses["levin"]) > LOSS_TOLERANCE * abs(loss):
                    sys.exit(f"{work}: {name} got {loss}, levin {losses['levin']}: not the same work")


def measure_collectives(arguments, results):
    program = arguments.levin_bin / "ranks" / "bench_collectives"
    options = ["--seconds", f"{arguments.seconds:g}", "--most-bytes", f"{arguments.most_bytes}"]
    commands = {backend: [program, "--devices", "2", "--backend", backend, *options]
                for backend in ("shm", "gloo")}
    for mpi in ("openmpi", "mpich"):
        its_own = arguments.levin_bin / "ranks" / f"bench_collectives_{mpi}"
        if its_own.exists():
            two = [f"mpirun.{mpi}", "-n", "2"]
            commands[f"{mpi} itself"] = [*two, its_own, f"{arguments.seconds:g}",
                                         f"{arguments.most_bytes}"]
            commands[f"mpi by {mpi}"] = [*two, program, "--backend", "mpi", *options]
    for name, command in commands.items():
        outcome = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                                 env=measure.environment() | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                              "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        if outcome.returncode != 0:
            why = f"ended with {outcome.returncode}"
            results["cannot_run"][f"collectives by {name}"] = why
            print(f"collectives by {name} {why}:\n{outcome.stderr[-2000:]}", file=sys.stderr)
            continue
        for line in outcome.stdout.splitlines():
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            key = f"{row['operation']}/{row['bytes']}"
            system = name + (", in shared memory" if row["shared"] else "")
            results["collectives"].setdefault(key, {}).setdefault(system, []).append(row["us"])
        print(f"collectives {name} done", file=sys.stderr)


def step_tables(results):
    for key, series in results["steps"].items():
        work, accumulate = key.split("/")
        per = "batch" if accumulate == "1" else f"batch, {accumulate} of them a step"
        yield f"## {WORKS[work]}, milliseconds a {per}"
        yield "| | ms | ratio to PyTorch DDP | promised |"
        yield "|---|---|---|---|"
        for name, values in series.items():
            ratio = report.ratio(values, series["PyTorch DDP"])
            bound = LIMITS.get((work, name)) if accumulate == "1" else None
            promise = "" if bound is None else f"at most {bound:g}: {'yes' if ratio <= bound else 'NO'}"
            yield f"| {name} | {report.spread([v / 1e3 for v in values])} | {ratio:.3g} | {promise} |"
        yield ""


def collective_tables(results):
    operations = {}
    for key, series in results["collectives"].items():
        operation, size = key.split("/")
        operations.setdefault(operation, {})[int(size)] = series
    for operation, sizes in operations.items():
        names = list(dict.fromkeys(name for series in sizes.values() for name in series))
        yield f"## {operation} of 2 ranks, microseconds (median)"
        yield "| bytes | " + " | ".join(names) + " |"
        yield "|---" * (len(names) + 1) + "|"
        for size, series in sizes.items():
            cells = [report.number(statistics.median(series[name])) if name in series else ""
                     for name in names]
            yield f"| {size:,} | " + " | ".join(cells) + " |"
        yield ""


def left_out(results):
    for name, why in results["cannot_run"].items():
        yield f"{name} could not run here: {why}\n"


def quick(arguments):
    """Only proves that all of it runs: its numbers mean nothing."""
    arguments.rounds, arguments.steps, arguments.warmup, arguments.kills = 1, 4, 4, 1
    arguments.seconds, arguments.most_bytes = 0.01, 400_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed batches; a multiple of 4")
    parser.add_argument("--warmup", type=int, default=8, help="batches before them; likewise")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--seconds", type=float, default=0.1, help="of a collective of one size")
    parser.add_argument("--most-bytes", type=int, default=400_000_000, help="of a collective")
    parser.add_argument("--kills", type=int, default=2, help="of each launcher, a round")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true", help="few steps, to see that all of it runs")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    if arguments.quick:
        if arguments.out:
            parser.error("--quick gives no numbers to keep: leave out --out")
        quick(arguments)
    results = {"machine": machine.describe(arguments.levin_bin.parent), "rounds": arguments.rounds,
               "steps": {}, "cannot_run": {}, "collectives": {}, "kills": {}}
    if "steps" in arguments.only:
        arguments.systems = systems_that_run(arguments, results)
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        if "steps" in arguments.only:
            measure_steps(arguments, results)
        if "collectives" in arguments.only:
            measure_collectives(arguments, results)
        if "kills" in arguments.only:
            kills.measure_kills(arguments.levin_bin, arguments.kills, results["kills"], seed=number)
        if arguments.out:  # each round, so that a run that is broken off leaves what it has
            arguments.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    text = "\n".join(["# DDP: two ranks on one machine, levin and its peers", "",
                      *report.machine_lines(results["machine"], results["rounds"]), "",
                      *step_tables(results), *collective_tables(results),
                      *(kills.table(results["kills"]) if results["kills"] else []),
                      *left_out(results)])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
