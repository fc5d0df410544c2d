"""Folders as transformers saves them, for tokenizer_test.cpp: a tokenizer of each family's class over a small vocabulary.

    python tokenizer_families.py FOLDER [--random 300]

Writes FOLDER/FAMILY with tokenizer.json and its kin, and FOLDER/FAMILY.cases as tokenizer_cases.py does, with the path
of the folder for a name and no tokenizer.json; the tokens are those of transformers' own class.
"""

import argparse
import pathlib
import random
import struct
import zlib

import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import tokenizer_parts as parts
from tokenizer_cases import KINDS, numbers, sum_of, text


def corpus():
    draw = random.Random(11)
    return [parts.random_text(draw) for _ in range(3000)] + parts.TEXTS * 20


def trained(model, trainer, splitter, normalizer=None, texts=None):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = splitter
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts or corpus(), trainer)
    return tokenizer


def merges_of(tokenizer):
    import json
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def bytes_bpe(special):
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer = trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    return {"vocab": tokenizer.get_vocab(), "merges": merges_of(tokenizer)}


def spoken_bpe(special):
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
                                  show_progress=False, limit_alphabet=300)
    tokenizer = trained(models.BPE(), trainer, pre_tokenizers.Metaspace())
    return {"vocab": tokenizer.get_vocab(), "merges": merges_of(tokenizer)}


def word_piece():
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                        show_progress=False, limit_alphabet=300)
    return {"vocab": trained(models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer(),
                             normalizers.BertNormalizer()).get_vocab()}


def unigram():
    import json
    trainer = trainers.UnigramTrainer(vocab_size=700, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], unk_token="<unk>",
                                      show_progress=False)
    # It keeps each character, so that it gets fewer of them.
    tokenizer = trained(models.Unigram(), trainer, pre_tokenizers.Metaspace(), texts=parts.TEXTS * 50)
    return {"vocab": [tuple(entry) for entry in json.loads(tokenizer.to_str())["model"]["vocab"]]}


FAMILIES = {
    "bert": lambda: transformers.BertTokenizer(**word_piece()),
    "roberta": lambda: transformers.RobertaTokenizer(**bytes_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])),
    "xlm_roberta": lambda: transformers.XLMRobertaTokenizer(**unigram()),
    "gpt2": lambda: transformers.GPT2Tokenizer(**bytes_bpe(["<|endoftext|>"])),
    "llama": lambda: transformers.LlamaTokenizer(**spoken_bpe(["<unk>", "<s>", "</s>"])),
    "qwen2": lambda: transformers.Qwen2Tokenizer(**bytes_bpe(["<|endoftext|>"])),
    "gemma": lambda: transformers.GemmaTokenizer(**spoken_bpe(["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"])),
}


def write(folder, name, number):
    FAMILIES[name]().save_pretrained(folder / name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
    inputs = [("text", [one]) for one in parts.TEXTS] + list(parts.random_inputs(3, number))
    # transformers takes an empty second text for none.
    inputs = [one for one in inputs if one[0] != "words" and all(one[1])]
    out = [text(str(folder / name)), text(""), struct.pack("<I", len(inputs))]
    for kind, texts in inputs:
        encoding = tokenizer(*texts).encodings[0]
        ids, everything = zlib.crc32(numbers(encoding.ids)), sum_of(encoding)
        back = tokenizer.decode(encoding.ids, skip_special_tokens=True)
        out += [struct.pack("<II", KINDS.index(kind), len(texts)), *map(text, texts), struct.pack("<II", ids, everything), text(back)]
    (folder / f"{name}.cases").write_bytes(b"".join(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--random", type=int, default=300)
    arguments, _ = parser.parse_known_args()
    for family in FAMILIES:
        write(arguments.folder, family, arguments.random)
