"""The sizes that Accelerate's find_executable_batch_size tries, for executable_batch_size_test.cpp.

    python executable_batch_size.py FILE     FILE gets a list of {"first", "fits", "reduce", "tried", "found"}
"""

import json
import sys
from unittest import mock

from accelerate.utils import find_executable_batch_size


def case(first, fits, reduce):
    """fits: the largest size that does; reduce: "default", "half" or "minus3"."""
    size = first

    def smaller():
        nonlocal size
        size = size // 2 if reduce == "half" else max(0, size - 3)
        return size

    tried = []

    def train(batch_size):
        tried.append(batch_size)
        if batch_size > fits:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")
        return batch_size

    own = None if reduce == "default" else smaller
    try:
        with mock.patch("accelerate.utils.memory.clear_device_cache"):  # a garbage collection each time
            found = find_executable_batch_size(train, starting_batch_size=first, reduce_batch_size_fn=own)()
    except RuntimeError as error:
        assert "reached zero" in str(error), error
        found = 0
    return {"first": first, "fits": fits, "reduce": reduce, "tried": tried, "found": found}


firsts = [1, 2, 3, 7, 10, 64, 100, 128, 500, 1000, 4096, 123457]
cases = [case(first, fits, reduce) for first in firsts for fits in (0, 1, first // 3, first)
         for reduce in ("default", "half", "minus3") if reduce != "minus3" or first <= 128]
with open(sys.argv[1], "w") as file:
    json.dump(cases, file)
