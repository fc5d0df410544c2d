"""Folders of small random models of each family and head, as transformers saves them, with what it computes.

    python model_folders.py FOLDER            writes FOLDER/NAME/{config.json, ..., expected.safetensors}
    python model_folders.py FOLDER --back     reads FOLDER/NAME/back, which levin wrote of each

expected.safetensors: the batches (PADDING.input_ids and so on), PADDING.logits, PADDING.loss, and
gradient.NAME of the right-padded one's loss. Padded tokens' values are not compared.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from draw import integers, uniform

VOCABULARY, LENGTH, ROWS, LABELS = 67, 11, 3, 5
DECODER = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
               num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
               bos_token_id=1, eos_token_id=2)
ENCODER = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
               num_attention_heads=4, max_position_embeddings=40, pad_token_id=1, bos_token_id=0, eos_token_id=2)
HEADS = ["Model", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification",
         "ForQuestionAnswering"]
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=3.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16)


def families():
    """(name, prefix of classes, configuration)"""
    gemma = dict(DECODER, head_dim=12, query_pre_attn_scalar=20, sliding_window=4, num_hidden_layers=4,
                 layer_types=["sliding_attention", "full_attention"] * 2)
    modern = dict(ENCODER, local_attention=6, num_hidden_layers=4, pad_token_id=1, cls_token_id=0, sep_token_id=2)
    gpt2 = dict(vocab_size=VOCABULARY, n_positions=40, n_embd=32, n_layer=2, n_head=4, pad_token_id=0,
                bos_token_id=1, eos_token_id=2)
    distil = dict(vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=40,
                  pad_token_id=1)
    yield "llama", "Llama", dict(DECODER)
    yield "mistral", "Mistral", dict(DECODER, sliding_window=4, head_dim=12)
    yield "qwen2", "Qwen2", dict(DECODER)
    yield "qwen3", "Qwen3", dict(DECODER, head_dim=12)
    yield "smollm3", "SmolLM3", dict(DECODER, no_rope_layers=[1, 0, 1])
    yield "gemma3", "Gemma3", gemma
    yield "olmo2", "Olmo2", dict(DECODER)
    yield "bert", "Bert", dict(ENCODER)
    yield "roberta", "Roberta", dict(ENCODER, type_vocab_size=1)
    yield "xlm_roberta", "XLMRoberta", dict(ENCODER, type_vocab_size=1)
    yield "distilbert", "DistilBert", distil
    yield "modernbert", "ModernBert", modern
    yield "gpt2", "GPT2", gpt2


def options():
    """(name, class, configuration): the ways in which one class can be."""
    yield "llama_linear", "LlamaForCausalLM", dict(DECODER, rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=2.5))
    yield "llama_llama3", "LlamaForCausalLM", dict(DECODER, rope_parameters=LLAMA3)
    yield "llama_yarn", "LlamaForCausalLM", dict(DECODER, rope_parameters=YARN)
    yield "llama_yarn_scales", "LlamaForCausalLM", dict(DECODER, rope_parameters=dict(YARN, mscale=0.8, mscale_all_dim=0.5, truncate=False, beta_fast=20.0))
    yield "llama_biases", "LlamaForCausalLM", dict(DECODER, attention_bias=True, mlp_bias=True, num_key_value_heads=4, hidden_act="gelu")
    yield "llama_tied", "LlamaForCausalLM", dict(DECODER, tie_word_embeddings=True)
    yield "qwen2_windows", "Qwen2ForCausalLM", dict(DECODER, use_sliding_window=True, sliding_window=3, max_window_layers=1)
    yield "qwen3_bias", "Qwen3ForCausalLM", dict(DECODER, attention_bias=True, num_key_value_heads=1)
    yield "smollm3_windows", "SmolLM3ForCausalLM", dict(DECODER, use_sliding_window=True, sliding_window=3, no_rope_layer_interval=2)
    yield "gemma3_cap", "Gemma3ForCausalLM", dict(DECODER, head_dim=12, sliding_window=4, final_logit_softcapping=2.0)
    yield "gemma3_both_sides", "Gemma3TextModel", dict(DECODER, head_dim=12, sliding_window=6, use_bidirectional_attention=True)
    yield "bert_untied", "BertForMaskedLM", dict(ENCODER, tie_word_embeddings=False, hidden_act="gelu_new")
    yield "modernbert_mean", "ModernBertForSequenceClassification", dict(ENCODER, classifier_pooling="mean", norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True)
    yield "gpt2_inner", "GPT2LMHeadModel", dict(vocab_size=VOCABULARY, n_positions=40, n_embd=32, n_layer=2, n_head=4, n_inner=40, activation_function="relu", bos_token_id=1, eos_token_id=2)
    yield "bert_regression", "BertForSequenceClassification", dict(ENCODER, num_labels=1)
    yield "bert_many_labels", "BertForSequenceClassification", dict(ENCODER, problem_type="multi_label_classification")


def cases():
    for name, prefix, config in families():
        for head in HEADS:
            kind = dict(Gemma3Model="Gemma3TextModel", Gemma3ForSequenceClassification="Gemma3TextForSequenceClassification",
                        GPT2ForCausalLM="GPT2LMHeadModel").get(prefix + head, prefix + head)
            if head == "ForCausalLM" and "num_key_value_heads" not in config and prefix != "GPT2":
                continue
            if hasattr(transformers, kind):
                yield f"{name}_{head}", kind, config
    yield from options()


def batch_of(config, padding, kind):
    ids = integers(f"ids.{padding}", (ROWS, LENGTH), VOCABULARY - 3) + 3
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    for row, length in enumerate((LENGTH, 7, 4)):
        if padding == "right":
            mask[row, length:] = 0
        elif padding == "left":
            mask[row, : LENGTH - length] = 0
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    if padding != "none":
        ids = torch.where(mask == 1, ids, pad)
    batch = {"input_ids": ids} | ({} if padding == "none" else {"attention_mask": mask})
    if kind.startswith("Bert"):
        batch["token_type_ids"] = integers("types", (ROWS, LENGTH), 2)
    if kind.endswith("ForQuestionAnswering"):
        batch |= {"start_positions": torch.tensor([1, 2, 30]), "end_positions": torch.tensor([3, 3, 2])}
    elif kind.endswith("ForSequenceClassification"):
        if config.problem_type == "multi_label_classification":
            batch["labels"] = integers("labels", (ROWS, LABELS), 2).float()
        elif config.num_labels == 1:
            batch["labels"] = uniform("labels", (ROWS,), 1.0)
        else:
            batch["labels"] = torch.tensor([4, 0, 2])
    elif kind.endswith("ForTokenClassification"):
        batch["labels"] = torch.where(mask == 1, integers("labels", (ROWS, LENGTH), LABELS), -100)
    elif not kind.endswith("Model") or kind == "GPT2LMHeadModel":
        batch["labels"] = torch.where(mask == 1, ids, -100)
    return batch


def fill(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(uniform(name, parameter.shape, 0.25))
            if "norm" in name.lower() and name.endswith("weight") and "Gemma" not in type(model).__name__:
                parameter.add_(1.0)


def result(model, batch):
    output = model(**batch)
    if hasattr(output, "start_logits"):
        return torch.stack([output.start_logits, output.end_logits], -1), output.loss
    if hasattr(output, "logits"):
        return output.logits, output.loss
    return output.last_hidden_state, None


def write(folder, kind, given):
    cls = getattr(transformers, kind)
    labels = {} if "num_labels" in given else {"num_labels": 2 if kind.endswith("Answering") else LABELS}
    model = cls(cls.config_class(**given, **labels)).eval()
    fill(model)
    model.save_pretrained(folder)
    tensors = {}
    for padding in ("none", "right", "left"):
        batch = batch_of(model.config, padding, kind)
        if model.config.pad_token_id is None and padding != "none":
            continue
        values, loss = result(model, batch)
        tensors |= {f"{padding}.{name}": value for name, value in batch.items()}
        tensors[f"{padding}.logits"] = values.detach()
        if loss is None:
            mask = batch.get("attention_mask", torch.ones(ROWS, LENGTH))
            loss = (values * mask.unsqueeze(-1)).pow(2).mean()
        tensors[f"{padding}.loss"] = loss.detach()
        model.zero_grad()
        loss.backward()
        tensors |= {f"{padding}.gradient.{name}": parameter.grad.clone()
                    for name, parameter in model.named_parameters(remove_duplicate=False)  # tied ones by each name
                    if parameter.grad is not None}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")


def spell_as_version_4(folder):
    """rope_theta and rope_scaling, torch_dtype, no layer_types: what is on people's disks."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None)
    if rope and "full_attention" in rope:
        full, sliding = rope["full_attention"], rope["sliding_attention"]
        names = ("global_rope_theta", "local_rope_theta") if config["model_type"] == "modernbert" else ("rope_theta", "rope_local_base_freq")
        config |= {names[0]: full.pop("rope_theta"), names[1]: sliding.pop("rope_theta")}
        rope = full
    elif rope:
        config["rope_theta"] = rope.pop("rope_theta")
    if rope and rope["rope_type"] != "default":
        config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype", "float32")
    path.write_text(json.dumps(config))


def variants(root):
    """Other files of the same models."""
    old = root / "llama_llama3_v4"
    shutil.copytree(root / "llama_llama3", old)
    spell_as_version_4(old)
    for name in ("gemma3_ForCausalLM", "modernbert_ForMaskedLM", "qwen3_ForCausalLM"):
        shutil.copytree(root / name, root / f"{name}_v4")
        spell_as_version_4(root / f"{name}_v4")
    # One file of torch.save; names without the prefix of the body, and those of TensorFlow's norms.
    for name, change in (("qwen2_ForCausalLM", lambda key: key),
                         ("gpt2_ForCausalLM", lambda key: key.removeprefix("transformer.")),
                         ("bert_ForMaskedLM", lambda key: key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"))):
        folder = root / f"{name}_bin"
        shutil.copytree(root / name, folder)
        weights = {change(key): tensor for key, tensor in load_file(folder / "model.safetensors").items()}
        if name.startswith("bert"):
            weights["bert.embeddings.position_ids"] = torch.arange(40)
        (folder / "model.safetensors").unlink()
        torch.save(weights, folder / "pytorch_model.bin")
    folder = root / "llama_ForCausalLM_sharded"
    model = transformers.AutoModelForCausalLM.from_pretrained(root / "llama_ForCausalLM")
    model.save_pretrained(folder, max_shard_size="20KB")
    shutil.copy(root / "llama_ForCausalLM" / "expected.safetensors", folder)


def check_back(folder):
    config = AutoConfig.from_pretrained(folder / "back")
    cls = getattr(transformers, config.architectures[0])
    model, info = cls.from_pretrained(folder / "back", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], (folder, info)
    for parameter in model.parameters():  # out of the file's map: MKL's sums depend on where memory begins
        parameter.data = parameter.data.clone()
    expected = load_file(folder / "expected.safetensors")
    names = {name.split(".", 1)[1]: name for name in expected if name.startswith("none.")}
    batch = {name: expected[names[name]] for name in names if name in (
        "input_ids", "token_type_ids", "labels", "start_positions", "end_positions")}
    values, _ = result(model.eval(), batch)
    assert torch.equal(values.detach(), expected["none.logits"]), f"{folder}: other logits after levin wrote it"
    if (folder / "model.safetensors").exists():
        there, back = load_file(folder / "model.safetensors"), load_file(folder / "back" / "model.safetensors")
        assert there.keys() == back.keys(), (folder, there.keys() ^ back.keys())
        assert all(torch.equal(there[name], back[name]) for name in there), folder


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    if "--back" in sys.argv:
        folders = sorted(folder for folder in root.iterdir() if (folder / "back").is_dir())
        for folder in folders:
            check_back(folder)
        print(f"{len(folders)} folders")
        return
    for name, kind, config in cases():
        write(root / name, kind, config)
    variants(root)


if __name__ == "__main__":
    main()
