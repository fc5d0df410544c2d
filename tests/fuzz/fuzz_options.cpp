// libFuzzer: read_options of any command line and any TOML file gives options that print and read
// back as they are, or throws levin::Error.
//
//   fuzz_options -max_total_time=20

#include <optional>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/base/options.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

namespace {

struct Options {
  int64_t epochs = 5;
  double lr = 0.1;
  bool shuffle = true;
  std::string name = "run";
  std::vector<int64_t> sizes = {1, 2};
  std::vector<std::string> names = {"a"};
  std::optional<double> clip;

  void fields(levin::FieldVisitor& field) {
    field("epochs", epochs, "epochs to train");
    field("lr", lr, "learning rate");
    field("shuffle", shuffle, "new order each epoch");
    field("name", name, "name of the run");
    field("sizes", sizes, "widths");
    field("names", names, "names");
    field("clip", clip, "largest gradient norm");
  }
};

std::optional<std::string> read(Options& options, const std::vector<std::string>& words) {
  std::vector<const char*> arguments = {"program"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return levin::detail::read_options(static_cast<int>(arguments.size()), arguments.data(),
                                     [&](levin::FieldVisitor& field) { options.fields(field); });
}

bool has_comma(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.find(',') != std::string::npos) return true;
  }
  return false;
}

/// What is printed of them, read again, prints the same.
void check_printed(const std::vector<std::string>& words) {
  Options options;
  std::vector<std::string> printing = words;
  printing.emplace_back("--print-config");
  const auto printed = read(options, printing);
  if (!printed) return;  // "--" ends the options
  if (has_comma(options.names)) return;
  const MemoryFile file(reinterpret_cast<const uint8_t*>(printed->data()), printed->size());
  Options again;
  if (read(again, {"--config", file.path(), "--print-config"}) != printed) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string> words;
  const MemoryFile config(data + 1, size - 1);
  if (data[0] % 2 == 0) {
    words = {"--config", config.path()};
  } else {
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      words.push_back(text.substr(at, end - at));
      if (words.back().starts_with("--config") || words.back().starts_with("--help")) return 0;
      at = end + 1;
    }
  }
  try {
    Options options;
    if (read(options, words)) return 0;
  } catch (const levin::Error&) {
    return 0;
  }
  try {
    check_printed(words);
  } catch (const levin::Error& error) {
    // A name that is no UTF-8 cannot be printed as TOML.
    if (error.id() != "base.options.value") std::abort();
  }
  return 0;
}
