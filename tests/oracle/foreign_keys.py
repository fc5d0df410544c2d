"""Keys of other people's files that no list of levin's has (levin/base/json/known_keys.h).

    python foreign_keys.py [--root REPOSITORY] [FILE ...]

Reads the lists out of levin's sources and the keys out of the Python packages that are installed: of config.json the fields and old
spellings of each family's config class, and what its modeling code and the code that models share read of a config; of
generation_config.json those of GenerationConfig. Prints each key that is in no list, and each that a list calls `read` and no source of
levin's looks at, and exits with 1 where there is one. FILE: config.json and so on; all of them where none is named.

To add a file: a row of FILES. It says where the lists stand, by the names of their constants (a later one's line replaces an earlier
one's), and which folder's sources read them; and the function that gives the peer's keys.
"""

import argparse
import dataclasses
import inspect
import pathlib
import re
import sys

import transformers
from transformers import GenerationConfig, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TRANSFORMERS = pathlib.Path(transformers.__file__).parent
WORDS = ("read", "harmless", "refused")
# model_type of each file of levin/models/families that composes lists.
FAMILIES = {"llama": ["llama"], "mistral": ["mistral"], "qwen2": ["qwen2"], "qwen3": ["qwen3"], "smollm3": ["smollm3"],
            "gemma3": ["gemma3_text"], "olmo2": ["olmo2"], "bert": ["bert"], "bert_kin": ["roberta", "xlm-roberta"],
            "distilbert": ["distilbert"], "modernbert": ["modernbert"], "gpt2": ["gpt2"]}
# Modules that models share and that read a config.
SHARED = ["modeling_layers", "loss.loss_utils", "utils.output_capturing"]
ROTARY = {"llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma3_text", "olmo2"}
DECODERS = ROTARY | {"gpt2"}
# Of PretrainedConfig and of these families in transformers 4; GenerationConfig's keys, which were PretrainedConfig's too, are added.
VERSION_4 = """name_or_path _name_or_path _commit_hash torch_dtype torchscript use_bfloat16 tf_legacy_loss pruned_heads tie_encoder_decoder
    cross_attention_hidden_size is_decoder add_cross_attention finetuning_task task_specific_params tokenizer_class prefix sep_token_id
    decoder_start_token_id use_return_dict output_attentions gradient_checkpointing attn_implementation _attn_implementation
    _attn_implementation_autoset""".split()
ROTARY_4 = ["rope_theta", "rope_scaling"]
FAMILY_4 = {"llama": ROTARY_4, "mistral": ROTARY_4, "qwen2": ROTARY_4, "qwen3": ROTARY_4, "smollm3": ROTARY_4, "olmo2": ROTARY_4,
            "gemma3_text": ROTARY_4 + ["rope_local_base_freq", "sliding_window_pattern", "cache_implementation"],
            "bert": ["position_embedding_type"], "roberta": ["position_embedding_type"], "xlm-roberta": ["position_embedding_type"],
            "modernbert": ["global_rope_theta", "local_rope_theta", "global_attn_every_n_layers", "reference_compile", "repad_logits_with_grad"]}
# What shared code reads of configs that are not of these families, or sets itself.
NOT_THEIRS = {
    "*": """attribute_map base_model_tp_plan sub_configs is_heterogeneous rope_type default_theta default_rope_type _rope_type_labels
        ignore_keys_at_rope_validation number_of_conv_states mtp_hidden_states_first chain_hidden_post_norm num_queries class_cost
        bbox_cost giou_cost eos_coefficient auxiliary_loss decoder_layers num_nextn_predict_layers output_router_logits
        output_attention_mask logits_mup_width_multiplier unpadded_vocab_size json""".split(),
    "gemma3_text": "image_token_id mm_tokens_per_image vision_config text_config boi_token_id eoi_token_id".split(),  # of images
    "gpt2": ["summary_last_dropout"],  # of a head that GPT-2 shares
}


def lists_in(path):
    """{name of a constant: text of its list} of a C++ source."""
    return dict(re.findall(r'string_view (\w+) = R"keys\((.*?)\)keys"', path.read_text(encoding="utf-8"), re.S))


def rules_of(texts):
    """{key: word} of lists that are read one behind the other, as KnownKeys reads them."""
    rules = {}
    for line in "\n".join(texts).splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("only "):
            rules[line[5:].split("=")[0].strip()] = "only"
        elif line:
            word, *keys = line.split()
            assert word in WORDS, line
            rules |= dict.fromkeys(keys, word)
    return rules


def literals_in(folder):
    """All that stands in quotation marks in the sources below a folder, but for the lists."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.cpp")))
    return set(re.findall(r'"([\w.]+)"', re.sub(r'R"keys\(.*?\)keys"', "", text, flags=re.S)))


def family_lists(root):
    """(model_type, {key: word}) of each family; a file that composes lists and is not known here is a mistake of this script."""
    folder = root / "levin/models/families"
    lists = lists_in(folder / "known_keys.h")
    for path in sorted(folder.glob("*.cpp")):
        composed = re.findall(r"KnownKeys\(\{(.*?)\}\)", path.read_text(encoding="utf-8"), re.S)
        assert len(composed) == int(path.stem in FAMILIES), f"{path.name}: name its families in FAMILIES"
        for names in composed:
            own = lists | lists_in(path)
            for model_type in FAMILIES[path.stem]:
                yield model_type, rules_of([own[name] for name in re.findall(r"\w+", names)])


def read_of_config(source):
    """Names that code reads of a config."""
    return set(re.findall(r"\bconfig\.([a-z_]\w*)", source)) | set(re.findall(r'attr\((?:\w+\.)*\w*config, "(\w+)"', source))


def old_spellings(cls):
    """Keys that a config class takes beside its fields."""
    names = [name for name in ("__post_init__", "convert_rope_params_to_dict") if name == "__post_init__" or hasattr(cls, "rope_parameters")]
    sources = [inspect.getsource(vars(each)[name]) for each in cls.__mro__ for name in names if name in vars(each) and each.__module__.startswith("transformers")]
    return set(re.findall(r'kwargs\.(?:get|pop)\("(\w+)"', "\n".join(sources)))


def config_keys(model_type):
    cls = CONFIG_MAPPING[model_type]
    fields = {field.name for field in dataclasses.fields(cls)} | set(cls.attribute_map)
    keys = fields | old_spellings(cls) | set(VERSION_4) | set(FAMILY_4.get(model_type, [])) | set(GenerationConfig._get_default_generation_params())
    modules = [cls.__module__.removeprefix("transformers.").replace("configuration_", "modeling_"), *SHARED]
    if model_type in DECODERS:
        modules += ["cache_utils", "masking_utils"]
    if model_type in ROTARY:
        modules.append("modeling_rope_utils")
    read = set()
    for name in modules:
        read |= read_of_config((TRANSFORMERS / (name.replace(".", "/") + ".py")).read_text(encoding="utf-8"))
    if model_type not in ROTARY:  # of the base class and shared heads, which take them for other models
        theirs = {"token_classification_bias", "hidden_dropout", "rms_norm_eps", "classifier_dropout", "layer_types", "rope_theta", "rope_scaling", "rope_parameters"} - fields
        keys, read = keys - (theirs - set(FAMILY_4.get(model_type, []))), read - theirs
    methods = {name for name in dir(cls) if callable(getattr(cls, name))}
    return (keys | (read - set(NOT_THEIRS["*"]) - set(NOT_THEIRS.get(model_type, [])))) - methods


def generation_keys(_):
    given = inspect.getsource(GenerationConfig.__init__)
    return set(re.findall(r'kwargs\.(?:get|pop)\("(\w+)"', given)) - {"force_bos_token_to_be_generated"}


def rotary_keys(_):
    return set(transformers.modeling_rope_utils.RopeParameters.__annotations__) | {"type"}


def adapter_keys(_):
    """Of adapter_config.json."""
    import peft

    return {field.name for field in dataclasses.fields(peft.LoraConfig)}


def tokenizer_keys(_):
    """Of tokenizer_config.json: what the classes of the families' tokenizers take when they are made, and write."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    keys = set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES)
    classes = [TOKENIZER_MAPPING.get(CONFIG_MAPPING[model_type], None) for model_type in sum(FAMILIES.values(), [])]
    for cls in {each for found in classes if found for each in found.__mro__ if issubclass(each, PreTrainedTokenizerBase)}:
        own = vars(cls)
        if "__init__" in own:
            given = inspect.signature(own["__init__"]).parameters.values()
            keys |= {each.name for each in given if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)} - {"self"}
            keys |= set(re.findall(r'kwargs\.(?:get|pop)\(\s*"(\w+)"', inspect.getsource(own["__init__"])))
        if "save_pretrained" in own:
            keys |= set(re.findall(r'tokenizer_config\["(\w+)"\]', inspect.getsource(own["save_pretrained"])))
        if "_from_pretrained" in own:
            keys |= set(re.findall(r'init_kwargs(?:\.get\(|\.pop\(|\[)"(\w+)"', inspect.getsource(getattr(cls, "_from_pretrained"))))
    # The classes hand these to each other; no file has them.
    return keys - {"tokenizer", "_json_padding", "_json_truncation", "_spm_precompiled_charsmap"}


def sentence_keys(title):
    """Of the files of sentence-transformers' modules."""
    from sentence_transformers.base import model
    from sentence_transformers.base.modules import normalize, transformer
    from sentence_transformers.sentence_transformer import model as own
    from sentence_transformers.sentence_transformer.modules import pooling

    if title == "Pooling":
        return set(pooling.Pooling.config_keys) | set(pooling.Pooling.config_key_renames) | set(pooling._LEGACY_POOLING_MODE_KWARGS)
    if title == "Normalize":
        return set(normalize.Normalize.config_keys)
    if title == "Transformer":
        loaded = inspect.getsource(transformer.Transformer.load_config)
        args = {f"{name}_args" for name in ("model", "config", "tokenizer")} | set(re.findall(r'"(\w+_(?:args|kwargs))"', loaded))
        return set(transformer.Transformer.config_keys) | args | {"max_seq_length", "do_lower_case", "tokenizer_name_or_path"}
    methods = [getattr(cls, name) for cls in (model.BaseModel, own.SentenceTransformer) for name in ("_get_model_config", "_parse_model_config")]
    source = "\n".join(inspect.getsource(method) for method in methods)
    found = re.findall(r'model_config\.get\("(\w+)"|^ {12}"(\w+)":|config\["(\w+)"\]', source, re.M)
    return {name for names in found for name in names if name}


def special_token_keys(_):
    """Of special_tokens_map.json."""
    return set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES) | {"extra_special_tokens", "additional_special_tokens"}


def single(path, names, sources, title=""):
    """A file's lists by their names, all in one source, and the folder of what reads them."""
    return lambda root: [(title, rules_of([lists_in(root / path)[name] for name in names.split()]), literals_in(root / sources))]


def families(root):
    read_by = literals_in(root / "levin/models")
    return [(model_type, rules, read_by) for model_type, rules in family_lists(root)]


FILES = {
    "config.json": (families, config_keys),
    "config.json: rope_parameters": (single("levin/models/layers/rotary.cpp", "kRotaryKeys", "levin/models"), rotary_keys),
    "1_Pooling/config.json": (single("levin/models/heads/sentence.cpp", "kPoolingKeys", "levin/models", "Pooling"), sentence_keys),
    "2_Normalize/config.json": (single("levin/models/heads/sentence.cpp", "kNormalizeKeys", "levin/models", "Normalize"), sentence_keys),
    "sentence_bert_config.json": (single("levin/models/sentence_encoder.cpp", "kTransformerKeys", "levin/models", "Transformer"), sentence_keys),
    "config_sentence_transformers.json": (single("levin/models/sentence_encoder.cpp", "kSentenceKeys", "levin/models"), sentence_keys),
    "generation_config.json": (single("levin/models/generate/settings.cpp", "kGenerationKeys", "levin/models"), generation_keys),
    "adapter_config.json": (single("levin/models/adapters/config.cpp", "kAdapterKeys", "levin/models"), adapter_keys),
    "tokenizer_config.json": (single("levin/text/reading/known_fields.cpp", "kSpecialTokenKeys kTokenizerConfigKeys", "levin/text"), tokenizer_keys),
    "special_tokens_map.json": (single("levin/text/reading/known_fields.cpp", "kSpecialTokenKeys", "levin/text"), special_token_keys),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("files", nargs="*", choices=[[], *FILES])
    options = parser.parse_args()
    missing = total = 0
    for file in options.files or FILES:
        lists, peer = FILES[file]
        for title, rules, read_by in lists(options.root):
            keys = peer(title)
            total += len(keys)
            for key in sorted(keys - rules.keys()):
                print(f"{file}: {title + ': ' if title else ''}{key} is in no list")
                missing += 1
            for key in sorted(key for key, word in rules.items() if word == "read" and key not in read_by):
                print(f"{file}: {title + ': ' if title else ''}{key} is called read, and nothing reads it")
                missing += 1
    print(f"{total} keys, {missing} unclassified")
    sys.exit(missing > 0)


if __name__ == "__main__":
    main()
