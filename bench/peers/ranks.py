"""The same training on two ranks, one thread each, by levin and its peers, in turn.

    python bench/peers/ranks.py --levin-bin build/bin
    python bench/peers/ranks.py --levin-bin build/bin --out bench/RANKS.md
    python bench/peers/ranks.py --levin-bin build/bin --only collectives

Run by the Python that has the peers (requirements.txt).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

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


def systems(arguments):
    levin = [arguments.levin_bin / "peer_levin", "--devices", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return {
        "levin": levin,
        "levin over gloo": [*levin, "--backend", "gloo"],
        "PyTorch DDP": [*torchrun, HERE / "pytorch_ddp.py"],
        "Accelerate": [*torchrun, HERE / "accelerate_.py"],
        "Lightning": [sys.executable, HERE / "lightning_.py", "--devices", "2"],
    }


def measure_steps(arguments, results):
    for work in arguments.works:
        for accumulate in (1, 4):
            options = ["--work", work, "--steps", str(arguments.steps), "--warmup", "8",
                       "--accumulate", str(accumulate)]
            losses = {}
            for name, command in systems(arguments).items():
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
    commands = {backend: [program, "--devices", "2", "--backend", backend]
                for backend in ("shm", "gloo")}
    for mpi in ("openmpi", "mpich"):
        its_own = arguments.levin_bin / "ranks" / f"bench_collectives_{mpi}"
        if its_own.exists():
            commands[f"{mpi} itself"] = [f"mpirun.{mpi}", "-n", "2", its_own]
            commands[f"mpi by {mpi}"] = [f"mpirun.{mpi}", "-n", "2", program, "--backend", "mpi"]
    for name, command in commands.items():
        outcome = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                                 env=measure.environment() | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                              "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        if outcome.returncode != 0:
            sys.exit(f"{name} ended with {outcome.returncode}:\n{outcome.stderr[-2000:]}")
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24, help="timed batches; a multiple of 4")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--only", nargs="+", choices=["steps", "collectives"],
                        default=["steps", "collectives"])
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    results = {"machine": machine.describe(arguments.levin_bin.parent), "rounds": arguments.rounds,
               "steps": {}, "collectives": {}}
    for _ in range(arguments.rounds):
        if "steps" in arguments.only:
            measure_steps(arguments, results)
        if "collectives" in arguments.only:
            measure_collectives(arguments, results)
    text = "\n".join(["# Two ranks on one machine, levin and its peers", "",
                      *report.machine_lines(results["machine"], results["rounds"]), "",
                      *step_tables(results), *collective_tables(results)])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)
        arguments.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
