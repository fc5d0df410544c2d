#include <gmock/gmock.h>

#include <numeric>

#include "levin/graph/meta/init_on_meta.h"
#include "tests/graph/allocation_meter.h"
#include "tests/graph/meta/built_modules.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::InitValues;
using levin::MaterializeOptions;
using levin::RowRange;
using levin::test::error_of;
using levin::test::expect_builds_as_ever;
using levin::test::expect_same_tensors;
using levin::test::MakeModule;
using levin::test::NamedTensors;
using levin::test::same_bits;
using levin::test::tensors_by_name;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace nn = torch::nn;

/// Every way in which values come about: by fills of all sizes and types, element by element, by
/// operators that need the whole, by constants.
struct Many : nn::Module {
  Many() {
    const at::NoGradGuard no_grad;
    int count = 0;
    const auto add = [&](const Tensor& tensor) {
      register_parameter("p" + std::to_string(count++), tensor.detach(),
                         tensor.is_floating_point());
    };
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const auto& sizes : std::vector<std::vector<int64_t>>{
               {64}, {5}, {1}, {0, 3}, {3, 2}, {4, 16}, {7, 9}, {13, 5}, {50, 33}, {6, 2, 5}}) {
        add(torch::empty(sizes, dtype).uniform_(-1, 3));
        add(torch::empty(sizes, dtype).normal_(1, 0.5));
        add(torch::randn(sizes, dtype));
        add(torch::rand(sizes, dtype) * 2 - 1);
        add(torch::randn(sizes, dtype).mul_(0.02).add_(torch::rand(sizes, dtype), 0.5));
        add(torch::zeros(sizes, dtype));
        add(torch::full(sizes, 1.5, dtype));
        add(torch::empty(sizes, dtype).fill_(2.5));
      }
    }
    Tensor padded = torch::randn({20, 6});
    padded[3].zero_();
    add(padded);
    Tensor square = torch::empty({9, 9});
    nn::init::orthogonal_(square);
    add(square);
    add(torch::randn({8, 5}).t());
    add(torch::randn({8, 5}).cumsum(0));
    register_buffer("range", torch::arange(30).view({10, 3}));
    register_buffer("real", torch::tensor({1.0, 2.0, 3.0}));
    register_buffer("number", torch::tensor(3));
  }
};

/// The rows of the part of so many, uneven and at times empty.
auto rows_of_part(int64_t part, int64_t parts) {
  return [=](const std::string&, const Tensor& whole) -> std::optional<RowRange> {
    if (whole.dim() == 0) return std::nullopt;
    const auto cut = [&](int64_t i) { return whole.size(0) * i * i / (parts * parts); };
    return RowRange{cut(part), cut(part + 1)};
  };
}

std::shared_ptr<nn::Module> many_on_meta() {
  torch::manual_seed(21);
  torch::randn({3});  // leaves a number that is kept
  return levin::init_on_meta([] { return std::make_shared<Many>(); });
}

/// Each part by itself, put together again.
NamedTensors from_parts(int64_t parts, MaterializeOptions options) {
  std::map<std::string, std::vector<Tensor>> pieces;
  for (int64_t part = 0; part < parts; ++part) {
    const auto module = many_on_meta();
    options.rows = rows_of_part(part, parts);
    levin::materialize(*module, options);
    for (const auto& [name, tensor] : tensors_by_name(*module)) {
      EXPECT_FALSE(tensor.is_meta()) << name;
      EXPECT_TRUE(tensor.dim() == 0 || tensor.is_contiguous()) << name;
      pieces[name].push_back(tensor.detach());
    }
  }
  NamedTensors all;
  for (const auto& [name, list] : pieces) {
    const bool is_whole = list[0].dim() == 0 || name == "b.real";  // it always had memory
    all[name] = is_whole ? list[0] : torch::cat(list);
  }
  return all;
}

void expect_same(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    EXPECT_TRUE(same_bits(got.at(name), tensor))
        << name << ' ' << tensor.sizes() << ' ' << tensor.scalar_type();
  }
}

TEST(Materialize, GivesTheValuesOfOrdinaryConstruction) {
  expect_builds_as_ever([] { return std::make_shared<Many>(); });
  expect_builds_as_ever([] { return std::make_shared<Many>(); }, 8, [] { torch::randn({1}); });
}

TEST(Materialize, RowsAreThoseOfTheWhole) {
  torch::manual_seed(21);
  torch::randn({3});
  const NamedTensors wanted = tensors_by_name(*std::make_shared<Many>());
  for (const int64_t parts : {1, 2, 3, 7}) {
    SCOPED_TRACE(parts);
    expect_same(from_parts(parts, {}), wanted);
  }
}

TEST(Materialize, ByNameIsTheSameForEachDivisionIntoRows) {
  const auto module = many_on_meta();
  levin::materialize(*module, {.values = InitValues::kByName, .seed = 4});
  const NamedTensors wanted = tensors_by_name(*module);
  for (const int64_t parts : {1, 2, 3, 7}) {
    SCOPED_TRACE(parts);
    expect_same(from_parts(parts, {.values = InitValues::kByName, .seed = 4}), wanted);
  }
}

TEST(Materialize, ByNameLeavesWhatIsNotRandomAndDrawsTheRestAnew) {
  torch::manual_seed(21);
  torch::randn({3});
  const NamedTensors ordinary = tensors_by_name(*std::make_shared<Many>());
  const auto module = many_on_meta();
  levin::materialize(*module, {.values = InitValues::kByName});
  const NamedTensors drawn = tensors_by_name(*module);
  for (const char* name : {"p5", "p6", "p7", "b.range", "b.real"}) {
    const std::string key = name[0] == 'p' ? "p." + std::string(name) : name;
    EXPECT_TRUE(same_bits(drawn.at(key), ordinary.at(key))) << name;
  }
  for (const char* name : {"p.p0", "p.p1", "p.p2", "p.p3", "p.p4"}) {
    EXPECT_FALSE(torch::allclose(drawn.at(name), ordinary.at(name))) << name;
  }
  EXPECT_EQ(drawn.at("p.p240")[3].abs().sum().item<float>(), 0);  // the padding
  const Tensor square = drawn.at("p.p241").detach();
  EXPECT_TRUE(torch::allclose(square.mm(square.t()), torch::eye(9), 1e-4, 1e-5));
}

TEST(Materialize, ByNameGoesByTheSeedAndTheWholeName) {
  const auto weights = [](uint64_t seed) {
    torch::manual_seed(3);
    const nn::Sequential net =
        levin::init_on_meta([] { return nn::Sequential(nn::Linear(30, 30), nn::Linear(30, 30)); });
    levin::materialize(*net.ptr(), {.values = InitValues::kByName, .seed = seed});
    return std::pair(net->named_parameters()["0.weight"], net->named_parameters()["1.weight"]);
  };
  const auto [a, b] = weights(1);
  const auto [c, d] = weights(2);
  EXPECT_FALSE(torch::allclose(a, b));
  EXPECT_FALSE(torch::allclose(a, c));
  EXPECT_TRUE(same_bits(a, weights(1).first));
  EXPECT_NEAR(a.std().item<float>(), 1 / std::sqrt(3 * 30.0), 0.01);
}

TEST(Materialize, ByNameHasNoTwoRowsAlikeAndTheRightSpread) {
  nn::Linear net = levin::init_on_meta([] {
    nn::Linear net(64, 3000);
    nn::init::normal_(net->weight, 2, 3);
    return net;
  });
  levin::materialize(*net, {.values = InitValues::kByName, .seed = 1});
  const Tensor weight = net->weight.detach();
  EXPECT_NEAR(weight.mean().item<float>(), 2, 0.05);
  EXPECT_NEAR(weight.std().item<float>(), 3, 0.05);
  EXPECT_EQ(std::get<0>(at::unique_dim(weight, 0)).size(0), 3000);
}

TEST(Materialize, WithoutValuesOnlyMakesMemory) {
  nn::Sequential net =
      levin::init_on_meta([] { return nn::Sequential(nn::Linear(4, 6), nn::BatchNorm1d(6)); });
  levin::materialize(*net, {.values = InitValues::kNone});
  EXPECT_FALSE(levin::is_on_meta(*net));
  const Tensor weight = net->named_parameters()["0.weight"];
  EXPECT_TRUE(weight.requires_grad());
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({6, 4}));
  {
    const at::NoGradGuard no_grad;
    for (Tensor& parameter : net->parameters()) parameter.fill_(1);
  }
  net->named_buffers()["1.running_mean"].zero_();
  net->named_buffers()["1.running_var"].fill_(1);
  net->forward(torch::ones({2, 4})).sum().backward();
  EXPECT_TRUE(weight.grad().defined());

  nn::Linear part = levin::init_on_meta([] { return nn::Linear(4, 6); });
  levin::materialize(*part, {.values = InitValues::kNone, .rows = rows_of_part(1, 2)});
  EXPECT_EQ(part->weight.sizes(), at::IntArrayRef({5, 4}));
  EXPECT_EQ(part->bias.sizes(), at::IntArrayRef({5}));
}

TEST(Materialize, UnitByUnitInAnyOrder) {
  const auto make = [] {
    nn::Sequential net;
    for (int i = 0; i < 4; ++i) net->push_back(nn::TransformerEncoderLayer(8, 2));
    return net;
  };
  torch::manual_seed(6);
  nn::Sequential ordinary = make();
  const Tensor next = torch::rand({2});
  torch::manual_seed(6);
  nn::Sequential net = levin::init_on_meta(make);
  for (const size_t i : {2, 0, 3, 1}) {
    EXPECT_TRUE(levin::is_on_meta(*net->ptr(i)));
    levin::materialize(*net->ptr(i));
    EXPECT_FALSE(levin::is_on_meta(*net->ptr(i)));
    torch::rand({10});  // whatever else draws
    EXPECT_EQ(levin::is_on_meta(*net), i != 1);
  }
  expect_same_tensors(*net, *ordinary);
  levin::materialize(*net);
  expect_same_tensors(*net, *ordinary);
}

TEST(Materialize, UnitsGoByTheirWholeNamesToo) {
  const auto make = [] { return nn::Sequential(nn::Linear(9, 9), nn::Linear(9, 9)); };
  const MaterializeOptions by_name{.values = InitValues::kByName, .seed = 3};
  nn::Sequential whole = levin::init_on_meta(make), units = levin::init_on_meta(make);
  levin::materialize(*whole, by_name);
  levin::materialize(*units->ptr(1), by_name);
  levin::materialize(*units->ptr(0), by_name);
  expect_same_tensors(*units, *whole);
  const auto apart = levin::init_on_meta([&] { return std::vector{make()}; }).front();
  MaterializeOptions with_prefix = by_name;
  with_prefix.prefix = "1.";
  levin::materialize(*apart->ptr(1), with_prefix);
  EXPECT_TRUE(
      same_bits(apart->named_parameters()["1.weight"], whole->named_parameters()["1.weight"]));
}

struct Tied : nn::Module {
  nn::Embedding table{nullptr};
  nn::Linear head{nullptr};
  Tensor flat, first, second, unregistered, of_buffer;
  std::vector<Tensor> handles;

  Tied() {
    table = register_module("table", nn::Embedding(7, 4));
    head = register_module("head", nn::Linear(4, 7));
    head->weight = table->weight;
    head->register_parameter("tied", table->weight);
    const at::NoGradGuard no_grad;
    flat = register_buffer("flat", torch::randn({20}));
    first = register_parameter("first", flat.slice(0, 0, 12).view({3, 4}));
    second = register_parameter("second", flat.slice(0, 12, 20).view({4, 2}).t());
    unregistered = torch::ones({3, 3}).tril();
    of_buffer = flat.slice(0, 2, 4);
    handles = {table->weight, torch::rand({2})};
    register_parameter("scale", torch::rand({1}).expand({5}));
  }
};

TEST(Materialize, TiedWeightsViewsAndHandlesStayWhatTheyWere) {
  expect_builds_as_ever([] { return std::make_shared<Tied>(); });
  torch::manual_seed(2);
  const Tied ordinary;
  torch::manual_seed(2);
  const auto module = levin::init_on_meta([] { return std::make_shared<Tied>(); });
  const at::TensorImpl* leaf = module->table->weight.unsafeGetTensorImpl();
  levin::materialize(*module);
  EXPECT_EQ(module->table->weight.unsafeGetTensorImpl(), leaf);
  EXPECT_TRUE(module->head->weight.is_same(module->table->weight));
  EXPECT_TRUE(module->handles[0].is_same(module->table->weight));
  EXPECT_TRUE(same_bits(module->handles[1], ordinary.handles[1]));
  EXPECT_TRUE(same_bits(module->unregistered, ordinary.unregistered));
  EXPECT_TRUE(module->first.is_alias_of(module->flat));
  EXPECT_TRUE(module->of_buffer.is_alias_of(module->flat));
  EXPECT_EQ(module->second.data_ptr<float>(), module->flat.data_ptr<float>() + 12);
  EXPECT_EQ(module->first.storage().nbytes(), 80);
  module->flat.fill_(3);
  EXPECT_EQ(module->first.sum().item<float>(), 36);
}

TEST(Materialize, WhatNoCheckpointHoldsHasItsValuesWithoutValuesToo) {
  torch::manual_seed(2);
  const Tied ordinary;
  torch::manual_seed(2);
  const auto module = levin::init_on_meta([] { return std::make_shared<Tied>(); });
  levin::materialize(*module, {.values = InitValues::kNone});
  EXPECT_TRUE(same_bits(module->unregistered, ordinary.unregistered));
  EXPECT_TRUE(same_bits(module->handles[1], ordinary.handles[1]));
  EXPECT_TRUE(module->first.is_alias_of(module->flat));
}

TEST(Materialize, WhatWasSetOnAParameterBeforeIsKept) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  net->bias.set_requires_grad(false);
  int calls = 0;
  net->weight.register_hook([&](const Tensor&) { ++calls; });
  const Tensor loss_without_memory = net->forward(torch::ones({1, 3}, torch::kMeta)).sum();
  loss_without_memory.backward();
  levin::materialize(*net);
  EXPECT_FALSE(net->weight.grad().defined());
  calls = 0;
  net->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(same_bits(net->weight.grad(), torch::ones({2, 3})));
  EXPECT_FALSE(net->bias.requires_grad());
}

TEST(Materialize, ANetTrainsAsTheOrdinaryOne) {
  const auto losses = [](nn::LSTM net) {
    torch::manual_seed(12);
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    Tensor all = torch::empty({5});
    for (int i = 0; i < 5; ++i) {
      optimizer.zero_grad();
      const Tensor loss = std::get<0>(net->forward(torch::randn({6, 2, 5}))).pow(2).mean();
      loss.backward();
      optimizer.step();
      all[i] = loss.detach();
    }
    return all;
  };
  const auto make = [] {
    return nn::LSTM(nn::LSTMOptions(5, 4).num_layers(2).bidirectional(true));
  };
  torch::manual_seed(1);
  const nn::LSTM ordinary = make();
  torch::manual_seed(1);
  nn::LSTM net = levin::init_on_meta(make);
  levin::materialize(*net);
  EXPECT_TRUE(same_bits(losses(net), losses(ordinary)));
}

TEST(Materialize, ForwardInInferenceModeIsNoMatter) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  {
    const c10::InferenceMode inference;
    levin::materialize(*net);
  }
  EXPECT_FALSE(net->weight.is_inference());
  net->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_TRUE(net->weight.grad().defined());
}

TEST(Materialize, MemoryIsThatOfOneTensorAtATime) {
  // 64 MiB each.
  nn::ModuleList layers = levin::init_on_meta([] {
    nn::ModuleList layers;
    for (int i = 0; i < 4; ++i)
      layers->push_back(nn::Linear(nn::LinearOptions(4096, 4096).bias(false)));
    return layers;
  });
  constexpr int64_t kMiB = 1 << 20;
  const int64_t peak = levin::test::peak_of([&] { levin::materialize(*layers); });
  EXPECT_GE(peak, 4 * 64 * kMiB);
  EXPECT_LT(peak, 4 * 64 * kMiB + kMiB);
  nn::Linear part = levin::init_on_meta([] { return nn::Linear(4096, 16384); });
  const int64_t of_rows = levin::test::peak_of([&] {
    levin::materialize(*part, {.rows = [](const std::string&, const Tensor& whole) {
      return RowRange{whole.size(0) / 2, whole.size(0) / 2 + 64};
    }});
  });
  EXPECT_LT(of_rows, 2 * kMiB);
  nn::Linear orthogonal = levin::init_on_meta([] {
    nn::Linear net(nn::LinearOptions(128, 8192).bias(false));
    nn::init::orthogonal_(net->weight);
    return net;
  });
  EXPECT_LT(levin::test::peak_of([&] { levin::materialize(*orthogonal); }), 7 * 4 * kMiB);
}

// Errors.

TEST(Materialize, ValuesReadBeforeAreAnError) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  const auto error = [](const std::function<void()>& read) -> std::string {
    try {
      read();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(
      error([&] { net->weight.data_ptr<float>(); }),
      StartsWith("weight [2, 3] of Float was built by levin::init_on_meta and has no values "
                 "yet; call levin::materialize"));
  EXPECT_THAT(error([&] { net->forward(torch::ones({1, 3})).sum().item<float>(); }),
              HasSubstr("meta"));
  EXPECT_THAT(error([&] { net->weight.sum().item<float>(); }), HasSubstr("meta"));
}

TEST(Materialize, TensorsThatInitOnMetaDoesNotKnowAreAnError) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  net->to(torch::kDouble);
  EXPECT_THAT(
      error_of([&] { levin::materialize(*net); }),
      AllOf(StartsWith("graph.meta.lost: weight [2, 3]"), HasSubstr("within init_on_meta")));
  nn::Linear other(nn::Linear(3, 2));
  other->register_buffer("foreign", torch::ones({2}, torch::kMeta));
  EXPECT_THAT(error_of([&] { levin::materialize(*other); }), HasSubstr("foreign"));
}

TEST(Materialize, RowsOutsideOrOfSharedMemoryAreAnErrorAndNothingIsChanged) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  for (const RowRange rows : {RowRange{0, 3}, RowRange{-1, 1}, RowRange{2, 1}}) {
    const auto give = [&](const std::string&, const Tensor&) { return rows; };
    EXPECT_THAT(error_of([&] { levin::materialize(*net, {.rows = give}); }),
                AllOf(StartsWith("graph.meta.rows: got rows ["), HasSubstr("weight [2, 3]")));
  }
  EXPECT_TRUE(levin::is_on_meta(*net));
  const auto tied = levin::init_on_meta([] { return std::make_shared<Tied>(); });
  levin::materialize(*tied->table,
                     {.rows = [](const std::string&, const Tensor&) { return RowRange{1, 3}; }});
  EXPECT_EQ(tied->head->weight.size(0), 2);
  EXPECT_THAT(error_of([&] {
                levin::materialize(*tied, {.rows = [](const std::string&, const Tensor& whole) {
                  return RowRange{0, whole.size(0) / 2};
                }});
              }),
              AllOf(StartsWith("graph.meta.rows: "), HasSubstr("shares its memory")));
  EXPECT_TRUE(tied->flat.is_meta());
  levin::materialize(*tied);
  EXPECT_FALSE(levin::is_on_meta(*tied));
  EXPECT_EQ(tied->head->weight.size(0), 2);
}

TEST(Materialize, TheDeviceMetaIsAnError) {
  nn::Linear net = levin::init_on_meta([] { return nn::Linear(3, 2); });
  EXPECT_THAT(error_of([&] { levin::materialize(*net, {.device = at::kMeta}); }),
              StartsWith("graph.meta.device: "));
}

}  // namespace
