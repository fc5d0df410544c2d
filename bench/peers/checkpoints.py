"""Checkpoints of 100 M parameters with Adam on two ranks, by levin and torch.distributed.checkpoint, in
turn, on the disk of each folder that is named (one of a tmpfs and one of a disk).

    python bench/peers/checkpoints.py --levin-bin build/bin --folders /dev/shm/bench ./bench_disk

Prints medians in seconds and levin's ratio, and what five saves behind training add to 200 steps
(--steps 0: not). 1.2 GB a save; a folder holds up to three at a time. A round takes torch half a
minute and more on a disk, beside 10 GB of memory for both ranks.
"""

import argparse
import pathlib
import statistics
import sys

import measure

HERE = pathlib.Path(__file__).parent
# What levin promises of its ratio to torch.distributed.checkpoint.
LIMITS = {"save": 0.5, "load": 0.5}
SAVES = 5  # within the steps


def run(command, folder, *numbers):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    folder.mkdir(parents=True, exist_ok=True)
    said = measure.run([*torchrun, *command, folder.resolve(), *map(str, numbers)]).said
    folder.rmdir()
    return said


def medians(said):
    return {name: statistics.median(seconds) for name, seconds in said.items()}


def train(levin, folder, steps):
    said = run(levin, folder, 0, steps, SAVES)
    without, with_saves = sum(said["without"]), sum(said["with"])
    print(f"  {steps} steps: {without:.1f} s, with {SAVES} saves behind them {with_saves:.1f} s, "
          f"ratio {with_saves / without:.3f}, at most 1.05", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--folders", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    levin = ["--no-python", (arguments.levin_bin / "peer_checkpoint").resolve()]
    for folder in arguments.folders:
        ours = medians(run(levin, folder, arguments.rounds))
        theirs = medians(run([HERE / "pytorch_checkpoint.py"], folder, arguments.rounds))
        print(f"{folder}")
        for name in ("save", "load", "stall"):
            ratio = ours[name] / theirs[name]
            limit = f", at most {LIMITS[name]}" if name in LIMITS else ""
            print(f"  {name}: levin {ours[name]:.3f}, torch.distributed.checkpoint "
                  f"{theirs[name]:.3f}, ratio {ratio:.2f}{limit}")
        print(f"  consolidated safetensors of the weights alone: {theirs['consolidated']:.3f}; levin's "
              "save, which has these files and the optimizer's, is "
              f"{ours['save'] / theirs['consolidated']:.2f} of that")
        print(f"  levin's asynchronous save holds up {ours['stall'] / ours['save']:.2f} of its save",
              flush=True)
        if arguments.steps > 0:
            train(levin, folder, arguments.steps)


if __name__ == "__main__":
    main()
