"""transformers' GPT2LMHeadModel on a small configuration: logits, loss and gradients."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from draw import integers, uniform

CONFIG = dict(vocab_size=61, n_positions=16, n_embd=24, n_layer=2, n_head=3)
TOKENS = dict(bos_token_id=0, eos_token_id=0)
GRADIENTS = ("transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight")


def make():
    model = GPT2LMHeadModel(GPT2Config(**CONFIG, **TOKENS, attn_implementation="eager")).eval()
    tensors = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Wider than GPT-2's own initialisation, which leaves attention almost uniform.
            parameter.copy_(uniform(name, parameter.shape, 0.4))
            if ".ln_" in name and name.endswith("weight"):
                parameter.add_(1.0)
            tensors[name] = parameter.detach().clone()
    input_ids = integers("input_ids", (2, 12), CONFIG["vocab_size"])
    logits = model(input_ids).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    loss.backward()
    tensors |= {"input_ids": input_ids, "logits": logits.detach().clone(), "loss": loss.detach()}
    parameters = dict(model.named_parameters())
    tensors |= {f"gradient.{name}": parameters[name].grad for name in GRADIENTS}
    return tensors, dict(CONFIG)
