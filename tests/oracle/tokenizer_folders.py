"""Folders of small tokenizers with one odd key each, and what transformers' AutoTokenizer makes of them, for tokenizer_folders_test.cpp.

    python tokenizer_folders.py FOLDER

Writes FOLDER/NAME for each, and FOLDER/folders.json: {name: {"odd": what its difference is called, "error": text, or "texts": [{"text",
"pair", "ids", "types", "sequences", "offsets", "decoded", "skipped"}], "roles": {role: id}, "size", "padding_side", "truncation_side",
"max_length"}}.
"""

import copy
import json
import logging
import pathlib
import sys

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer

TEXTS = ["", "a b", " Hello  world .", "Don't ! you ' s 've , ok ?", "héLLo É ñ 世界x", "<s>a</s>b", "[CLS] a[SEP]", "x<img>y <x> <y>z", "tab\tnew\nline",
         "<|endoftext|>a b <pad>", "a<mask> b [MASK]", "rm -rf . ; ls .", "\u00a0 b\u3000a", "ab ab  ab"]
PAIRS = [("a b", "Hello world"), (" a", " b <img>")]
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<mask>"]


def added(content, **more):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} | more


def file_tokens(contents, first=0):
    return [{"id": first + place} | added(content) for place, content in enumerate(contents)]


def made(tokenizer, tokens):
    out = json.loads(tokenizer.to_str())
    out["added_tokens"] = tokens
    return out


def template(first, last, ids):
    return processors.TemplateProcessing(single=f"{first} $A {last}", pair=f"{first} $A {last} $B:1 {last}:1",
                                         special_tokens=[(first, ids[0]), (last, ids[1])])


def bytes_bpe(post=None, tokens=("<|endoftext|>",), prefix=False):
    letters = list(tokens) + sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "a"), ("l", "l"), ("e", "ll"), ("Ġ", "h"), ("Ġ", "b")]
    vocab = {letter: place for place, letter in enumerate(letters + ["".join(pair) for pair in merges])}
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()
    if post:
        tokenizer.post_processor = post
    return made(tokenizer, file_tokens(tokens))


def pieces_bpe(prepends, post=True):
    """As Llama 2's: a sign for a blank, and bytes for what is not known."""
    letters = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["▁"] + [chr(c) for c in range(33, 127)]
    merges = [("▁", "a"), ("l", "l"), ("▁", "b"), ("▁", "▁")]
    vocab = {letter: place for place, letter in enumerate(letters + ["".join(pair) for pair in merges])}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if prepends:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    if post:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return made(tokenizer, file_tokens(["<unk>", "<s>", "</s>"]))


def word_piece(special=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), **normal):
    words = list(special) + ["hello", "world", "a", "b", "é", "e", "he", "##llo", "##l", "don", "'", "t", "s", ".", ",", "!", "?", "you", "ve", "ok",
                             "世", "界", "##x", "Hello", "x", "ab", "-", ";", "rm", "ls"]
    tokenizer = Tokenizer(models.WordPiece({word: place for place, word in enumerate(words)}, unk_token=special[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(**normal)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = template(special[2], special[3], (2, 3))
    return made(tokenizer, file_tokens(special))


def unigram():
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("▁a", -2.0), ("b", -4.0), ("▁b", -2.5), ("l", -5.0), ("lo", -4.5)]
    pieces += [(chr(c), -8.0 - c / 100) for c in range(33, 127) if chr(c) not in "bl"] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = template("<s>", "</s>", (0, 2))
    return made(tokenizer, [{"id": place} | added(content) for place, content in ((0, "<s>"), (1, "<pad>"), (2, "</s>"), (3, "<unk>"), (104 - 4, "<mask>"))
                            if pieces[place][0] == content])


def changed(base, path, value):
    out = copy.deepcopy(base)
    *keys, last = path.split(".")
    at = out
    for key in keys:
        at = at[key]
    at[last] = value
    return out


def folders():
    """{name: (odd, tokenizer.json, tokenizer_config.json, {other file: contents})}"""
    gpt2, bert, llama, old_llama, xlmr = bytes_bpe(), word_piece(), pieces_bpe(False), pieces_bpe(True), unigram()
    plain, g, b, m = {"tokenizer_class": "PreTrainedTokenizerFast"}, {"tokenizer_class": "GPT2Tokenizer"}, {"tokenizer_class": "BertTokenizer"}, {}
    l = {"tokenizer_class": "LlamaTokenizer"}
    image = {"image_token": "<img>", "boi_token": "<x>"}
    out = {}

    def put(name, odd, file, config, **files):
        out[name] = (odd, file, config, files)

    put("plain", "", gpt2, plain)
    put("extra_dict", "extra_special_tokens", gpt2, plain | {"extra_special_tokens": image})
    put("extra_list", "extra_special_tokens", gpt2, plain | {"extra_special_tokens": ["<img>", {"__type": "AddedToken"} | added("<x>", lstrip=True)]})
    put("extra_not_special", "extra_special_tokens", gpt2, plain | {"extra_special_tokens": [{"__type": "AddedToken"} | added("<x>", special=False)]})
    put("extra_and_additional", "additional_special_tokens", gpt2, plain | {"extra_special_tokens": ["<img>"], "additional_special_tokens": ["<x>"]})
    put("extra_dict_and_additional", "additional_special_tokens", gpt2, plain | {"extra_special_tokens": image, "additional_special_tokens": ["<y>"]})
    put("additional", "additional_special_tokens", gpt2, plain | {"additional_special_tokens": ["<y>", "<x>"]})
    put("image_token", "image_token", gpt2, plain | image)
    put("image_token_object", "image_token", gpt2, plain | {"image_token": {"__type": "AddedToken"} | added("<img>", rstrip=True)})
    put("model_specific", "model_specific_special_tokens", gpt2, plain | {"model_specific_special_tokens": image})
    put("prefix_gpt2", "add_prefix_space", gpt2, g | {"add_prefix_space": True})
    put("prefix_of_file", "tokenizer_class", bytes_bpe(prefix=True), g)
    put("prefix_of_backend", "add_prefix_space", gpt2, plain | {"add_prefix_space": True})
    put("gpt2_options", "tokenizer_class", changed(changed(gpt2, "model.ignore_merges", True), "normalizer", {"type": "Lowercase"}), g)
    put("gpt2_by_model", "model_type", bytes_bpe(prefix=True), m, **{"config.json": {"model_type": "gpt2"}})
    put("gpt2_of_mistral", "model_type", bytes_bpe(prefix=True), g, **{"config.json": {"model_type": "mistral"}})
    put("class_in_config", "tokenizer_class", bytes_bpe(prefix=True), m, **{"config.json": {"model_type": "llama", "tokenizer_class": "GPT2TokenizerFast"}})
    put("unknown_class", "tokenizer_class", bytes_bpe(prefix=True), {"tokenizer_class": "FooTokenizer"})
    put("no_roles", "bos_token", gpt2, g | {"bos_token": None, "unk_token": None})
    put("cleaned_bpe", "clean_up_tokenization_spaces", gpt2, plain | {"clean_up_tokenization_spaces": True})
    put("cleaned_word_piece", "clean_up_tokenization_spaces", changed(bert, "decoder.cleanup", False), plain | {"clean_up_tokenization_spaces": True})
    put("cleaned_unigram", "clean_up_tokenization_spaces", xlmr, plain | {"clean_up_tokenization_spaces": True})
    put("cleaned_by_force", "clean_up_tokenization_spaces", gpt2, plain | {
        "clean_up_tokenization_spaces": True, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True})
    put("split_special", "split_special_tokens", gpt2, plain | {"split_special_tokens": True})
    put("bert", "", bert, b)
    put("bert_cased", "do_lower_case", bert, b | {"do_lower_case": False})
    put("bert_lower", "do_lower_case", word_piece(lowercase=False), b | {"do_lower_case": True})
    put("bert_accents", "strip_accents", bert, b | {"strip_accents": False})
    put("bert_chinese", "tokenize_chinese_chars", bert, b | {"tokenize_chinese_chars": False})
    put("bert_other_ends", "cls_token", bert, b | {"cls_token": "[MASK]"})
    put("distilbert", "tokenizer_class", bert, {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False})
    put("mpnet", "tokenizer_class", word_piece(("<pad>", "[UNK]", "<s>", "</s>", "<mask>")), {"tokenizer_class": "MPNetTokenizer"})
    put("llama", "tokenizer_class", llama, l)
    put("llama_legacy", "legacy", old_llama, l | {"legacy": True})
    put("llama_not_legacy", "legacy", old_llama, l | {"legacy": False})
    put("llama_no_prefix", "add_prefix_space", old_llama, l | {"add_prefix_space": False})
    put("llama_of_mistral", "model_type", old_llama, l, **{"config.json": {"model_type": "mistral"}})
    put("llama_of_bytes", "tokenizer_class", bytes_bpe(prefix=True), l, **{"config.json": {"model_type": "llama"}})
    put("gemma", "tokenizer_class", old_llama, {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>"})
    put("qwen2", "tokenizer_class", bytes_bpe(prefix=True), {"tokenizer_class": "Qwen2Tokenizer"})
    put("qwen2_replaced", "model_type", bytes_bpe(prefix=True), g, **{"config.json": {"model_type": "qwen2"}})
    put("neox", "tokenizer_class", bytes_bpe(template("<|endoftext|>", "<|endoftext|>", (0, 0)), prefix=True), {"tokenizer_class": "GPTNeoXTokenizer"})
    roberta = bytes_bpe(processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), SPECIAL)
    put("roberta", "tokenizer_class", roberta, {"tokenizer_class": "RobertaTokenizer"})
    put("roberta_prefix", "add_prefix_space", roberta, {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": True, "trim_offsets": False})
    put("xlmr", "tokenizer_class", xlmr, {"tokenizer_class": "XLMRobertaTokenizer"})
    put("xlmr_no_prefix", "add_prefix_space", xlmr, {"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": False})
    put("map", "special_tokens_map", gpt2, plain | {"eos_token": "b"}, **{"special_tokens_map.json": {
        "eos_token": "<|endoftext|>", "pad_token": added("<x>"), "image_token": "<img>", "additional_special_tokens": ["<y>"]}})
    put("map_and_decoder", "special_tokens_map", gpt2, plain | {"eos_token": "b", "added_tokens_decoder": {"0": added("<|endoftext|>"), "262": added("<img>")}},
        **{"special_tokens_map.json": {"eos_token": "<|endoftext|>", "pad_token": "<x>"}})
    put("decoder_of_class", "added_tokens_decoder", gpt2, g | {"bos_token": "a", "eos_token": "a", "unk_token": "a", "added_tokens_decoder": {
        "262": added("<img>", special=False, normalized=True, lstrip=True)}})
    put("old_added_tokens", "added_tokens.json", gpt2, plain | {"pad_token": "<x>"}, **{"added_tokens.json": {"<x>": 263, "<img>": 262}})
    put("padding_of_file", "padding", changed(gpt2, "padding", {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 3,
                                                                  "pad_type_id": 2, "pad_token": "<x>"}), plain)
    put("truncation_of_file", "truncation", changed(gpt2, "truncation", {"direction": "Left", "max_length": 3, "strategy": "LongestFirst", "stride": 0}), plain)
    put("truncation_side", "truncation_side", gpt2, plain | {"truncation_side": "left", "padding_side": "left", "model_max_length": 9})
    put("max_len", "max_len", gpt2, plain | {"max_len": 17})
    put("no_types", "model_input_names", bert, plain | {"model_input_names": ["input_ids", "attention_mask"]})
    put("pad_type", "pad_token_type_id", bert, b | {"pad_token_type_id": 3})
    put("bos_of_config", "add_bos_token", gpt2, plain | {"bos_token": "<|endoftext|>", "add_bos_token": True})
    put("new_key", "new_gate", gpt2, plain | {"new_gate": 3})
    put("new_field", "decoder.new_gate", changed(gpt2, "decoder.new_gate", True), plain)
    put("mistral_regex", "fix_mistral_regex", gpt2, plain | {"fix_mistral_regex": True})
    put("t5", "T5Tokenizer", xlmr, {"tokenizer_class": "T5Tokenizer"})
    put("class_of_another_model", "tokenizer_class", bert, g)
    put("versions", "fast_tokenizer_files", gpt2, plain | {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]})
    return out


def answers(path):
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = []
    for text, pair in [(text, None) for text in TEXTS] + PAIRS:
        made_of = tokenizer(text, pair, return_offsets_mapping=True, return_token_type_ids=True)
        ids = made_of["input_ids"]
        types = made_of["token_type_ids"] if "token_type_ids" in tokenizer.model_input_names else [0] * len(ids)
        texts.append({"text": text, "pair": pair, "ids": ids, "types": made_of["token_type_ids"], "passed_types": types,
                      "sequences": [-1 if one is None else one for one in made_of.sequence_ids(0)],
                      "offsets": [list(one) for one in made_of["offset_mapping"]],
                      "decoded": tokenizer.decode(ids), "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    roles = {role: tokenizer.convert_tokens_to_ids(token) for role, token in tokenizer.special_tokens_map.items()}
    length = tokenizer.model_max_length
    return {"texts": texts, "roles": roles, "size": len(tokenizer), "padding_side": tokenizer.padding_side, "class": type(tokenizer).__name__,
            "truncation_side": tokenizer.truncation_side, "max_length": length if length < 1e18 else None, "pad_type": tokenizer.pad_token_type_id}


def main():
    transformers.logging.set_verbosity_error()
    logging.disable()
    root = pathlib.Path(sys.argv[1])
    out = {}
    for name, (odd, file, config, files) in folders().items():
        (root / name).mkdir()
        for path, contents in {"tokenizer.json": file, "tokenizer_config.json": config, **files}.items():
            (root / name / path).write_text(json.dumps(contents), encoding="utf-8")
        try:
            out[name] = answers(root / name)
        except BaseException as error:  # Rust's panics are no Exception
            out[name] = {"error": f"{type(error).__name__}: {error}"[:300]}
        out[name]["odd"] = odd
    (root / "folders.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
