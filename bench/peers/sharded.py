"""The same training on two ranks, one thread each, divided over them: levin's fsdp and zero, and its
peers, in turn; milliseconds a step, and memory.

    python bench/peers/sharded.py --levin-bin build/bin
    python bench/peers/sharded.py --levin-bin build/bin --out bench/FSDP.md
    python bench/peers/sharded.py --levin-bin build/bin --quick
    python bench/peers/sharded.py --levin-bin build/bin --systems "levin fsdp" "levin fsdp, replayed" FSDP2

Memory is the proportional set size (PSS: what processes share counts once) of all ranks during the
steps, less that of the same program with a network of 10,000 parameters: at its highest, and the median
of the second half. The first steps of a replay are recorded, and steps 4, 5, 7, 11 and 19 are checks; its
timed steps come after them, its highest memory is that of all.
Run by the Python that has the peers (requirements.txt).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

import machine
import measure
import memory
import report
import torch
import work as peer_work
from gpt import GPT

HERE = pathlib.Path(__file__).parent
WORKS = {"mlp_10m": "MLP 784-2048-2048-2048-10 (10 M), batch 64 a rank, Adam",
         "gpt_10m": "GPT, 8 layers, d=320, T=64 (10 M), batch 4 a rank, AdamW",
         "mlp_100m": "MLP of 6 layers of 4096 x 4096 (100 M), batch 16 a rank, Adam"}
# Of the tiny network enough that its memory is met before it ends.
STEPS = {"mlp_sgd": 500, "mlp_10m": 20, "gpt_10m": 8, "mlp_100m": 6}
# Before the timed steps of a replay, which is checked in most of them.
REPLAY_WARMUP = 20
# What levin promises of its ratio to a peer, by system, peer and work.
LIMITS = {("levin fsdp", "FSDP2"): {"mlp_10m": 0.35, "gpt_10m": 0.60, "mlp_100m": 0.25},
          ("levin fsdp", "ZeroRedundancyOptimizer"): {"mlp_10m": 0.45, "gpt_10m": 0.70,
                                                      "mlp_100m": 0.45},
          ("levin fsdp", "levin ddp"): {"mlp_10m": 1.0, "gpt_10m": 1.0, "mlp_100m": 0.8},
          ("levin fsdp over gloo", "FSDP2"): {"mlp_10m": 0.6, "gpt_10m": 0.7, "mlp_100m": 0.45}}
MEMORY_LIMITS = {("levin fsdp", "FSDP2"): 0.8}
LOSS_TOLERANCE = 1e-3


def systems(levin_bin):
    levin = [levin_bin / "peer_levin", "--devices", "2"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return {
        "levin ddp": levin,
        "levin fsdp": [*levin, "--mode", "fsdp"],
        "levin fsdp over gloo": [*levin, "--mode", "fsdp", "--backend", "gloo"],
        "levin fsdp, replayed": [*levin, "--mode", "fsdp_replay"],
        "levin fsdp, replayed over gloo": [*levin, "--mode", "fsdp_replay", "--backend", "gloo"],
        "PyTorch DDP": [*torchrun, HERE / "pytorch_ddp.py"],
        "FSDP2": [*torchrun, HERE / "fsdp_.py"],
        "FSDP2, compiled": [*torchrun, HERE / "fsdp_.py", "--mode", "compile"],
        "ZeroRedundancyOptimizer": [*torchrun, HERE / "fsdp_.py", "--mode", "zero"],
        "DeepSpeed 1": [*torchrun, HERE / "deepspeed_.py", "--mode", "1"],
        "DeepSpeed 2": [*torchrun, HERE / "deepspeed_.py", "--mode", "2"],
        "DeepSpeed 3": [*torchrun, HERE / "deepspeed_.py", "--mode", "3"],
    }


def run(command):
    """What it says, and its memory in MB: (highest, steady)."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([str(part) for part in command], cwd=folder, text=True,
                                   env=measure.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        began = threading.Event()
        watch = memory.Watch(process.pid, began, ("Pss:",), 0.1)
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
        return None, (0.0, 0.0)
    return said, (watch.most / 2**20, watch.steady / 2**20)


def measure_all(arguments, results):
    for name, command in systems(arguments.levin_bin).items():
        if name in results["cannot_run"] or name not in (arguments.systems or [name]):
            continue
        for work in ["mlp_sgd", *arguments.works]:
            steps = arguments.steps or STEPS[work]
            warmup = REPLAY_WARMUP if "replayed" in name else max(2, steps // 4)
            said, memory = run([*command, "--work", work, "--steps", str(steps), "--warmup",
                                str(warmup)])
            if said is None:
                results["cannot_run"][name] = f"failed at {work}"
                print(f"{name} cannot run {work} here", file=sys.stderr)
                break
            results["memory"].setdefault(work, {}).setdefault(name, []).append(memory)
            results["steps"].setdefault(work, {}).setdefault(name, []).append(said["step_us"])
            losses = results["losses"].setdefault(work, {})
            losses.setdefault("first", {})[name] = said["first_loss"]
            losses.setdefault(f"after {warmup + steps} steps", {})[name] = said["last_loss"]
            print(f"{work:10} {name:30} {said['step_us'] / 1e3:10.1f} ms {memory[0]:8.0f} MB, steady "
                  f"{memory[1]:8.0f}", file=sys.stderr)
    for work in arguments.works:
        for when, losses in results["losses"].get(work, {}).items():
            reference, wanted = next(iter(losses.items()))
            for name, loss in losses.items():
                if abs(loss - wanted) > LOSS_TOLERANCE * abs(loss):
                    sys.exit(f"{work}: {name} got the loss {loss} {when}, {reference} {wanted}: not the same work")


def expected_mb(name):
    """Of levin fsdp on two ranks that share memory: parameters, gradients and both moments once, and for
    each rank what forward saves and three buffers of its largest units' gradients."""
    job = peer_work.WORKS[name]
    net = job.make_net()
    blocks = list(net.transformer.h) if isinstance(net, GPT) else list(net)
    sizes = [sum(p.numel() for p in block.parameters()) for block in blocks]
    parameters = {p.data_ptr(): p.numel() for p in net.parameters()}
    sizes.append(sum(parameters.values()) - sum(sizes))
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    x, y = next(iter(job.batches(1, 0)))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        job.loss(net, x, y)
    largest = 4 * sum(sorted(sizes)[-3:])
    return (4 * 4 * sum(parameters.values()) + 2 * (sum(saved.values()) + largest)) / 2**20


def promised(name, peer, work, value):
    bound = LIMITS.get((name, peer), {}).get(work)
    return "" if bound is None else f" ({bound:g}: {'yes' if value <= bound else 'NO'})"


def tables(arguments, results):
    ours = ["levin fsdp", "levin fsdp over gloo", "levin fsdp, replayed", "levin fsdp, replayed over gloo", "levin ddp"]
    for work in arguments.works:
        series = results["steps"].get(work, {})
        yield f"## {WORKS[work]}"
        yield "| | ms a step | " + " | ".join(f"{name} / this" for name in ours) + " | MB | steady MB |"
        yield "|---" * (len(ours) + 4) + "|"
        idle = results["memory"]["mlp_sgd"]
        for name, values in series.items():
            cells = []
            for own in ours:
                if own == name or own not in series:
                    cells.append("")
                    continue
                value = report.ratio(series[own], values)
                cells.append(f"{value:.3g}{promised(own, name, work, value)}")
            base = statistics.median(highest for highest, _ in idle[name])
            memory, steady = (statistics.median(value[i] for value in results["memory"][work][name]) - base
                              for i in (0, 1))
            if name == "levin fsdp":
                fsdp_memory = memory
            yield (f"| {name} | {report.spread([v / 1e3 for v in values])} | " + " | ".join(cells) +
                   f" | {memory:,.0f} | {steady:,.0f} |")
        if "levin fsdp" in series:
            expected = expected_mb(work)
            yield ""
            yield (f"Memory of levin fsdp: expected {expected:,.0f} MB (one copy of parameters, gradients and "
                   f"moments; each rank's activations and its three largest units' gradients), measured "
                   f"{fsdp_memory:,.0f} ({fsdp_memory / expected:.2f}; promised 0.9 to 1.1).")
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="timed steps; by default 6 to 20")
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--systems", nargs="+", help="these alone, by the names in the table")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that all of it runs")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    if arguments.quick:
        if arguments.out:
            parser.error("--quick gives no numbers to keep: leave out --out")
        arguments.rounds, arguments.steps = 1, 2
    results = {"machine": machine.describe(arguments.levin_bin.parent), "rounds": arguments.rounds,
               "steps": {}, "memory": {}, "losses": {}, "cannot_run": {}}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        measure_all(arguments, results)
    text = "\n".join(["# FSDP and ZeRO (a model sharded over two ranks), levin and its peers", "",
                      *report.machine_lines(results["machine"], results["rounds"]), "",
                      "A ratio is levin's time divided by the row's time; the target is in brackets. MB: "
                      "memory of both ranks at its highest, and the median of the second half, minus that of the same "
                      "program with a tiny network.", "",
                      *tables(arguments, results),
                      *(f"{name} could not run here: {why}\n"
                        for name, why in results["cannot_run"].items())])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
