#include <gmock/gmock.h>
#include <torch/torch.h>

#include <fstream>

#include "levin/xla/pjrt/buffer.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/xla/plugins.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::test::error_of;
using levin::test::OnCpuDevices;
using levin::test::run;
using levin::test::Variable;
using pjrt::HostMemory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr HostMemory kWays[] = {HostMemory::kDuringCall, HostMemory::kUntilTransferred,
                                HostMemory::kShared};

class PjrtBuffer : public OnCpuDevices {};

/// Values that no other type has at the same bits.
at::Tensor values_of(at::ScalarType dtype, at::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  const at::Tensor numbers = torch::arange(count, torch::kLong).add(1);
  return dtype == torch::kBool ? numbers.remainder(2).to(dtype).view(sizes)
                               : numbers.to(dtype).view(sizes);
}

TEST_F(PjrtBuffer, ComesBackAsItWentInEveryDtype) {
  for (const at::ScalarType dtype :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kChar, torch::kByte,
        torch::kShort, torch::kInt, torch::kLong, torch::kBool, torch::kUInt16, torch::kUInt32,
        torch::kUInt64, torch::kComplexFloat, torch::kComplexDouble}) {
    const at::Tensor tensor = values_of(dtype, {3, 5});
    for (const HostMemory way : kWays) {
      const pjrt::Buffer buffer = device().upload(tensor, 0, way);
      EXPECT_EQ(buffer.dtype(), dtype);
      EXPECT_EQ(buffer.sizes(), tensor.sizes());
      EXPECT_EQ(buffer.num_bytes(), static_cast<int64_t>(tensor.nbytes())) << dtype;
      EXPECT_TRUE(torch::equal(buffer.download(), tensor)) << dtype;
      EXPECT_TRUE(torch::equal(buffer.start_download().wait(), tensor)) << dtype;
    }
  }
}

TEST_F(PjrtBuffer, MayHaveNoDimensionsOrNoElements) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{}, {0}, {3, 0, 2}}) {
    const at::Tensor tensor = values_of(torch::kFloat, sizes);
    const pjrt::Buffer buffer = device().upload(tensor);
    EXPECT_EQ(buffer.sizes(), at::IntArrayRef(sizes));
    EXPECT_TRUE(torch::equal(buffer.download(), tensor));
    EXPECT_TRUE(torch::equal(buffer.start_download().wait(), tensor));
  }
}

TEST_F(PjrtBuffer, LiesOnTheDeviceThatWasNamed) {
  const pjrt::Client& four = devices(4);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(four.upload(torch::ones(2), i).device_id(),
              four.addressable_devices()[static_cast<size_t>(i)].id);
  }
}

TEST_F(PjrtBuffer, OfALargeTensorIsReadAsTheWaySays) {
  const at::Tensor tensor = torch::rand({1 << 20});
  const at::Tensor before = tensor.clone();
  const pjrt::Buffer taken = device().upload(tensor, 0, HostMemory::kDuringCall);
  tensor.zero_();
  EXPECT_TRUE(torch::equal(taken.download(), before));
  const pjrt::Buffer shared = device().upload(tensor, 0, HostMemory::kShared);
  tensor.fill_(3);  // not allowed: shows that the CPU reads the tensor's own memory
  EXPECT_EQ(shared.download()[7].item<float>(), 3);
}

TEST_F(PjrtBuffer, KeepsItsTensorAliveAsLongAsItIsRead) {
  for (const HostMemory way : {HostMemory::kUntilTransferred, HostMemory::kShared}) {
    at::Tensor tensor = torch::ones({1 << 18});
    const c10::weak_intrusive_ptr<c10::TensorImpl> weak(tensor.getIntrusivePtr());
    pjrt::Buffer buffer = device().upload(tensor, 0, way);
    tensor.reset();
    if (way == HostMemory::kShared) {
      EXPECT_FALSE(weak.expired());
    }
    EXPECT_EQ(buffer.download().sum().item<float>(), 1 << 18);
    buffer = {};
    for (int i = 0; i < 1000 && !weak.expired(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(weak.expired());
  }
}

TEST_F(PjrtBuffer, ThatSharesMemoryIsNeverWrittenTo) {
  const at::Tensor tensor = torch::arange(16, torch::kFloat);
  const pjrt::Buffer x = device().upload(tensor, 0, HostMemory::kShared);
  const pjrt::Buffer y = device().upload(torch::ones(16));
  const auto add = device().compile(levin::test::add_text(16, /*donated=*/true));
  EXPECT_TRUE(torch::equal(run(add, {&x, &y})[0].download(), torch::arange(1, 17, torch::kFloat)));
  EXPECT_TRUE(torch::equal(tensor, torch::arange(16, torch::kFloat)));
}

TEST_F(PjrtBuffer, OfMemoryThatIsNotAlignedIsCopied) {
  const at::Tensor base = torch::rand({65});
  const at::Tensor tensor = base.slice(0, 1);
  const pjrt::Buffer buffer = device().upload(tensor, 0, HostMemory::kShared);
  EXPECT_TRUE(torch::equal(buffer.download(), tensor));
}

TEST_F(PjrtBuffer, DownloadsIntoATensorThatFits) {
  const at::Tensor tensor = torch::rand({3, 4});
  const pjrt::Buffer buffer = device().upload(tensor);
  const at::Tensor out = torch::empty({3, 4});
  buffer.download_to(out);
  EXPECT_TRUE(torch::equal(out, tensor));
  pjrt::Download first = buffer.start_download_to(torch::empty({3, 4}));
  pjrt::Download second = std::move(first);
  first = buffer.start_download();
  EXPECT_TRUE(torch::equal(second.wait(), tensor));
  EXPECT_TRUE(second.is_ready());
  EXPECT_TRUE(torch::equal(first.wait(), first.wait()));
  EXPECT_THAT(
      error_of([&] { buffer.download_to(torch::empty({4, 3})); }),
      AllOf(StartsWith("xla.tensor: "), HasSubstr("[4, 3] of Float, wanted [3, 4] of Float")));
  EXPECT_THAT(error_of([&] { buffer.download_to(torch::empty({3, 4}, torch::kInt)); }),
              StartsWith("xla.tensor: "));
  EXPECT_THAT(error_of([&] { buffer.start_download_to(torch::empty({4, 3}).t()); }),
              AllOf(StartsWith("xla.tensor: "), HasSubstr("not dense")));
}

TEST_F(PjrtBuffer, MayGoWhileItIsDownloaded) {
  const at::Tensor tensor = torch::rand({1 << 20});
  pjrt::Buffer buffer = device().upload(tensor);
  pjrt::Download download = buffer.start_download();
  buffer = {};
  EXPECT_TRUE(torch::equal(download.wait(), tensor));
}

TEST_F(PjrtBuffer, CannotBeMadeOfEveryTensor) {
  EXPECT_THAT(error_of([&] { device().upload(torch::ones({2, 3}).t()); }),
              AllOf(StartsWith("xla.tensor: "), HasSubstr("call .contiguous()")));
  EXPECT_THAT(error_of([&] { device().upload(torch::ones(2, torch::kMeta)); }),
              AllOf(StartsWith("xla.tensor: "), HasSubstr("is on meta")));
  EXPECT_THAT(error_of([&] { device().upload(at::Tensor()); }), StartsWith("xla.tensor: "));
  EXPECT_THAT(error_of([&] { device().upload(torch::ones(2, torch::kComplexFloat).conj()); }),
              AllOf(StartsWith("xla.tensor: "), HasSubstr("conjugate")));
  EXPECT_THAT(error_of([&] {
                device().upload(torch::quantize_per_tensor(torch::ones(4), 1, 0, torch::kQInt8));
              }),
              StartsWith("xla.dtype: a tensor of QInt8"));
}

TEST_F(PjrtBuffer, ThatIsEmptySaysSo) {
  const pjrt::Buffer empty;
  EXPECT_FALSE(empty);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { empty.sizes(); }, [&] { empty.dtype(); }, [&] { empty.device_id(); },
           [&] { empty.num_bytes(); }, [&] { empty.is_ready(); }, [&] { empty.await(); },
           [&] { empty.is_deleted(); }, [&] { empty.download(); },
           [&] { empty.start_download(); }}) {
    EXPECT_THAT(error_of([&] { call(); }), StartsWith("xla.buffer: the buffer is empty"));
  }
  pjrt::Buffer moved = device().upload(torch::ones(2));
  const pjrt::Buffer here = std::move(moved);
  EXPECT_FALSE(moved);  // NOLINT(bugprone-use-after-move): that it is empty is what is tested
  EXPECT_TRUE(here.is_ready());
}

int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

TEST_F(PjrtBuffer, ThousandsOfThemLeaveNoMemoryBehind) {
  const auto add = device().compile(levin::test::add_text(1 << 16));
  const at::Tensor tensor = torch::ones({1 << 16});
  std::vector<pjrt::Buffer> sums;
  const auto step = [&](HostMemory way) {
    const pjrt::Buffer x = device().upload(tensor, 0, way);
    const pjrt::Buffer y = device().upload(torch::ones({1 << 16}), 0, way);
    add.execute(std::vector<const pjrt::Buffer*>{&x, &y}, sums);
    sums[0].start_download().wait();
    sums[0].download();
  };
  for (int i = 0; i < 100; ++i) step(kWays[i % 3]);
  const int64_t before = resident_bytes();
  for (int i = 0; i < 1000; ++i) step(kWays[i % 3]);
  // One buffer of ten that stayed would be 25 MB.
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

class FakeBuffer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  }
  static pjrt::Client client() { return pjrt::Client(pjrt::Plugin(levin::test::fake_pjrt())); }
};

TEST_F(FakeBuffer, ForWhichThereIsNoRoom) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "no room");
  EXPECT_THAT(error_of([] { client().upload(torch::ones(4)); }),
              AllOf(StartsWith("xla.memory: "), HasSubstr("the fake is full")));
}

TEST_F(FakeBuffer, ThatIsLostOnItsWay) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "lost upload");
  const pjrt::Buffer buffer = client().upload(torch::ones(4));
  EXPECT_TRUE(buffer.is_ready());
  EXPECT_THAT(error_of([&] { buffer.await(); }),
              AllOf(StartsWith("xla.transfer: "), HasSubstr("the fake broke")));
  pjrt::Download download = buffer.start_download();
  EXPECT_THAT(error_of([&] { download.wait(); }), StartsWith("xla.transfer: "));
  EXPECT_THAT(error_of([&] { download.wait(); }),
              StartsWith("xla.buffer: the download failed before"));
}

TEST_F(FakeBuffer, OfATypeThatLibTorchHasNot) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "odd type");
  const pjrt::Buffer buffer = client().upload(torch::ones(4));
  EXPECT_THAT(error_of([&] { buffer.dtype(); }), StartsWith("xla.dtype: LibTorch has no dtype"));
}

}  // namespace
