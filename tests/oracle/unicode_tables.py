"""Writes levin/text/unicode/tables.cpp: what Python's tokenizers knows of each code point.

    python tests/oracle/unicode_tables.py            writes the file
    python tests/oracle/unicode_tables.py --check    exit code 1 where it would be another

The library mixes several versions of Unicode: Oniguruma's (16) in Split, Replace and ByteLevel, unicode_categories'
(8) in the Bert parts and Punctuation, unicode-normalization-alignments' (9) in NFC to NFKD and StripAccents, Rust's
own (17) in Lowercase, Digits and white space, the regex crate's in Whitespace and added tokens, unicode-segmentation's
in Precompiled. So no table of one version gives its results. Here each part of the pinned tokenizers is asked about
each code point; what cannot be asked for directly (combining classes, pairs that compose) is proposed by Python's
unicodedata and kept where the library agrees.
"""

import argparse
import base64
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

PINNED = "0.23.3"
TABLES = pathlib.Path(__file__).parents[2] / "levin/text/unicode/tables.cpp"
END = 0x110000
SCALARS = [c for c in range(END) if not 0xD800 <= c <= 0xDFFF]
ALL = "".join(map(chr, SCALARS))

CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn"]
# In the order of Flag in unicode.h.
FLAGS = ["space", "word", "plain_word", "numeric", "bert_punctuation", "bert_control", "bert_mark", "mark",
         "canonical", "compatibility", "combines", "second", "lowers", "extends", "prepends", "pictograph", "control",
         "consonant", "linker", "conjunct"]
POSIX = ["alnum", "alpha", "lower", "upper", "punct", "graph", "print"]
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting
Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet
Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


def varint(number, out):
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def packed(numbers):
    out = bytearray()
    for number in numbers:
        varint(number, out)
    return bytes(out)


def runs(values):
    """(length, value) over all code points."""
    out, start = [], 0
    for at in range(1, END + 1):
        if at == END or values[at] != values[start]:
            out += [at - start, values[start]]
            start = at
    return out


def matched(pattern):
    left = set(normalizers.Replace(Regex(pattern), "").normalize_str(ALL))
    return {c for c in SCALARS if chr(c) not in left}


def alone(normalizer, between="\n"):
    """What a normalizer makes of each code point that it changes, but for the one that stands between them."""
    made = {}
    for first in range(0, len(SCALARS), 4096):
        part = [c for c in SCALARS[first:first + 4096] if chr(c) != between]
        for c, text in zip(part, normalizer.normalize_str(between.join(map(chr, part))).split(between), strict=True):
            if text != chr(c):
                made[c] = [ord(x) for x in text]
    return made


def pieces_between_letters(splitter):
    """For each code point c the pieces of "aca"."""
    made = {}
    for first in range(0, len(SCALARS), 4096):
        part = SCALARS[first:first + 4096]
        by_place = [[] for _ in part]
        text = "".join(f"a{chr(c)}a\n" for c in part)
        for piece, (begin, _) in splitter.pre_tokenize_str(text):
            by_place[begin // 4].append(piece.rstrip("\n"))
        for c, pieces in zip(part, by_place):
            made[c] = [piece for piece in pieces if piece]
    return made


def set_apart(splitter):
    """Code points that are a piece of their own between letters."""
    return {ord(piece) for c in range(0, len(SCALARS), 4096)
            for piece, (begin, end) in splitter.pre_tokenize_str("".join(f"a{chr(x)}" for x in SCALARS[c:c + 4096]) + "a")
            if end - begin == 1 and begin % 2 == 1}


def kept(normalizer):
    """Code points that the normalizer does not remove."""
    return {ord(c) for c in normalizer.normalize_str(ALL)}


def normal_forms():
    canonical, compatibility = alone(normalizers.NFD()), alone(normalizers.NFKD())
    hangul = range(0xAC00, 0xD7A4)
    canonical = {c: to for c, to in canonical.items() if c not in hangul}
    compatibility = {c: to for c, to in compatibility.items()
                     if c not in hangul and canonical.get(c) != to}
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    # U+0345 has the highest class and U+0334 the lowest: one of them changes places with any other.
    classes = {}
    for c in SCALARS:
        number = unicodedata.combining(chr(c))
        if number and c not in canonical:
            x = chr(c)
            if (nfd.normalize_str("x\u0345" + x) != "x\u0345" + x or nfd.normalize_str("x" + x + "\u0334") != "x" + x + "\u0334"
                    or c == 0x0345):
                classes[c] = number
    pairs = []
    for c, to in canonical.items():
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2:
            first, second = (chr(int(part, 16)) for part in parts)
            if nfc.normalize_str(first + second) == chr(c):
                pairs.append((ord(first), ord(second), c))
    return canonical, compatibility, classes, sorted(pairs)


def grapheme_probe():
    """A Precompiled whose map has each byte: it makes one X of a grapheme below 6 bytes, else one of each of its
    code points."""
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = 512 << 10 | 1 << 8 | byte
    trie = b"".join(unit.to_bytes(4, "little") for unit in units)
    return normalizers.Precompiled(len(trie).to_bytes(4, "little") + trie + b"X\0")


def graphemes():
    probe = grapheme_probe()
    count = lambda text: len(probe.normalize_str(text))
    letters = [c for c in SCALARS if c]
    extends = {c for c in letters if count("a" + chr(c)) == 1}
    prepends = {c for c in letters if c not in extends and count(chr(c) + "a") == 1}
    pictographs = {c for c in letters if c not in extends and count("\u00a9\u200d" + chr(c)) == 3}
    control = {c for c in letters if c < 0x10000 and c not in extends and c not in prepends
               and count(chr(c) + "\u0301") == 2}
    # Those of 4 bytes are too long for a grapheme with a mark: a prepended letter takes the mark's place.
    control |= {c for c in letters if c >= 0x10000 and unicodedata.category(chr(c)) in ("Cc", "Cf", "Zl", "Zp")
                and c not in extends and c not in prepends}
    control.add(0)
    # क् c + mark: four of them in one grapheme, or two and one that is short enough.
    consonant = {c for c in letters if c < 0x10000 and count("\u0915\u094d" + chr(c) + "\u0301") == 4
                 and c not in extends and c not in control}
    linker = {c for c in extends if count("\u0915" + chr(c) + "\u0915\u0301") == (4 if len(chr(c).encode()) > 2 else 4)}
    conjunct = {c for c in extends if count("\u0915\u094d" + chr(c) + "\u0915\u0301") == 5}
    return extends, prepends, pictographs, control, consonant, linker, conjunct


def split_scripts():
    """A class for each code point, by where UnicodeScripts splits; 0 for what goes with anything."""
    splitter = pre_tokenizers.UnicodeScripts()
    together = lambda a, b: len(splitter.pre_tokenize_str(a + b)) == 1
    neutral = lambda c: together("a" + c, "\u0431") is False and len(splitter.pre_tokenize_str("a" + c + "b")) == 1 and \
        len(splitter.pre_tokenize_str("\u0431" + c + "\u0432")) == 1
    classes, leaders = [0] * END, []
    # Code points beside each other of which none is split off are of one class, or neutral.
    starts = set()
    for _, (begin, _) in splitter.pre_tokenize_str("a" + ALL):
        starts.add(begin - 1)
    is_neutral = [neutral(chr(c)) for c in SCALARS]
    current = 0
    for place, c in enumerate(SCALARS):
        if is_neutral[place]:
            continue
        if place in starts or not current:
            for number, leader in enumerate(leaders):
                if together(leader, chr(c)):
                    current = number + 1
                    break
            else:
                leaders.append(chr(c))
                current = len(leaders)
        classes[c] = current
    return classes


def folds():
    """Groups of code points that are one to (?i)."""
    cased = sorted({c for c in SCALARS for x in (chr(c).lower(), chr(c).upper(), chr(c).casefold(), chr(c).title())
                    if x != chr(c)} |
                   {ord(x) for c in SCALARS for x in (chr(c).lower(), chr(c).upper(), chr(c).casefold()) if len(x) == 1
                    and x != chr(c)} |
                   # Python's own tables are older than those of the library.
                   {x for c, made in alone(normalizers.Lowercase()).items() for x in (c, *made)})
    text = "".join(map(chr, cased))
    groups, done = [], set()
    for c in cased:
        if c in done:
            continue
        left = set(normalizers.Replace(Regex(f"(?i:\\x{{{c:x}}})"), "").normalize_str(text))
        group = sorted(x for x in cased if chr(x) not in left)
        done |= set(group)
        if len(group) > 1:
            groups.append(group)
    return groups


def sets():
    """Each flag's code points."""
    bert = lambda **on: normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False,
                                                     "strip_accents": False, "lowercase": False} | on)
    canonical, compatibility, classes, pairs = normal_forms()
    lower = alone(normalizers.Lowercase())
    between = pieces_between_letters(pre_tokenizers.Whitespace())
    extends, prepends, pictographs, control, consonant, linker, conjunct = graphemes()
    found = {
        "space": matched(r"\s"),
        "word": matched(r"\w"),
        "plain_word": {c for c, pieces in between.items() if pieces == [f"a{chr(c)}a"]},
        "numeric": set_apart(pre_tokenizers.Digits(individual_digits=True)),
        "bert_punctuation": set_apart(pre_tokenizers.Punctuation()),
        "bert_control": {c for c, to in alone(bert(clean_text=True), "|").items() if not to},
        "bert_mark": set(SCALARS) - kept(bert(strip_accents=True)) - canonical.keys() - set(range(0xAC00, 0xD7A4)),
        "mark": set(SCALARS) - kept(normalizers.StripAccents()),
        "canonical": set(canonical) | set(range(0xAC00, 0xD7A4)),
        "compatibility": set(compatibility),
        "combines": set(classes),
        "second": {b for _, b, _ in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3)),
        "lowers": set(lower),
        "extends": extends, "prepends": prepends, "pictograph": pictographs, "control": control,
        "consonant": consonant, "linker": linker, "conjunct": conjunct,
    }
    spaces = {c for c, pieces in between.items() if pieces == ["a", "a"]}
    assert spaces - {0x0A} == found["space"] - {0x0A}, "white space of Rust and of Oniguruma differ"
    return found, (canonical, compatibility, classes, pairs, lower)


def mapping(table):
    numbers, last = [], 0
    for c in sorted(table):
        numbers += [c - last, len(table[c])] + [x for x in table[c]]
        last = c
    return numbers


def make():
    found, (canonical, compatibility, classes, pairs, lower) = sets()
    assert list(found) == FLAGS, list(found)
    words = [len(CATEGORIES) - 1] * END
    for number, name in enumerate(CATEGORIES):
        if name not in ("Cn", "Cs"):
            for c in matched(rf"\p{{{name}}}"):
                words[c] = number
    for c in range(0xD800, 0xE000):
        words[c] = CATEGORIES.index("Cs")
    for bit, name in enumerate(FLAGS):
        for c in found[name]:
            words[c] |= 1 << bit + 5
    palette = sorted(set(words))
    place = {word: at for at, word in enumerate(palette)}
    scripts = [0] * END
    for number, name in enumerate(SCRIPTS):
        for c in matched(rf"\p{{{name}}}"):
            scripts[c] = number + 1
    posix = []
    for name in POSIX:
        inside = matched(f"[[:{name}:]]")
        toggles, last = [], 0
        for c in range(END + 1):
            if (c in inside) != (len(toggles) % 2 == 1):
                toggles.append(c - last)
                last = c
        posix.append([len(toggles)] + toggles)
    classes_of = [classes.get(c, 0) for c in range(END)]
    return {
        "kPaletteTable": palette,
        "kTraitsTable": runs([place[word] for word in words]),
        "kScriptsTable": runs(scripts),
        "kSplitScriptsTable": runs(split_scripts()),
        "kCombiningClassesTable": runs(classes_of),
        "kCanonicalTable": mapping(canonical),
        "kCompatibilityTable": mapping(compatibility),
        "kLowercaseTable": mapping(lower),
        "kPairsTable": [number for pair in pairs for number in pair],
        "kFoldsTable": [number for group in folds() for number in [len(group)] + group],
        "kPosixTable": [number for one in posix for number in one],
    }


def text_of(tables):
    out = ["// Made by tests/oracle/unicode_tables.py from tokenizers " + PINNED + "; do not edit.",
           "// Each table is a list of numbers, 7 bits a byte, in base64.",
           '#include "levin/text/unicode/tables.h"', "", "namespace levin::text::unicode {", "",
           "// clang-format off"]
    for name, numbers in tables.items():
        code = base64.b64encode(packed(numbers)).decode()
        out.append(f"const char* const {name} =")
        out += [f'    "{code[at:at + 112]}"' for at in range(0, len(code), 112)]
        out[-1] += ";"
    names = " ".join(SCRIPTS)
    out.append("const char* const kScriptNamesTable =")
    out += [f'    "{names[at:at + 112]}"' for at in range(0, len(names), 112)]
    out[-1] += ";"
    out += ["// clang-format on", "", "}  // namespace levin::text::unicode", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    if tokenizers.__version__ != PINNED:
        sys.exit(f"got tokenizers {tokenizers.__version__}, wanted {PINNED}, whose tables these are")
    text = text_of(make())
    if not arguments.check:
        TABLES.write_text(text)
    elif TABLES.read_text() != text:
        sys.exit(f"{TABLES} differs from what tokenizers {PINNED} knows; write it anew by this script")


if __name__ == "__main__":
    main()
