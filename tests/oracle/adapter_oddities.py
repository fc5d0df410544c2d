"""Adapters of PEFT with one odd key of adapter_config.json each: what PEFT computes with them, or what it says.

    python adapter_oddities.py FOLDER [NAME...]     FOLDER/NAME gets model/, adapter/, inputs.safetensors and, where PEFT opens it, logits.safetensors;
                                          FOLDER/cases.json says of each what levin is to do: {"NAME": "same" or "refused"}
    python adapter_oddities.py FOLDER --back     reads FOLDER/NAME/back, which levin wrote
"""

import json
import pathlib
import sys
import warnings

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from adapters import DECODER, ENCODER
from draw import uniform
from model_folders import write

warnings.filterwarnings("ignore")
QWEN = ("Qwen3ForCausalLM", dict(DECODER, head_dim=12))
TIED = ("Qwen3ForCausalLM", dict(DECODER, head_dim=12, tie_word_embeddings=True))
ANSWERS = ("BertForQuestionAnswering", ENCODER)
LABELS = ("BertForSequenceClassification", ENCODER)
PLAIN = dict(target_modules=["q_proj", "v_proj"])
IDS = torch.arange(3, 35).reshape(4, 8)


def cases():
    """(name, model, LoraConfig, changes of adapter_config.json, what levin is to do)"""
    yield "regex", QWEN, dict(target_modules=r".*\.1\..*\.(q|up)_proj"), {}, "same"
    yield "layers", QWEN, dict(PLAIN, layers_to_transform=1), {}, "same"
    yield "layers_pattern", QWEN, dict(PLAIN, layers_to_transform=[0], layers_pattern=["layers"]), {}, "same"
    yield "exclude", QWEN, dict(PLAIN, exclude_modules=r".*\.0\..*v_proj"), {}, "same"
    yield "patterns", QWEN, dict(PLAIN, rank_pattern={r"layers\.\d+\..*q_proj": 3, "q_proj": 5}, alpha_pattern={"[qv]_proj": 20}), {}, "same"
    yield "some_names", QWEN, dict(target_modules=["q_proj", "query_key_value"]), {}, "same"
    yield "ending", QWEN, dict(PLAIN, modules_to_save=["head"]), {}, "same"
    yield "embedding", QWEN, dict(PLAIN, modules_to_save=["embed_tokens", "lm_head"]), {}, "same"
    yield "answers", ANSWERS, dict(target_modules=["query"], task_type="QUESTION_ANS"), {}, "same"
    yield "no_task", LABELS, dict(target_modules=["query", "classifier"]), {}, "same"
    yield "gaussian", QWEN, dict(PLAIN, init_lora_weights="gaussian"), {}, "same"
    yield "orthogonal", QWEN, dict(PLAIN, init_lora_weights="orthogonal"), {}, "same"
    yield "drawn", QWEN, dict(PLAIN, init_lora_weights=False), {}, "same"
    yield "tied_together", TIED, dict(PLAIN, modules_to_save=["embed_tokens"], ensure_weight_tying=True), {}, "same"
    yield "harmless", QWEN, PLAIN, dict(revision="main", auto_mapping={"base_model_class": "X"}, qalora_group_size=4, eva_config={"rho": 1.5}), "same"
    yield "pissa", QWEN, dict(PLAIN, init_lora_weights="pissa"), {}, "refused"
    yield "pissa_niter", QWEN, dict(PLAIN, init_lora_weights="pissa_niter_4"), {}, "refused"
    yield "olora", QWEN, dict(PLAIN, init_lora_weights="olora"), {}, "refused"
    yield "mica", QWEN, PLAIN, dict(init_lora_weights="mica"), "refused"
    for name in ("corda", "loftq", "lora_ga"):
        yield name, QWEN, PLAIN, dict(init_lora_weights=name), "refused"
    yield "tied_embedding", TIED, dict(PLAIN, modules_to_save=["embed_tokens"]), {}, "refused"
    yield "tied_head", TIED, dict(PLAIN, modules_to_save=["lm_head"]), {}, "refused"
    yield "bias", ANSWERS, dict(target_modules=["query"], bias="all"), {}, "refused"
    yield "lora_bias", ANSWERS, dict(target_modules=["query"], lora_bias=True), {}, "refused"
    yield "embedding_adapted", QWEN, dict(target_modules=["q_proj", "embed_tokens"]), {}, "refused"
    yield "tokens", QWEN, dict(PLAIN, trainable_token_indices=[3, 4]), {}, "refused"
    yield "replicated", QWEN, dict(PLAIN, layer_replication=[[0, 2], [1, 2]]), {}, "refused"
    yield "activated", QWEN, dict(PLAIN, task_type="CAUSAL_LM", alora_invocation_tokens=[5, 6]), {}, "refused"
    yield "kasa", QWEN, PLAIN, dict(kasa_config={}), "refused"
    yield "megatron", QWEN, PLAIN, dict(megatron_config={"a": 1}), "refused"


def make(folder, model, options, changes):
    kind, config = model
    folder.mkdir(parents=True)
    write(folder / "model", kind, config)
    cls = getattr(transformers, kind)
    made = get_peft_model(cls.from_pretrained(folder / "model"), LoraConfig(**options))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.requires_grad:
                parameter.add_(uniform(name, parameter.shape, 0.1))
    made.save_pretrained(folder / "adapter")
    path = folder / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    save_file(dict(input_ids=IDS), folder / "inputs.safetensors")
    try:
        save_file(dict(logits=logits(folder, cls, "adapter")), folder / "logits.safetensors")
    except Exception as error:  # what PEFT cannot open levin need not either
        (folder / "error.txt").write_text(str(error))


def logits(folder, cls, adapter):
    opened = PeftModel.from_pretrained(cls.from_pretrained(folder / "model"), folder / adapter).eval()
    with torch.no_grad():
        output = opened(input_ids=IDS)
    found = output.logits if "logits" in output else torch.stack([output.start_logits, output.end_logits], -1)
    return found.contiguous()


def read_back(root):
    count = 0
    for name, (kind, _), _, _, verdict in cases():
        if verdict == "same":
            wanted = load_file(root / name / "logits.safetensors")["logits"]
            found = logits(root / name, getattr(transformers, kind), "back")
            assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max(), f"{name}: other logits after levin wrote it"
            count += 1
    print(f"{count} adapters")


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    root = pathlib.Path(sys.argv[1])
    if "--back" in sys.argv:
        return read_back(root)
    wanted = {}
    named = sys.argv[2:]
    for name, model, options, changes, verdict in cases():
        if named and name not in named:
            continue
        make(root / name, model, options, changes)
        wanted[name] = verdict
        assert verdict == "refused" or (root / name / "logits.safetensors").exists(), (root / name / "error.txt").read_text()
    (root / "cases.json").write_text(json.dumps(wanted))


if __name__ == "__main__":
    main()
