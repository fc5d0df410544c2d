"""The works of the GPU benchmarks: their sizes, and the folder that both sides open for one.

A folder holds config.json (sizes), weights.safetensors (first weights, by name) and batches.safetensors (each
tensor [batches, ..]), so that levin and PyTorch begin with the same numbers and see the same data.
"""

import json
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "peers"))

# GPT-2 124M; nanoGPT pads the vocabulary to 50304, a multiple of 64, which tensor cores want.
GPT2 = {"work": "gpt2", "precision": "bf16", "lr": 3e-4, "vocab_size": 50304, "n_positions": 1024, "n_embd": 768,
        "n_layer": 12, "n_head": 12, "batch_size": 16, "tokens": 1024, "batches": 4}
SMALL_GPT2 = {"vocab_size": 160, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2, "batch_size": 2,
              "tokens": 16}
SIZES = {
    "gpt2": GPT2,
    "gpt2-50257": GPT2 | {"vocab_size": 50257},
    "resnet50": {"work": "resnet50", "precision": "bf16", "lr": 0.01, "blocks": [3, 4, 6, 3], "width": 64,
                 "classes": 1000, "batch_size": 128, "side": 224, "batches": 2},
    "mlp": {"work": "mlp", "precision": "no", "lr": 1e-3, "layers": 4, "width": 256, "classes": 10, "batch_size": 64,
            "batches": 8},
    "minilm": {"work": "minilm", "precision": "bf16", "lr": 1e-3, "lora_r": 16, "hidden_size": 384, "layers": 6,
               "heads": 12, "intermediate_size": 1536, "vocab_size": 30522, "batch_size": 32, "tokens": 128,
               "batches": 4},
    "loader": {"work": "loader", "precision": "no", "samples": 1024, "side": 224, "batch_size": 128},
}
# What --small takes in their place: enough to run each line.
SMALL = {
    "gpt2": SMALL_GPT2,
    "gpt2-50257": SMALL_GPT2 | {"vocab_size": 157},
    # In float32: batch norm over a few values magnifies what bfloat16 rounds.
    "resnet50": {"precision": "no", "blocks": [1, 1, 1, 1], "width": 8, "classes": 10, "batch_size": 4, "side": 64},
    "mlp": {"width": 16, "batch_size": 8},
    "minilm": {"lora_r": 2, "hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "vocab_size": 100,
               "batch_size": 2, "tokens": 16},
    "loader": {"samples": 32, "side": 16, "batch_size": 8},
}


def sizes_of(name, small):
    name = "mlp" if name == "start" else name
    return SIZES[name] | (SMALL[name] if small else {})


def make_net(sizes, folder):
    """The net of a work, without its first weights."""
    if sizes["work"] == "gpt2":
        from gpt import GPT
        return GPT(**{key: sizes[key] for key in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")})
    if sizes["work"] == "resnet50":
        from resnet import ResNet
        return ResNet(sizes["blocks"], sizes["width"], sizes["classes"])
    if sizes["work"] == "minilm":
        import adapter
        from transformers import AutoModelForSequenceClassification
        net = AutoModelForSequenceClassification.from_pretrained(pathlib.Path(folder) / "model").train()
        return adapter.adapt(net, sizes["lora_r"], "SEQ_CLS")
    width = sizes["width"]
    layers = [layer for _ in range(sizes["layers"] - 1) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, sizes["classes"]))


def batches_of(sizes):
    """Each tensor [batches, ..]."""
    count, rows = sizes["batches"], sizes["batch_size"]
    if sizes["work"] == "gpt2":
        ids = torch.randint(sizes["vocab_size"], (count, rows, sizes["tokens"] + 1))
        return {"x": ids[..., :-1].contiguous(), "y": ids[..., 1:].contiguous()}
    if sizes["work"] == "minilm":
        ids = torch.randint(sizes["vocab_size"], (count, rows, sizes["tokens"]))
        # Texts of other lengths, so that both sides have a mask that hides something.
        lengths = torch.randint(sizes["tokens"] // 2, sizes["tokens"] + 1, (count, rows, 1))
        mask = (torch.arange(sizes["tokens"]) < lengths).long()
        return {"input_ids": ids * mask, "attention_mask": mask, "labels": torch.randint(2, (count, rows))}
    shape = (3, sizes["side"], sizes["side"]) if sizes["work"] == "resnet50" else (sizes["width"],)
    return {"x": torch.randn(count, rows, *shape), "y": torch.randint(sizes["classes"], (count, rows))}


def write_model(sizes, folder):
    """A folder of transformers with random weights, of MiniLM's shape."""
    from transformers import BertConfig, BertForSequenceClassification
    from transformers.utils import logging
    logging.disable_progress_bar()
    config = BertConfig(vocab_size=sizes["vocab_size"], hidden_size=sizes["hidden_size"],
                        num_hidden_layers=sizes["layers"], num_attention_heads=sizes["heads"],
                        intermediate_size=sizes["intermediate_size"], max_position_embeddings=max(sizes["tokens"], 32),
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    BertForSequenceClassification(config).save_pretrained(folder / "model")


def first_weights(sizes, net):
    with torch.no_grad():
        for name, parameter in net.named_parameters() if sizes["work"] == "gpt2" else ():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.02)
            else:
                parameter.fill_(1.0 if ".ln_" in name and name.endswith("weight") else 0.0)
    return {name: parameter.detach().contiguous() for name, parameter in net.named_parameters()}


def write(sizes, folder):
    """The folder of a work."""
    torch.manual_seed(0)
    (folder / "config.json").write_text(json.dumps(sizes))
    if sizes["work"] == "loader":
        return
    from safetensors.torch import save_file
    save_file(batches_of(sizes), folder / "batches.safetensors")
    if sizes["work"] == "minilm":
        write_model(sizes, folder)
    else:
        save_file(first_weights(sizes, make_net(sizes, folder)), folder / "weights.safetensors")


def read(folder):
    """Sizes, and the batches as a list of named tensors."""
    folder = pathlib.Path(folder)
    sizes = json.loads((folder / "config.json").read_text())
    if sizes["work"] == "loader":
        return sizes, []
    from safetensors.torch import load_file
    tensors = load_file(folder / "batches.safetensors")
    return sizes, [{name: tensor[i] for name, tensor in tensors.items()} for i in range(sizes["batches"])]


def samples_of(sizes):
    """What a step of the work counts: tokens, samples, or of the MLP itself."""
    if sizes["work"] == "mlp":
        return 1
    return sizes["batch_size"] * (sizes["tokens"] if sizes["work"] == "gpt2" else 1)


def flops_per_token(sizes, parameters):
    """Of GPT-2, forward and backward, as nanoGPT counts them: 6 N + 12 L H Q T, positions not in N."""
    return (6 * (parameters - sizes["n_positions"] * sizes["n_embd"])
            + 12 * sizes["n_layer"] * sizes["n_embd"] * sizes["tokens"])


def bf16_peak(card):
    """TFLOP/s of dense bf16 products, from NVIDIA's data sheets; None for a card that is not listed."""
    for name, peak in (("H100 PCIe", 756), ("H100 NVL", 835), ("H100", 989), ("H200", 989), ("A100", 312)):
        if name in card:
            return peak
    return None
