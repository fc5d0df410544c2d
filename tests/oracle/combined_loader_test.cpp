// Combined loaders give the batches of Lightning's CombinedLoader (combined.py).
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <sstream>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/oracle/python.h"

namespace combined_of_lightning {
namespace {

struct CombinedOfLightning : levin::test::PythonTest {};

std::string text_of(const levin::Batch& batch) {
  std::string text;
  for (const auto& [name, tensor] : batch) {
    text += (text.empty() ? "" : " ") + name.substr(0, name.find('/'));
    for (int64_t i = 0; i < tensor.size(0); ++i) {
      text += " " + std::to_string(tensor[i].item<int64_t>());
    }
  }
  return text + "\n";
}

/// The answer that combined.py writes for the case in this line.
std::string lines_of(const std::string& line) {
  std::istringstream words(line);
  std::string word, mode;
  words >> word >> mode;
  std::vector<std::pair<std::string, levin::DataLoader>> loaders;
  for (int64_t size = 0, batch_size = 0; words >> size >> batch_size;) {
    const std::string name(1, static_cast<char>('a' + loaders.size()));
    loaders.emplace_back(
        name, levin::DataLoader(levin::data::tensors({{"x", at::arange(size, at::kLong)}}),
                                {.batch_size = batch_size}));
  }
  levin::DataLoader loader = levin::data::combined(loaders, {.mode = mode});
  std::string lines = "length " + std::to_string(loader.size()) + "\n";
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (levin::Batch batch; loader.next(batch);) lines += text_of(batch);
    lines += "end\n";
  }
  return lines;
}

TEST_F(CombinedOfLightning, HasTheSameBatchesInEachMode) {
  std::string output;
  ASSERT_EQ(run("combined.py", "'" + file("").string() + "'", &output), 0) << output;
  std::istringstream written(levin::test::bytes_of(file("combined.txt")));
  std::string line, of_case, wanted;
  int64_t cases = 0;
  const auto check = [&] {
    if (of_case.empty()) return;
    EXPECT_EQ(lines_of(of_case), wanted) << of_case;
    ++cases;
  };
  while (std::getline(written, line)) {
    if (line.starts_with("case ")) {
      check();
      of_case = line;
      wanted.clear();
    } else {
      wanted += line + "\n";
    }
  }
  check();
  EXPECT_EQ(cases, 344);
}

}  // namespace
}  // namespace combined_of_lightning
