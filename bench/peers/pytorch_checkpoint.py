"""The same as checkpoint.cpp by torch.distributed.checkpoint, under torchrun.

    torchrun --nproc-per-node 2 pytorch_checkpoint.py FOLDER ROUNDS

Also saves the weights as one set of safetensors files, consolidated. Prints after each round the
seconds of all so far.
"""

import json
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

LAYERS, SIZE = 6, 4096


def layers(value):
    state = {}
    for i in range(LAYERS):
        state[f"{i}.weight"] = torch.full((SIZE, SIZE), value + i)
        state[f"{i}.bias"] = torch.full((SIZE,), value - i)
    return state


def state_of(value):
    return {"model": layers(value),
            "optimizer": {"exp_avg": layers(value + 0.25), "exp_avg_sq": layers(value + 0.5)}}


def seconds_of(body):
    dist.barrier()
    begin = time.perf_counter()
    body()
    dist.barrier()
    return time.perf_counter() - begin


def save_consolidated(path, weights):
    writer = dcp.HuggingFaceStorageWriter(
        path=path, fqn_to_index_mapping={name: 1 for name in weights}, enable_consolidation=True)
    dcp.save(weights, storage_writer=writer)


def main():
    folder, rounds = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    # The saving thread's collectives would come between those of this one, in another order on each rank.
    behind = dist.new_group(backend="gloo")
    state, other = state_of(1.0), state_of(2.0)
    results = {"save": [], "load": [], "stall": [], "consolidated": [], "save_cpu": [], "load_cpu": []}
    for i in range(rounds):
        place = folder / f"round_{i}"
        before = time.process_time()
        results["save"].append(seconds_of(lambda: dcp.save(state, checkpoint_id=place)))
        saved = time.process_time()
        results["load"].append(seconds_of(lambda: dcp.load(other, checkpoint_id=place)))
        results["save_cpu"].append(saved - before)
        results["load_cpu"].append(time.process_time() - saved)
        results["consolidated"].append(
            seconds_of(lambda: save_consolidated(f"{place}_hf", state["model"])))
        futures = []
        start = seconds_of(
            lambda: futures.append(dcp.async_save(state, checkpoint_id=f"{place}_behind",
                                                  process_group=behind)))
        time.sleep(5)
        results["stall"].append(start + seconds_of(lambda: futures[0].result()))
        if dist.get_rank() == 0:
            for each in (place, f"{place}_behind", f"{place}_hf"):
                shutil.rmtree(each)
            print(json.dumps(results), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
