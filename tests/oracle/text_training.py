"""Vocabularies of byte pairs that Python's tokenizers learns: the golden file of tests/text/bpe_trainer_test.cpp."""

import json
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import tokenizer_parts as parts

SETTINGS = {
    "blanks": (parts.part("WhitespaceSplit"), {"vocab_size": 120}),
    "frequency": (parts.part("WhitespaceSplit"), {"vocab_size": 400, "min_frequency": 4, "special_tokens": ["<s>", "</s>"]}),
    "alphabet": (parts.part("Whitespace"), {"vocab_size": 80, "limit_alphabet": 12, "special_tokens": ["[UNK]"]}),
    "short": (parts.part("WhitespaceSplit"), {"vocab_size": 200, "max_token_length": 4}),
    "bytes": (parts.byte_level(True, True), {"vocab_size": 330, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}),
    "metaspace": (parts.metaspace("always"), {"vocab_size": 150}),
}


def texts():
    """Words of a few syllables, so that pairs come again; é and 漢 among them."""
    draw = random.Random(5)
    syllables = ["ka", "to", "mi", "ren", "é", "漢字", "so", "la", "aa", "'s"]
    words = ["".join(draw.choices(syllables, k=draw.randrange(1, 5))) for _ in range(150)]
    return [" ".join(draw.choices(words, k=12)) for _ in range(60)]


def make():
    facts = {}
    for name, (splitter, options) in SETTINGS.items():
        tokenizer = Tokenizer.from_str(json.dumps(parts.tokenizer(parts.BYTES, pre_tokenizer=splitter)))
        tokenizer.model = models.BPE()
        trainer = trainers.BpeTrainer(show_progress=False, **options)
        tokenizer.train_from_iterator(texts(), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        facts[name] = {"tokenizer": {"pre_tokenizer": splitter}, "options": options | (
            {"initial_alphabet": sorted(options["initial_alphabet"])} if "initial_alphabet" in options else {}),
            "texts": texts(), "vocab": model["vocab"], "merges": model["merges"]}
    return {}, facts
