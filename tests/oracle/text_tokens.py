"""Texts as tokens, by Python's tokenizers: the golden file of tests/text."""

from tokenizers import Tokenizer

import tokenizer_parts as parts


def fact(encoding):
    known = {"ids": encoding.ids, "types": encoding.type_ids, "mask": encoding.attention_mask,
             "special": encoding.special_tokens_mask, "offsets": [place for both in encoding.offsets for place in both],
             "word_ids": [-1 if word is None else word for word in encoding.word_ids]}
    # Most are all 0, or all 1.
    for name, usual in (("types", 0), ("mask", 1), ("special", 0)):
        if all(value == usual for value in known[name]):
            del known[name]
    return known


def encoded(tokenizer, kind, texts):
    if kind == "words":
        encoding = tokenizer.encode(texts, is_pretokenized=True)
    else:
        encoding = tokenizer.encode(*texts)
    made = fact(encoding)
    if encoding.overflowing:
        made["overflowing"] = [fact(more) for more in encoding.overflowing]
    return {kind: texts, **made, "decoded": tokenizer.decode(encoding.ids)}


def texts_for(kind):
    """Few where the model spells bytes: tokenizer_test.cpp has many. None where a scanner's pattern is matched."""
    if kind == "expression":
        return [parts.TEXTS[8], "aab foo ab\ncd É ß ₧ ab"]
    if kind == "pre_tokenizer":
        return [parts.TEXTS[3], parts.TEXTS[6] + " 漢字 the 'LL Dž/"]
    if kind == "normalizer":
        return [parts.TEXTS[4], parts.TEXTS[11], parts.TEXTS[12] + " 漢 \t  ½"]
    return parts.TEXTS[:5] + parts.TEXTS[9:11]


def make():
    facts = {}
    for name, one in parts.all_tokenizers().items():
        kind = name.split(".")[0]
        if ".matched" in name:
            continue
        tokenizer = Tokenizer.from_str(parts.whole(one))
        inputs = [("text", [text]) for text in texts_for(kind)]
        if kind in ("post", "cut", "fill"):
            inputs = inputs[:3] + [("pair", ["Hello World", "the end!"]), ("pair", ["the", ""])]
        if kind in ("post", "cut", "fill", "added"):
            inputs.append(("words", ["Hello", "the World", "", "é"]))
        facts[name] = {"tokenizer": one, "cases": [encoded(tokenizer, *one_input) for one_input in inputs]}
    return {}, facts
