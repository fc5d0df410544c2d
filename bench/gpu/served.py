"""A system that serves one work: its process, to which commands go and from which JSON lines come."""

import json
import os
import queue
import subprocess
import threading
import time


class Trouble(Exception):
    """A system that has ended."""


class TooLong(Trouble):
    """A system that was ended because it took too long."""


def environment(device):
    hidden = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} if device == "cpu" else {}
    return os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
                         "HF_HUB_DISABLE_PROGRESS_BARS": "1", "LEVIN_LOG": "warn"} | hidden


class Served:
    """Lines are read by a thread, so that whoever waits for one can do so for a limited time."""

    def __init__(self, name, command, device, words):
        """words: file that takes what the process says beside its answers."""
        self.name = name
        self.words = words
        self.lines = queue.Queue()
        with open(words, "w") as file:
            self.process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=file, text=True, env=environment(device))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def ask(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, which its answer tells

    def answer(self, deadline, what):
        try:
            answer = self.lines.get(timeout=max(deadline - time.monotonic(), 0.1))
        except queue.Empty:
            self.process.kill()
            raise TooLong(f"{self.name}: there was no time for {what}") from None
        if answer is None:
            said = self.words.read_text(errors="replace").strip().splitlines()[-6:]
            raise Trouble(f"{self.name}: ended with {self.process.wait()} in {what}: " + " | ".join(said))
        return answer

    def call(self, command, deadline):
        self.ask(command)
        return self.answer(deadline, command)

    def end(self):
        """Lets it go, and waits until the device has its memory back."""
        try:
            self.process.stdin.close()
            self.process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
