"""Supervised fine-tuning by TRL for fine_tuning.py: prompts and completions, chats of which the assistant's words count, packed rows."""

import random

import torch
import transformers
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from trl import SFTConfig, SFTTrainer

from model_folders import write
from recorded_training import DECODER, LORA, Recorded, arguments, finish, padded, word_tokenizer, words

# The end of an assistant's turn is in its part, as TRL wants it.
TEMPLATE = ("{% for m in messages %}{% if m.role == 'assistant' %}<s> {% generation %}{{ m.content }} </s>{% endgeneration %}"
            "{% else %}w3 {{ m.content }} </s>{% endif %} {% endfor %}")


class RecordedSft(Recorded, SFTTrainer):
    pass


def model_of(folder, lora):
    write(folder / "model", "Qwen3ForCausalLM", DECODER)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    if lora:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **LORA))
        model.save_pretrained(folder / "adapter")
    return model


def settings(folder, steps, rate, **more):
    return arguments(folder, steps, rate, SFTConfig, **{"per_device_train_batch_size": 2, "packing": False, "gradient_checkpointing": False,
                                                        "bf16": False, **more})


def chat(source):
    turns = [("user", "assistant")[turn % 2] for turn in range(source.choice([2, 4]))]
    return dict(messages=[dict(role=role, content=words(source, 1, 7)) for role in turns])


def pair(source):
    return dict(prompt=words(source, 2, 8), completion=" " + words(source, 1, 10))


def sft(folder, steps, lora=False, assistant=False, accumulate=4):
    """10 batches of 2 an epoch in groups of 4, 4 and 2, whose batches have other numbers of tokens that count."""
    facts = dict(task="text-generation", objective="sft", batch=2, lr=1e-3, accumulate=accumulate, micro_batches=10)
    source, tokenizer = random.Random("sft"), word_tokenizer()
    tokenizer.chat_template = TEMPLATE if assistant else None
    data = Dataset.from_list([chat(source) if assistant else pair(source) for _ in range(20)])
    trainer = RecordedSft(model=model_of(folder, lora), processing_class=tokenizer, train_dataset=data,
                          args=settings(folder, steps, facts["lr"], gradient_accumulation_steps=accumulate, assistant_only_loss=assistant))
    trainer.train()
    names = dict(input_ids=0, attention_mask=0, labels=-100)
    rows = {name: padded(trainer.batches[:10], name, value) for name, value in names.items()}
    if assistant:
        parts = (rows["labels"] != -100).sum() / rows["attention_mask"].sum()
        assert 0.2 < parts < 0.8, "the assistant's words are a part of a chat"
    finish(folder, trainer, rows, **facts)


def documents_of(batch):
    """The documents of a row that TRL packed: input_ids and labels of each."""
    starts = (batch["position_ids"][0] == 0).nonzero().flatten().tolist() + [batch["input_ids"].shape[1]]
    return [(batch["input_ids"][0, begin:end], batch["labels"][0, begin:end]) for begin, end in zip(starts, starts[1:])]


def packed_and_apart(batches):
    """The rows that levin gets: each batch as one packed row, and as a document a row. Rows of nothing fill batches up."""
    longest, most = max(b["input_ids"].shape[1] for b in batches), max(len(documents_of(b)) for b in batches)
    width = max(len(ids) for b in batches for ids, _ in documents_of(b))
    packed = {name: torch.full((len(batches), longest), value) for name, value in dict(input_ids=0, labels=-100, document=-1).items()}
    apart = {name: torch.full((len(batches) * most, width), value) for name, value in dict(input_ids=3, labels=-100, attention_mask=0).items()}
    apart["attention_mask"][:, 0] = 1
    for number, batch in enumerate(batches):
        begin = 0
        for place, (ids, labels) in enumerate(documents_of(batch)):
            end, row = begin + len(ids), number * most + place
            packed["input_ids"][number, begin:end], packed["labels"][number, begin:end] = ids, labels
            packed["document"][number, begin:end], begin = place, end
            apart["input_ids"][row, : len(ids)], apart["labels"][row, : len(ids)] = ids, labels
            apart["attention_mask"][row, : len(ids)] = 1
    return packed, apart, most


def sft_packed(folder, steps):
    """TRL's packed rows, and what the documents of each batch lose where they stand in a row each: the truth, by plain transformers."""
    facts = dict(task="text-generation", objective="sft", lr=1e-3, batch=1)
    source = random.Random("packed")
    data = Dataset.from_list([pair(source) for _ in range(60)])
    trainer = RecordedSft(model=model_of(folder, lora=True), processing_class=word_tokenizer(), train_dataset=data,
                          args=settings(folder, steps, facts["lr"], packing=True, max_length=48))
    trainer.train()
    packed, apart, most = packed_and_apart(trainer.batches)
    begins = transformers.AutoModelForCausalLM.from_pretrained(folder / "model")
    begins = get_peft_model(begins, LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", **LORA))
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file, save_file

    set_peft_model_state_dict(begins, load_file(folder / "adapter" / "adapter_model.safetensors"))
    alone = RecordedSft(model=begins, processing_class=word_tokenizer(),
                        train_dataset=Dataset.from_list([{name: row.tolist() for name, row in zip(apart, rows)} for rows in zip(*apart.values())]),
                        args=settings(folder, steps, facts["lr"], per_device_train_batch_size=most, max_length=None,
                                      dataset_kwargs=dict(skip_prepare_dataset=True), remove_unused_columns=False),
                        data_collator=lambda rows: {name: torch.tensor([row[name] for row in rows]) for name in apart})
    alone.train()
    save_file(apart, folder / "rows_apart.safetensors")
    finish(folder, alone, packed, trl_packed=trainer.losses, batch_apart=most, **facts)
