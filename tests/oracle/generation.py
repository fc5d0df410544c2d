"""What transformers' generate writes with small random models of each family, for levin to write the same.

    python generation.py FOLDER        writes FOLDER/NAME/{config.json, ..., cases.json, expected.safetensors}

cases.json: name -> arguments of generate, with "seed" where it draws. expected.safetensors: input_ids and attention_mask
of the prompts, padded on the left; CASE.sequences; CASE.logits and CASE.scores, what transformers
makes of them, [steps, rows, vocabulary] where the case draws. The folder
`text` has a tokenizer, cases with stop_strings and CASE.texts in cases.json; `settings` a generation_config.json that draws.
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from draw import integers
from model_folders import DECODER, VOCABULARY, YARN, fill

ROWS, LENGTH, NEW = 20, 17, 40
ENDS = [2, 9, 11, 31]
GREEDY = {
    "greedy": dict(max_new_tokens=NEW),
    "penalty": dict(max_new_tokens=NEW, repetition_penalty=1.3, min_new_tokens=7),
    "length": dict(max_length=LENGTH + 9, min_length=LENGTH + 4, pad_token_id=5, eos_token_id=[3, 4]),
}
DRAWN = {
    "drawn": dict(max_new_tokens=NEW, do_sample=True, seed=3, top_k=0),
    "all": dict(max_new_tokens=NEW, do_sample=True, seed=4, temperature=0.7, top_k=20, top_p=0.9, min_p=0.02, repetition_penalty=1.2),
    "top_p": dict(max_new_tokens=11, do_sample=True, seed=5, top_k=0, top_p=0.6),
    "min_p": dict(max_new_tokens=11, do_sample=True, seed=6, top_k=0, min_p=0.3, temperature=1.5),
    "several": dict(max_new_tokens=11, do_sample=True, seed=7, num_return_sequences=3),
}


def kinds():
    """(name, class, configuration)"""
    gemma = dict(DECODER, head_dim=12, query_pre_attn_scalar=20, sliding_window=4, num_hidden_layers=4,
                 layer_types=["sliding_attention", "full_attention"] * 2)
    gpt2 = dict(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4, pad_token_id=0, bos_token_id=1)
    yield "llama", "LlamaForCausalLM", dict(DECODER)
    yield "llama_yarn", "LlamaForCausalLM", dict(DECODER, rope_parameters=YARN, tie_word_embeddings=True)
    yield "mistral", "MistralForCausalLM", dict(DECODER, sliding_window=4, head_dim=12)
    yield "qwen2", "Qwen2ForCausalLM", dict(DECODER)
    yield "qwen2_windows", "Qwen2ForCausalLM", dict(DECODER, use_sliding_window=True, sliding_window=3, max_window_layers=1)
    yield "qwen3", "Qwen3ForCausalLM", dict(DECODER, head_dim=12, num_key_value_heads=1)
    yield "smollm3", "SmolLM3ForCausalLM", dict(DECODER, no_rope_layers=[1, 0, 1])
    yield "smollm3_windows", "SmolLM3ForCausalLM", dict(DECODER, use_sliding_window=True, sliding_window=25, no_rope_layer_interval=2)
    yield "gemma3", "Gemma3ForCausalLM", gemma
    yield "gemma3_cap", "Gemma3ForCausalLM", dict(gemma, final_logit_softcapping=2.0, sliding_window=20)
    yield "olmo2", "Olmo2ForCausalLM", dict(DECODER)
    yield "gpt2", "GPT2LMHeadModel", gpt2


def prompts():
    ids = integers("prompts", (ROWS, LENGTH), VOCABULARY - 3) + 3
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    for row in range(ROWS):
        mask[row, : row * 5 % LENGTH] = 0
    return {"input_ids": torch.where(mask == 1, ids, 0), "attention_mask": mask}


def make(kind, config):
    model = getattr(transformers, kind)
    model = model(model.config_class(**config)).eval()
    fill(model)
    return model


def write_cases(folder, model, batch, cases, tokenizer=None):
    model.save_pretrained(folder)
    tensors, written = dict(batch), {}
    for name, given in cases.items():
        arguments = dict(given)
        if (seed := arguments.pop("seed", None)) is not None:
            torch.manual_seed(seed)
        if "stop_strings" in arguments:
            arguments["tokenizer"] = tokenizer
        output = model.generate(**batch, **arguments, return_dict_in_generate=True, output_scores=True, output_logits=True)
        tensors[f"{name}.sequences"] = output.sequences
        if seed is not None:
            tensors[f"{name}.scores"] = torch.stack(output.scores)
            tensors[f"{name}.logits"] = torch.stack(output.logits)
        written[name] = dict(given)
        if tokenizer is not None:
            written[name]["texts"] = tokenizer.batch_decode(output.sequences[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
    (folder / "cases.json").write_text(json.dumps(written))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")


def write_text(folder):
    """Stop strings: within a token, over tokens, from the prompt on; characters of several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=110, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False)
    text = "the cat and the dog sat on the mat, then the rat ran away: caf\u00e9, caf\u00e9! "
    tokenizer.train_from_iterator([text, text.upper(), text, "Zugzwang (1905); fjord_vex - quip = 278346?"], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>",
                                                     eos_token="</s>", padding_side="left", clean_up_tokenization_spaces=False)
    size = len(tokenizer)
    model = make("LlamaForCausalLM", dict(DECODER, vocab_size=size))
    model.generation_config.eos_token_id = 2
    batch = tokenizer(["the cat", "THE DOG SAT ON", "T", "the mat, then", "a caf\u00e9"], return_tensors="pt", padding=True)
    batch = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    free = model.generate(**batch, max_new_tokens=NEW)[:, batch["input_ids"].shape[1]:]
    # The end of one token and the beginning of the next, of each row at another place.
    pieces = [[tokenizer.decode([token]) for token in row] for row in free.tolist()]
    over = [[a[-1] + b[0] for a, b in zip(row[2 + i :], row[3 + i :]) if a and b and "\ufffd" not in a + b][0]
            for row in pieces for i in range(0, 12, 3)]
    cases = {"free": dict(max_new_tokens=NEW), "word": dict(max_new_tokens=NEW, stop_strings=["way", "og d", " sa"])}
    cases |= {f"over{i}": dict(max_new_tokens=NEW, stop_strings=over[i::4]) for i in range(4)}
    cases["one"] = dict(max_new_tokens=NEW, stop_strings=over[0])
    # With what the prompt ends.
    cases["prompt"] = dict(max_new_tokens=NEW, stop_strings=["t" + pieces[0][0][0], "N" + pieces[1][0][0]])
    folder.mkdir(parents=True)
    tokenizer.save_pretrained(folder)
    write_cases(folder, model, batch, cases, tokenizer)


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    for name, kind, config in kinds():
        model = make(kind, config)
        model.generation_config.eos_token_id = ENDS
        model.generation_config.pad_token_id = 0
        write_cases(root / name, model, prompts(), GREEDY | (DRAWN if name in ("llama", "gpt2") else {}))
    write_text(root / "text")
    model = make("LlamaForCausalLM", dict(DECODER))
    model.generation_config = transformers.GenerationConfig(
        do_sample=True, temperature=0.8, top_k=5, max_new_tokens=13, eos_token_id=[2, 8], pad_token_id=0, repetition_penalty=1.1)
    write_cases(root / "settings", model, prompts(), {
        "file": dict(seed=11), "over": dict(do_sample=False), "some": dict(seed=12, top_k=3, max_new_tokens=6)})
    model = make("LlamaForCausalLM", dict(DECODER, eos_token_id=31))  # nothing but config.json's tokens, and 20 new ones
    write_cases(root / "defaults", model, prompts(), {"none": {}, "sampled": dict(do_sample=True, seed=13)})


if __name__ == "__main__":
    main()
