"""Texts with the sum of what Python's tokenizers makes of them, for tokenizer_test.cpp.

    python tokenizer_cases.py FOLDER --each 61 --random 400 [--joined] [--scripts MB] [--stride] [--only PART...] [--files FILE...]

Writes FOLDER/NAME.cases for each tokenizer of tokenizer_parts.py, or for each FILE, a tokenizer.json. Texts are each
code point (every --each-th of them) alone and between letters, with --joined all of them between letters, 64 in a text,
--random texts, pairs and lists of words, and --scripts MB of text in eight scripts. --stride does all of it once more
with truncation to 24 tokens with a stride of 5, after which what overflows counts.

All numbers are little-endian, 4 bytes; a text is its length and its bytes. A file is the name, the tokenizer.json, the
number of cases, and of each: 0, 1 or 2 (text, pair, words), the number of its texts, these, and two CRC-32: of the
ids, and of all of Encoding's lists one after the other; of what overflows the ids go on in the first, and the lists but
for the sequences, which Python's library forgets there, go into the second by "xor". The text that the ids are decoded
to ends a case.
"""

import argparse
import pathlib
import struct
import zlib

from tokenizers import Tokenizer

import tokenizer_parts as parts

KINDS = ["text", "pair", "words"]


def text(value):
    data = value.encode()
    return struct.pack("<I", len(data)) + data


def numbers(values):
    return struct.pack(f"<{len(values)}i", *values)


def none_is_less(values):
    return numbers([-1 if value is None else value for value in values])


def sum_of(encoding, sequences=True):
    lists = [numbers(encoding.ids), numbers(encoding.type_ids), numbers(encoding.attention_mask),
             numbers(encoding.special_tokens_mask), numbers([place for both in encoding.offsets for place in both]),
             none_is_less(encoding.word_ids)] + ([none_is_less(encoding.sequence_ids)] if sequences else [])
    return zlib.crc32(b"".join(lists))


def encode_all(tokenizer, inputs):
    """Batches by kind, in the order of the inputs."""
    made = [None] * len(inputs)
    for words in (False, True):
        places = [place for place, (kind, _) in enumerate(inputs) if (kind == "words") == words]
        values = [inputs[place][1] if words else inputs[place][1][0] if inputs[place][0] == "text" else tuple(inputs[place][1])
                  for place in places]
        for place, encoding in zip(places, tokenizer.encode_batch(values, is_pretokenized=words)):
            made[place] = encoding
    return made


def write(path, name, json_text, inputs):
    with open(path, "wb") as file:
        write_cases(file, name, json_text, inputs)


def write_cases(file, name, json_text, inputs):
    tokenizer = Tokenizer.from_str(json_text)
    tokenizer.encode_special_tokens = False
    file.write(text(name) + text(json_text) + struct.pack("<I", len(inputs)))
    for first in range(0, len(inputs), 5000):
        out = []
        some = inputs[first:first + 5000]
        if tokenizer.padding and tokenizer.padding["length"] is None:
            encodings = [encode_all(tokenizer, [one])[0] for one in some]
        else:
            encodings = encode_all(tokenizer, some)
        decoded = tokenizer.decode_batch([encoding.ids for encoding in encodings])
        for (kind, texts), encoding, back in zip(some, encodings, decoded):
            ids, everything = zlib.crc32(numbers(encoding.ids)), sum_of(encoding)
            for more in encoding.overflowing:
                ids = zlib.crc32(numbers(more.ids), ids)
                everything ^= sum_of(more, sequences=False)
            out += [struct.pack("<II", KINDS.index(kind), len(texts)), *map(text, texts),
                    struct.pack("<II", ids, everything), text(back)]
        file.write(b"".join(out))


def with_stride(json_text):
    tokenizer = Tokenizer.from_str(json_text)
    tokenizer.enable_truncation(24, stride=5)
    return tokenizer.to_str()


def code_points(first, arguments):
    """Each tokenizer has its first, so that together they see more of them."""
    made = []
    for c in range(first, 0x110000, arguments.each):
        if not 0xD800 <= c < 0xE000:
            made += [("text", [chr(c)])] + [("text", ["a" + chr(c) + "b"])] * (not arguments.joined)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--each", type=int, default=61)
    parser.add_argument("--random", type=int, default=400)
    parser.add_argument("--joined", action="store_true")
    parser.add_argument("--scripts", type=float, default=0, metavar="MB")
    parser.add_argument("--stride", action="store_true")
    parser.add_argument("--only", nargs="*", help="beginnings of names in tokenizer_parts.py")
    parser.add_argument("--files", nargs="*", default=[], type=pathlib.Path, metavar="FILE")
    arguments = parser.parse_args()
    fixed = [("text", [one]) for one in parts.TEXTS]
    if arguments.joined:
        scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
        fixed += [("text", ["".join("a" + c + "b " for c in scalars[at:at + 64])]) for at in range(0, len(scalars), 64)]
    fixed += parts.random_inputs(1, arguments.random)
    fixed += [("text", [one]) for one in parts.texts_of_scripts(2, round(arguments.scripts * 1e6))]
    made = {file.stem: file.read_text() for file in arguments.files} or {
        name: parts.whole(one) for name, one in parts.all_tokenizers().items()
        if not arguments.only or any(name.startswith(beginning) for beginning in arguments.only)}
    for place, (name, json_text) in enumerate(made.items()):
        inputs = fixed + code_points(place % arguments.each, arguments)
        write(arguments.folder / f"{name}.cases", name, json_text, inputs)
        if arguments.stride:
            write(arguments.folder / f"{name}-stride.cases", f"{name}, stride", with_stride(json_text), inputs)


if __name__ == "__main__":
    main()
