"""Pretrained models, levin beside transformers: a step of fine-tuning MiniLM, whole and by LoRA, and opening a folder of 1 GB.

    python bench/peers/models.py --levin-bin build/bin --minilm .deps/minilm --out bench/MODELS.md
    python bench/peers/models.py --levin-bin build/bin --minilm .deps/minilm --quick     # only proves that it runs

A step is forward, backward and AdamW of 16 texts of 64 to 128 tokens, padded to 128, one thread, without dropout; the last
losses have to agree before a figure counts. Python's imports are in no figure. Run it by the Python of `make oracle`,
which has transformers.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import machine

STEP = """
import json, statistics, sys, time
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification
folder, batches, warmup, steps, form = sys.argv[1], load_file(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(1)
model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2).train()
with torch.no_grad():
    model.classifier.weight.fill_(0.01)
    model.classifier.weight[1].neg_()
    model.classifier.bias.fill_(0.01)
if "adapted" in form:
    from peft import LoraConfig, TaskType, get_peft_model
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type=TaskType.SEQ_CLS))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                parameter.copy_(torch.arange(parameter.numel()).sin().mul(0.05).view_as(parameter))
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=2e-5, fused="fused" in form)
times = []
for step in range(warmup + steps + 1):
    times.append(time.perf_counter())
    batch = {name: tensor[step % len(tensor)] for name, tensor in batches.items()}
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
differences = [times[i] - times[i - 1] for i in range(warmup + 1, len(times))]
print(json.dumps({"step_ms": 1e3 * statistics.median(differences), "last_loss": loss.item()}))
"""

OPEN = """
import json, sys, time
import torch
from transformers import AutoModelForCausalLM
best = 1e9
for _ in range(5):
    begin = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
    best = min(best, time.perf_counter() - begin)
    del model
print(json.dumps({"open_s": best}))
"""


def run(command):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false",
                       HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error", LEVIN_LOG="error")
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith('{"')][-1])


def make_folders(folder, minilm):
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    small = folder / "minilm"
    shutil.copytree(minilm, small)
    (small / "modules.json").unlink()
    config = json.loads((small / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (small / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    ids, mask = torch.randint(1000, 30000, (10, 16, 128)), torch.ones(10, 16, 128, dtype=torch.long)
    for batch in range(10):
        for row in range(16):
            mask[batch, row, int(torch.randint(64, 129, ())) if row else 128:] = 0
    save_file({"input_ids": ids * mask, "attention_mask": mask, "labels": torch.randint(0, 2, (10, 16))}, folder / "batches.safetensors")

    large = folder / "large"
    LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16,
                                 num_attention_heads=16)).save_pretrained(large)
    return small, large


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--minilm", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    steps, rounds = (2, 1) if options.quick else (options.steps, options.rounds)
    peer = options.levin_bin / "peer_model"
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        small, large = make_folders(folder, options.minilm)
        size = sum(file.stat().st_size for file in large.iterdir()) / 1e9
        batches = folder / "batches.safetensors"
        levin = [peer, "--folder", small, "--batches", batches, "--steps", steps]
        python = [sys.executable, "-c", STEP, small, batches, 5, steps]
        whole = {"levin": levin, "levin, replayed": [*levin, "--mode", "replay"],
                 "transformers": [*python, "plain"], "transformers, fused AdamW": [*python, "fused"]}
        adapted = {"levin, LoRA": [*levin, "--lora-r", 16], "levin, LoRA, replayed": [*levin, "--lora-r", 16, "--mode", "replay"],
                   "PEFT": [*python, "adapted"], "PEFT, fused AdamW": [*python, "adapted fused"]}
        figures = {name: [] for name in (*whole, *adapted)}
        opened = {"levin": [], "transformers": []}
        for _ in range(rounds):
            for systems in (whole, adapted):
                said = {name: run(command) for name, command in systems.items()}
                losses = [each["last_loss"] for each in said.values()]
                if max(losses) - min(losses) > 1e-3:
                    sys.exit(f"the last losses differ: {said}")
                for name, each in said.items():
                    figures[name].append(each["step_ms"])
            opened["levin"].append(run([peer, "--folder", large, "--mode", "open"])["open_s"])
            opened["transformers"].append(run([sys.executable, "-c", OPEN, large])["open_s"])

    def ratio(name, other):
        return statistics.median(a / b for a, b in zip(figures[name], figures[other]))

    here = machine.describe(options.levin_bin.parent)
    lines = ["# Pretrained models, levin beside transformers", "",
             f"{here['cpu']}, {here['cores']} cores, {here['system']}; load {here['load_before']} before the run.",
             f"{here['compiler']}; torch {here['torch']}, transformers {machine.version_of('transformers')}, "
             f"Python {here['python']}; {here['date']}.", "",
             f"{rounds} rounds, each system once in each round, in turn; medians; a ratio is the median of the rounds' ratios.", "",
             "## A step of MiniLM (22.7 M), 16 texts of up to 128 tokens, one thread, AdamW"]
    for title, systems, promise in (
            ("All weights are trained", whole, "at most 0.95 of transformers', replayed at most 0.65"),
            ("LoRA of rank 16 in all linear layers, and the head", adapted, "at most 0.9 of PEFT's, replayed at most 0.65")):
        ours, replayed = list(systems)[:2]
        lines += ["", f"{title}; promised: {promise}.", "",
                  "| | ms a step | levin / this | levin, replayed / this |", "|---|---|---|---|"]
        lines += [f"| {name} | {statistics.median(figures[name]):.0f} | {ratio(ours, name):.2f} | {ratio(replayed, name):.2f} |"
                  for name in systems]
    share = statistics.median(a / b for a, b in zip(opened["levin"], opened["transformers"]))
    lines += ["", f"## A folder of {size:.1f} GB (Llama, random weights), from the page cache", "",
              f"levin {statistics.median(opened['levin']) * 1e3:.1f} ms, transformers {statistics.median(opened['transformers']) * 1e3:.0f} ms, "
              f"ratio {share:.3f} (promised: at most 0.1)."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
