"""Adapters of PEFT on networks that are exported too, and what they compute.

    exported_adapters.py FOLDER          FOLDER/NAME gets net.pt2, adapter/ and reference.safetensors
    exported_adapters.py FOLDER --back   opens FOLDER/NAME/back, which levin wrote, and compares with back.safetensors
"""

import pathlib
import sys
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from torch.export import export, save

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
STEPS, RATE = 5, 0.02


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(self.down(torch.relu(self.up(self.norm(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block(8) for _ in range(3)), nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():
            start = self.blocks[0](x)
        x = x + start
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Logits(nn.Module):
    """A model of transformers whose forward gives a tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def llama():
    config = transformers.LlamaConfig(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2)
    return Logits(transformers.LlamaForCausalLM(config))


CASES = {
    "linear_names": (Net, torch.randn(4, 5, 8), dict(r=4, lora_alpha=12, lora_dropout=0.2, target_modules=["up", "down"])),
    "patterns": (Net, torch.randn(4, 5, 8), dict(r=4, target_modules=r"blocks\.[12]\.(up|down)", use_rslora=True,
                                                 rank_pattern={"down": 2}, alpha_pattern={"blocks.1.up": 20})),
    "head_whole": (Net, torch.randn(4, 5, 8), dict(r=2, target_modules=["up"], layers_to_transform=[0, 2], layers_pattern=["blocks"],
                                                   modules_to_save=["head"])),
    "llama": (llama, torch.randint(0, 67, (2, 6)), dict(r=3, lora_alpha=9, lora_dropout=0.1,
                                                        target_modules=["q_proj", "v_proj", "gate_proj"])),
}


def network(make):
    torch.manual_seed(3)
    return make().train()


def plain(name):
    """As the adapter's file has it."""
    return name.replace(".modules_to_save.default", "").replace(".default", "")


def write(folder, make, example, options):
    folder.mkdir(parents=True, exist_ok=True)
    save(export(network(make), (example,)), folder / "net.pt2")
    model = get_peft_model(network(make), LoraConfig(**options))
    torch.manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder / "adapter")
    reference = {"input": example}
    trained = {plain(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        model.zero_grad()
        out = model(example)
        out.square().mean().backward()
        if step == 0:
            reference["out"] = out.detach().clone()
            reference.update({"grad." + name: parameter.grad.clone() for name, parameter in trained.items()})
        with torch.no_grad():
            for parameter in trained.values():
                parameter -= RATE * parameter.grad
    reference.update({"after." + name: parameter.detach().clone() for name, parameter in trained.items()})
    with torch.no_grad():
        reference["eval"] = model.eval()(example)
        reference["merged"] = model.merge_and_unload()(example)
    save_file({key: value.contiguous() for key, value in reference.items()}, folder / "reference.safetensors")


def main():
    root = pathlib.Path(sys.argv[1])
    for name, (make, example, options) in CASES.items():
        if "--back" not in sys.argv:
            torch.manual_seed(5)
            write(root / name, make, example, options)
            continue
        levins = load_file(root / name / "back.safetensors")
        model = PeftModel.from_pretrained(network(make), root / name / "back").eval()
        with torch.no_grad():
            off = (model(levins["input"]) - levins["eval"]).abs().max().item()
        assert off < 1e-5, f"{name}: off by {off}"
        print(name, "is the same")


main()
