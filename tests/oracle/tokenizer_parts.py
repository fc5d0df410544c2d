"""Tokenizers for comparison: one for each kind of part, as tokenizer.json, and texts that are hard for them.

Where a model is "bytes" it spells the bytes of its input, so that ids tell what came to it, word ids where it was
split, and offsets where it came from.
"""

import base64
import json
import random
import unicodedata

BYTES = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
         "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True,
         "vocab": {f"<0x{byte:02X}>": byte for byte in range(256)}, "merges": []}


def part(kind, **fields):
    return {"type": kind, **fields}


def sequence(key, *parts):
    return part("Sequence", **{key: list(parts)})


def split(expression, behavior="Isolated", invert=False):
    return part("Split", pattern={"Regex": expression}, behavior=behavior, invert=invert)


def replace(content, **pattern):
    return part("Replace", pattern=pattern, content=content)


def bert(**fields):
    return part("BertNormalizer", **{"clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                                     "lowercase": True} | fields)


def byte_level(prefix, regex, **fields):
    return part("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex, **fields)


def metaspace(scheme, splits=True):
    return part("Metaspace", replacement="▁", prepend_scheme=scheme, split=splits)


def charsmap(pairs):
    """A Precompiled of a few texts of one or two bytes each."""
    units, texts = [0] * 4096, b""
    place, base = {b"": 0}, {b"": 256}
    free = 512
    in_order = lambda key: (len(key), key)  # a set's own order is another one in each process
    for key in sorted({key[:n] for key in pairs for n in range(1, len(key))} | {b""}, key=in_order):
        if key:
            base[key], free = free, free + 256
    leaf = 3584
    for key in sorted(pairs.keys() | (base.keys() - {b""}), key=in_order):
        place[key] = base[key[:-1]] ^ key[-1]
        target = base.get(key, leaf)
        has_leaf = key in pairs
        assert not (has_leaf and key in base)
        units[place[key]] = (place[key] ^ target) << 10 | has_leaf << 8 | key[-1]
        if has_leaf:
            units[leaf] = len(texts)
            texts += pairs[key] + b"\0"
            leaf += 1
    units[0] = base[b""] << 10
    trie = b"".join(unit.to_bytes(4, "little") for unit in units)
    return part("Precompiled", precompiled_charsmap=base64.b64encode(
        len(trie).to_bytes(4, "little") + trie + texts).decode())


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LEAD = r"[^\r\n\p{L}\p{N}]?"
LARGE, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
GPT4O = (LEAD + LARGE + "*" + SMALL + "+" + CONTRACTIONS + "?|" + LEAD + LARGE + "+" + SMALL + "*" + CONTRACTIONS +
         r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES)
MISTRAL = (LEAD + LARGE + "*" + SMALL + "+|" + LEAD + LARGE + "+" + SMALL + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" +
           SPACES)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*" + SPACES)
KNOWN = {"gpt2": GPT2, "llama3": LLAMA3, "qwen2": LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), "gpt4o": GPT4O,
         "mistral": MISTRAL, "clip": CLIP}

NORMALIZERS = {
    **{name.lower(): part(name) for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")},
    "strip": part("Strip", strip_left=True, strip_right=True),
    "strip_left": part("Strip", strip_left=True, strip_right=False),
    "strip_right": part("Strip", strip_left=False, strip_right=True),
    "decomposed_accents": sequence("normalizers", part("NFD"), part("StripAccents")),
    "replace_text": replace("xyz", String="a"),
    "replace_blanks": replace("▁", Regex=" {2,}"),
    "replace_nothing": replace("-", Regex="b*"),
    "prepend": part("Prepend", prepend="▁"),
    "precompiled": charsmap({b"\t": b" ", b"\xc2\xa0": b" ", b"\xc2\xbd": b"1/2", b"\xc2\xad": b"", b"q": b"Q"}),
    "bert": bert(), "bert_cased": bert(lowercase=False), "bert_accents": bert(strip_accents=False),
    "bert_raw": bert(clean_text=False),
    "bert_strip": bert(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False),
    "llama": sequence("normalizers", part("Prepend", prepend="▁"), replace("▁", String=" ")),
    "four": sequence("normalizers", part("Nmt"), part("NFKC"), replace(" ", Regex=" {2,}"),
                     part("Strip", strip_left=True, strip_right=False)),
    "there_and_back": sequence("normalizers", part("NFD"), part("NFC"), part("Lowercase"), part("NFKC")),
}

PRE_TOKENIZERS = {
    "bert": part("BertPreTokenizer"), "whitespace": part("Whitespace"), "whitespace_split": part("WhitespaceSplit"),
    "byte_level": byte_level(True, True), "byte_level_whole": byte_level(False, False),
    **{f"punctuation_{behavior}": part("Punctuation", behavior=behavior)
       for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")},
    "metaspace": metaspace("always"), "metaspace_first": metaspace("first"), "metaspace_never": metaspace("never"),
    "metaspace_whole": metaspace("always", False),
    "digits": part("Digits", individual_digits=False), "single_digits": part("Digits", individual_digits=True),
    "scripts": part("UnicodeScripts"), "delimiter": part("CharDelimiterSplit", delimiter="e"),
    "fixed": part("FixedLength", length=3),
    "split_text": part("Split", pattern={"String": "a"}, behavior="MergedWithPrevious", invert=False),
    "split_nothing": part("Split", pattern={"String": ""}, behavior="Isolated", invert=False),
    "three": sequence("pretokenizers", part("WhitespaceSplit"), metaspace("first"), part("Punctuation", behavior="Isolated")),
    "behind_letters": sequence("pretokenizers", byte_level(True, True), split("[a-e]+", "MergedWithNext")),
    "llama3_bytes": sequence("pretokenizers", split(LLAMA3), byte_level(False, False)),
    "deepseek": sequence("pretokenizers", split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK),
                         byte_level(False, False)),
    **{f"split_{name}": split(expression) for name, expression in KNOWN.items()},
    # An empty group before it has no scanner: the general matcher takes it.
    **{f"matched_{name}": split("(?:)" + expression) for name, expression in KNOWN.items()},
    **{f"split_{behavior}_{invert}": split(r"\s+|[aeiou]|\p{P}", behavior, invert)
       for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
       for invert in (False, True)},
}

EXPRESSIONS = [
    r"\w+", r"\W", r"\d+", r"\h+", r"\p{Han}+", r"[\p{Hiragana}\p{Katakana}ー]+", r"[[:punct:]]", r"[[:alpha:]]+",
    r"[[:upper:]]", r"[[:lower:]]", r"[[:graph:]]+", r"[[:print:]]+", r"[[:alnum:]]+", r"[[:cntrl:]]", r"[[:blank:]]",
    r"[[:xdigit:]]+", r"\b\w", r"\B\w", r"(?<=a)b|(?<!a)c", r"(?<=ab|c)d", r"a.*?e", r"a++b|[a-z]*+x", r"(?>a|ab)c|foo",
    r"[a-z&&[^aeiou]]+", r"(?i)hello|WORLD|[k-s]+", r"(?i:é|σ|ǆ|K)+", r"^.|.$", r"\A.|.\z|.\Z", r"(?m).+", r".+",
    r"a{2}|b{1,}|c{,2}d|e{2,3}?", r"(?:a|)+x?", r"(?:(?:ab)*c?)*d", r"\x41|\u0042|\x{43}+|\t", r"\P{L}+", r"\p{^L}+", r"\R+",
    r"[\p{Lu}\p{Lt}]\p{Ll}*|\p{Sc}|\p{Sk}|\p{Cf}|\p{Cn}|\p{Zs}", r"\p{Greek}+|\p{Cyrillic}+|\p{Arabic}+|\p{Common}",
    r"[\w]+", r"[^\w]", r"[\W]+", r"[[:word:]]+", r"[[:^word:]]", r"[\p{Word}-]+", r"\p{Punct}+", r"[^\p{Punct}]+", r"(?i)[\w&&[^_]]+"]

_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}
ADDED = [{"id": 300 + place, **_TOKEN, **token} for place, token in enumerate([
    {"content": "<s>", "normalized": False, "special": True},
    {"content": "the", "single_word": True}, {"content": "[MASK]", "lstrip": True, "normalized": False, "special": True},
    {"content": "...", "rstrip": True}, {"content": "World"}, {"content": "Hello", "normalized": False}])]
# White space alone, of which one token may take the next one in.
SPACES_ADDED = [{"id": 300 + place, **_TOKEN, **token} for place, token in enumerate([
    {"content": "\n", "lstrip": True, "rstrip": True, "normalized": False}, {"content": " ", "lstrip": True, "rstrip": True},
    {"content": "\t", "rstrip": True, "normalized": False}, {"content": "the", "single_word": True, "lstrip": True}])]

_WORDS = {"[UNK]": 0, "the": 1, "##re": 2, "hel": 3, "##lo": 4, "w": 5, "##or": 6, "##ld": 7, "!": 8, "##s": 9, "a": 10,
          "##é": 11, "é": 12, "<": 13, "s": 14, ">": 15}
_MERGED = {"vocab": {"<unk>": 0, "h": 1, "e": 2, "l": 3, "o": 4, "he": 5, "ll": 6, "hell": 7, "hello": 8, "w": 9, "r": 10,
                     "d": 11, "t": 12, "th": 13, "the": 14, "▁": 15, "▁the": 16, "or": 17, "<0xC3>": 18, "<0xA9>": 19, "lo": 20},
           "merges": [["h", "e"], ["l", "l"], ["he", "ll"], ["t", "h"], ["th", "e"], ["▁", "the"], ["o", "r"], ["hell", "o"], ["l", "o"]]}
_PAIRS = {"single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": "</s>", "type_id": 0}}],
          "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 2}},
                   {"SpecialToken": {"id": "</s>", "type_id": 1}}, {"Sequence": {"id": "A", "type_id": 1}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]},
                             "</s>": {"id": "</s>", "ids": [257, 258], "tokens": ["</s>", "x"]}}}
_ROBERTA = part("RobertaProcessing", sep=["</s>", 257], cls=["<s>", 256], trim_offsets=True, add_prefix_space=True)
_BERT_AROUND = part("BertProcessing", sep=["[SEP]", 257], cls=["[CLS]", 256])


def cut(length, stride=0, strategy="LongestFirst", direction="Right"):
    return {"direction": direction, "max_length": length, "strategy": strategy, "stride": stride}


def fill(strategy="BatchLongest", direction="Right", multiple=None):
    return {"strategy": strategy, "direction": direction, "pad_to_multiple_of": multiple, "pad_id": 259, "pad_type_id": 3,
            "pad_token": "[PAD]"}


def tokenizer(model="bytes", **parts):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None} | parts | {"model": model}


def all_tokenizers():
    made = {f"normalizer.{name}": tokenizer(normalizer=one) for name, one in NORMALIZERS.items()}
    made |= {f"pre_tokenizer.{name}": tokenizer(pre_tokenizer=one) for name, one in PRE_TOKENIZERS.items()}
    made |= {f"expression.{place}": tokenizer(pre_tokenizer=split(one)) for place, one in enumerate(EXPRESSIONS)}
    blanks = part("WhitespaceSplit")
    bpe = lambda **fields: part("BPE", **{"dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                                          "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False} | _MERGED | fields)
    made |= {
        "model.word_piece": tokenizer(part("WordPiece", unk_token="[UNK]", continuing_subword_prefix="##",
                                           max_input_chars_per_word=8, vocab=_WORDS), pre_tokenizer=blanks,
                                      normalizer=bert(), decoder=part("WordPiece", prefix="##", cleanup=True)),
        "model.word_level": tokenizer(part("WordLevel", unk_token="[UNK]", vocab=_WORDS), pre_tokenizer=blanks),
        "model.bpe": tokenizer(bpe(), pre_tokenizer=metaspace("always")),
        "model.bpe_whole": tokenizer(bpe(), normalizer=NORMALIZERS["llama"]),
        "model.bpe_fused": tokenizer(bpe(fuse_unk=True), normalizer=NORMALIZERS["llama"]),
        "model.bpe_bytes": tokenizer(bpe(fuse_unk=True, byte_fallback=True), normalizer=NORMALIZERS["llama"]),
        "model.bpe_nothing": tokenizer(bpe(unk_token=None), pre_tokenizer=blanks),
        "model.bpe_old_merges": tokenizer(bpe(merges=[" ".join(pair) for pair in _MERGED["merges"]]), pre_tokenizer=blanks),
        "model.bpe_headed_merges": tokenizer(bpe(merges=["#version: 0.2"] + [" ".join(pair) for pair in _MERGED["merges"]] + ["#versions e"]),
                                             pre_tokenizer=blanks),
        "model.bpe_words": tokenizer(bpe(ignore_merges=True, merges=_MERGED["merges"][:2]), pre_tokenizer=blanks),
        "model.bpe_suffix": tokenizer(bpe(end_of_word_suffix="</w>", vocab=_MERGED["vocab"] | {"e</w>": 21, "the</w>": 22, "o</w>": 23},
                                          merges=_MERGED["merges"][:4] + [["th", "e</w>"]]), pre_tokenizer=blanks,
                                      decoder=part("BPEDecoder", suffix="</w>")),
        "model.bpe_prefix": tokenizer(bpe(continuing_subword_prefix="##", vocab={"<unk>": 0, "t": 1, "##h": 2, "##e": 3, "th": 4,
                                                                                  "the": 5}, merges=[["t", "##h"], ["th", "##e"]]),
                                      pre_tokenizer=blanks),
        "model.unigram": tokenizer(part("Unigram", unk_id=0, byte_fallback=False, vocab=[
            ["<unk>", 0.0], ["▁", -2.0], ["▁the", -3.0], ["t", -4.0], ["h", -4.5], ["e", -3.5], ["he", -5.0], ["hello", -9.0],
            ["l", -4.0], ["ll", -6.0], ["o", -4.0], ["▁w", -5.0], ["or", -5.5]]), pre_tokenizer=metaspace("always"),
            decoder=metaspace("always")),
        "model.unigram_bytes": tokenizer(part("Unigram", unk_id=0, byte_fallback=True, vocab=[
            ["<unk>", 0.0], ["▁", -2.0], ["e", -3.5]] + [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]),
            normalizer=NORMALIZERS["llama"], decoder=sequence("decoders", replace(" ", String="▁"), part("ByteFallback"),
                                                              part("Fuse"), part("Strip", content=" ", start=1, stop=0))),
        "added": tokenizer(added_tokens=ADDED),
        "added.lowercase": tokenizer(added_tokens=ADDED, normalizer=part("Lowercase"), pre_tokenizer=part("Whitespace")),
        "added.metaspace": tokenizer(added_tokens=ADDED, pre_tokenizer=metaspace("first")),
        "added.spaces": tokenizer(added_tokens=SPACES_ADDED),
        "added.spaces_byte_level": tokenizer(added_tokens=SPACES_ADDED, pre_tokenizer=byte_level(True, True), post_processor=_ROBERTA),
        "added.byte_level": tokenizer(added_tokens=ADDED, pre_tokenizer=byte_level(True, True), post_processor=_ROBERTA),
        "post.template": tokenizer(post_processor=part("TemplateProcessing", **_PAIRS)),
        "post.bert": tokenizer(post_processor=_BERT_AROUND, pre_tokenizer=blanks),
        "post.roberta": tokenizer(post_processor=_ROBERTA, pre_tokenizer=byte_level(True, True)),
        "post.byte_level": tokenizer(post_processor=byte_level(False, True), pre_tokenizer=byte_level(False, True)),
        "post.sequence": tokenizer(post_processor=sequence("processors", byte_level(True, True), part("TemplateProcessing", **_PAIRS)),
                                   pre_tokenizer=byte_level(True, True)),
        "cut.right": tokenizer(truncation=cut(8, 1), post_processor=_BERT_AROUND),
        "cut.left": tokenizer(truncation=cut(8, 1, direction="Left"), post_processor=_BERT_AROUND),
        "cut.template": tokenizer(truncation=cut(9, 1), post_processor=part("TemplateProcessing", **_PAIRS)),
        "cut.none": tokenizer(truncation=cut(5)),
        "fill.fixed": tokenizer(padding=fill({"Fixed": 12}), truncation=cut(12), post_processor=_ROBERTA),
        "fill.left": tokenizer(padding=fill({"Fixed": 10}, "Left"), truncation=cut(8, 1), post_processor=_BERT_AROUND),
        "decoder.ctc": tokenizer(part("WordLevel", unk_token="[UNK]", vocab=_WORDS | {"|": 16, "<pad>": 17}), pre_tokenizer=blanks,
                                 decoder=part("CTC", pad_token="<pad>", word_delimiter_token="|", cleanup=True)),
        "decoder.byte_level": tokenizer(decoder=byte_level(True, True)),
        "decoder.replace": tokenizer(decoder=sequence("decoders", replace("!", Regex="[0-9]+"), part("Strip", content="<", start=1, stop=1))),
    }
    return made


def whole(one):
    """The tokenizer.json of one of all_tokenizers()."""
    return json.dumps(one | {"model": BYTES if one["model"] == "bytes" else one["model"]}, ensure_ascii=False)


TEXTS = ["", " ", "Hello World! the there don't I'LL we've", "  two  blanks \t tab\r\n\n lines \n", "é é ñandú naïve İSTANBUL ß Σας ǅ ﬁ",
         "日本語テスト、漢字。 한국어 русский العربية हिन्दी क्ष ไทย", "123 4567 ¼½² ٣٤ Ⅳ①", "😀👨‍👩‍👧🇩🇪 x\u200by\ufeffz\u00a0\u00ad\u3000q",
         "foo_bar camelCase XMLHttp ...a... !?-- http://a.b/c?d=e&f", "<s>the World[MASK] the[MASK] Hello  [MASK]<s>  ...  x",
         "hello hhello theé▁▁the ▁ hell", "\x00\x01\x7f\x85\ufffd\ud7ff\ue000\U0010ffff", "\u0301e\u0301\u0345\u0316 \u1100\u1161\u11a8 \uac01 \u0958"]

_BLOCKS = [(0x20, 0x7F)] * 6 + [
    (0, 0x20), (0x80, 0x250), (0x250, 0x300), (0x300, 0x370), (0x370, 0x530), (0x5B0, 0x780), (0x900, 0xE00), (0xE00, 0x1100),
    (0x1100, 0x1200), (0x1D00, 0x2000), (0x2000, 0x2100), (0x2100, 0x2800), (0x2580, 0x2590), (0x3000, 0x3400), (0x4E00, 0x5200),
    (0xAC00, 0xAE00), (0xF900, 0xFB50), (0xFB50, 0xFE00), (0xFE00, 0x10000), (0x10000, 0x11000), (0x1D400, 0x1D800),
    (0x1F1E6, 0x1F200), (0x1F300, 0x1FA00), (0x20000, 0x20100), (0xE0000, 0xE01F0)]
_PIECES = " ".join(TEXTS).split(" ") + ["<|endoftext|>", "</s>", "[CLS]", "'S", "'Re", "ſ", "K"]


def random_text(draw):
    out = []
    for _ in range(draw.randrange(12)):
        kind = draw.random()
        if kind < 0.45:
            out.append(draw.choice(_PIECES))
        elif kind < 0.75:
            low, high = draw.choice(_BLOCKS)
            out += [chr(draw.randrange(low, high)) for _ in range(draw.randrange(1, 6))]
        else:
            out += draw.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'.,-_/ ", k=draw.randrange(1, 10))
        if draw.random() < 0.6:
            out.append(draw.choice([" ", " ", " ", "  ", "\n", "\t", "   ", "\n\n", " \n "]))
    return "".join(out)


def random_inputs(seed, number):
    """Texts as [text], pairs as (text, text), words as a list of any length with "words" before."""
    draw = random.Random(seed)
    for _ in range(number):
        kind = draw.random()
        if kind < 0.8:
            yield "text", [random_text(draw)]
        elif kind < 0.9:
            yield "pair", [random_text(draw), random_text(draw)]
        else:
            yield "words", [random_text(draw) for _ in range(draw.randrange(6))]


# Blocks of eight scripts, Japanese with both of its alphabets; of each the letters and marks count.
_SCRIPTS = [[(0x41, 0x250)], [(0x370, 0x400)], [(0x400, 0x530)], [(0x620, 0x700)], [(0x900, 0x980)], [(0xE00, 0xE60)],
            [(0x3041, 0x3100), (0x4E00, 0x5E00)], [(0xAC00, 0xD7A4)]]


def texts_of_scripts(seed, size):
    """Lines of words in eight scripts, as many bytes of each, `size` in all."""
    draw = random.Random(seed)
    for blocks in _SCRIPTS if size else []:
        letters = [chr(c) for low, high in blocks for c in range(low, high) if unicodedata.category(chr(c))[0] in "LM"]
        # Few words make most of a text.
        words = ["".join(draw.choices(letters, k=draw.randrange(1, 11))) for _ in range(3000)]
        written = 0
        while written < size / len(_SCRIPTS):
            line = ""
            for _ in range(draw.randrange(1, 60)):
                line += words[int(len(words) * draw.random() ** 3)] + draw.choice([" "] * 12 + [", ", ". ", "", " 1984 ", "-", " (", ") "])
            written += len(line.encode())
            yield line
