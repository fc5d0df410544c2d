"""The Python side of finetuning.py, and the folders that both sides open."""

import json
import pathlib
import shutil

# They run in an empty folder, as -c has them.
STEPS = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})" + """
import json, statistics, sys, time
import torch
from safetensors.torch import load_file
import transformers
import adapter
folder, batches, head, warmup, steps, form = sys.argv[1], load_file(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
torch.set_num_threads(1)
is_classifier = head == "SequenceClassification"
made = getattr(transformers, "AutoModelFor" + head).from_pretrained(folder, **({"num_labels": 2} if is_classifier else {})).train()
if form == "chunked":
    from trl.trainer.utils import add_fused_lm_head
    add_fused_lm_head(made)
model = adapter.adapt(made, 16, "SEQ_CLS" if is_classifier else "CAUSAL_LM")
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=form == "fused")

def loss_of(batch):
    if form != "chunked":
        return model(**batch).loss
    outputs = model(**batch, fused_lm_head=True)
    return -outputs.log_probs.sum() / outputs.label_mask.sum()

times, processor = [], []
for step in range(warmup + steps + 1):
    times.append(time.perf_counter())
    processor.append(time.process_time())
    batch = {name: tensor[step % len(tensor)] for name, tensor in batches.items()}
    optimizer.zero_grad()
    loss = loss_of(batch)
    loss.backward()
    optimizer.step()
    if step == 0:
        print("first step done", flush=True)
def median(times):
    return 1e3 * statistics.median([times[i] - times[i - 1] for i in range(warmup + 1, len(times))])
print(json.dumps({"step_ms": median(times), "cpu_ms": median(processor), "last_loss": loss.item()}))
"""

EPOCH = """
import json, sys, time
import torch
import datasets, transformers
from peft import LoraConfig, get_peft_model
datasets.disable_progress_bars()
folder, path, batch, strategy = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
torch.set_num_threads(1)
rows = [json.loads(line) for line in open(path)]
names = sorted({row["label"] for row in rows})
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
data = datasets.Dataset.from_list([{"label": names.index(row["label"]), **tokenizer(row["text"], truncation=True, max_length=64)} for row in rows])
model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=len(names))
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="SEQ_CLS"))
arguments = transformers.TrainingArguments(output_dir="out", per_device_train_batch_size=batch, num_train_epochs=1, learning_rate=1e-3,
                                           train_sampling_strategy=strategy, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
                                           use_cpu=True, seed=1)
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data,
                               data_collator=transformers.DataCollatorWithPadding(tokenizer))
begin = time.process_time()
done = trainer.train()
processor = time.process_time() - begin
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
last = losses[-max(len(losses) // 4, 1):]
print()
print(json.dumps({"epoch_s": done.metrics["train_runtime"], "cpu_s": processor, "last_loss": sum(map(float, last)) / len(last), "steps": len(losses)}))
"""


def batches_of(torch, count, rows, tokens, vocabulary, seed):
    torch.manual_seed(seed)
    return torch.randint(1000, vocabulary, (count, rows, tokens))


def make_folders(folder, minilm, parts):
    """Models and batches of the parts, by name."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    made = {"packed_batch": lambda rows, texts: packed_batch(minilm, rows, texts)}
    if {"step", "start"} & set(parts):
        made["minilm"] = folder / "minilm"
        shutil.copytree(minilm, made["minilm"])
        (made["minilm"] / "modules.json").unlink()
        config = json.loads((made["minilm"] / "config.json").read_text())
        config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        (made["minilm"] / "config.json").write_text(json.dumps(config))
        ids, mask = batches_of(torch, 10, 16, 128, 30000, 0), torch.ones(10, 16, 128, dtype=torch.long)
        for batch in range(10):
            for row in range(1, 16):
                mask[batch, row, int(torch.randint(64, 129, ())):] = 0
        save_file({"input_ids": ids * mask, "attention_mask": mask, "labels": torch.randint(0, 2, (10, 16))}, folder / "minilm.safetensors")
    sizes = {"vocabulary": dict(vocab_size=151936, hidden_size=512, intermediate_size=1536, num_hidden_layers=2, num_attention_heads=8),
             "large": dict(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16)}
    shapes = {"vocabulary": (4, 2, 1024), "large": (4, 2, 16)}
    for name, part in (("vocabulary", "vocabulary"), ("large", "ranks")):
        if part not in parts:
            continue
        made[name] = folder / name
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**sizes[name], max_position_embeddings=2048)).save_pretrained(made[name])
        ids = batches_of(torch, *shapes[name], 30000, 1)
        save_file({"input_ids": ids, "labels": ids.clone()}, folder / f"{name}.safetensors")
    return made


def packed_batch(minilm, rows, texts):
    """How many rows of 64 tokens hold so many texts, as a rule."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    lines = [json.loads(line)["text"] for line in open(rows)]
    tokens = sum(len(ids) for ids in tokenizer(lines, truncation=True, max_length=64)["input_ids"])
    return max(round(texts * tokens / len(lines) / 64), 1)
