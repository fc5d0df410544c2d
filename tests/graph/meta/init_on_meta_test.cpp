#include "levin/graph/meta/init_on_meta.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/graph/meta/built_modules.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

// Of no unnamed namespace: functions without names that others see have none in messages either,
// where there is no debug information.
void constructor_that_looks(const std::function<void(at::Tensor)>& look) {
  look(torch::rand({3, 5}));
}

namespace {

using at::Tensor;
using levin::test::error_of;
using levin::test::expect_builds_as_ever;
using levin::test::generator_state;
using levin::test::same_bits;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace nn = torch::nn;

/// A module of the constructor's function.
struct Built : nn::Module {
  template <class Build>
  explicit Built(const Build& build) {
    build(*this);
  }
};

template <class Build>
std::shared_ptr<nn::Module> built(const Build& build) {
  return std::make_shared<Built>(build);
}

template <class Build>
void expect_as_ever(const Build& build, int64_t seed = 5) {
  expect_builds_as_ever([&] { return built(build); }, seed);
}

TEST(InitOnMeta, ReturnsWhatTheFunctionReturns) {
  const nn::Linear holder = levin::init_on_meta([] { return nn::Linear(2, 3); });
  EXPECT_TRUE(holder->weight.is_meta());
  EXPECT_EQ(holder->weight.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_TRUE(holder->weight.requires_grad());
  const nn::LinearImpl value = levin::init_on_meta([] { return nn::LinearImpl(2, 3); });
  EXPECT_TRUE(value.weight.is_meta());
  const auto [one, two] =
      levin::init_on_meta([] { return std::pair(nn::Linear(1, 1), nn::Linear(1, 2)); });
  EXPECT_TRUE(levin::is_on_meta(*one));
  EXPECT_TRUE(levin::is_on_meta(*two));
  Tensor kept;
  levin::init_on_meta([&] { kept = torch::ones({2}); });
  EXPECT_TRUE(kept.is_meta());
  EXPECT_FALSE(torch::ones({2}).is_meta());
  EXPECT_TRUE(levin::init_on_meta([] { return nn::Linear(nullptr); }).is_empty());
}

TEST(InitOnMeta, EachInitialiserGivesItsValues) {
  using Init = std::function<void(Tensor)>;
  const std::vector<std::pair<const char*, Init>> table = {
      {"uniform", [](Tensor t) { nn::init::uniform_(t, -1, 2); }},
      {"normal", [](Tensor t) { nn::init::normal_(t, 1, 2); }},
      {"constant", [](Tensor t) { nn::init::constant_(t, 3); }},
      {"ones", [](Tensor t) { nn::init::ones_(t); }},
      {"zeros", [](Tensor t) { nn::init::zeros_(t); }},
      {"eye", [](Tensor t) { nn::init::eye_(t); }},
      {"orthogonal", [](Tensor t) { nn::init::orthogonal_(t, 2); }},
      {"kaiming_uniform", [](Tensor t) { nn::init::kaiming_uniform_(t); }},
      {"kaiming_normal", [](Tensor t) { nn::init::kaiming_normal_(t); }},
      {"xavier_uniform", [](Tensor t) { nn::init::xavier_uniform_(t); }},
      {"xavier_normal", [](Tensor t) { nn::init::xavier_normal_(t); }},
      {"truncated",
       [](Tensor t) { t.uniform_(-0.9, 0.9).erfinv_().mul_(0.02 * 1.414).clamp_(-0.04, 0.04); }},
      {"bernoulli", [](Tensor t) { t.bernoulli_(0.3); }},
      {"exponential", [](Tensor t) { t.exponential_(2); }},
      {"cauchy", [](Tensor t) { t.cauchy_(); }},
      {"log_normal", [](Tensor t) { t.log_normal_(); }},
      {"geometric", [](Tensor t) { t.geometric_(0.3); }},
      {"random", [](Tensor t) { t.random_(100); }},
      {"one row", [](Tensor t) { t.normal_().select(0, 1).zero_(); }},
      {"a strided part", [](Tensor t) { t.zero_().t().slice(0, 1, 3).normal_(); }},
      {"of another", [](Tensor t) { t.copy_(torch::randn({t.size(1), t.size(0)}).t()).mul_(3); }},
  };
  for (const auto& [name, init] : table) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const bool is_half = dtype == at::kBFloat16 || dtype == at::kHalf;
      if (is_half && std::string(name) == "orthogonal") continue;  // LibTorch has no QR of it
      SCOPED_TRACE(std::string(name) + " of " + c10::toString(dtype));
      expect_as_ever([&](nn::Module& module) {
        for (const int64_t rows : {2, 5, 16}) {
          const at::NoGradGuard no_grad;
          Tensor& weight =
              module.register_parameter("w" + std::to_string(rows), torch::empty({rows, 7}, dtype));
          init(weight);
        }
        module.register_buffer("next", torch::rand({3}));
      });
    }
  }
}

TEST(InitOnMeta, EachFactoryGivesItsValues) {
  expect_as_ever([](nn::Module& module) {
    int count = 0;
    const auto add = [&](const Tensor& tensor) {
      module.register_buffer(std::to_string(count++), tensor);
    };
    add(torch::zeros({3, 4}));
    add(torch::ones({3}, torch::kLong));
    add(torch::full({2, 2}, 1.5));
    add(torch::rand({40}));
    add(torch::randn({40}, torch::kDouble));
    add(torch::randn({5}));
    add(torch::randint(10, {7}));
    add(torch::randperm(9));
    add(torch::arange(12));
    add(torch::arange(0, 1, 0.1));
    add(torch::linspace(0, 1, 5));
    add(torch::logspace(0, 1, 5));
    add(torch::eye(3));
    add(torch::scalar_tensor(2.5));
    add(torch::tensor({1.0, 2.0}));
    add(torch::tensor({{1, 2}, {3, 4}}));
    add(torch::tensor(std::vector<float>{1, 2, 3}) * torch::ones({3}));
    add(torch::tensor(7));
    add(torch::ones({4, 4}).tril());
    add(torch::tril_indices(3, 3));
    add(torch::hann_window(8));
    add(torch::empty_strided({3, 2}, {1, 3}).fill_(4));
    add(torch::rand_like(torch::zeros({3})));
    add(torch::bernoulli(torch::full({20}, 0.4)));
    add(torch::multinomial(torch::ones({20}), 5));
    add(at::normal(0.0, torch::rand({4})));
    add(torch::complex(torch::rand({3}), torch::rand({3})));
    add(torch::where(torch::rand({6}) > 0.5, torch::ones({6}), torch::zeros({6})));
    add(torch::cat({torch::rand({2}), torch::zeros({2})}));
    add(torch::stack({torch::rand({2}), torch::ones({2})}, 1));
    add(std::get<0>(torch::sort(torch::rand({8}))));
    add(torch::rand({4, 4}).index({torch::tensor({2, 0})}));
    add(torch::nn::functional::one_hot(
        torch::randint(3, {4}, torch::device(torch::kCPU).dtype(torch::kLong)), 3));
  });
}

TEST(InitOnMeta, WhatIsDrawnInBetweenIsAsEver) {
  expect_as_ever([](nn::Module& module) {
    module.register_module("first", nn::Linear(40, 30));
    const Tensor mask = torch::rand({30, 40}) > 0.5;
    module.register_buffer("mask", mask);
    module.register_module("second", nn::Linear(3, 3));
    const at::NoGradGuard no_grad;
    auto weight = module.register_parameter("masked", torch::randn({30, 40}) * mask);
    weight.masked_fill_(mask, 2.0);
    torch::rand({1000});  // for nobody
    module.register_parameter("last", torch::rand({3}));
  });
}

TEST(InitOnMeta, GeneratorsOfOnesOwnAreFollowedToo) {
  const auto build = [](nn::Module& module) {
    auto generator = at::detail::createCPUGenerator(3);
    module.register_parameter("a", torch::rand({20}, generator));
    module.register_parameter("b", torch::randn({20}));
    module.register_parameter("c", torch::empty({20}).normal_(0, 1, generator));
    module.register_buffer("left", torch::tensor(static_cast<int64_t>(0)));
  };
  expect_as_ever(build);
}

TEST(InitOnMeta, ASeedSetInTheConstructorCounts) {
  expect_as_ever([](nn::Module& module) {
    module.register_parameter("a", torch::rand({20}));
    torch::manual_seed(77);
    module.register_parameter("b", torch::randn({20}));
  });
}

TEST(InitOnMeta, DrawsIntoMemoryComeInTheirTurn) {
  expect_as_ever([](nn::Module& module) {
    module.register_parameter("a", torch::rand({20}));
    const Tensor real = torch::rand({4}, torch::kCPU);
    EXPECT_FALSE(real.is_meta());
    module.register_buffer("real", real);
    module.register_buffer("scaled", torch::randn({4}) * real);
    module.register_buffer("number", torch::tensor(real[0].item<float>()));
  });
}

TEST(InitOnMeta, TypesChangedInTheConstructorAreKept) {
  expect_as_ever([](nn::Module& module) {
    module.register_module("half", nn::Linear(4, 5))->to(torch::kBFloat16);
    const auto dtype = torch::get_default_dtype();
    torch::set_default_dtype(torch::scalarTypeToTypeMeta(torch::kDouble));
    module.register_module("twice", nn::Linear(4, 5));
    module.register_buffer("steps", torch::arange(0, 1, 0.25) / 2);
    module.register_buffer("ratio", torch::arange(5) / 2);
    torch::set_default_dtype(dtype);
    module.register_module("once", nn::BatchNorm1d(5));
    module.register_module("frozen", nn::Linear(4, 5))->weight.set_requires_grad(false);
  });
}

TEST(InitOnMeta, ADeviceAskedForInTheConstructorIsLeftToMaterialize) {
  const nn::Linear net = levin::init_on_meta([] {
    nn::Linear net(2, 3);
    net->to(torch::kCPU);
    return net;
  });
  EXPECT_TRUE(net->weight.is_meta());
}

TEST(InitOnMeta, TwoInARowDrawOneAfterTheOther) {
  torch::manual_seed(1);
  nn::Linear a(20, 20), b(20, 20);
  const Tensor next = torch::rand({3});
  torch::manual_seed(1);
  nn::Linear c = levin::init_on_meta([] { return nn::Linear(20, 20); });
  nn::Linear d = levin::init_on_meta([] { return nn::Linear(20, 20); });
  EXPECT_TRUE(same_bits(torch::rand({3}), next));
  levin::materialize(*d);
  levin::materialize(*c);
  levin::test::expect_same_tensors(*c, *a);
  levin::test::expect_same_tensors(*d, *b);
}

TEST(InitOnMeta, OneWithinAnotherIsTheOuterOne) {
  torch::manual_seed(1);
  nn::Sequential ordinary(nn::Linear(20, 20), nn::Linear(20, 20), nn::Linear(20, 20));
  const Tensor wanted = generator_state();
  torch::manual_seed(1);
  nn::Sequential net = levin::init_on_meta([] {
    nn::Linear first(20, 20);
    nn::Linear second = levin::init_on_meta([] { return nn::Linear(20, 20); });
    return nn::Sequential(first, second, nn::Linear(20, 20));
  });
  EXPECT_TRUE(same_bits(generator_state(), wanted));
  levin::materialize(*net);
  levin::test::expect_same_tensors(*net, *ordinary);
}

TEST(InitOnMeta, GoesOnWithAModuleBuiltBefore) {
  torch::manual_seed(1);
  nn::Linear ordinary(20, 20);
  ordinary->to(torch::kBFloat16);
  torch::nn::init::normal_(ordinary->bias);
  torch::manual_seed(1);
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(20, 20); });
  levin::init_on_meta([&] {
    net->to(torch::kBFloat16);
    torch::nn::init::normal_(net->bias);
  });
  levin::materialize(*net);
  levin::test::expect_same_tensors(*net, *ordinary);
}

TEST(InitOnMeta, WhatAConstructorThrowsComesThrough) {
  torch::manual_seed(1);
  torch::rand({50});
  const Tensor wanted = generator_state();
  torch::manual_seed(1);
  const auto build = [] {
    levin::init_on_meta([] {
      torch::rand({50});
      throw std::runtime_error("no such file");
    });
  };
  EXPECT_THROW(build(), std::runtime_error);
  EXPECT_TRUE(same_bits(generator_state(), wanted));
  EXPECT_FALSE(torch::ones({1}).is_meta());
  EXPECT_THROW(levin::init_on_meta([] { return torch::zeros({2}) + torch::zeros({3}); }),
               c10::Error);
}

// Who looks at values.

struct LooksAt {
  const char* name;
  std::function<void(Tensor)> look;
  const char* text;  // of the message
};

class LooksAtValues : public testing::TestWithParam<LooksAt> {};

TEST_P(LooksAtValues, IsAnErrorThatNamesTensorAndLine) {
  const std::string error =
      error_of([] { levin::init_on_meta([] { constructor_that_looks(GetParam().look); }); });
  EXPECT_THAT(error, AllOf(StartsWith("graph.meta.values: "), HasSubstr("] of "),
                           HasSubstr(", in "), HasSubstr(GetParam().text)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, LooksAtValues,
    testing::Values(
        LooksAt{"Equal", [](Tensor t) { torch::equal(t, torch::zeros({3, 5})); }, "aten::equal"},
        LooksAt{"Nonzero", [](Tensor t) { t.nonzero(); }, "aten::nonzero"},
        LooksAt{"Select", [](Tensor t) { t.masked_select(t > 0); }, "aten::masked_select"},
        LooksAt{"Mask", [](Tensor t) { t.index({t > 0}); }, "aten::index"},
        LooksAt{"SparseInit", [](Tensor t) { nn::init::sparse_(t, 0.3); }, "_local_scalar_dense"},
        LooksAt{"Unique", [](Tensor t) { at::_unique2(t); }, "aten::_unique2"},
        LooksAt{"Pointer", [](Tensor t) { t.data_ptr<float>(); }, "accesses the data"},
        LooksAt{"ConstPointer", [](Tensor t) { t.const_data_ptr(); }, "accesses the data"},
        LooksAt{"Accessor", [](Tensor t) { t.accessor<float, 2>()[0][0] = 1; },
                "accesses the data"},
        LooksAt{"IntoMemory", [](Tensor t) { torch::zeros({3, 5}, torch::kCPU).copy_(t); },
                "aten::copy_"}),
    [](const auto& info) { return info.param.name; });

TEST(InitOnMeta, ANumberReadIsAnErrorThatNamesTensorAndLine) {
  const std::string error = error_of([] {
    levin::init_on_meta([] {
      if (torch::rand({3, 5}).max().item<float>() > 0.5) torch::rand({1});
    });
  });
  EXPECT_THAT(error, AllOf(StartsWith("graph.meta.values: aten::_local_scalar_dense reads"),
                           HasSubstr("[] of Float, in InitOnMeta_ANumberRead")));
  EXPECT_THAT(error_of([] { levin::init_on_meta([] { return torch::rand({1}).is_nonzero(); }); }),
              StartsWith("graph.meta.values: "));
}

TEST(InitOnMeta, AGeneratorMovedByHandIsAnError) {
  EXPECT_THAT(
      error_of([] {
        levin::init_on_meta([] {
          torch::rand({50});
          at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator())->random();
          torch::rand({50});
        });
      }),
      StartsWith("graph.meta.generator: "));
}

// Large ones.

/// The most that this process has had in memory at once.
int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return -1;
}

nn::ModuleList ten_billion() {
  nn::ModuleList layers;
  for (int i = 0; i < 50; ++i) {
    layers->push_back(nn::TransformerEncoderLayer(
        nn::TransformerEncoderLayerOptions(4096, 32).dim_feedforward(4 * 4096)));
  }
  return layers;
}

/// In a process of its own, where nothing has taken memory before.
TEST(InitOnMetaAlone, DISABLED_TenBillion) {
  torch::rand({1});
  const int64_t before = peak_kib();
  const auto model = levin::init_on_meta(ten_billion);
  int64_t count = 0;
  for (const Tensor& parameter : model->parameters()) count += parameter.numel();
  const int64_t more = peak_kib() - before;
  std::printf("%lld parameters in %lld KiB\n", static_cast<long long>(count),
              static_cast<long long>(more));
  ASSERT_GT(before, 0);
  EXPECT_GT(count, 10'000'000'000);
  EXPECT_LT(more, 50 * 1024);  // nothing of 40 GB was filled
}

TEST(InitOnMeta, TenBillionParametersTakeHardlyMemory) {
  const levin::test::Scratch scratch;
  const auto log = scratch / "log";
  const int code = levin::test::run_in_own_process("InitOnMetaAlone.DISABLED_TenBillion", log);
  std::ifstream in(log);
  const std::string words{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(code, 0) << words;
  EXPECT_THAT(words, HasSubstr("parameters in "));
}

/// Rows far into the numbers of a large model: memory for those before them, 800 MB a layer, is never
/// taken, and so they are not drawn.
TEST(InitOnMeta, RowsOfTheLastOfManyTensorsTakeNoDrawsOfOthers) {
  const auto model = levin::init_on_meta(ten_billion);
  const auto last = model->ptr(49);
  const int64_t before = peak_kib();
  levin::materialize(*last, {.rows = [](const std::string&, const Tensor& whole) {
    return levin::RowRange{whole.size(0) - 1, whole.size(0)};
  }});
  EXPECT_LT(peak_kib() - before, 100 * 1024);
  EXPECT_FALSE(levin::is_on_meta(*last));
  EXPECT_NE(last->named_parameters()["linear1.weight"].abs().sum().item<float>(), 0);
}

}  // namespace
