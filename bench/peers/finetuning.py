"""Fine-tuning an adapter, levin beside PEFT, transformers and TRL: a step, the start, a large vocabulary, ranks on one
frozen model, and an epoch of examples/16_finetune.cpp.

    python bench/peers/finetuning.py --levin-bin build/bin --minilm .deps/minilm --sections .deps/debian_sections --out bench/FINETUNING.md
    python bench/peers/finetuning.py --levin-bin build/bin --minilm .deps/minilm --sections .deps/debian_sections --quick

One thread a process. Each system runs once in a round, in turn; medians, and medians of the rounds' ratios. Losses have to agree
before a figure counts. --only step,start,vocabulary,ranks,epoch takes some of the parts; --rows limits the epoch's rows. Run it
by the Python of `make oracle`, which has the peers.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import machine
import measure
from finetuning_work import EPOCH, STEPS, make_folders

PARTS = ("step", "start", "vocabulary", "ranks", "epoch")


def median_ratio(ours, theirs):
    return statistics.median(a / b for a, b in zip(ours, theirs))


class Rounds:
    """What each system said in each round."""

    def __init__(self, systems, rounds, most_difference, apart=(), **environment):
        """apart: systems that compute something else, whose losses are not compared."""
        self.outcomes = {name: [] for name in systems}
        environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error",
                       "HF_HUB_DISABLE_PROGRESS_BARS": "1", "LEVIN_LOG": "error"} | environment
        for _ in range(rounds):
            for name, command in systems.items():
                self.outcomes[name].append(measure.run(command, more_environment=environment))
            losses = {name: outcomes[-1].said["last_loss"] for name, outcomes in self.outcomes.items() if name not in apart}
            if max(losses.values()) - min(losses.values()) > most_difference:
                sys.exit(f"the losses differ: {losses}")

    def of(self, name, figure):
        return [figure(outcome) for outcome in self.outcomes[name]]

    def table(self, columns, ours):
        """columns: title -> (figure of an outcome, format); ours: systems that others are held against."""
        titles = [part for title in columns for part in (title, *(f"{name} / this" for name in ours))]
        lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
        for name in self.outcomes:
            cells = []
            for figure, shown in columns.values():
                cells.append(format(statistics.median(self.of(name, figure)), shown))
                cells += [f"{median_ratio(self.of(own, figure), self.of(name, figure)):.3f}" for own in ours]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        return lines


def said(name):
    return lambda outcome: outcome.said[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levin-bin", type=pathlib.Path, required=True)
    parser.add_argument("--minilm", type=pathlib.Path, required=True)
    parser.add_argument("--sections", type=pathlib.Path, help="train.jsonl by scripts/debian_sections.sh, for the epoch")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=0, help="of the epoch; 0: all")
    parser.add_argument("--quick", action="store_true", help="only proves that it runs")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    parts = options.only.split(",")
    if set(parts) - set(PARTS):
        sys.exit(f"--only takes some of {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.steps, options.rows = 1, 2, 256
    peer = (options.levin_bin / "peer_finetuning").resolve()
    here = machine.describe(options.levin_bin.parent)
    lines = ["# Fine-tuning an adapter, levin beside Python", "",
             f"{here['cpu']}, {here['cores']} cores, {here['memory_gb']} GB, {here['system']}; load {here['load_before']} before the run.",
             f"{here['compiler']}; torch {here['torch']}, transformers {machine.version_of('transformers')}, PEFT {machine.version_of('peft')}, "
             f"TRL {machine.version_of('trl')}, Python {here['python']}; {here['date']}.", "",
             f"Made by `bench/peers/finetuning.py`: {options.rounds} rounds, each system once in each round, in turn; one thread a process; medians; "
             "ratios are medians of the rounds' ratios. The script first checks that the losses are equal. The CPU time is that of the process: "
             "other programs on the machine lengthen it less than the wall time."]
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        folders = make_folders(folder, options.minilm, parts)

        def levin(*arguments):
            return [peer, *arguments]

        def python(program, *arguments):
            return [sys.executable, "-c", program, *arguments]

        if "step" in parts:
            counts = ["--warmup", 5, "--steps", options.steps]
            ours = levin("--folder", folders["minilm"], "--batches", folder / "minilm.safetensors", "--task", "text-classification", *counts)
            theirs = python(STEPS, folders["minilm"], folder / "minilm.safetensors", "SequenceClassification", 5, options.steps)
            rounds = Rounds({"levin": ours, "levin, replayed": [*ours, "--compile", "replay"], "PEFT": [*theirs, "plain"],
                             "PEFT, fused AdamW": [*theirs, "fused"]}, options.rounds, 1e-3)
            lines += ["", "## A step of MiniLM (22.7 M): LoRA of rank 16 in all linear layers, 16 texts of up to 128 tokens", "",
                      "Wanted: at most 0.9 of PEFT's, replayed at most 0.65.", "",
                      *rounds.table({"ms a step": (said("step_ms"), ".0f"), "CPU time, ms": (said("cpu_ms"), ".0f")}, ["levin", "levin, replayed"])]
        if "start" in parts:
            ours = levin("--folder", folders["minilm"], "--batches", folder / "minilm.safetensors", "--task", "text-classification",
                         "--warmup", 0, "--steps", 1)
            theirs = python(STEPS, folders["minilm"], folder / "minilm.safetensors", "SequenceClassification", 0, 1, "plain")
            rounds = Rounds({"levin": ours, "PEFT": theirs}, options.rounds, 1e-3)
            lines += ["", "## From the start of the process to the first finished step of it", "", "Wanted: at most 0.2.", "",
                      *rounds.table({"s": (lambda outcome: outcome.seconds_to_first_step, ".2f")}, ["levin"])]
        if "vocabulary" in parts:
            steps = 1 if options.quick else max(options.steps // 4, 3)
            ours = levin("--folder", folders["vocabulary"], "--batches", folder / "vocabulary.safetensors", "--warmup", 1, "--steps", steps)
            theirs = python(STEPS, folders["vocabulary"], folder / "vocabulary.safetensors", "CausalLM", 1, steps)
            rounds = Rounds({"levin": ours, "levin, replayed": [*ours, "--compile", "replay"], "transformers, PEFT": [*theirs, "plain"],
                             "TRL's chunked loss, PEFT": [*theirs, "chunked"]}, options.rounds, 1e-3)
            lines += ["", "## A vocabulary of 151,936: 2 layers of 512, 2 texts of 1024 tokens, LoRA of rank 16", "",
                      "The peak is the process's resident memory, libraries included. Wanted: a peak of at most 0.4 of transformers' and no more than "
                      "TRL's; not slower.", "",
                      *rounds.table({"ms a step": (said("step_ms"), ".0f"), "CPU time, ms": (said("cpu_ms"), ".0f"), "peak MB": (lambda outcome: outcome.peak_mb, ".0f")}, ["levin"])]
        if "ranks" in parts:
            ours = levin("--folder", folders["large"], "--batches", folder / "large.safetensors", "--targets", "q_proj", "--warmup", 1, "--steps", 2)
            systems = {"one process": ours}
            for strategy in ("ddp", "fsdp", "zero"):
                systems[f"two ranks, {strategy}"] = [*ours, "--devices", 2, "--strategy", strategy]
            rounds = Rounds(systems, 1 if options.quick else options.rounds, 1e-3, apart=("one process",))  # has half of the batches
            size = sum(file.stat().st_size for file in folders["large"].iterdir()) / 1e9
            one = rounds.of("one process", said("memory_mb"))
            lines += ["", f"## Ranks on one frozen model of {size:.1f} GB", "",
                      "Memory of all processes together (proportional set size: a shared page counts once), after steps of an "
                      "adapter. Wanted: two ranks at most 1.3 of one process.", "", "| | MB | of one process |", "|---|---|---|"]
            lines += [f"| {name} | {statistics.median(rounds.of(name, said('memory_mb'))):.0f} | "
                      f"{median_ratio(rounds.of(name, said('memory_mb')), one):.2f} |" for name in systems]
        if "epoch" in parts:
            rows = folder / "rows.jsonl"
            texts = (options.sections / "train.jsonl").read_text().splitlines(keepends=True)
            texts = texts[:: max(len(texts) // options.rows, 1)][: options.rows] if options.rows else texts
            rows.write_text("".join(texts))
            ours = levin("--folder", options.minilm.resolve(), "--rows", rows, "--cache", folder / "cache")
            # As many texts a step as the others have, in rows that are full.
            packed = [*ours, "--packing", "--batch-size", folders["packed_batch"](rows, 32), "--compile", "replay"]
            theirs = python(EPOCH, options.minilm.resolve(), rows, 32)
            rounds = Rounds({"levin, packed, replayed": packed, "levin": ours, "Trainer": [*theirs, "random"],
                             "Trainer, length groups": [*theirs, "group_by_length"]},
                            1 if options.quick else options.rounds, 10 if options.quick else 0.25)
            fastest = [min(pair) for pair in zip(rounds.of("Trainer", said("epoch_s")), rounds.of("Trainer, length groups", said("epoch_s")))]
            share = median_ratio(rounds.of("levin, packed, replayed", said("epoch_s")), fastest)
            lines += ["", f"## An epoch of examples/16_finetune.cpp by LoRA of rank 16, {len(texts)} rows", "",
                      f"Packed and replayed: {share:.2f} of the faster Trainer. Wanted: at most 0.65. Batches differ, so losses are means of the "
                      "last quarter, and have to be within 0.25.", "",
                      *rounds.table({"s": (said("epoch_s"), ".1f"), "CPU time, s": (said("cpu_s"), ".1f"), "steps": (said("steps"), ".0f"), "loss": (said("last_loss"), ".2f")}, [])]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
