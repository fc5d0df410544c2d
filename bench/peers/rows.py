"""A file of texts tokenized and packed: levin's rows beside datasets.map and TRL's pack_dataset, two threads (processes) each.

    python bench/peers/rows.py --levin-bin build/bin --tokenizer DIR --out bench/ROWS.md
    python bench/peers/rows.py --levin-bin build/bin --tokenizer DIR --mb 1        # only proves that it runs

DIR is a tokenizer as transformers saves it, with an eos_token. The texts are paragraphs of Python's own standard library,
repeated with other numbers until there are --mb of them. Python is timed from a data set that is open (its reading of the JSON
file stands beside it) to packed rows; levin from the JSON file to packed rows that can be read. Each side runs once in a round, in
turn, on an empty cache; the least time counts, since others on the machine only add to it. Both have to make as many tokens.
The Python needs the packages of tests/oracle/requirements.txt.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import machine

PYTHON = """
import json, sys, time
import datasets, transformers
from trl import pack_dataset
datasets.disable_progress_bars()
path, folder, length, processes, cache = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
begin = time.time()
data = datasets.load_dataset("json", data_files=path, split="train", cache_dir=cache)
opened = time.time()
eos = tokenizer.eos_token
def tokens(batch):
    return {"input_ids": tokenizer([text + eos for text in batch["text"]], truncation=True, max_length=length)["input_ids"]}
data = data.map(tokens, batched=True, num_proc=processes, remove_columns=["text"])
mapped = time.time()
data = pack_dataset(data, length, "bfd", {"num_proc": processes})
packed = time.time()
sizes = sum(map(sum, data["seq_lengths"]))
print(json.dumps({"read": opened - begin, "mapped": mapped - opened, "packed": packed - mapped, "tokens": sizes, "rows": len(data)}))
"""


def write_texts(path, megabytes):
    """JSON lines of paragraphs of code, each some hundred characters."""
    paragraphs = []
    for source in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = source.read_text(encoding="utf-8", errors="ignore")
        paragraphs += [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    size = round_ = 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            for part in paragraphs:
                text = part if round_ == 0 else re.sub(r"\bself\b", f"self{round_}", part)
                line = json.dumps({"text": text}, ensure_ascii=False) + "\n"
                out.write(line)
                size += len(text.encode())
                if size >= megabytes * 1e6:
                    break
            round_ += 1
    return size / 1e6


def run(command, **environment):
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        texts = folder / "texts.jsonl"
        megabytes = write_texts(texts, options.mb)
        for number in range(options.rounds):
            shared = [texts, options.tokenizer, str(options.max_length), "2"]
            levin = run([options.levin_bin / "peer_rows", *shared, folder / f"levin{number}"])
            python = run([sys.executable, "-c", PYTHON, *shared, folder / f"python{number}"],
                         HF_HOME=str(folder / "home"), TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
            if levin["tokens"] != python["tokens"]:
                raise SystemExit(f"levin made {levin['tokens']} tokens, Python {python['tokens']}")
            rounds.append((levin, python))
            print(json.dumps({"levin": levin, "python": python}), file=sys.stderr)
    least = lambda side, *keys: min(sum(one[side][key] for key in keys) for one in rounds)
    ours, theirs = least(0, "made"), least(1, "mapped", "packed")
    fill = lambda side: rounds[0][side]["tokens"] / rounds[0][side]["rows"] / options.max_length
    report = f"""# Tokenized and packed rows, levin and datasets + TRL

Made by `bench/peers/rows.py` on {datetime.date.today()}, {machine.first_line(["nproc"])} cores: {megabytes:.0f} MB of text (code), {rounds[0][0]["tokens"]:,} tokens, rows of {options.max_length}; two
threads or processes; the least of {options.rounds} rounds, wall time in seconds. datasets {machine.version_of("datasets")}, trl {machine.version_of("trl")}, tokenizers {machine.version_of("tokenizers")}.

| | levin | Python | share |
|---|---|---|---|
| tokenize and pack (levin: including reading the JSON) | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} (wanted: 0.25) |
| of that: packing | | {least(1, "packed"):.2f} | |
| reading the JSON | | {least(1, "read"):.2f} | |
| opening again, from the cache | {least(0, "opened"):.3f} | | |
| fraction of the packed rows that holds tokens | {fill(0):.4f} | {fill(1):.4f} | |
"""
    print(report)
    if options.out:
        options.out.write_text(report)


main()
