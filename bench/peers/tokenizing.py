"""levin's tokenizers beside Python's, one thread each, over the same texts; the ids are verified first.

    python bench/peers/tokenizing.py --levin-bin build/bin --tokenizers ../shared/tokenizers --out bench/TOKENIZERS.md
    python bench/peers/tokenizing.py --levin-bin build/bin --tokenizers DIR --quick      # only proves that it runs

DIR holds tokenizer.json files of any name, and texts (*.txt) if there are some. Texts beside those are Python's own
standard library (code) and its lines below 60 characters (short). A tokenizer of 128,000 tokens is trained on the
library and the texts (a minute), and opened alone: as Python's tokenizers writes it ("large"), and with the merges that
transformers finds for a vocabulary of tiktoken ("tiktoken"; Llama 3). "ids" is encode_batch_fast, "offsets" encode_batch
with offsets in characters; MB of text a second of processor time, so that others on the machine do not count; the median
over rounds in which each side runs once, in turn, the best of its repetitions. Two threads are measured by the clock on
the wall, in turn with one: into new encodings and, "filled again", into those of the call before (encode_batch_out); beside
it the same of a loop that takes as long and touches no memory: starting a thread and sharing the machine cost that too.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib

PYTHON = """
import json, struct, sys, time, zlib
from tokenizers import Tokenizer
path, texts, repetitions = sys.argv[1], sys.argv[2], int(sys.argv[3])
def seconds(work):
    begin = time.process_time(); work(); return time.process_time() - begin
tokenizer = Tokenizer.from_file(path)
tokenizer.no_padding(); tokenizer.no_truncation()
lines = open(texts, newline="\\n", encoding="utf-8").read().removesuffix("\\n").split("\\n")
best = lambda call: min(seconds(lambda: call(lines)) for _ in range(repetitions))
total = 0
for encoding in tokenizer.encode_batch_fast(lines):
    total = zlib.crc32(struct.pack(f"<{len(encoding.ids)}i", *encoding.ids), total)
print(json.dumps({"ids": best(tokenizer.encode_batch_fast), "offsets": best(tokenizer.encode_batch), "sum": total}))
"""


OPENING = """
import sys, time
from tokenizers import Tokenizer
best = 1e9
for _ in range(int(sys.argv[2])):
    begin = time.process_time(); tokenizer = Tokenizer.from_file(sys.argv[1]); best = min(best, time.process_time() - begin)
    del tokenizer
print(best)
"""


def large_into(folder, tokenizers, size):
    """Byte-level BPE of `size` tokens, with the merges of its training, and with each pair that makes a token."""
    made = [folder / "large.json", folder / "tiktoken.json"]
    if all(file.exists() for file in made):
        return made
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
    split = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    files = [*sorted(tokenizers.glob("*.txt")), *sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))]
    tokenizer.train_from_iterator((file.read_text(encoding="utf-8", errors="ignore") for file in files), trainer)
    tokenizer.add_special_tokens([f"<|reserved_special_token_{i}|>" for i in range(256)])
    tokenizer.save(str(made[0]))
    tree = json.loads(tokenizer.to_str())
    ids = tree["model"]["vocab"]
    merges = []
    for token in ids:
        pairs = [(token[:at], token[at:]) for at in range(1, len(token)) if token[:at] in ids and token[at:] in ids]
        merges += sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    tree["model"].update(merges=merges, ignore_merges=True)
    made[1].write_text(json.dumps(tree, ensure_ascii=False, indent=2), encoding="utf-8")
    return made


def opened_line(levin_bin, path, rounds, repetitions):
    """A line of the table of opening, of a file that nothing else is done with."""
    opened = {"levin": [], "python": []}
    for _ in range(rounds):
        opened["levin"].append(run([levin_bin / "peer_tokenizer", path, str(repetitions)]))
        opened["python"].append(run([sys.executable, "-c", OPENING, path, str(repetitions)]))
    share = statistics.median(ours / theirs for ours, theirs in zip(opened["levin"], opened["python"]))
    ours, theirs = (statistics.median(opened[side]) * 1e3 for side in ("levin", "python"))
    return f"| {path.stem} | {ours:.1f} | {theirs:.1f} | {share:.2f} |"


def run(command, threads=None):
    environment = dict(os.environ, TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(threads or 1))
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def texts_into(folder, tokenizers):
    made = {}
    for path in sorted(tokenizers.glob("*.txt")):
        made[path.stem] = path
    code = []
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]:
        code += path.read_text(encoding="utf-8", errors="ignore").split("\n")
    for name, lines in (("code", ["\n".join(code[at:at + 40]).replace("\n", "\r") for at in range(0, len(code), 40)]),
                        ("short", [line for line in code if 0 < len(line) < 60])):
        made[name] = folder / f"{name}.txt"
        made[name].write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizers", type=pathlib.Path, required=True, help="folder of tokenizer.json files")
    parser.add_argument("--only", nargs="*", help="names of tokenizers")
    parser.add_argument("--large", type=int, default=128000, metavar="TOKENS", help="of the vocabulary that is trained; 0 for none")
    parser.add_argument("--trained", type=pathlib.Path, metavar="FOLDER", help="where that is kept, and taken from the next time")
    parser.add_argument("--opening", action="store_true", help="nothing but how long it takes to open each file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rounds, repetitions = (1, 1) if arguments.quick else (arguments.rounds, arguments.repetitions)
    lines = ["| tokenizer | text | MB | ids, levin | ids, Python | ratio | offsets, levin | offsets, Python | ratio | two threads of levin's | filled again | of a plain loop |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    ratios = {"ids": [], "offsets": [], "threads": [], "threads_out": [], "loop": []}
    opening = ["| tokenizer | levin opens it in ms | Python | share |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as name:
        texts = texts_into(pathlib.Path(name), arguments.tokenizers)
        files = [file for file in sorted(arguments.tokenizers.glob("*.json")) if not arguments.only or file.stem in arguments.only]
        trained = arguments.trained or pathlib.Path(name)
        large = large_into(trained, arguments.tokenizers, arguments.large) if arguments.large and not arguments.quick else []
        for tokenizer in [*files, *large]:
            opening.append(opened_line(arguments.levin_bin, tokenizer, 2 * rounds + 1, repetitions))
            print(opening[-1], flush=True)
        for tokenizer in [] if arguments.opening else files:
            for text, path in texts.items():
                size = path.stat().st_size / 1e6
                measured = {"levin": [], "python": []}
                for _ in range(rounds):
                    measured["levin"].append(run([arguments.levin_bin / "peer_tokenizer", tokenizer, path, str(repetitions)]))
                    measured["python"].append(run([sys.executable, "-c", PYTHON, tokenizer, path, str(repetitions)]))
                if measured["levin"][0]["sum"] != measured["python"][0]["sum"]:
                    sys.exit(f"{tokenizer.name} on {text}: the ids differ, so no figure counts")
                ratio = lambda key: statistics.median(theirs[key] / ours[key] for ours, theirs in zip(measured["levin"], measured["python"]))
                speed = lambda side, key: size / statistics.median(one[key] for one in measured[side])
                threads, threads_out, loop = (statistics.median(one[key] for one in measured["levin"])
                                              for key in ("threads", "threads_out", "loop"))
                ratios["ids"].append(ratio("ids"))
                ratios["offsets"].append(ratio("offsets"))
                ratios["threads"].append(threads)
                ratios["threads_out"].append(threads_out)
                ratios["loop"].append(loop)
                lines.append(f"| {tokenizer.stem} | {text} | {size:.2f} | {speed('levin', 'ids'):.1f} | {speed('python', 'ids'):.1f} | "
                             f"{ratio('ids'):.1f} | {speed('levin', 'offsets'):.1f} | {speed('python', 'offsets'):.1f} | "
                             f"{ratio('offsets'):.1f} | {threads:.2f} | {threads_out:.2f} | {loop:.2f} |")
                print(lines[-1], flush=True)
    if arguments.opening:
        return
    summary = (f"Speed relative to Python: ids {statistics.median(ratios['ids']):.1f} times at the median and {min(ratios['ids']):.1f} at "
               f"least (wanted: 5, 3); with offsets {statistics.median(ratios['offsets']):.1f} and {min(ratios['offsets']):.1f} "
               f"(wanted: 3); two threads {statistics.median(ratios['threads']):.2f} times one (wanted: 1.8), "
               f"{statistics.median(ratios['threads_out']):.2f} if it reuses the encodings of the call before, a plain loop "
               f"{statistics.median(ratios['loop']):.2f}.")
    print(summary)
    if arguments.out:
        when = time.strftime("%Y-%m-%d")
        arguments.out.write_text("\n".join([f"# Tokenizers, levin and Hugging Face\n\nMade by `bench/peers/tokenizing.py` on {when}, {os.cpu_count()} cores, "
                                            f"load {load:.1f} at the beginning and {os.getloadavg()[0]:.1f} at the end. "
                                            "MB of text per second of CPU time, one thread.\n", *lines, "", summary, "", *opening, ""]))


if __name__ == "__main__":
    main()
