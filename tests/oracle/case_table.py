"""Writes levin/text/template/values/case_table.cpp: what Python's str.upper and str.title make of each code point.

    python tests/oracle/case_table.py            writes the file
    python tests/oracle/case_table.py --check    exit code 1 where it would be another

Chat templates are Python's to those who write them, so that Python is asked. Its Unicode is that of its version (14 in
Python 3.11); --check passes over an interpreter with another one.
"""

import argparse
import pathlib
import sys
import unicodedata

UNICODE = "14.0.0"
TABLE = pathlib.Path(__file__).parents[2] / "levin/text/template/values/case_table.cpp"


def collected(changed):
    """Runs of code points that go equally far, and those that become several."""
    runs, several = [], []
    for c, text in changed:
        if len(text) > 1:
            several.append((c, text))
            continue
        last, distance = runs[-1] if runs else None, ord(text) - c
        step = c - last[1] if last else 0
        if last and last[3] == distance and step in (1, 2) and (last[0] == last[1] or last[2] == step):
            last[1:3] = c, step
        else:
            runs.append([c, c, 1, distance])
    return runs, several


def table(name, changed):
    runs, several = collected(changed)
    out = [f"constexpr CaseRun k{name}Runs[] = {{"]
    out += [f"    {{{first:#x}, {last:#x}, {step}, {distance}}}," for first, last, step, distance in runs]
    out += ["};", f"constexpr CaseSpelling k{name}Spellings[] = {{"]
    for c, text in several:
        codes = ", ".join(f"{ord(one):#x}" for one in text)
        out.append(f"    {{{c:#x}, {{{codes}}}}},")
    return out + ["};"]


def text_of_table():
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    upper = [(ord(c), c.upper()) for c in scalars if c.upper() != c]
    title = [(ord(c), c.title()) for c in scalars if c.title() != c.upper()]
    out = [f"// Made by tests/oracle/case_table.py from Python's Unicode {UNICODE}; do not edit.",
           '#include "levin/text/template/values/case_table.h"', "", "namespace levin::text::jinja {", "namespace {", "",
           "// clang-format off", *table("Upper", upper), "", "// The title case of code points whose title case is not their upper case.", *table("Title", title),
           "// clang-format on", "", "}  // namespace", "",
           "const CaseTable kUpperTable{kUpperRuns, kUpperSpellings};",
           "const CaseTable kTitleTable{kTitleRuns, kTitleSpellings};", "", "}  // namespace levin::text::jinja", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    if unicodedata.unidata_version != UNICODE:
        if arguments.check:
            return
        sys.exit(f"got a Python of Unicode {unicodedata.unidata_version}, wanted {UNICODE}")
    text = text_of_table()
    if not arguments.check:
        TABLE.write_text(text)
    elif TABLE.read_text() != text:
        sys.exit(f"{TABLE} differs from what Python knows; write it anew by this script")


if __name__ == "__main__":
    main()
