"""Files of rows and what TRL and transformers make of them, for rows_test.cpp.

    python rows.py FOLDER LENGTHS_SEED

Writes FOLDER/language and FOLDER/encoder (tokenizers of transformers, learnt from the rows' own texts), FOLDER/NAME.jsonl and
FOLDER/cases.json: [{"name", "file", "tokenizer", "options", "samples": [{"input_ids", "labels", ...}]}, ...], what the preparation of
TRL's SFTTrainer and DPOTrainer gives, its pack_dataset, and transformers' tokenizers with the alignment of tags that its scripts do;
and FOLDER/drawn.json: an order of LengthGroupedSampler, and how often DataCollatorForLanguageModeling draws what.
"""

import json
import pathlib
import random
import sys
import types

import datasets
import torch
import transformers
import trl
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, processors, trainers
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl.trainer.dpo_trainer import DataCollatorForPreference, DPOTrainer
from trl.trainer.sft_trainer import SFTTrainer

datasets.disable_progress_bars()
WORDS = ("package library tool for the of a data files network server client command line graphical interface fonts python "
         "perl header development common game editor text image audio video münchen naïve 日本 😀 x86_64 C++ don't e.g.").split()
TEMPLATES = pathlib.Path(trl.__file__).parent / "chat_templates"
draw = random.Random(5)


def words(least, most):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most)))


def talk(turns, last=True):
    messages = [{"role": ("user", "assistant")[i % 2], "content": words(1, 12)} for i in range(turns)]
    return messages if last else messages[:-1]


TAGS = ["O", "B-ORG", "I-ORG", "B-PER"]
ROWS = {
    "text": [{"text": words(1, 30)} for _ in range(150)] + [{"text": words(2, 4) + "<|end|>"}, {"text": words(150, 200)}],
    "completion": [{"prompt": words(1, 12), "completion": draw.choice(["", " ", "\n"]) + words(1, 12)} for _ in range(120)],
    "chat_completion": [{"prompt": talk(1), "completion": [{"role": "assistant", "content": words(1, 9)}]} for _ in range(40)],
    "messages": [{"messages": talk(2 * draw.randint(1, 4))} for _ in range(60)],
    "from_value": [{"conversations": [{"from": "user", "value": words(1, 5)}, {"from": "assistant", "value": words(1, 5)}]}
                   for _ in range(10)],
    "preference": [{"prompt": words(1, 12), "chosen": " " + words(1, 20), "rejected": " " + words(1, 20)} for _ in range(60)],
    "implicit": [{"chosen": start + " " + words(1, 9), "rejected": start + " " + words(1, 9)}
                 for start in (words(3, 9) for _ in range(40))],
    "chat_preference": [{"chosen": start + [{"role": "assistant", "content": words(1, 9)}],
                         "rejected": start + [{"role": "assistant", "content": words(10, 19)}]}
                        for start in (talk(draw.choice([1, 3])) for _ in range(40))],
    "pair": [{"text": words(1, 30), "text_pair": words(1, 30), "label": draw.randint(0, 3)} for _ in range(80)],
    "named": [{"text": words(1, 30), "label": draw.choice(["net", "admin", "Zope", "büro"])} for _ in range(80)],
    "tags": [{"tokens": [draw.choice(WORDS) for _ in range(n)], "ner_tags": [draw.choice(TAGS) for _ in range(n)]}
             for n in (draw.randint(1, 30) for _ in range(80))],
}


def texts():
    for rows in ROWS.values():
        for row in rows:
            for value in row.values():
                yield from [value] if isinstance(value, str) else []


def language_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|pad|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    made.chat_template = (TEMPLATES / "qwen2_5_training.jinja").read_text()
    made.save_pretrained(folder)
    return made


def encoder_tokenizer(folder):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(texts(), trainers.WordPieceTrainer(
        vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        model_max_length=24)
    made.save_pretrained(folder)
    return made


def sft(name, tokenizer, packing=False, **options):
    completion = options.get("completion_only_loss", "prompt" in ROWS[name][0])
    trainer = types.SimpleNamespace(_tokenizer=tokenizer, chat_template=None, completion_only_loss=completion)
    args = types.SimpleNamespace(
        assistant_only_loss=options.get("assistant_only_loss", False), dataset_num_proc=None, dataset_text_field="text",
        max_length=options.get("max_length", 1024), packing_strategy=options.get("packing_strategy", "bfd"), shuffle_dataset=False,
        truncation_mode=options.get("truncation_mode", "keep_start"), seed=0)
    data = SFTTrainer._prepare_dataset(trainer, datasets.Dataset.from_list(ROWS[name]), tokenizer, args, packing, None, "train")
    keys = ["input_ids", "labels"] + ["seq_lengths"] * packing
    return [{key: row[key] for key in keys} for row in data]


def dpo(name, tokenizer, **options):
    length, mode = options.get("max_length", 1024), options.get("truncation_mode", "keep_start")
    args = types.SimpleNamespace(dataset_num_proc=None, max_length=length, truncation_mode=mode)
    data = DPOTrainer._prepare_dataset(types.SimpleNamespace(_tokenizer=tokenizer, args=args),
                                       datasets.Dataset.from_list(ROWS[name]), tokenizer, args, "train")
    collate = DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id, max_length=length, truncation_mode=mode)
    made = []
    for row in data:
        batch = collate([row])
        labels = batch["input_ids"].masked_fill(batch["completion_mask"] == 0, -100)
        made.append({"input_ids": batch["input_ids"].tolist(), "attention_mask": batch["attention_mask"].tolist(),
                     "labels": labels.tolist()})
    return made


def classify(name, tokenizer):
    labels = [row["label"] for row in ROWS[name]]
    if isinstance(labels[0], str):
        labels = datasets.Dataset.from_list(ROWS[name]).class_encode_column("label")["label"]
    made = []
    for row, label in zip(ROWS[name], labels):
        encoding = tokenizer(row["text"], row.get("text_pair"), truncation=True, return_token_type_ids=True)
        made.append({"input_ids": encoding["input_ids"], "labels": label}
                    | ({"token_type_ids": encoding["token_type_ids"]} if "text_pair" in row else {}))
    return made


def tag(name, tokenizer):
    numbers = {label: number for number, label in enumerate(sorted(TAGS))}
    made = []
    for row in ROWS[name]:
        encoding = tokenizer(row["tokens"], truncation=True, is_split_into_words=True)
        labels, before = [], None
        for word in encoding.word_ids():  # as transformers' run_ner.py
            labels.append(-100 if word is None or word == before else numbers[row["ner_tags"][word]])
            before = word
        made.append({"input_ids": encoding["input_ids"], "labels": labels})
    return made


def masked(name, tokenizer, **levins):
    """Where a token may be drawn the label is its id."""
    made = []
    for row in ROWS[name]:
        encoding = tokenizer(row["text"], truncation=True, return_special_tokens_mask=True)
        made.append({"input_ids": encoding["input_ids"], "labels": [
            -100 if special else one for one, special in zip(encoding["input_ids"], encoding["special_tokens_mask"])]})
    return made


def drawn_by_transformers(tokenizer):
    torch.manual_seed(3)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True)
    one = tokenizer.convert_tokens_to_ids("data")
    ids = torch.full((400, 500), one)
    batch = collate([{"input_ids": row.tolist(), "special_tokens_mask": [0] * 500} for row in ids])
    drawn = batch["labels"] != -100
    now = batch["input_ids"][drawn]
    return {"drawn": drawn.float().mean().item(), "masked": (now == tokenizer.mask_token_id).float().mean().item(),
            "kept": (now == one).float().mean().item(), "tokens": ids.numel(), "id": one}


def main():
    folder, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    language, encoder = language_tokenizer(folder / "language"), encoder_tokenizer(folder / "encoder")
    for name, rows in ROWS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    cases = []

    def add(name, make, tokenizer, packing=False, **options):
        samples = make(name, tokenizer, **({"packing": True} if packing else {}), **options)
        cases.append({"file": name, "tokenizer": "language" if tokenizer is language else "encoder",
                      "options": options | {"packing": packing}, "samples": samples})

    add("text", sft, language)
    add("text", sft, language, max_length=40)
    add("text", sft, language, max_length=40, truncation_mode="keep_end")
    for strategy in ("bfd", "bfd_split"):
        add("text", sft, language, packing=True, max_length=128, packing_strategy=strategy)
        add("completion", sft, language, packing=True, max_length=48, packing_strategy=strategy)
    add("completion", sft, language)
    add("completion", sft, language, completion_only_loss=False)
    add("completion", sft, language, max_length=24)
    add("chat_completion", sft, language)
    add("messages", sft, language)
    add("messages", sft, language, assistant_only_loss=True)
    add("messages", sft, language, assistant_only_loss=True, max_length=140)
    add("chat_completion", sft, language, assistant_only_loss=True)
    add("from_value", sft, language)
    for name in ("preference", "implicit", "chat_preference"):
        add(name, dpo, language)
        length = 130 if name == "chat_preference" else 20
        add(name, dpo, language, max_length=length)
        add(name, dpo, language, max_length=length, truncation_mode="keep_end")
    for name in ("pair", "named"):
        add(name, classify, encoder)
    add("tags", tag, encoder)
    add("text", masked, encoder, task="mlm", mlm_probability=1.0, mask_replace_prob=0.0, random_replace_prob=0.0)
    (folder / "cases.json").write_text(json.dumps(cases))
    lengths = [draw.randint(1, 300) for _ in range(1234)]
    order = get_length_grouped_indices(lengths, 8, generator=torch.Generator().manual_seed(seed))
    (folder / "drawn.json").write_text(json.dumps(
        {"lengths": lengths, "order": order, "masks": drawn_by_transformers(encoder)}))


main()
