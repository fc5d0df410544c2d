"""Programs of torch.export, loaded by levin::load_exported, beside the same networks in C++ and in eager
PyTorch: a training step, an operator's overhead, loading, memory; and export_program. About six minutes.

    python bench/peers/exported.py --levin-bin build/bin --out bench/EXPORTED.md

The temporary folder takes 2 GB. A ratio is taken within a block: some milliseconds of each system, in turn.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine
import measure
import report

HERE = pathlib.Path(__file__).parent
WORKS = {  # steps of a block, warm-up steps; the latter cover recording
    "mlp_sgd": (400, 2000),
    "mlp_adam": (400, 2000),
    "cnn": (6, 30),
    "gpt": (2, 20),
}
CPP, EXPORTED, PYTHON = "C++", "exported", "PyTorch"
CPP_REPLAY, EXPORTED_REPLAY = "C++, replay", "exported, replay"
REGIONS = "exported, each layer under torch.no_grad()"
WANTED = {  # ratio -> at most
    (EXPORTED, CPP): 1.03,
    (EXPORTED, PYTHON): 0.95,
    (EXPORTED_REPLAY, CPP_REPLAY): 1.03,
}
NODE_US, LOAD_RATIO = 0.3, 0.1
COMPARED = 20  # steps after which PyTorch's loss is compared; the four in C++ are the same bits to the end
LOSS_TOLERANCE = 1e-3  # relative


class Server:
    """A peer that trains as many steps as it is told, and says what a step took."""

    def __init__(self, command):
        self.process = subprocess.Popen([str(part) for part in command], env=measure.environment(),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def train(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def servers(arguments, folder, work):
    cpp = [arguments.levin_bin / "peer_exported", "--work", work]
    exported = [*cpp, "--program", folder / f"{work}.pt2"]
    replay = ["--compile", "replay"]
    return {CPP: cpp, EXPORTED: exported, PYTHON: [sys.executable, HERE / "pytorch_exported.py", "train", work],
            CPP_REPLAY: [*cpp, *replay], EXPORTED_REPLAY: [*exported, *replay]}


def check_in_cpp(work, losses):
    if len({loss for name, loss in losses.items() if name != PYTHON}) > 1:
        sys.exit(f"{work}: the steps in C++ are not the same bits, the losses are {losses}")


def check_with_python(work, losses):
    if abs(losses[PYTHON] - losses[CPP]) > LOSS_TOLERANCE * abs(losses[CPP]):
        sys.exit(f"{work}: not the same work, the losses are {losses}")


def measure_steps(arguments, folder, work, times):
    steps, warmup = WORKS[work]
    running = {name: Server(command) for name, command in servers(arguments, folder, work).items()}
    check_with_python(work, {name: server.train(COMPARED)["loss"] for name, server in running.items()})
    for server in running.values():
        server.train(warmup)
    names = list(running)
    for block in range(arguments.blocks):
        turn = block % len(names)
        said = {name: running[name].train(steps) for name in names[turn:] + names[:turn]}
        for name in names:
            times.setdefault(name, []).append(said[name]["step_us"])
    check_in_cpp(work, {name: answer["loss"] for name, answer in said.items()})
    for server in running.values():
        server.close()
    print(f"{work:10} " + ", ".join(f"{name} {statistics.median(times[name]):.1f} us" for name in names),
          file=sys.stderr)


def peer(arguments, *options):
    return measure.run([arguments.levin_bin / "peer_exported", *options]).said


def python_peer(*options):
    return measure.run([sys.executable, HERE / "pytorch_exported.py", *options], needs_result=False).said


def measure_nodes(arguments, folder, nodes):
    for calls in ("add", "scale", "view"):
        for gradients in ("false", "true"):
            said = peer(arguments, "--mode", "nodes", "--program", folder / f"{calls}.pt2",
                        "--calls", calls, "--gradients", gradients)
            calls_us, nodes_us = nodes.setdefault((calls, gradients), ([], []))
            calls_us += said["calls_us"]
            nodes_us += said["nodes_us"]


def add(series, said, prefix=""):
    for name, value in said.items():
        series.setdefault(prefix + name, []).append(value)


def quantiles(values):
    """Median [tenth..ninetieth percentile]."""
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return f"{statistics.median(values):.3f} [{tenths[0]:.3f}..{tenths[-1]:.3f}]"


def verdict(value, most):
    return f"{most:g}: {'yes' if value <= most else 'NO'}"


def steps_lines(work, times):
    lines = [f"## {report.TITLES[work]}", "", "| us a step | |", "|---|---|"]
    lines += [f"| {name} | {report.spread(series)} |" for name, series in times.items()]
    lines += ["", "| ratio | | wanted at most |", "|---|---|---|"]
    for (ours, theirs), most in WANTED.items():
        each = [a / b for a, b in zip(times[ours], times[theirs])]
        lines.append(f"| {ours} / {theirs} | {quantiles(each)} | "
                     f"{verdict(statistics.median(each), most)} |")
    return [*lines, ""]


def nodes_lines(nodes):
    lines = ["## A small operator", "",
             "200 operators on tensors of four numbers, one after another, as calls of C++ and as nodes of a "
             "program; microseconds an operator. \"scale\" multiplies by a number, \"view\" takes a size of "
             "the input.", "",
             "| | autograd | call | node | node - call | wanted at most |", "|---|---|---|---|---|---|"]
    for (calls, gradients), (calls_us, nodes_us) in nodes.items():
        each = [b - a for a, b in zip(calls_us, nodes_us)]
        lines.append(f"| {calls} | {'records' if gradients == 'true' else 'off'} | "
                     f"{statistics.median(calls_us):.3f} | {statistics.median(nodes_us):.3f} | "
                     f"{quantiles(each)} | {verdict(statistics.median(each), NODE_US)} |")
    return [*lines, ""]


def load_lines(load):
    ratio = report.ratio(load["levin load_s"], load["PyTorch load_s"])
    used = [a + b for a, b in zip(load["levin load_s"], load["levin write_s"])]
    rows = {"load_exported": load["levin load_s"], "the first read of each page of the weights": load["levin read_s"],
            "the first write of each page": load["levin write_s"],
            "PyTorch: torch.export.load": load["PyTorch load_s"],
            "PyTorch: that and .module()": load["PyTorch module_s"]}
    return ["## Loading 1.07 GB", "",
            "The file is in the page cache. levin memory-maps it: pages are read when they are used, and copied when "
            "they are written, in the optimizer's first step. PyTorch copies the whole file at once.", "",
            "| | s |", "|---|---|",
            *(f"| {name} | {report.spread(values)} |" for name, values in rows.items()), "",
            f"load_exported / torch.export.load: {ratio:.2g}, wanted at most "
            f"{verdict(ratio, LOAD_RATIO)}. With the first write of all pages "
            f"{report.ratio(used, load['PyTorch load_s']):.2g}.", ""]


def memory_lines(memory):
    return ["## Memory of a forward pass without gradients", "",
            "12 layers of 512 and their ReLUs on [16384, 512], so each value takes 32 MB. The table shows what the pass adds "
            "to the peak resident memory.", "", "| | MB |", "|---|---|",
            *(f"| {name} | {report.spread(values)} |" for name, values in memory.items()), ""]


def export_lines(export):
    return ["## export_program", "",
            "GPT-2 small (124 M parameters), tokens [2, 64], the rows dynamic.", "", "| | |", "|---|---|",
            f"| the weights, MB | {report.spread(export['weights_mb'])} |",
            f"| export_program, s | {report.spread(export['export_s'])} |",
            f"| what it adds to the peak resident memory, MB | {report.spread(export['export_more_mb'])} |",
            f"| load_exported of the file, s | {report.spread(export['load_s'])} |", ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3, help="new processes in each")
    parser.add_argument("--blocks", type=int, default=30, help="of steps, in a round")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    described = machine.describe(arguments.levin_bin.parent)
    steps, nodes, load, memory, export = {}, {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        python_peer("export", folder)
        python_peer("export_large", folder / "large.pt2")
        (folder / "large.pt2").read_bytes()  # into the page cache
        for _ in range(arguments.rounds):
            for work in WORKS:
                measure_steps(arguments, folder, work, steps.setdefault(work, {}))
            measure_nodes(arguments, folder, nodes)
            add(load, peer(arguments, "--mode", "load", "--program", folder / "large.pt2"), "levin ")
            add(load, python_peer("load", folder / "large.pt2"), "PyTorch ")
            add(memory, {CPP: peer(arguments, "--mode", "infer")["more_mb"]})
            for name, program in ((EXPORTED, "chain.pt2"), (REGIONS, "regions.pt2")):
                said = peer(arguments, "--mode", "infer", "--program", folder / program)
                add(memory, {name: said["more_mb"]})
            add(export, peer(arguments, "--mode", "export", "--program", folder / "gpt2_small.pt2"))
    text = "\n".join([
        "# Programs of torch.export, beside C++ and Python", "",
        *report.machine_lines(described, arguments.rounds)[:2], "",
        f"{arguments.rounds} round{'s' if arguments.rounds > 1 else ''} of new processes, one thread each. In a round each system trains "
        f"{arguments.blocks} blocks of some steps, in turn. Times are medians [smallest..largest]; ratios and "
        "differences are taken within a block: median [tenth..ninetieth percentile] of all blocks. "
        "[peers/README.md](peers/README.md) says what is compared.", "",
        "The four C++ systems end with the same loss, bit for bit; otherwise the script does not write this page.", "",
        "    python bench/peers/exported.py --levin-bin build/bin --out bench/EXPORTED.md", "",
        *(line for work in WORKS for line in steps_lines(work, steps[work])),
        *nodes_lines(nodes), *load_lines(load), *memory_lines(memory), *export_lines(export)])
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
