"""Trainings by transformers' Trainer, PEFT, TRL and sentence-transformers, step by step.

    python fine_tuning.py FOLDER STEPS CASE...     FOLDER/CASE gets model/, adapter/ where LoRA begins, rows.safetensors and
                                                   losses.json: what levin is to do again

Dropout is off and the order of the rows is that of the data set. rows.safetensors holds the batches as the model got them, one after
another, padded to one length; losses.json the loss of each optimizer step, and what fine_tuning_test.cpp needs to know.
"""

import json
import pathlib
import random
import shutil
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, Trainer

from fine_tuning_sft import sft, sft_packed
from model_folders import write
from recorded_training import DECODER, LORA, Recorded, arguments, finish, padded, word_tokenizer, words

ENCODER = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=40, pad_token_id=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=5)


class RecordedTrainer(Recorded, Trainer):
    pass


def encoder_rows(count, vocabulary, labels, seed):
    """Texts of 5 to 12 tokens; a token of each says what it is about."""
    source = random.Random(seed)
    for _ in range(count):
        label = source.randrange(labels)
        ids = [source.randrange(3, vocabulary) for _ in range(source.randrange(5, 13))]
        ids[source.randrange(1, len(ids))] = 5 + label
        yield dict(input_ids=ids, labels=label)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows, pad):
        self.rows, self.pad = list(rows), pad

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]

    def collate(self, rows):
        longest = max(len(row["input_ids"]) for row in rows)
        ids = torch.full((len(rows), longest), self.pad)
        mask = torch.zeros((len(rows), longest), dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
            mask[place, : len(row["input_ids"])] = 1
        return dict(input_ids=ids, attention_mask=mask, labels=torch.tensor([row["labels"] for row in rows]))


def classify(folder, steps, minilm=None, lora=False):
    if minilm is None:
        write(folder / "model", "BertForSequenceClassification", ENCODER)
        vocabulary, pad = 67, 1
    else:
        model = AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=5, hidden_dropout_prob=0.0,
                                                                   attention_probs_dropout_prob=0.0)
        model.save_pretrained(folder / "model")
        vocabulary, pad = 30000, 0
    model = AutoModelForSequenceClassification.from_pretrained(folder / "model")
    facts = dict(task="text-classification", batch=4, lr=5e-4 if lora or minilm is None else 5e-5, weight_decay=0.01)
    if lora:
        model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], **LORA))
        model.save_pretrained(folder / "adapter")
    data = Rows(encoder_rows(4 * steps, vocabulary, 5, "classify"), pad)
    trainer = RecordedTrainer(model=model, args=arguments(folder, steps, facts["lr"], weight_decay=facts["weight_decay"]),
                              train_dataset=data, data_collator=data.collate)
    trainer.train()
    rows = dict(input_ids=padded(trainer.batches, "input_ids", pad), attention_mask=padded(trainer.batches, "attention_mask", 0),
                labels=torch.cat([batch["labels"] for batch in trainer.batches]))
    finish(folder, trainer, rows, **facts)


def dpo(folder, steps, lora=False):
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer

    class RecordedDpo(Recorded, DPOTrainer):
        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            self.rewards.append({name: self._metrics["train"][f"rewards/{name}"][-1] for name in ("chosen", "rejected", "accuracies",
                                                                                                  "margins")})
            return loss

    write(folder / "model", "Qwen3ForCausalLM", DECODER)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    facts = dict(task="text-generation", objective="dpo", batch=2, lr=1e-3, beta=0.3)
    if lora:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], **LORA))
        model.save_pretrained(folder / "adapter")
    source = random.Random("dpo")
    pairs = [dict(prompt=words(source, 2, 8), chosen=" " + words(source, 1, 10), rejected=" " + words(source, 1, 10))
             for _ in range(2 * steps)]
    reference = None if lora else transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    trainer = RecordedDpo(model=model, ref_model=reference, processing_class=word_tokenizer(), train_dataset=Dataset.from_list(pairs),
                          args=arguments(folder, steps, facts["lr"], DPOConfig, per_device_train_batch_size=2, beta=facts["beta"],
                                         gradient_checkpointing=False, bf16=False))
    trainer.train()

    def pairs_of(name, value):
        longest = max(batch[name].shape[1] for batch in trainer.batches)
        parts = []
        for batch in trainer.batches:
            chosen, rejected = torch.nn.functional.pad(batch[name], (0, longest - batch[name].shape[1]), value=value).chunk(2)
            parts.append(torch.stack([chosen, rejected], 1))
        return torch.cat(parts)

    rows = dict(input_ids=pairs_of("input_ids", 0), attention_mask=pairs_of("attention_mask", 0))
    rows["labels"] = rows["input_ids"].masked_fill(pairs_of("completion_mask", 0) == 0, -100)
    finish(folder, trainer, rows, rewards=trainer.rewards, **facts)


def embed(folder, steps, minilm):
    """sentence-transformers' loss and model; the loop is transformers' Trainer's: AdamW, linear, clipped at 1."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    shutil.copytree(minilm, folder / "model", symlinks=True, ignore=shutil.ignore_patterns(".levin*"))
    config = json.loads((folder / "model" / "config.json").read_text())
    config.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (folder / "model" / "config.json").write_text(json.dumps(config))
    encoder = SentenceTransformer(str(folder / "model"), device="cpu").train()
    loss_of = MultipleNegativesRankingLoss(encoder)
    facts = dict(task="sentence-similarity", batch=4, lr=2e-5)
    adamw = torch.optim.AdamW([p for p in encoder.parameters() if p.requires_grad], lr=facts["lr"], weight_decay=0.0)
    schedule = transformers.get_linear_schedule_with_warmup(adamw, 0, steps)
    source, losses, rows = random.Random("embed"), [], []
    for _ in range(steps):
        texts = [[[101] + [source.randrange(2000, 12000) for _ in range(source.randrange(2, 9))] + [102] for _ in range(3)] for _ in range(4)]
        ids, mask = torch.zeros((4, 3, 12), dtype=torch.long), torch.zeros((4, 3, 12), dtype=torch.long)
        for row, three in enumerate(texts):
            for place, text in enumerate(three):
                ids[row, place, : len(text)] = torch.tensor(text)
                mask[row, place, : len(text)] = 1
        features = [dict(input_ids=ids[:, place], attention_mask=mask[:, place]) for place in range(3)]
        loss = loss_of(features, None)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        adamw.step(), schedule.step(), adamw.zero_grad()
        losses.append(loss.item())
        rows.append((ids, mask))
    save_file(dict(input_ids=torch.cat([row[0] for row in rows]), attention_mask=torch.cat([row[1] for row in rows])),
              folder / "rows.safetensors")
    (folder / "losses.json").write_text(json.dumps(dict(facts, losses=losses)))


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    root, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    minilm = pathlib.Path(__file__).parents[2] / ".deps" / "minilm"
    cases = dict(bert=lambda at: classify(at, steps), bert_lora=lambda at: classify(at, steps, lora=True),
                 minilm=lambda at: classify(at, steps, minilm), minilm_lora=lambda at: classify(at, steps, minilm, lora=True),
                 sft=lambda at: sft(at, steps), sft_lora=lambda at: sft(at, steps, lora=True),
                 sft_assistant=lambda at: sft(at, steps, lora=True, assistant=True), sft_packed=lambda at: sft_packed(at, steps), dpo=lambda at: dpo(at, steps),
                 dpo_lora=lambda at: dpo(at, steps, lora=True), embed=lambda at: embed(at, steps, minilm))
    for name in sys.argv[3:]:
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cases[name](folder)
        print(name)


if __name__ == "__main__":
    main()
