"""Writes levin/text/reading/class_names.cpp: transformers' tokenizer classes, and which of them each model_type has.

    python tests/oracle/tokenizer_classes.py            writes the file
    python tests/oracle/tokenizer_classes.py --check    exit code 1 where it would be another
"""

import inspect
import logging
import pathlib
import sys
import textwrap

import transformers
from transformers import PreTrainedTokenizerBase, TokenizersBackend
from transformers.models.auto import tokenization_auto

FILE = pathlib.Path(__file__).parents[2] / "levin/text/reading/class_names.cpp"
# Classes that levin makes as they make themselves (tokenizer_class.cpp).
MADE = ["BertTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "GemmaTokenizer", "LlamaTokenizer", "MPNetTokenizer", "Qwen2Tokenizer",
        "RobertaTokenizer", "XLMRobertaTokenizer"]
ALIKE = {"DistilBertTokenizer": "BertTokenizer"}  # hands all its arguments on
SOURCE = '''// Made by tests/oracle/tokenizer_classes.py from transformers; do not edit.
#include "levin/text/reading/class_names.h"

#include <algorithm>

namespace levin::text {
namespace {

// A line is a class and the model_types that have it.
constexpr std::string_view kModelTypes = R"names(
%s
)names";

// model_types whose class stands, whatever a folder names.
constexpr std::string_view kReplaced = R"names(
%s
)names";

// A line is a class and others that make the same.
constexpr std::string_view kAliases = R"names(
%s
)names";

// Classes that make parts of their own.
constexpr std::string_view kOthers = R"names(
%s
)names";

/// Calls visit(first word, word) for each word of each line; false from it ends the walk.
template <class Visit>
void for_each_word(std::string_view table, const Visit& visit) {
  while (!table.empty()) {
    const size_t end = std::min(table.find('\\n'), table.size());
    std::string_view line = table.substr(0, end);
    table.remove_prefix(std::min(end + 1, table.size()));
    std::string_view first;
    while (!line.empty()) {
      const size_t space = std::min(line.find(' '), line.size());
      const std::string_view word = line.substr(0, space);
      line.remove_prefix(std::min(space + 1, line.size()));
      if (word.empty()) continue;
      if (first.empty()) first = word;
      if (!visit(first, word)) return;
    }
  }
}

/// The first word of the line that has the word; "" where none has it.
std::string_view line_with(std::string_view table, std::string_view wanted) {
  std::string_view found;
  for_each_word(table, [&](std::string_view first, std::string_view word) {
    if (word == wanted) found = first;
    return found.empty();
  });
  return found;
}

}  // namespace

ModelType model_type(std::string_view name) {
  if (name.empty()) return {};
  const std::string_view found = line_with(kModelTypes, name);
  ModelType type;
  type.is_backend = found == "TokenizersBackend";
  if (!type.is_backend) type.tokenizer_class = found;
  type.replaces = !line_with(kReplaced, name).empty();
  return type;
}

std::string class_by_alias(std::string_view name) {
  const std::string_view found = name.empty() ? "" : line_with(kAliases, name);
  return std::string(found.empty() ? name : found);
}

bool makes_parts_of_its_own(std::string_view name) {
  return !name.empty() && !line_with(kOthers, name).empty();
}

}  // namespace levin::text
'''


def tokenizer_classes():
    """{name, without Fast: class}"""
    auto = tokenization_auto
    names = {name for name in dir(transformers) if "Tokenizer" in name} | {name for name in auto.TOKENIZER_MAPPING_NAMES.values() if name}
    classes = {}
    for name in sorted(names):
        try:
            found = getattr(transformers, name, None) or auto.tokenizer_class_from_name(name)
        except Exception:  # a class whose packages are not installed
            continue
        if inspect.isclass(found) and issubclass(found, PreTrainedTokenizerBase):
            classes[name.removesuffix("Fast")] = found
    return classes


def maker(found):
    """The class whose __init__ it has."""
    return next(base for base in found.__mro__ if "__init__" in base.__dict__)


def main():
    logging.disable()
    auto = tokenization_auto
    backends = ("TokenizersBackend", "MistralCommonBackend", "PythonBackend", "PreTrainedTokenizer")
    by_class = {}
    for model_type, name in auto.TOKENIZER_MAPPING_NAMES.items():
        name = "TokenizersBackend" if name in backends else (name or "").removesuffix("Fast")
        by_class.setdefault(name, []).append(model_type)
    by_class.pop("", None)
    replaced = [kind for kind in auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS if auto.TOKENIZER_MAPPING_NAMES[kind] not in backends]
    aliases, others = {name: [] for name in MADE}, []
    for name, found in tokenizer_classes().items():
        made = ALIKE.get(name, maker(found).__name__)
        if made in MADE:
            aliases[made] += [name] * (name != made)
        elif made not in ("TokenizersBackend", "PreTrainedTokenizerBase", "PythonBackend") or not issubclass(found, TokenizersBackend):
            others += [name] * (name not in ("PreTrainedTokenizer", "PreTrainedTokenizerBase", "TokenizersBackend"))

    def lines(table):
        out = []
        for name, words in sorted(table.items()):
            out += [f"{name} {part}" for part in textwrap.wrap(" ".join(sorted(words)), 118 - len(name))] or [name]
        return "\n".join(out)

    text = SOURCE % (lines(by_class), "\n".join(textwrap.wrap(" ".join(sorted(replaced)), 118)), lines(aliases),
                     "\n".join(textwrap.wrap(" ".join(sorted(others)), 118)))
    if "--check" not in sys.argv:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE} differs from what transformers has; write it anew by this script")


if __name__ == "__main__":
    main()
