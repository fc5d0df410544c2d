#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>

#include "levin/interchange/load_exported.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::torchscript {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void save_script(const std::filesystem::path& file) {
  torch::jit::Module inner("Inner"), net("Net");
  inner.register_parameter("weight", at::ones({2, 3}).set_requires_grad(true), false);
  inner.register_attribute("training", c10::BoolType::get(), true);
  inner.define(
      "def forward(self, x):\n"
      "  y = torch.matmul(x, self.weight.t())\n"
      "  return torch.dropout(y, 0.5, self.training)\n");
  net.register_module("inner", inner);
  net.register_attribute("training", c10::BoolType::get(), true);
  net.define("def forward(self, x):\n  return self.inner.forward(x)\n");
  net.save(file.string());
}

TEST(LoadTorchScript, TrainsUnderPythonsNamesAndSwitchesModes) {
  const Scratch scratch;
  save_script(scratch / "net.pt");
  const auto net = load_torchscript(scratch / "net.pt");
  ASSERT_TRUE(net->named_parameters().contains("inner.weight"));
  const at::Tensor x = at::ones({64, 3});
  EXPECT_GT((net->forward(x) == 0).sum().item<int64_t>(), 0);  // dropout
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(x).detach(), at::full({64, 2}, 3.0)));
  net->forward(x).sum().backward();
  EXPECT_TRUE(at::equal(net->named_parameters()["inner.weight"].grad(), at::full({2, 3}, 64.0)));
}

TEST(LoadTorchScript, OfAnotherFileSaysWhichReaderThereIs) {
  const Scratch scratch;
  std::ofstream(scratch / "text.pt") << "text";
  small_linear(at::ones({2, 3}), at::zeros({2})).write(scratch / "net.pt2");
  torch::save(at::ones({2}), (scratch / "tensor.pt").string());
  const auto told = [&](const char* name) {
    return error_of([&] { load_torchscript(scratch / name); });
  };
  EXPECT_THAT(told("none.pt"), StartsWith("files.read: "));
  EXPECT_THAT(told("text.pt"), HasSubstr("is not a zip archive"));
  EXPECT_THAT(told("net.pt2"), HasSubstr("read it with levin::load_exported"));
}

TEST(LoadTorchScript, OfADamagedFileIsAnError) {
  const Scratch scratch;
  save_script(scratch / "net.pt");
  std::ifstream in(scratch / "net.pt", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto told = [&](const std::string& bytes) {
    std::ofstream(scratch / "odd.pt", std::ios::binary) << bytes;
    return error_of([&] { load_torchscript(scratch / "odd.pt"); });
  };
  EXPECT_EQ(told(whole), "no error");
  EXPECT_THAT(told(whole.substr(0, whole.size() / 2)), StartsWith("interchange.archive: "));
  // Of the code, which is compressed and has a checksum.
  const size_t code = whole.find("/code/");
  ASSERT_NE(code, std::string::npos);
  std::string flipped = whole;
  for (size_t at = code + 80; at < code + 110; ++at) flipped[at] = static_cast<char>(~flipped[at]);
  EXPECT_THAT(told(flipped), StartsWith("interchange.archive: "));
}

}  // namespace
}  // namespace levin::test::torchscript
