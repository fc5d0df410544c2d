"""levin on 1, 2 and 4 ranks of this machine, and a model of it up to 1,024 ranks.

    python bench/peers/scaling.py --levin-bin build/bin --out docs/scaling.md
    python bench/peers/scaling.py --results docs/scaling.json --out docs/scaling.md   # without measuring

The first writes into docs/scaling.md, between its markers, what was measured and what follows from it;
the plot goes to docs/scaling.svg, every value to docs/scaling.json. Without --out it prints.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import machine
import measure
import scaling_model as model
import scaling_tables as tables

HERE = pathlib.Path(__file__).parent
BATCHES = {"mlp_10m": 64, "gpt_10m": 4}  # of a rank; divisible by 4
BACKENDS = ("shm", "gloo")
RANKS = (2, 4)


def key(*parts):
    return "/".join(str(part) for part in parts)


def measure_all_reduce(arguments, results):
    program = arguments.levin_bin / "ranks" / "bench_collectives"
    for backend in BACKENDS:
        for ranks in RANKS:
            command = [program, "--devices", ranks, "--backend", backend, "--operation", "all_reduce",
                       "--seconds", arguments.seconds, "--most-bytes", arguments.most_bytes]
            outcome = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                                     env=measure.environment())
            if outcome.returncode != 0:
                sys.exit(f"{command} ended with {outcome.returncode}:\n{outcome.stderr[-2000:]}")
            rows = [json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("{")]
            for row in rows:
                if row["shared"] == (backend == "shm"):  # gradients lie in shared memory where there is any
                    add(results["all_reduce"], key(backend, ranks, row["bytes"]), row["us"])
            print(f"all_reduce {backend} {ranks} ranks", file=sys.stderr)


def add(where, name, value):
    where.setdefault(name, []).append(value)


def step_command(arguments, work, batch, ranks=1, backend="auto"):
    return [str(part) for part in (
        arguments.levin_bin / "peer_levin", "--work", work, "--batch-size", batch, "--devices", ranks,
        "--backend", backend, "--steps", arguments.steps, "--warmup", 4)]


def measure_steps(arguments, results):
    for work, full in BATCHES.items():
        for part in (1, 2, 4):
            said = measure.run(step_command(arguments, work, full // part)).said
            say(results["alone"], key(work, full // part), said["step_us"])
        for ranks in RANKS:
            say(results["apart"], key(work, ranks), apart(arguments, work, full, ranks))
            for batch in (full, full // ranks):
                for backend in BACKENDS:
                    said = measure.run(step_command(arguments, work, batch, ranks, backend)).said
                    say(results["steps"], key(work, backend, ranks, batch), said["step_us"])


def say(where, name, value):
    add(where, name, value)
    print(f"{name:24} {value / 1e3:10.1f} ms", file=sys.stderr)


def apart(arguments, work, batch, count):
    """The step of processes that train at the same moment and know nothing of each other: what sharing
    the machine costs before any communication."""
    processes = [subprocess.Popen(step_command(arguments, work, batch), env=measure.environment(),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, cwd=arguments.scratch)
                 for _ in range(count)]
    times = []
    for process in processes:
        text, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{process.args} ended with {process.returncode}")
        line = [line for line in text.splitlines() if line.startswith('{"')][-1]
        times.append(json.loads(line)["step_us"])
    return statistics.median(times)


def measure_all(arguments):
    results = {"machine": machine.describe(arguments.levin_bin.parent), "rounds": arguments.rounds,
               "cores": len(os.sched_getaffinity(0)), "gradients": gradients(), "all_reduce": {},
               "alone": {}, "apart": {}, "steps": {}}
    with tempfile.TemporaryDirectory() as arguments.scratch:
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            measure_all_reduce(arguments, results)
            measure_steps(arguments, results)
    return results


def gradients():
    """Bytes of each parameter's gradient, by work, in the order in which backward gives them."""
    import work as works  # it has torch, which --results needs not

    return {name: [4 * p.numel() for p in reversed(list(works.WORKS[name].make_net().parameters()))]
            for name in BATCHES}


class Fitted:
    """The model with the numbers of this machine, and what it was fitted to."""

    def __init__(self, results):
        self.cores = results["cores"]
        self.medians = {part: {tuple(name.split("/")): statistics.median(values)
                               for name, values in results[part].items()}
                        for part in ("all_reduce", "alone", "apart", "steps")}
        self.lines = {backend: self.fit_line(backend) for backend in BACKENDS}
        self.works = {name: model.Work(self.fit_compute(name), model.buckets(sizes))
                      for name, sizes in results["gradients"].items()}
        # By the number of processes that share this machine.
        self.slowdown = {name: {1: 1.0} | {ranks: self.slowdown_of(name, ranks) for ranks in RANKS}
                         for name in self.works}

    def fit_line(self, backend):
        """On two ranks; four are there to test it."""
        return model.fit([(*model.TERMS[backend](int(size), 2), us) for (of, ranks, size), us
                          in self.medians["all_reduce"].items() if (of, ranks) == (backend, "2")])

    def fit_compute(self, name):
        return model.fit([(1, int(batch), us) for (work, batch), us in self.medians["alone"].items()
                          if work == name])

    def slowdown_of(self, name, ranks):
        alone = self.medians["alone"][name, str(BATCHES[name])]
        return max(1.0, self.medians["apart"][name, str(ranks)] / alone)

    def all_reduce(self, backend, ranks):
        return lambda size: model.on_one_host(self.lines[backend], backend, size, ranks, self.cores)

    def step(self, name, backend, ranks, batch):
        return self.works[name].step(batch, self.all_reduce(backend, ranks), self.slowdown[name][ranks],
                                     hides=ranks < self.cores)

    def clusters(self, ranks_per_host):
        return [model.Cluster(network, self.lines["shm"], self.lines["gloo"], ranks_per_host)
                for network in model.NETWORKS]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="timed steps")
    parser.add_argument("--seconds", type=float, default=0.1, help="of an all-reduce of one size")
    parser.add_argument("--most-bytes", type=int, default=40_000_000, help="of an all-reduce")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that all of it runs")
    parser.add_argument("--results", type=pathlib.Path, help="measured before: this file, nothing is run")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file whose marked parts are written")
    arguments = parser.parse_args()
    arguments.levin_bin = arguments.levin_bin.absolute()
    if arguments.quick:
        if arguments.out:
            parser.error("--quick gives no numbers to keep: leave out --out")
        arguments.rounds, arguments.steps, arguments.seconds = 1, 3, 0.01
    if arguments.results:
        results = json.loads(arguments.results.read_text())
    else:
        results = measure_all(arguments)
    parts = tables.parts(results, Fitted(results))
    if not arguments.out:
        print("\n\n".join(parts.values()))
        return
    arguments.out.write_text(tables.filled(arguments.out.read_text(), parts))
    arguments.out.with_suffix(".svg").write_text(tables.plot(Fitted(results)))
    if not arguments.results:
        arguments.out.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
