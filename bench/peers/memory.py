"""The memory of a program's processes while it runs: proportional set size (PSS), in which memory that
processes share counts once."""

import pathlib
import statistics
import threading
import time


def descendants(pid):
    found, waiting = [], [pid]
    while waiting:
        parent = waiting.pop()
        for task in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children = [int(child) for child in task.read_text().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


def pss_bytes(pids, kinds):
    total = 0
    for pid in pids:
        try:
            lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(kinds))
    return total * 1024


class Watch(threading.Thread):
    """The memory of a process and all below it, in bytes, once steps have begun: the highest, and the median of
    the second half of the time.

    kinds: the lines of smaps_rollup that count, such as ("Pss:",).
    """

    def __init__(self, pid, began, kinds, every_s):
        super().__init__(daemon=True)
        self.pid, self.began, self.kinds, self.every_s = pid, began, kinds, every_s
        self.values, self.ended = [], False

    def run(self):
        while not self.ended:
            if self.began.is_set():
                self.values.append(pss_bytes([self.pid, *descendants(self.pid)], self.kinds))
            time.sleep(self.every_s)

    @property
    def most(self):
        return max(self.values, default=0)

    @property
    def steady(self):
        return statistics.median(self.values[len(self.values) // 2:] or [0])
