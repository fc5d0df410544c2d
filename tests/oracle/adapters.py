"""Adapters of PEFT over the folders of model_folders.py, with what they compute.

    python adapters.py FOLDER            FOLDER/NAME (a model) gets FOLDER/NAME/adapter and adapter_logits.safetensors
    python adapters.py FOLDER --back     reads FOLDER/NAME/adapter_back and merged_back, which levin wrote
"""

import pathlib
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from draw import uniform
from model_folders import write

DECODER = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ENCODER = dict(vocab_size=67, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
               max_position_embeddings=40, pad_token_id=1)
GPT2 = dict(vocab_size=67, n_positions=40, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)


def cases():
    """(name, class, configuration, options of LoRA)"""
    yield "qwen3", "Qwen3ForCausalLM", dict(DECODER, head_dim=12), dict(target_modules=["q_proj", "v_proj"])
    yield "llama_all", "LlamaForCausalLM", DECODER, dict(target_modules="all-linear", r=4, lora_alpha=16)
    yield "llama_rslora", "LlamaForCausalLM", DECODER, dict(target_modules=["o_proj"], use_rslora=True, r=2)
    yield "llama_patterns", "LlamaForCausalLM", DECODER, dict(target_modules=["q_proj", "up_proj"], rank_pattern={"up_proj": 3},
                                                              alpha_pattern={"layers.1.self_attn.q_proj": 20})
    yield "llama_dora", "LlamaForCausalLM", DECODER, dict(target_modules=["q_proj", "down_proj"], use_dora=True)
    yield "bert_all_dora", "BertForSequenceClassification", ENCODER, dict(target_modules="all-linear", use_dora=True, task_type="SEQ_CLS")
    yield "bert_tokens", "BertForTokenClassification", ENCODER, dict(target_modules=["query"], task_type="TOKEN_CLS")
    yield "roberta_all", "RobertaForMaskedLM", ENCODER, dict(target_modules="all-linear")
    yield "gpt2", "GPT2LMHeadModel", GPT2, dict(target_modules=["c_attn"], fan_in_fan_out=True)
    yield "gpt2_dora", "GPT2LMHeadModel", GPT2, dict(target_modules="all-linear", fan_in_fan_out=True, use_dora=True)


def ids_of(folder):
    return load_file(folder / "expected.safetensors")["none.input_ids"]


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    root = pathlib.Path(sys.argv[1])
    for name, kind, config, options in cases():
        folder, cls = root / name, getattr(transformers, kind)
        if "--back" not in sys.argv:
            write(folder, kind, config)
            model = get_peft_model(cls.from_pretrained(folder), LoraConfig(**options)).eval()
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    if "lora_A" in key or "lora_B" in key:
                        parameter.copy_(uniform(key, parameter.shape, 0.2))
                    elif "lora_magnitude" in key:
                        parameter.mul_(1.0 + uniform(key, parameter.shape, 0.2))
                    elif "modules_to_save" in key:
                        parameter.add_(uniform(key, parameter.shape, 0.1))
                save_file({"logits": model(input_ids=ids_of(folder)).logits}, folder / "adapter_logits.safetensors")
            model.save_pretrained(folder / "adapter")
            continue
        wanted = load_file(folder / "adapter_logits.safetensors")["logits"]
        with torch.no_grad():
            ours = PeftModel.from_pretrained(cls.from_pretrained(folder), folder / "adapter_back").eval()
            there = load_file(folder / "adapter" / "adapter_model.safetensors")
            back = load_file(folder / "adapter_back" / "adapter_model.safetensors")
            assert there.keys() == back.keys() and all(torch.equal(there[key], back[key]) for key in there), folder
            for model in (ours, cls.from_pretrained(folder / "merged_back").eval()):
                found = model(input_ids=ids_of(folder)).logits
                assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max(), f"{folder}: other logits after levin wrote it"
    print(f"{len(list(cases()))} adapters")


if __name__ == "__main__":
    main()
