"""Checkpoints of 100 M parameters with Adam on two ranks, by levin and torch.distributed.checkpoint, in
turn, on the disk of each folder that is named (one of a tmpfs and one of a disk).

    python bench/peers/checkpoints.py --levin-bin build/bin --folders /dev/shm/bench ./bench_disk

Prints medians in seconds and levin's ratio; "consolidated" are Hugging Face's files of the weights
alone, *_cpu the processor's time of rank 0. Then what five saves behind training add to 200 steps (--steps 0: not). 1.2 GB a save; a
folder holds up to three at a time, beside 10 GB of memory for both ranks. A turn takes torch a
minute, more where the machine is busy.
"""

import argparse
import pathlib
import statistics
import sys

import measure

HERE = pathlib.Path(__file__).parent
# What levin promises of its ratio to torch.distributed.checkpoint.
LIMITS = {"save": 0.5, "load": 0.5, "consolidated": 0.4}
SAVES = 5  # within the steps


def run(command, folder, *numbers):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    folder.mkdir(parents=True, exist_ok=True)
    said = measure.run([*torchrun, *command, folder.resolve(), *map(str, numbers)]).said
    folder.rmdir()
    return said


def in_turn(commands, folder, turns):
    """Medians of each command's second rounds: the first ones make buffers."""
    seconds = [[{name: values[-1] for name, values in run(command, folder, 2).items()}
                for command in commands] for _ in range(turns)]
    return [{name: statistics.median(turn[i][name] for turn in seconds) for name in seconds[0][i]}
            for i in range(len(commands))]


def train(levin, folder, steps):
    said = run(levin, folder, 0, steps, SAVES)
    without, with_saves = sum(said["without"]), sum(said["with"])
    print(f"  {steps} steps: {without:.1f} s, with {SAVES} saves behind them {with_saves:.1f} s, "
          f"ratio {with_saves / without:.3f}, at most 1.05; a plain write of a save's bytes "
          f"{said['plain']:.2f} s, {1 + SAVES * said['plain'] / without:.3f} with those alone", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--folders", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    levin = ["--no-python", (arguments.levin_bin / "peer_checkpoint").resolve()]
    for folder in arguments.folders:
        ours, theirs = in_turn([levin, [HERE / "pytorch_checkpoint.py"]], folder, arguments.turns)
        print(f"{folder}")
        for name in ("save", "load", "stall", "consolidated", "save_cpu", "load_cpu"):
            ratio = ours[name] / theirs[name]
            limit = f", at most {LIMITS[name]}" if name in LIMITS else ""
            print(f"  {name}: levin {ours[name]:.3f}, torch.distributed.checkpoint "
                  f"{theirs[name]:.3f}, ratio {ratio:.2f}{limit}")
        print(f"  levin's asynchronous save holds up {ours['stall'] / ours['save']:.2f} of its save, "
              "at most 0.25", flush=True)
        if arguments.steps > 0:
            train(levin, folder, arguments.steps)


if __name__ == "__main__":
    main()
