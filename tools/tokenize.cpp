// levin tokenize TOKENIZER: texts and chats as tokens, and tokens as text.
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/read_file.h"
#include "levin/text/tokenizer.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace levin::tools {
namespace {

using text::Encoding;
using text::OffsetUnit;
using text::Tokenizer;

Tokenizer tokenizer_of(const std::string& path) {
  if (std::filesystem::is_directory(path)) return Tokenizer::from_pretrained(path);
  LEVIN_CHECK(std::filesystem::exists(path), "tools.tokenize",
              "there is no '{}'; wanted a folder with a tokenizer.json, or the file", path);
  return Tokenizer::from_file(path);
}

std::vector<std::string> lines_of(const std::string& file) {
  const std::string all = files::read_file(file);
  std::vector<std::string> lines;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    lines.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// The text of a conversation, by the tokenizer's chat template, and its ids.
void print_chat(const Tokenizer& tokenizer, const std::string& file,
                const text::ChatOptions& options, bool ids) {
  const auto messages = text::Messages::from_json(files::read_file(file));
  const text::Chat chat = tokenizer.apply_chat_template(messages, options);
  if (ids) {
    std::cout << fmt::format("{}\n", fmt::join(chat.encoding.ids, " "));
  } else {
    std::cout << chat.text;
  }
}

void print_tokens(const Tokenizer& tokenizer, const std::string& text, const Encoding& encoding) {
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    const std::string part =
        text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    std::cout << fmt::format("{:>7}  {:>5} {:>5}  {:<20} {}\n", encoding.ids[i], begin, end,
                             printable(tokenizer.id_to_token(encoding.ids[i]).value_or("")),
                             encoding.special_tokens_mask[i] != 0 ? "(special)" : printable(part));
  }
}

}  // namespace

int tokenize(int argc, char** argv) {
  std::string path;
  std::vector<std::string> texts;
  std::string file;
  std::vector<int32_t> ids;
  bool plain = false;
  bool long_form = false;
  bool count = false;
  CLI::App app("Encodes texts and chats with a tokenizer.json, and decodes ids to text.",
               "levin tokenize");
  app.add_option("TOKENIZER", path,
                 "folder with a tokenizer.json, as transformers saves it, or the file")
      ->required();
  app.add_option("TEXT", texts, "texts to encode");
  app.add_option("--file", file, "file of texts to encode, one per line")->type_name("FILE");
  app.add_option("--decode", ids, "ids to decode to text")->delimiter(',')->type_name("ID,...");
  app.add_flag("--no-special-tokens", plain,
               "encode without special tokens; with --decode, leave them out of the text");
  app.add_flag("--long", long_form,
               "print a line per token: id, its bytes in the text, the token, the text");
  app.add_flag("--count", count, "print only the number of tokens");
  std::string chat;
  std::string tools_file;
  text::ChatOptions chat_options;
  bool chat_ids = false;
  app.add_option(
         "--chat", chat,
         "file of messages, a JSON list of {role, content}: print the text of the chat template")
      ->type_name("FILE");
  app.add_option("--tools", tools_file, "file with a JSON list of tools for the chat template")
      ->type_name("FILE");
  app.add_option("--variables", chat_options.variables, "further variables of the chat template")
      ->type_name("JSON");
  app.add_flag("--generation-prompt", chat_options.add_generation_prompt,
               "add the chat template's generation prompt");
  app.add_flag("--ids", chat_ids, "print the ids of the chat instead of its text");
  if (!parse_arguments(app, argc, argv, "tools.tokenize")) return 0;
  const Tokenizer tokenizer = tokenizer_of(path);
  if (!chat.empty()) {
    if (!tools_file.empty()) chat_options.tools = files::read_file(tools_file);
    chat_options.tokenize = chat_ids;
    print_chat(tokenizer, chat, chat_options, chat_ids);
    return 0;
  }
  if (!ids.empty()) {
    std::cout << tokenizer.decode(ids, {.skip_special_tokens = plain}) << '\n';
    return 0;
  }
  if (!file.empty()) texts = lines_of(file);
  LEVIN_CHECK(!texts.empty(), "tools.tokenize", "got no text; give texts, --file or --decode");
  const auto encodings = tokenizer.encode_batch(
      texts, {.add_special_tokens = !plain,
              .offsets = long_form ? OffsetUnit::kBytes : OffsetUnit::kNone});
  size_t sum = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    sum += encodings[i].ids.size();
    if (count) continue;
    if (long_form) {
      print_tokens(tokenizer, texts[i], encodings[i]);
    } else {
      std::cout << fmt::format("{}\n", fmt::join(encodings[i].ids, " "));
    }
  }
  if (count) std::cout << sum << '\n';
  return 0;
}

}  // namespace levin::tools
