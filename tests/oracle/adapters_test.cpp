// Adapters with an odd key in adapter_config.json: PEFT's numbers, or refused by the key's name; none in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained.h"
#include "tests/oracle/python.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class OddAdapters : public test::PythonTest {};

/// The largest difference, of the largest number.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

/// What PEFT computes, levin computes; and PEFT opens what levin writes of it.
void expect_the_same(const fs::path& folder) {
  const auto net = from_pretrained(folder / "model");
  net->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = load_weights(folder / "inputs.safetensors").tensor("input_ids");
  const auto logits = [&] { return net->forward({{"input_ids", ids}}).logits; };
  const at::Tensor before = logits();
  lora::load(*net, folder / "adapter");
  const at::Tensor wanted = load_weights(folder / "logits.safetensors").tensor("logits");
  EXPECT_LE(difference(logits(), wanted), 1e-5);
  EXPECT_GT(difference(before, wanted), 1e-3);
  {
    const lora::WithoutAdapter scope(*net);
    EXPECT_TRUE(at::equal(logits(), before));
  }
  lora::save(*net, folder / "back");
}

TEST_F(OddAdapters, HavePeftsNumbersOrAreRefusedByName) {
  const fs::path root = file("odd");
  std::string output;
  ASSERT_EQ(run("adapter_oddities.py", "'" + root.string() + "'", &output), 0) << output;
  const json cases = json::parse(test::bytes_of(root / "cases.json"));
  int64_t same = 0, refused = 0;
  for (const auto& [name, verdict] : cases.items()) {
    SCOPED_TRACE(name);
    std::string warned;
    const auto before = log::set_sink([&](log::Level level, std::string_view text) {
      if (level >= log::Level::kWarn) warned += std::string(text) + "\n";
    });
    const std::string error = test::error_of([&] {
      if (verdict == "same") {
        expect_the_same(root / name);
      } else {
        lora::load(*from_pretrained(root / name / "model"), root / name / "adapter");
      }
    });
    log::set_sink(before);
    if (verdict == "same") {
      EXPECT_EQ(error, "no error");
      EXPECT_EQ(warned, "");
    } else {
      EXPECT_THAT(error, StartsWith("models.lora."));
      std::printf("%s: %s\n", name.c_str(), error.c_str());
    }
    ++(verdict == "same" ? same : refused);
  }
  EXPECT_GE(same, 15);
  EXPECT_GE(refused, 15);
  ASSERT_EQ(run("adapter_oddities.py", "'" + root.string() + "' --back", &output), 0) << output;
  EXPECT_THAT(output, HasSubstr(std::to_string(same) + " adapters"));
}

TEST_F(OddAdapters, AKeyThatNobodyKnowsIsNamedOnceAndNothingElse) {
  const fs::path root = file("odd");
  std::string output;
  ASSERT_EQ(run("adapter_oddities.py", "'" + root.string() + "' harmless", &output), 0) << output;
  const fs::path config = root / "harmless" / "adapter" / "adapter_config.json";
  json tree = json::parse(test::bytes_of(config));
  tree["new_gate"] = 3;
  tree["other_gate"] = nullptr;
  test::put(config, tree.dump());
  std::vector<std::string> warned;
  const auto before = log::set_sink([&](log::Level level, std::string_view text) {
    if (level >= log::Level::kWarn) warned.emplace_back(text);
  });
  expect_the_same(root / "harmless");
  log::set_sink(before);
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_THAT(warned[0], HasSubstr("new_gate, other_gate"));
}

}  // namespace
}  // namespace levin::models
