"""kill -9 of a rank to the next finished step: levin under `levin run`, PyTorch DDP under torchrun.

    python bench/peers/kills.py --levin-bin build/bin --kills 9

Both train the same MLP on two ranks, save every ten steps and are started again by their launcher.
"""

import argparse
import dataclasses
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import measure
import report

HERE = pathlib.Path(__file__).parent
WORK = ["--work", "mlp_10m", "--steps", "100"]
RESTARTS = "3"
SAVE_EVERY = 10  # steps; both programs do
STEPS_BEFORE = 12  # so that there is a checkpoint
WITHIN_S = 2.0  # the kill comes at a random moment within so many seconds from there
START_S, RECOVERY_S = 90.0, 45.0
RECOVERED = "recovered"


def systems(levin_bin):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--max-restarts", RESTARTS]
    program = [HERE / "pytorch_kills.py", *WORK, "--trace"]
    return {
        "levin run": [levin_bin / "levin", "run", "-n", "2", "--max-restarts", RESTARTS,
                      levin_bin / "peer_levin", *WORK, "--devices", "2", "--trace"],
        "torchrun": [*torchrun, *program],
        "torchrun --standalone": [*torchrun, "--standalone", *program],
    }


@dataclasses.dataclass
class Kill:
    outcome: str  # RECOVERED or what came instead
    seconds: float  # nan unless recovered
    attempts: int = 1  # starts until a step was finished


def finished_steps(folder):
    """(attempt, step, seconds) of each line that is whole."""
    try:
        text = (folder / "steps").read_text()
    except FileNotFoundError:
        return []
    lines = text[:text.rfind("\n") + 1].splitlines()
    return [(int(a), int(b), float(c)) for a, b, c in (line.split() for line in lines)]


def pid_of(folder, rank):
    return int((folder / str(rank)).read_text().split()[1])


def soon(condition, seconds, launcher):
    """The condition's first true value; None when the time is up or the launcher has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        if launcher.poll() is not None:
            return condition()
        time.sleep(0.005)
    return None


def end(launcher, folder):
    """Ranks may stand in sessions of their own: those of this run are ended by their ids."""
    launcher.terminate()
    try:
        launcher.wait(10)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
    for file in (folder / "0", folder / "1"):
        for line in file.read_text().splitlines() if file.exists() else []:
            pid = int(line.split()[1])
            try:
                # The id may be another's by now.
                if str(folder) in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass


def kill_once(command, chance):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        with open(folder / "output", "w+") as output:
            launcher = subprocess.Popen([*map(str, command), name], cwd=folder,
                                        env=measure.environment(), stdin=subprocess.DEVNULL,
                                        stdout=output, stderr=output)
            try:
                return kill_and_wait(launcher, folder, chance)
            finally:
                end(launcher, folder)


def kill_and_wait(launcher, folder, chance):
    if not soon(lambda: len(finished_steps(folder)) >= STEPS_BEFORE, START_S, launcher):
        print(f"{' '.join(launcher.args)}\nbegan no training:\n"
              f"{(folder / 'output').read_text()[-4000:]}", file=sys.stderr)
        return Kill(f"without {STEPS_BEFORE} steps in {START_S:g} s, so not killed", float("nan"))
    time.sleep(chance.uniform(0, WITHIN_S))
    killed = time.monotonic()
    os.kill(pid_of(folder, chance.randrange(2)), signal.SIGKILL)
    # A step that was on its way may still end; the next one is the restarted run's.
    step = soon(lambda: next((s for s in finished_steps(folder) if s[0] > 0), None),
                RECOVERY_S, launcher)
    if step is None:
        gone = launcher.poll() is not None
        return Kill("given up by the launcher" if gone else f"without a step for {RECOVERY_S:g} s",
                    float("nan"))
    attempt, first, at = step
    if first <= SAVE_EVERY:
        return Kill("begun from nothing", float("nan"))
    return Kill(RECOVERED, at - killed, attempt)


def measure_kills(levin_bin, kills, results, seed):
    """Adds to results: for each system a list of kills, as dicts."""
    chance = random.Random(seed)
    for number in range(kills):
        for name, command in systems(levin_bin).items():
            kill = kill_once(command, chance)
            results.setdefault(name, []).append(dataclasses.asdict(kill))
            print(f"kill {number + 1} {name:22} {kill.outcome} {kill.seconds:.2f} s",
                  file=sys.stderr)


def table(results):
    yield "## From kill -9 of a rank to the next finished step, two ranks, MLP of 10 M"
    yield "| | s | ratio to torchrun | kills | recovered | else |"
    yield "|---|---|---|---|---|---|"
    medians = {}
    for name, kills in results.items():
        seconds = [k["seconds"] for k in kills if k["outcome"] == RECOVERED]
        medians[name] = statistics.median(seconds) if seconds else float("nan")
    for name, kills in results.items():
        seconds = [k["seconds"] for k in kills if k["outcome"] == RECOVERED]
        others = [k["outcome"] for k in kills if k["outcome"] != RECOVERED]
        again = sum(k["attempts"] > 1 for k in kills)
        notes = [f"{others.count(what)} {what}" for what in dict.fromkeys(others)]
        notes += [f"{again} only at a further restart"] if again else []
        ratio = medians[name] / medians.get("torchrun", float("nan"))  # nan where none recovered
        shown = f"{ratio:.3g}" if ratio == ratio else ""
        yield (f"| {name} | {report.spread(seconds) if seconds else ''} | {shown} | {len(kills)} | "
               f"{len(seconds)} | {'; '.join(notes)} |")
    yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, default=HERE.parent.parent / "build/bin")
    parser.add_argument("--kills", type=int, default=9, help="of each system")
    arguments = parser.parse_args()
    results = {}
    measure_kills(arguments.levin_bin.absolute(), arguments.kills, results, seed=0)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
