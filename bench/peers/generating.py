"""Greedy decoding, levin beside transformers' generate: the time of 128 tokens after a prompt of 16, one thread.

    python bench/peers/generating.py --levin-bin build/bin --out bench/MODELS.md     # replaces its section there
    python bench/peers/generating.py --levin-bin build/bin --quick                   # only proves that it runs

Models of 6 layers and a width of 256 with random weights; both sides have to write the same tokens before a figure counts.
Python's imports and the opening of the folder are in no figure. Run it by the Python of `make oracle`, which has transformers.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import machine
from models import run

HEADING = "## Greedy decoding"
PYTHON = """
import json, sys, time
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
folder, prompt, tokens, rounds = sys.argv[1], load_file(sys.argv[2])["input_ids"], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
model.generation_config.eos_token_id = None
model.generation_config.pad_token_id = 0
mask, best = torch.ones_like(prompt), 1e9
for round in range(rounds + 1):
    begin = time.perf_counter()
    written = model.generate(prompt, attention_mask=mask, max_new_tokens=tokens, do_sample=False)
    if round:
        best = min(best, time.perf_counter() - begin)
print(json.dumps({"generate_s": best, "tokens": written.flatten().tolist()}))
"""


def make_folders(folder):
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = dict(vocab_size=8192, hidden_size=256, intermediate_size=768, num_hidden_layers=6, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.1)
    LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder / "Llama")
    Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=64)).save_pretrained(folder / "Qwen 3")
    GPT2LMHeadModel(GPT2Config(vocab_size=8192, n_embd=256, n_layer=6, n_head=4, n_positions=512, initializer_range=0.1)).save_pretrained(folder / "GPT-2")
    for rows in (1, 8):
        save_file({"input_ids": torch.randint(3, 8192, (rows, 16))}, folder / f"{rows}.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rounds, tokens, repeats = (1, 16, 1) if options.quick else (options.rounds, 128, 3)
    peer = options.levin_bin / "peer_generate"
    table = ["| | transformers, ms | levin, ms | levin's share |", "|---|---|---|---|"]
    here = machine.describe(options.levin_bin.parent)
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        make_folders(folder)
        for kind in ("Llama", "Qwen 3", "GPT-2"):
            for rows in (1, 8):
                prompt = folder / f"{rows}.safetensors"
                times = {"levin": [], "transformers": []}
                for _ in range(rounds):
                    said = {"levin": run([peer, "--folder", folder / kind, "--prompt", prompt, "--tokens", tokens, "--rounds", repeats]),
                            "transformers": run([sys.executable, "-c", PYTHON, folder / kind, prompt, tokens, repeats])}
                    if said["levin"]["tokens"] != said["transformers"]["tokens"]:
                        sys.exit(f"{kind}, {rows} rows: the tokens differ")
                    for name, each in said.items():
                        times[name].append(1e3 * each["generate_s"])
                share = statistics.median(a / b for a, b in zip(times["levin"], times["transformers"]))
                table.append(f"| {kind}, batch {rows} | {statistics.median(times['transformers']):.0f} | "
                             f"{statistics.median(times['levin']):.0f} | {share:.2f} |")

    lines = [f"{HEADING}: {tokens} tokens, 6 layers, width 256, vocabulary 8192, one thread", "",
             f"{rounds} rounds in turn, of each the fastest of {repeats}; load {here['load_before']} before; {here['date']}. "
             "Both write the same tokens.", "", *table, "", "Promised: at most 0.4 of transformers', batch 1."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        others = options.out.read_text() if options.out.exists() else ""
        sections = others.split("\n## ")
        kept = [section for section in sections if not ("## " + section).startswith(HEADING)]
        options.out.write_text("\n## ".join(kept).rstrip() + "\n\n" + text)


if __name__ == "__main__":
    main()
