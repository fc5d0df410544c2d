"""The adapter that the Python sides of finetuning.py and gpu/ train; adapter.h is the same in C++."""

import torch
from peft import LoraConfig, get_peft_model


def adapt(model, r, task_type):
    """LoRA in all linear layers, with equal numbers on both sides, in a head as in the adapter."""
    model = get_peft_model(model, LoraConfig(r=r, lora_alpha=2 * r, target_modules="all-linear", task_type=task_type))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "classifier" in name and parameter.requires_grad:
                parameter.fill_(0.01)
                if parameter.dim() == 2:
                    parameter[1].neg_()
            if "lora_A" in name:
                parameter.copy_(torch.arange(parameter.numel()).sin().mul(0.05).view_as(parameter))
    return model
