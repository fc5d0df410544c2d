"""The GPU benchmarks: levin beside PyTorch of the same machine, in one run.

    python bench/gpu/run.py --bin build/bin                            all of them, in the order of their worth
    python bench/gpu/run.py --bin build/bin --work gpt2                one of them
    python bench/gpu/run.py --bin build/bin --device cpu --small       proves that all of it runs
    python bench/gpu/run.py --table gpu.json --out bench/GPU.md        the table of what a run has written

All systems of a work are started, made warm one after another, and then timed in three rounds in turn. Medians of
the rounds; the clock is read when the device has done all it was given. Losses of the first steps, replayed ones
among them, have to agree before a figure counts. A line of JSON for each work goes to the end of the file that
$LEVIN_GPU_JSON names. Exits with 0 where all is well, 1 where something failed, 77 where there is no GPU. With
LEVIN_GPU_TESTS_DEVICE=cpu, as a dry run of scripts/gpu_check.sh has it, --device cpu --small --no-compile is taken.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

import rows
import table

HERE = pathlib.Path(__file__).parent
NO_GPU = 77


def rates(sizes, steps, seconds):
    import works
    return [works.samples_of(sizes) * steps / each for each in seconds]


def versions(device):
    import torch
    import works  # puts bench/peers on the path
    import machine
    found = {"python": platform.python_version(), "torch": torch.__version__}
    found |= {name: machine.version_of(name) for name in ("transformers", "peft")}
    if device == "cuda":
        found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                  "driver": machine.first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])}
    return found


def card_of(device):
    import torch
    return torch.cuda.get_device_name(0) if device == "cuda" else "CPU, no card"


class Run:
    """One work: its systems, and what they said."""

    def __init__(self, name, arguments):
        import works
        self.row = rows.ROWS[name]
        self.name = name
        self.arguments = arguments
        self.sizes = works.sizes_of(name, arguments.small)
        self.deadline = time.monotonic() + arguments.limit
        self.trouble = []
        self.notes = []
        self.said = {}  # by system

    def systems(self):
        wanted = [system for system in self.row.systems if self.arguments.device == "cuda" or not system.needs_gpu]
        return [system for system in wanted if self.arguments.compile or not system.compiles]

    def command(self, system, folder):
        program = [self.arguments.bin / "gpu_bench"] if system.is_levin else [sys.executable, HERE / "pytorch_gpu.py"]
        return [*program, "--work", self.sizes["work"], "--mode", system.mode, "--device", self.arguments.device,
                "--folder", folder, "--workers", system.workers]

    def guarded(self, system, served, call):
        """Whether it went well; what did not is noted, and the others go on."""
        from served import TooLong, Trouble
        try:
            call()
            return True
        except Trouble as trouble:
            is_compiler = isinstance(trouble, TooLong) and system.compiles
            (self.notes if is_compiler else self.trouble).append(str(trouble))
            self.said.pop(served.name, None)
            return False

    def serve(self, folder):
        from served import Served
        alive = [(system, Served(system.name, self.command(system, folder), self.arguments.device,
                                 folder / f"words_{number}")) for number, system in enumerate(self.systems())]
        every = [served for _, served in alive]
        try:
            alive = [pair for pair in alive if self.guarded(*pair, lambda: pair[1].answer(self.deadline, "start"))]
            alive = self.warm(alive)
            for _ in range(self.row.rounds(self.arguments.small)):
                alive = [pair for pair in alive if self.guarded(*pair, lambda: self.time(*pair))]
            for system, served in alive:
                self.guarded(system, served, lambda: self.said[system.name].update(served.call("about", self.deadline)))
            self.measure_card(alive)
        finally:
            for served in every:
                served.end()

    def warm(self, alive):
        """Compilers work while the others are made warm, one at a time: the card's memory is for one of them. One that
        leaves no time to measure the others is ended, which is noted and no failure."""
        steps = self.row.warm(self.arguments.small)
        for system, served in alive:
            if system.compiles:
                served.ask(f"warm {steps}")

        def call(system, served):
            if not system.compiles:
                served.ask(f"warm {steps}")
            deadline = self.deadline - (0.3 * self.arguments.limit if system.compiles else 0)
            self.said[system.name] = served.answer(deadline, "its first steps") | {"seconds": []}
            served.call("trim", self.deadline)

        for pair in sorted(alive, key=lambda pair: pair[0].compiles):
            self.guarded(*pair, lambda: call(*pair))
        return [pair for pair in alive if pair[0].name in self.said]

    def time(self, system, served):
        steps = self.row.steps(self.arguments.small)
        answer = served.call(f"time {self.row.untimed} {steps}", self.deadline)
        self.said[system.name]["seconds"].append(answer["seconds"])
        served.call("trim", self.deadline)

    def measure_card(self, alive):
        self.tflops = None
        if self.arguments.device != "cuda" or not self.row.measures_card:
            return
        for system, served in alive:
            if not system.is_levin and not system.compiles:
                def measure(served=served):
                    self.tflops = served.call("matmul 8192", self.deadline)["tflops"]
                self.guarded(system, served, measure)
                return

    def start(self, folder):
        """Seconds from before a process is made to the end of its first step."""
        import measure
        device = self.arguments.device
        visible = "" if device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES", "0")
        for _ in range(self.row.rounds(self.arguments.small)):
            for system in self.systems():
                try:
                    outcome = measure.run([*self.command(system, folder), "--once"], needs_result=False,
                                          more_environment={"CUDA_VISIBLE_DEVICES": visible})
                except SystemExit as trouble:
                    self.trouble.append(f"{system.name}: {trouble}"[:600])
                    continue
                self.said.setdefault(system.name, {"seconds": [], "losses": []})
                self.said[system.name]["seconds"].append(outcome.seconds_to_first_step)

    def check(self):
        """A benchmark of different work is none."""
        losses = {name: said["losses"] for name, said in self.said.items() if said["losses"]}
        for name, series in losses.items():
            first, *_ = losses.values()
            if len(series) != len(first) or any(
                    not abs(a - b) <= self.row.tolerance * max(abs(b), 1e-2) for a, b in zip(series, first)):
                self.trouble.append(f"not the same work: {name} has the losses {series}, {next(iter(losses))} {first}")
        for system in self.systems():
            said = self.said.get(system.name)
            if said is None or not system.is_levin or system.mode != "replay":
                continue
            if said["refusals"] or not said["replays"]:
                self.trouble.append(f"{system.name}: nothing is replayed: {'; '.join(said['refusals'])}")
            elif self.arguments.device == "cuda" and not any(replay["captured"] for replay in said["replays"]):
                self.trouble.append(f"{system.name}: no CUDA graph was captured")

    def result(self, began):
        import works
        systems = {}
        for name, said in self.said.items():
            if self.name == "start":
                values = said["seconds"]
            else:
                values = rates(self.sizes, self.row.steps(self.arguments.small), said["seconds"])
            systems[name] = {"value": statistics.median(values), "values": values, "losses": said["losses"],
                             "peak_mb": said.get("peak_mb", 0), "replays": said.get("replays", [])}
            if self.sizes["work"] == "gpt2":
                flops = works.flops_per_token(self.sizes, said["parameters"]) * systems[name]["value"]
                peak = works.bf16_peak(card_of(self.arguments.device))
                systems[name]["tflops"] = flops / 1e12
                systems[name]["part_of_peak"] = flops / 1e12 / peak if peak else None
        return {"benchmark": self.name, "title": self.row.title, "unit": self.row.unit,
                "status": "error" if self.trouble else "ok", "trouble": self.trouble, "notes": self.notes,
                "is_small": self.arguments.small, "device": self.arguments.device,
                "card": card_of(self.arguments.device), "date": datetime.date.today().isoformat(),
                "versions": versions(self.arguments.device), "systems": systems,
                "goals": table.goals(self.row, systems), "matmul_tflops": getattr(self, "tflops", None),
                "seconds": round(time.monotonic() - began, 1)}


def run_row(name, arguments):
    import works
    began = time.monotonic()
    run = Run(name, arguments)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        works.write(run.sizes, folder)
        run.start(folder) if name == "start" else run.serve(folder)
    run.check()
    if not run.said and not run.trouble:
        run.trouble.append("no system ran")
    return run.result(began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--work", nargs="+", choices=rows.ROWS, default=list(rows.ROWS))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="sizes that only prove that it runs")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="without torch.compile")
    parser.add_argument("--limit", type=float, default=85, help="seconds that a work may take")
    parser.add_argument("--table", type=pathlib.Path, help="print the table of this file, and run nothing")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file to write the table to")
    arguments = parser.parse_args()
    arguments.bin = arguments.bin.absolute()
    if os.environ.get("LEVIN_GPU_TESTS_DEVICE") == "cpu":
        arguments.device, arguments.small, arguments.compile = "cpu", True, False
    if arguments.table:
        results = table.results_in(arguments.table.read_text())
    else:
        import torch
        if arguments.device == "cuda" and not torch.cuda.is_available():
            print("no GPU: PyTorch sees no CUDA device; --device cpu --small proves that the benchmarks run")
            sys.exit(NO_GPU)
        if not (arguments.bin / "gpu_bench").exists():
            sys.exit(f"no gpu_bench in {arguments.bin}; build the target gpu_bench, and give --bin its folder")
        results = []
        for name in arguments.work:
            results.append(run_row(name, arguments))
            print("\n".join(table.section(results[-1])), flush=True)
            if os.environ.get("LEVIN_GPU_JSON"):
                with open(os.environ["LEVIN_GPU_JSON"], "a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    text = table.document(results)
    if arguments.table:
        print(text)
    if arguments.out:
        arguments.out.write_text(text)
    if any(result["status"] != "ok" for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
