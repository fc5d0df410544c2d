// What `levin export` asks of a program: its first fit writes the module as a program of torch.export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/interchange/load_exported.h"
#include "levin/trainer/callbacks/export_program.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/variable.h"
#include "tests/trainer/small_run.h"

namespace levin::test::export_request {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Predicts : small_run::Net {
  using small_run::Net::Net;
  at::Tensor predict_step(const Batch& batch, int64_t) override { return net->forward(batch["x"]); }
};

/// What its predict_step is nobody has said.
struct Silent : small_run::Net {};

template <class Net = Predicts>
std::shared_ptr<Net> fit(const std::string& root, TrainerOptions options) {
  torch::manual_seed(3);
  auto net = std::make_shared<Net>();
  options.max_epochs = 1;
  Trainer trainer(options);
  trainer.fit(net, DataLoader(small_run::dataset(20), {.batch_size = 5}));
  return net;
}

class ExportRequested : public ::testing::Test {
 protected:
  /// Does what a program of the user would; 0 where it ended as asked.
  template <class Net = Predicts>
  int exported(const std::string& ckpt_path, const std::string& dims = "",
               std::string* error = nullptr) {
    const auto said = scratch_ / "error.txt";
    const int code = run_child([&] {
      torch::set_num_threads(1);  // a fork has no other threads
      const Variable to("LEVIN_EXPORT_TO", file_.string());
      const Variable from("LEVIN_EXPORT_CKPT", ckpt_path);
      std::optional<Variable> dynamic;
      if (!dims.empty()) dynamic.emplace("LEVIN_EXPORT_DYNAMIC", dims);
      TrainerOptions options = small_run::quiet(scratch_.str());
      options.devices = 2;  // the program's own wishes
      options.logger = true;
      std::ofstream(said) << error_of([&] { fit<Net>(scratch_.str(), options); });
      return 1;
    });
    if (error != nullptr) {
      std::ifstream stream(said);
      std::getline(stream, *error);
    }
    return code;
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "net.pt2";
};

TEST_F(ExportRequested, WritesWhatACheckpointPredicts) {
  const int trained = run_child([&] {
    torch::set_num_threads(1);
    const auto net = fit(scratch_.str(), small_run::quiet(scratch_.str()));
    net->eval();
    State wanted;
    wanted.set("predictions", net->net->forward(torch::ones({3, 6})));
    save_weights(scratch_ / "wanted.safetensors", wanted);
    return 0;
  });
  ASSERT_EQ(trained, 0);
  ASSERT_EQ(exported("last"), 0);
  const auto back = load_exported(file_);
  back->eval();
  // Another number of rows than the batch's.
  const at::Tensor wanted = load_weights(scratch_ / "wanted.safetensors").tensor("predictions");
  EXPECT_TRUE(at::allclose(back->forward(torch::ones({3, 6})), wanted, 1e-6, 1e-6));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "levin_logs"));
  // The program's own weights.
  ASSERT_EQ(exported(""), 0);
  EXPECT_FALSE(at::allclose(load_exported(file_)->forward(torch::ones({3, 6})), wanted));
}

TEST_F(ExportRequested, MakesTheDimsDynamicThatItNames) {
  ASSERT_EQ(exported("", "none"), 0);
  EXPECT_THAT(error_of([&] { load_exported(file_)->forward(torch::ones({3, 6})); }),
              StartsWith("interchange.input: "));
  ASSERT_EQ(exported("", "x:0:min=2:max=9"), 0);
  EXPECT_THAT(error_of([&] { load_exported(file_)->forward(torch::ones({10, 6})); }),
              StartsWith("interchange.input: "));
  load_exported(file_)->forward(torch::ones({9, 6}));
}

TEST_F(ExportRequested, SaysWhatIsMissing) {
  std::string error;
  EXPECT_EQ(exported("nowhere", "", &error), 1);
  EXPECT_THAT(error, AllOf(StartsWith("checkpoint.missing: "), HasSubstr("nowhere")));
  EXPECT_EQ(exported("last", "", &error), 1) << "nothing was trained";
  EXPECT_THAT(error, StartsWith("trainer.ckpt_path: "));
  EXPECT_EQ(exported<Silent>("", "", &error), 1);
  EXPECT_THAT(error, HasSubstr("predict_step"));
  EXPECT_EQ(exported("", "z:0", &error), 1);
  EXPECT_THAT(error, StartsWith("interchange.export.input: dynamic names the input 'z'"));
  file_ = scratch_ / "no" / "folder" / "net.pt2";
  EXPECT_EQ(exported("", "", &error), 1) << "a folder that is not there";
  EXPECT_THAT(error, StartsWith("files.write: "));
}

TEST(DynamicDims, AreReadFromText) {
  const auto dims = detail::dynamic_dims("image:0;image:2:min=32:max=512:multiple_of=32:name=h");
  ASSERT_EQ(dims.size(), 2U);
  EXPECT_EQ(dims[1].input, "image");
  EXPECT_EQ(dims[1].dim, 2);
  EXPECT_EQ(dims[1].min, 32);
  EXPECT_EQ(dims[1].max, 512);
  EXPECT_EQ(dims[1].multiple_of, 32);
  EXPECT_EQ(dims[1].name, "h");
  EXPECT_TRUE(detail::dynamic_dims("none").empty());
  for (const char* wrong : {"", "image", "image:", ":0", "image:x", "image:0:", "image:0:min",
                            "image:0:min=", "image:0:least=3", "image:0:min=3=4", "image:0;"}) {
    EXPECT_THAT(error_of([&] { detail::dynamic_dims(wrong); }), StartsWith("trainer.export: "))
        << wrong;
  }
}

}  // namespace
}  // namespace levin::test::export_request
