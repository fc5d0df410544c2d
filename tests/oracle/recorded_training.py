"""Trainers of Hugging Face that note what they were given and what they lost, and what fine_tuning_test.cpp reads of it."""

import json

import torch
import transformers
from safetensors.torch import save_file
from torch.utils.data import SequentialSampler
from transformers import TrainingArguments

DECODER = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, head_dim=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, attention_dropout=0.0)
LORA = dict(r=4, lora_alpha=8, lora_dropout=0.0)


class Recorded:
    """What a trainer was given and what it lost, of each micro-batch."""

    def __init__(self, *args, **kwargs):
        self.batches, self.losses, self.rewards = [], [], []
        super().__init__(*args, **kwargs)

    def _get_train_sampler(self, dataset=None):
        return SequentialSampler(dataset if dataset is not None else self.train_dataset)

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.batches.append({name: value.clone() for name, value in inputs.items() if isinstance(value, torch.Tensor)})
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.losses.append(loss.item())
        return loss


def arguments(folder, steps, rate, kind=TrainingArguments, **more):
    return kind(output_dir=str(folder / "out"), max_steps=steps, learning_rate=rate, report_to=[], save_strategy="no", logging_steps=1,
                disable_tqdm=True, use_cpu=True, **{"per_device_train_batch_size": 4, **more})


def padded(batches, name, value):
    longest = max(batch[name].shape[-1] for batch in batches)
    return torch.cat([torch.nn.functional.pad(batch[name], (0, longest - batch[name].shape[-1]), value=value) for batch in batches])


def finish(folder, trainer, rows, **facts):
    group = facts.get("accumulate", 1)
    per_epoch = facts.get("micro_batches", len(trainer.losses))
    losses, place = [], 0
    while place < len(trainer.losses):
        size = min(group, per_epoch - place % per_epoch)
        losses.append(sum(trainer.losses[place : place + size]))
        place += size
    save_file({name: value.contiguous() for name, value in rows.items()}, folder / "rows.safetensors")
    (folder / "losses.json").write_text(json.dumps(dict(facts, losses=losses)))


def word_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<pad>": 0, "<s>": 1, "</s>": 2} | {f"w{number}": number for number in range(3, 67)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


def words(source, fewest, most):
    return " ".join(f"w{source.randrange(3, 67)}" for _ in range(source.randrange(fewest, most)))
