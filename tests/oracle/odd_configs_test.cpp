// Folders with one odd key, tensor or setting each, opened by levin and by transformers: the same numbers, or an
// error that names it. What levin writes back of them computes the same in transformers.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/pretrained.h"
#include "tests/oracle/python.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;

constexpr double kOfTheLargest = 1e-5;

class OddConfigs : public test::PythonTest {};

/// What the log is told at level warn while it lives.
class Warnings {
 public:
  Warnings()
      : before_(log::set_sink([this](log::Level level, std::string_view text) {
          if (level == log::Level::kWarn) texts_.append(text).append("\n");
        })) {}
  ~Warnings() { log::set_sink(before_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  bool name(const std::string& key) const { return texts_.find(key) != std::string::npos; }
  const std::string& texts() const { return texts_; }

 private:
  std::string texts_;
  log::Sink before_;
};

at::Tensor numbers_of(Pretrained& net, const Batch& batch) {
  const Output output = net.forward(batch);
  return output.logits.defined() ? output.logits : output.hidden;
}

void expect_near(const at::Tensor& values, const at::Tensor& wanted) {
  ASSERT_EQ(values.sizes(), wanted.sizes());
  EXPECT_LE((values - wanted).abs().max().item<double>(),
            kOfTheLargest * wanted.abs().max().item<double>());
}

void expect_same_numbers(Pretrained& net, const State& expected) {
  const at::NoGradGuard no_grad;
  const at::Tensor& ids = expected.tensor("input_ids");
  const at::Tensor& mask = expected.tensor("attention_mask");
  expect_near(numbers_of(net, {{"input_ids", ids}}), expected.tensor("none.logits"));
  const Batch padded{{"input_ids", ids}, {"attention_mask", mask}};
  expect_near(numbers_of(net, padded) * mask.unsqueeze(-1), expected.tensor("right.logits"));
}

at::Tensor written(Pretrained& net, const at::Tensor& ids, int64_t more) {
  return net.generate(ids, {.max_new_tokens = more, .min_new_tokens = more}).sequences;
}

TEST_F(OddConfigs, GiveTheNumbersOfTransformersOrAreNamed) {
  std::string output;
  const fs::path root = file("folders");
  fs::create_directories(root);
  ASSERT_EQ(run("odd_configs.py", "'" + root.string() + "'", &output), 0) << output;
  fs::remove_all(root / "base");
  size_t count = 0, opened = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    ++count;
    const auto told = nlohmann::json::parse(test::bytes_of(entry.path() / "case.json"));
    const std::string here = told["here"], names = told["names"];
    const Warnings warnings;
    std::string error;
    try {
      const auto net = from_pretrained(entry.path());
      net->eval();
      if (here == "refused") {
        ADD_FAILURE() << "it was opened";
        continue;
      }
      EXPECT_EQ(warnings.texts().empty(), !told["warns"].get<bool>()) << warnings.texts();
      EXPECT_TRUE(!told["warns"] || warnings.name(names)) << warnings.texts();
      const fs::path values = entry.path() / "expected.safetensors";
      if (fs::exists(values)) {
        const State expected = load_weights(values);
        expect_same_numbers(*net, expected);
        const at::Tensor& ids = expected.tensor("input_ids");
        if (expected.contains("generated")) {
          const at::Tensor& wanted = expected.tensor("generated");
          EXPECT_TRUE(at::equal(written(*net, ids, wanted.size(1) - ids.size(1)), wanted));
        }
        net->save_pretrained(entry.path() / "back");
        ++opened;
      }
      if (here == "no generation") written(*net, at::full({1, 3}, 5, at::kLong), 2);
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(error.empty(), here == "the same") << error;
    EXPECT_NE((error.empty() ? names : error).find(names), std::string::npos) << error;
  }
  EXPECT_GE(count, 80U);
  ASSERT_EQ(run("odd_configs.py", "'" + root.string() + "' --back", &output), 0) << output;
  EXPECT_NE(output.find(std::to_string(opened) + " folders"), std::string::npos) << output;
}

}  // namespace
}  // namespace levin::models
