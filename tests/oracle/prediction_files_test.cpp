// numpy and safetensors read the files of prediction_writer, whatever the format, the dtype and the
// number of ranks.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"
#include "tests/oracle/python.h"
#include "tests/support/off_disk.h"
#include "tests/support/world.h"

namespace prediction_files {
namespace {

namespace fs = std::filesystem;
using levin::test::run_world;

constexpr int64_t kSamples = 19;

at::Tensor samples() {
  return torch::randn({kSamples, 2, 3}, at::make_generator<at::CPUGeneratorImpl>(3)) * 100;
}

/// Predicts each sample as it is, in a dtype.
struct Echo : levin::Module {
  at::ScalarType dtype;
  bool is_flat;
  Echo(at::ScalarType dtype, bool is_flat) : dtype(dtype), is_flat(is_flat) {}
  static at::Tensor rows(const at::Tensor& x, at::ScalarType dtype, bool is_flat) {
    return (is_flat ? x.select(1, 0).select(1, 0) : x).to(dtype);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return rows(batch["x"], dtype, is_flat);
  }
};

void predict(const fs::path& folder, const std::string& format, const std::string& interval,
             at::ScalarType dtype, bool is_flat) {
  levin::TrainerOptions options;
  options.accelerator = "cpu";
  options.enable_progress_bar = false;
  options.logger = false;
  options.callbacks = {levin::prediction_writer(
      {.output_dir = folder.string(), .write_interval = interval, .format = format})};
  levin::Trainer(options).predict(
      std::make_shared<Echo>(dtype, is_flat),
      levin::DataLoader(levin::test::off_disk(levin::data::tensors({{"x", samples()}})),
                        {.batch_size = 4}),
      {.return_predictions = false});
}

class PredictionFiles : public levin::test::PythonTest {};

TEST_F(PredictionFiles, AreReadByNumpyAndSafetensors) {
  for (const char* format : {"npy", "csv", "safetensors"}) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kLong, at::kByte, at::kBool}) {
      for (const bool is_flat : {false, true}) {
        for (const int64_t ranks : {1, 2}) {
          const std::string name = std::string(format) + c10::toString(dtype) +
                                   std::to_string(ranks) + (is_flat ? "flat" : "");
          SCOPED_TRACE(name);
          if (dtype == at::kByte && ranks == 2) continue;
          const fs::path folder = file(name);
          const auto words = run_world(ranks, [&](int64_t, const fs::path&) -> std::string {
            predict(folder, format, "batch_and_epoch", dtype, is_flat);
            return "";
          });
          EXPECT_EQ(words, std::vector<std::string>(static_cast<size_t>(ranks)));
          levin::State wanted;
          wanted.set("rows", Echo::rows(samples(), dtype, is_flat));
          levin::save_weights(file("rows.safetensors"), wanted);
          std::vector<std::string> parts;
          for (const auto& entry : fs::directory_iterator(folder)) parts.push_back(entry.path());
          std::sort(parts.begin(), parts.end());
          const std::string whole = (folder / "predictions.").string() + format;
          ASSERT_EQ(std::erase(parts, whole), 1U);
          EXPECT_EQ(parts.size(), ranks == 1 ? 5U : 3U);
          std::string said, names;
          for (const std::string& part : parts) names += " '" + part + "'";
          const std::string rows = "'" + file("rows.safetensors").string() + "' ";
          EXPECT_EQ(run("read_predictions.py", rows + "'" + whole + "'", &said), 0) << said;
          EXPECT_EQ(run("read_predictions.py", rows + names, &said), 0) << said;
        }
      }
    }
  }
}

}  // namespace
}  // namespace prediction_files
