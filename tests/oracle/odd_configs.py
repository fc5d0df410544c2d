"""Folders of small random models with one odd key, tensor or setting each, as people have them on their disks, with what transformers computes.

    python odd_configs.py FOLDER            writes FOLDER/NAME/{config.json, ..., expected.safetensors, case.json}
    python odd_configs.py FOLDER --back     reads FOLDER/NAME/back, which levin wrote of those that it opened

case.json: {"here": what levin is to do, "names": what its message names}. here: "the same" numbers, also where transformers 5 would pass
over a key; "refused"; "no generation": opened, and refused when a text is asked for.
expected.safetensors: input_ids; attention_mask; none.logits and right.logits (the latter with the mask, where the token is no padding);
generated and generated.scores, of a decoder: ids of a text that it goes on with, greedily, and their scores.
"""

import dataclasses
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

from model_folders import DECODER, ENCODER, VOCABULARY, fill, result
from draw import integers

ROWS, LENGTH, MORE = 2, 9, 8
FULL, SLIDING = "full_attention", "sliding_attention"
GPT2 = dict(vocab_size=VOCABULARY, n_positions=40, n_embd=32, n_layer=3, n_head=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
BASES = dict(
    llama=("LlamaForCausalLM", DECODER),
    llama_tied=("LlamaForCausalLM", dict(DECODER, tie_word_embeddings=True)),
    llama_tokens=("LlamaForTokenClassification", dict(DECODER, num_labels=3)),
    mistral=("MistralForCausalLM", dict(DECODER, sliding_window=4)),
    qwen2=("Qwen2ForCausalLM", DECODER),
    qwen3=("Qwen3ForCausalLM", dict(DECODER, head_dim=12)),
    smollm3=("SmolLM3ForCausalLM", dict(DECODER, tie_word_embeddings=False, use_sliding_window=True, sliding_window=3)),
    gemma3=("Gemma3ForCausalLM", dict(DECODER, head_dim=12, query_pre_attn_scalar=20, sliding_window=4, layer_types=[SLIDING, FULL, SLIDING])),
    olmo2=("Olmo2ForCausalLM", DECODER),
    bert=("BertForMaskedLM", ENCODER),
    roberta=("RobertaForMaskedLM", ENCODER),
    xlm_roberta=("XLMRobertaModel", ENCODER),
    distilbert=("DistilBertForMaskedLM", dict(vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=40, pad_token_id=1)),
    modernbert=("ModernBertForMaskedLM", dict(ENCODER, local_attention=4, num_hidden_layers=4, cls_token_id=0, sep_token_id=2)),
    gpt2=("GPT2LMHeadModel", GPT2),
    gpt2_tokens=("GPT2ForTokenClassification", dict(GPT2, num_labels=3)),
)
LINEAR = dict(rope_type="linear", factor=3.0)


def other(name, of):
    """A change of the weights: a tensor of other values under a name."""
    return lambda weights: weights | {name: weights[of].flip(0).contiguous() + 0.1}


def same(name, of):
    return lambda weights: weights | {name: weights[of].clone()}


def moved(name, of):
    return lambda weights: {name if key == of else key: value for key, value in weights.items()}


def cases():
    """(name, base, change of config.json, what levin does, more): a key whose value is ... is taken out."""
    yes, no, mute = "the same", "refused", "no generation"
    yield "causal_llama", "llama", {"is_causal": True}, yes, {}
    for base in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma3", "olmo2", "gpt2"):
        yield f"not_causal_{base}", base, {"is_causal": False}, mute, {"names": "without causal attention"}
    yield "layers_llama", "llama", {"layer_types": [FULL] * 3}, yes, {}
    yield "sliding_layers_llama", "llama", {"layer_types": [FULL, SLIDING, FULL]}, no, {"names": "layer_types"}
    yield "window_llama", "llama", {"sliding_window": 3}, no, {}
    yield "chunks_llama", "llama", {"attention_chunk_size": 3}, no, {}
    yield "per_layer_llama", "llama", {"per_layer_config": {"1": {"rms_norm_eps": 0.5}}}, no, {}
    yield "text_config_llama", "llama", {"text_config": {"hidden_size": 32}}, no, {}
    yield "encoder_decoder_llama", "llama", {"is_encoder_decoder": True}, no, {}
    yield "parallel_llama", "llama", {"pretraining_tp": 2, "attn_implementation": "eager"}, yes, {}
    yield "chunked_mlp_bert", "bert", {"chunk_size_feed_forward": 3}, yes, {}
    yield "unknown_llama", "llama", {"gate_of_tomorrow": 0.5}, yes, {"warns": "gate_of_tomorrow"}
    yield "two_ropes_llama", "llama", {"rope_scaling": LINEAR, "rope_theta": 500.0}, yes, {}
    yield "empty_rope_llama", "llama", {"rope_scaling": {}}, yes, {}
    yield "rope_by_layer_llama", "llama", {"rope_parameters": {FULL: dict(LINEAR, rope_theta=500.0)}}, no, {"names": FULL, "alone": True}
    yield "rope_key_llama", "llama", {"rope_parameters": dict(LINEAR, rope_theta=500.0, ramp=2)}, yes, {"warns": "ramp"}
    for base, (kind, given) in BASES.items():  # what a file leaves out is the default of the config class
        names = {field.name for field in dataclasses.fields(getattr(transformers, kind).config_class)}
        yield f"defaults_{base}", base, {name: ... for name in names - given.keys() - {"architectures", "id2label"}}, yes, {}
    yield "bias_tokens_llama", "llama_tokens", {"token_classification_bias": False}, yes, {"weights": lambda weights: {key: value for key, value in weights.items() if key != "score.bias"}}
    yield "no_window_mistral", "mistral", {"sliding_window": None}, yes, {}
    yield "default_window_mistral", "mistral", {"sliding_window": ...}, yes, {}
    yield "layers_mistral", "mistral", {"layer_types": [SLIDING, FULL, FULL]}, no, {"names": "layer_types"}
    yield "unused_window_qwen2", "qwen2", {"use_sliding_window": False, "layer_types": [FULL, SLIDING, FULL], "sliding_window": 3}, no, {"names": SLIDING}
    yield "multimodal_qwen2", "qwen2", {"use_mrope": True}, no, {"alone": True}
    yield "unused_window_smollm3", "smollm3", {"use_sliding_window": False, "layer_types": [SLIDING, FULL, SLIDING]}, yes, {}
    yield "no_window_smollm3", "smollm3", {"sliding_window": None, "layer_types": [SLIDING, FULL, SLIDING]}, no, {"names": SLIDING}
    yield "soft_attention_gemma3", "gemma3", {"attn_logit_softcapping": 50.0}, no, {"alone": True}
    yield "flat_rope_gemma3", "gemma3", {"rope_parameters": dict(LINEAR, rope_theta=500.0)}, no, {"names": "rope_parameters", "alone": True}
    yield "half_rope_gemma3", "gemma3", {"rope_parameters": {FULL: dict(LINEAR, rope_theta=500.0)}}, yes, {}
    yield "two_ropes_gemma3", "gemma3", {"rope_scaling": LINEAR}, yes, {}
    yield "both_sides_gemma3", "gemma3", {"use_bidirectional_attention": True, "is_causal": False}, mute, {"names": "without causal attention"}
    for base in ("bert", "roberta", "xlm_roberta"):
        yield f"decoder_{base}", base, {"is_decoder": True}, no, {}
    yield "causal_bert", "bert", {"is_causal": True}, no, {}
    yield "cross_bert", "bert", {"add_cross_attention": True, "is_decoder": False}, no, {}
    yield "relative_bert", "bert", {"position_embedding_type": "relative_key"}, no, {"alone": True}
    yield "causal_distilbert", "distilbert", {"is_causal": True}, no, {}
    yield "sinusoidal_distilbert", "distilbert", {"sinusoidal_pos_embds": True}, yes, {}
    yield "bert_keys_distilbert", "distilbert", {"dim": ..., "n_layers": ..., "n_heads": ..., "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}, yes, {}
    yield "window_modernbert", "modernbert", {"sliding_window": 1}, yes, {}
    yield "sparse_modernbert", "modernbert", {"sparse_prediction": True}, yes, {}
    yield "causal_modernbert", "modernbert", {"is_causal": True}, no, {}
    yield "layers_modernbert", "modernbert", {"layer_types": ["chunked_attention", FULL, FULL, FULL]}, no, {"names": "layer_types"}
    yield "two_ropes_modernbert", "modernbert", {"rope_scaling": LINEAR}, yes, {}
    yield "theta_modernbert", "modernbert", {"rope_theta": 7.0, "rope_parameters": ..., "global_rope_theta": 200.0}, yes, {"warns": "rope_theta"}
    yield "unscaled_gpt2", "gpt2", {"scale_attn_weights": False}, yes, {}
    yield "scaled_by_layer_gpt2", "gpt2", {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}, yes, {}
    yield "scaled_by_layer_alone_gpt2", "gpt2", {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}, yes, {}
    yield "llama_keys_gpt2", "gpt2", {"n_layer": ..., "n_embd": ..., "n_head": 2, "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 40}, yes, {}
    yield "cross_gpt2", "gpt2", {"add_cross_attention": True}, no, {"alone": True}
    yield "layers_gpt2", "gpt2", {"layer_types": [SLIDING, FULL, FULL], "sliding_window": 3}, no, {"names": "layer_types"}
    yield "dropout_gpt2", "gpt2_tokens", {"hidden_dropout": 0.3}, yes, {}
    # Weights of a head that the config ties to the embedding.
    words = "model.embed_tokens.weight"
    yield "other_head_llama", "llama_tied", {}, yes, {"weights": other("lm_head.weight", words), "warns": "tie_word_embeddings"}
    yield "equal_head_llama", "llama_tied", {}, yes, {"weights": same("lm_head.weight", words)}
    yield "head_alone_llama", "llama_tied", {}, yes, {"weights": moved("lm_head.weight", words)}
    yield "other_head_gpt2", "gpt2", {}, yes, {"weights": other("lm_head.weight", "transformer.wte.weight"), "warns": "tie_word_embeddings"}
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    yield "other_head_bert", "bert", {}, yes, {"weights": other("cls.predictions.decoder.weight", words), "warns": "tie_word_embeddings"}
    yield "bias_of_head_bert", "bert", {}, yes, {"weights": moved("cls.predictions.decoder.bias", bias)}
    yield "equal_bias_bert", "bert", {}, yes, {"weights": same("cls.predictions.decoder.bias", bias)}
    yield "other_bias_bert", "bert", {}, no, {"weights": other("cls.predictions.decoder.bias", bias), "names": "cls.predictions.decoder.bias"}
    both = lambda weights: other("lm_head.decoder.bias", "lm_head.bias")(other("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight")(weights))
    yield "other_head_and_bias_roberta", "roberta", {}, yes, {"weights": both, "warns": "tie_word_embeddings"}
    yield "other_head_distilbert", "distilbert", {}, yes, {"weights": other("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"), "warns": "tie_word_embeddings"}
    yield "other_head_modernbert", "modernbert", {}, yes, {"weights": other("decoder.weight", "model.embeddings.tok_embeddings.weight"), "warns": "tie_word_embeddings"}
    # generation_config.json
    for key, value in (("encoder_repetition_penalty", 1.5), ("encoder_no_repeat_ngram_size", 1), ("no_repeat_ngram_size", 1), ("sequence_bias", [[[5], 2.0]]),
                       ("suppress_tokens", [5, 6]), ("token_healing", True), ("cache_implementation", "quantized")):
        yield f"{key}_llama", "llama", {}, mute, {"generation": {key: value}, "names": key}
    for key, value in (("renormalize_logits", True), ("length_penalty", 2.0), ("cache_implementation", "static"), ("remove_invalid_values", True), ("diversity_penalty", 0.0)):
        yield f"{key}_{value}_llama", "llama", {}, yes, {"generation": {key: value}}
    yield "unknown_setting_llama", "llama", {}, yes, {"generation": {"temper": 3}, "warns": "temper"}


def batch():
    ids = integers("odd.ids", (ROWS, LENGTH), VOCABULARY - 3) + 3
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    mask[1, 6:] = 0
    return ids, mask


def expected(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(folder).eval()
    for parameter in model.parameters():  # out of the file's map: MKL's sums depend on where memory begins
        parameter.data = parameter.data.clone()
    ids, mask = batch()
    with torch.no_grad():
        none, _ = result(model, {"input_ids": ids})
        right, _ = result(model, {"input_ids": ids, "attention_mask": mask})
        tensors = {"input_ids": ids, "attention_mask": mask, "none.logits": none, "right.logits": right * mask[..., None]}
        if model.can_generate() and getattr(config, "is_causal", True):
            told = model.generate(ids, max_new_tokens=MORE, min_new_tokens=MORE, output_scores=True, return_dict_in_generate=True)
            tensors |= {"generated": told.sequences, "generated.scores": torch.stack(told.scores)}
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def write(root):
    bases, count = {}, 0
    for name, base, change, here, more in cases():
        if base not in bases:
            kind, given = BASES[base]
            model = getattr(transformers, kind)(getattr(transformers, kind).config_class(**given)).eval()
            fill(model)
            model.save_pretrained(root / "base" / base)
            bases[base] = json.loads((root / "base" / base / "config.json").read_text()), load_file(root / "base" / base / "model.safetensors")
        config, weights = bases[base]
        config = {key: value for key, value in (config | change).items() if value is not ...}
        folder = root / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        if "generation" in more:
            (folder / "generation_config.json").write_text(json.dumps(more["generation"]))
        save_file(more["weights"](weights) if "weights" in more else weights, folder / "model.safetensors", metadata={"format": "pt"})
        names = more.get("names", more.get("warns", next(iter(change), "")))
        told = {"here": here, "names": names, "warns": "warns" in more}
        (folder / "case.json").write_text(json.dumps(told))
        if here == "the same" or (here == "no generation" and "generation" not in more):
            save_file(expected(folder), folder / "expected.safetensors")
        elif "weights" not in more and not more.get("alone"):
            check_that_it_matters(folder, root / "base" / base, name)
        count += 1
    print(f"{count} cases")


def check_that_it_matters(folder, base, name):
    """What levin refuses changes what transformers computes, or is an error there too; "alone" in a case says that levin alone refuses it."""
    try:
        odd = expected(folder)
    except Exception:
        return
    plain = expected(base)
    assert odd.keys() != plain.keys() or any(not torch.equal(odd[key], plain[key]) for key in odd), f"{name} changes nothing"


def check_back(root):
    folders = sorted(folder for folder in root.iterdir() if (folder / "back").is_dir())
    for folder in folders:
        wanted, there = load_file(folder / "expected.safetensors"), expected(folder / "back")
        for name in wanted:
            assert torch.equal(wanted[name], there[name]), f"{folder.name}: other {name} after levin wrote it"
    print(f"{len(folders)} folders")


def main():
    transformers.utils.logging.disable_progress_bar()
    transformers.logging.set_verbosity(50)
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    check_back(root) if "--back" in sys.argv else write(root)


if __name__ == "__main__":
    main()
