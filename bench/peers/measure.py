"""Starts a peer on a terminal of its own and reads its time, its memory and what it says."""

import dataclasses
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time

FIRST_STEP = b"first step done"
# Peers run on one thread of the CPU, and none believes itself to be a rank of several.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
               "TERM": "xterm"}
FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclasses.dataclass
class Outcome:
    said: dict  # the JSON line
    seconds_to_first_step: float  # from before the process was made; nan when it said no such thing
    peak_mb: float  # resident memory


def environment():
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | ENVIRONMENT


def run(command, core=None, more_environment=None, needs_result=True):
    """Runs it in an empty folder, on one core where that is given. A terminal is its output, so
    that progress bars are really drawn. Without needs_result it need not print a JSON line."""
    command = [str(part) for part in command]
    with tempfile.TemporaryDirectory() as folder:
        terminal, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        began = time.perf_counter()
        pin = None if core is None else lambda: os.sched_setaffinity(0, {core})
        process = subprocess.Popen(command, cwd=folder, preexec_fn=pin,
                                   env=environment() | (more_environment or {}),
                                   stdin=subprocess.DEVNULL, stdout=its_end, stderr=its_end)
        os.close(its_end)
        text, first_step = read_all(terminal)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {process.returncode}:\n{text.decode()[-4000:]}")
    lines = [line for line in text.decode().splitlines() if line.startswith('{"')]
    if not lines and needs_result:
        sys.exit(f"{' '.join(command)}\nprinted no result:\n{text.decode()[-4000:]}")
    return Outcome(json.loads(lines[-1]) if lines else {}, first_step - began, usage.ru_maxrss / 1024)


def read_all(terminal):
    """Everything written until the other end is closed, and when the first step was reported."""
    text, first_step = b"", float("nan")
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux tells that the other end is closed
            part = b""
        if not part:
            os.close(terminal)
            return text, first_step
        text += part
        if first_step != first_step and FIRST_STEP in text:
            first_step = time.perf_counter()
