// What a function does beside its operators ("graph.record.host_write", "graph.record.generator"):
// it writes memory, keeps tensors, seeds generators, returns what is not its own. A replay does the
// same, or says why it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/graph/compile/compiled.h"

namespace compiled_host {

using levin::graph::Compiled;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Results = std::vector<at::Tensor>;

/// A refusal with this text, of a line of the test that runs.
auto here(const std::string& text) {
  const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  return AllOf(HasSubstr(text), HasSubstr(" in compiled_host::CompiledHost_" + test));
}

at::Tensor input_of(int64_t call) { return torch::arange(12.0).reshape({4, 3}) + call; }

/// The function's results under the Compiled and by themselves, from equal states.
using Function = std::function<Results(const at::Tensor& x, int64_t call)>;
void expect_same(Compiled& compiled, const Function& function, const Function& alone,
                 int64_t calls = 14) {
  for (int64_t call = 0; call < calls; ++call) {
    const at::Tensor x = input_of(call), y = input_of(call);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return function(x, call); });
    const Results wanted = alone(y, call);
    ASSERT_EQ(results.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(torch::equal(results[i], wanted[i])) << "call " << call << ", result " << i;
    }
    EXPECT_TRUE(torch::equal(x, y)) << "call " << call;
  }
}

at::Tensor filled_by_the_host(at::Tensor mask) {
  auto places = mask.accessor<float, 1>();
  for (int64_t i = 0; i < mask.size(0); i += 2) places[i] = 1.0F;
  return mask;
}

/// As a GPU's: its state is a seed and how far it has drawn.
struct CountingGenerator final : c10::GeneratorImpl {
  CountingGenerator()
      : GeneratorImpl(at::Device(at::kCUDA, 0), c10::DispatchKeySet(c10::DispatchKey::CPU)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }
  at::DeviceType device_type() { return at::kCUDA; }

 private:
  GeneratorImpl* clone_impl() const override { return new CountingGenerator(*this); }
  CountingGenerator(const CountingGenerator& other)
      : GeneratorImpl(other.device(), other.key_set()),
        seed_(other.seed_),
        offset_(other.offset_) {}

  uint64_t seed_ = 1;
  uint64_t offset_ = 0;
};

at::Tensor plus_draw(const at::Tensor& x, std::optional<at::Generator> generator) {
  generator->set_offset(generator->get_offset() + 4);
  return x + static_cast<double>(generator->current_seed() + generator->get_offset());
}
TORCH_LIBRARY(levin_test_host, library) {
  library.def("plus_draw(Tensor x, Generator? generator) -> Tensor");
  library.impl("plus_draw", torch::dispatch(c10::DispatchKey::CPU, &plus_draw));
}
at::Tensor call_plus_draw(const at::Tensor& x, const at::Generator& generator) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("levin_test_host::plus_draw", "")
      .typed<at::Tensor(const at::Tensor&, std::optional<at::Generator>)>()
      .call(x, generator);
}

// What is in the parts that are not yet written is another thing in each call, and nobody reads it.
TEST(CompiledHost, NewMemoryOfADeviceMayBeFilledPartByPart) {
  Compiled compiled("it");
  for (int64_t call = 0; call < 14; ++call) {
    const at::Tensor x = torch::empty({2}, at::kMeta);
    compiled({.inputs = {x}, .names = {"x"}}, [&] {
      const at::Tensor whole = torch::empty({4}, at::kMeta);
      whole.narrow(0, 0, 2).copy_(x);
      whole.narrow(0, 2, 2).copy_(x * 2);
      return Results{whole + 1};
    });
  }
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GT(compiled.report().replayed, 0);
}

// Recomputed dropout, for one, sets it back, and a replay would draw other numbers then.
TEST(CompiledHost, AGeneratorOfAGpuThatTheHostSetsBackIsNamed) {
  for (const bool sets_back : {false, true}) {
    auto one = at::make_generator<CountingGenerator>();
    auto two = at::make_generator<CountingGenerator>();
    const auto function = [=](at::Generator& generator) -> Function {
      return [&generator, sets_back](const at::Tensor& x, int64_t) {
        const uint64_t before = generator.get_offset();
        const at::Tensor first = call_plus_draw(x, generator);
        if (sets_back) generator.set_offset(before);
        return Results{first, call_plus_draw(x, generator)};
      };
    };
    Compiled compiled("it");
    expect_same(compiled, function(one), function(two));
    if (sets_back) {
      EXPECT_THAT(compiled.report().refusals.at(0), HasSubstr("seeds a random generator"));
    } else {
      EXPECT_THAT(compiled.report().refusals, IsEmpty());
      EXPECT_GT(compiled.report().replayed, 0);
    }
  }
}

TEST(CompiledHost, AMaskFilledByAnAccessorIsAConstant) {
  Compiled compiled("it");
  for (const auto& make : std::vector<std::function<at::Tensor()>>{
           [] { return torch::zeros({3}); }, [] { return torch::full({3}, 2.0); },
           [] { return torch::zeros({300}).clone().narrow(0, 0, 3).contiguous(); },
           [] { return torch::empty({3}).zero_(); }}) {
    Compiled compiled("it");
    const Function function = [&](const at::Tensor& x, int64_t) {
      return Results{x * filled_by_the_host(make())};
    };
    expect_same(compiled, function, function);
    EXPECT_THAT(compiled.report().refusals, IsEmpty());
    EXPECT_GT(compiled.report().replayed, 0);
  }
}

TEST(CompiledHost, OneByteOfALargeMaskIsSeen) {
  Compiled compiled("it");
  const Function function = [](const at::Tensor&, int64_t call) {
    const at::Tensor mask = torch::zeros({100, 1000});
    mask.data_ptr<float>()[54321 + call] = 1.0F;
    return Results{mask.argmax()};
  };
  expect_same(compiled, function, function);
  EXPECT_THAT(compiled.report().refusals.at(0), here("the host wrote other numbers"));
}

TEST(CompiledHost, AResultThatTheHostChangesIsNamed) {
  Compiled compiled("it");
  const Function function = [](const at::Tensor& x, int64_t) {
    const at::Tensor y = x * 2;
    std::memset(y.data_ptr(), 0, 8);
    return Results{y + 1};
  };
  expect_same(compiled, function, function);
  EXPECT_THAT(compiled.report().refusals.at(0),
              here("the host writes directly into a tensor [4, 3]"));
}

TEST(CompiledHost, StateThatTheHostChangesIsNamed) {
  for (const bool at_the_end : {false, true}) {
    Compiled compiled("it");
    at::Tensor counts = torch::zeros({3}), others = torch::zeros({3});
    const auto function = [at_the_end](const at::Tensor& counts) -> Function {
      return [=](const at::Tensor& x, int64_t) {
        at::Tensor y = x + counts;
        counts.data_ptr<float>()[1] += 1.0F;
        if (!at_the_end) y = y * counts;
        return Results{y};
      };
    };
    expect_same(compiled, function(counts), function(others));
    EXPECT_THAT(compiled.report().refusals.at(0),
                HasSubstr("the host writes directly into a tensor"));
  }
}

TEST(CompiledHost, ATensorThatAMemberKeepsGetsEachCallsValue) {
  Compiled compiled("it");
  at::Tensor member, other;
  const auto function = [](at::Tensor& kept) -> Function {
    return [&kept](const at::Tensor& x, int64_t) {
      const at::Tensor y = x.sum();
      kept = y.detach() * 3;
      return Results{y};
    };
  };
  for (int64_t call = 0; call < 14; ++call) {
    const at::Tensor x = input_of(call);
    compiled({.inputs = {x}, .names = {"x"}}, [&] { return function(member)(x, call); });
    function(other)(x, call);
    EXPECT_TRUE(torch::equal(member, other)) << call;
  }
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GT(compiled.report().replayed, 5);
}

TEST(CompiledHost, AMemberThatKeepsTheResultItselfIsNotTheCallers) {
  Compiled compiled("it");
  at::Tensor member;
  Results losses;
  for (int64_t call = 0; call < 14; ++call) {
    const at::Tensor x = input_of(call);
    losses.push_back(compiled({.inputs = {x}, .names = {"x"}}, [&] {
                       member = x.sum();
                       return Results{member};
                     }).at(0));
    EXPECT_TRUE(torch::equal(member, x.sum())) << call;
  }
  for (int64_t call = 0; call < 14; ++call) {
    EXPECT_TRUE(torch::equal(losses[call], input_of(call).sum())) << call;
  }
  EXPECT_GT(compiled.report().replayed, 5);
}

TEST(CompiledHost, AListThatGrowsIsNamed) {
  Compiled compiled("it");
  Results list, other;
  const auto function = [](Results& list) -> Function {
    return [&list](const at::Tensor& x, int64_t) {
      list.push_back(x.sum() * 2);
      return Results{x + 1};
    };
  };
  expect_same(compiled, function(list), function(other));
  EXPECT_THAT(compiled.report().refusals.at(0), here("keeps a tensor of each call"));
  ASSERT_EQ(list.size(), other.size());
  for (size_t i = 0; i < list.size(); ++i) EXPECT_TRUE(torch::equal(list[i], other[i])) << i;
}

TEST(CompiledHost, AGeneratorThatIsSeededInsideIsNamed) {
  Compiled compiled("it");
  const Function function = [](const at::Tensor& x, int64_t) {
    torch::manual_seed(5);
    return Results{x + torch::rand({3})};
  };
  expect_same(compiled, function, function);
  EXPECT_THAT(compiled.report().refusals.at(0), here("seeds a random generator"));
}

TEST(CompiledHost, AGeneratorOfOnesOwn) {
  const auto expect = [](bool seeds, bool is_new, const char* reason) {
    Compiled compiled("it");
    const auto function = [=](at::Generator& generator) -> Function {
      return [&generator, seeds, is_new](const at::Tensor& x, int64_t) {
        if (is_new) generator = at::make_generator<at::CPUGeneratorImpl>(7);
        if (seeds) generator.set_current_seed(9);
        return Results{x + torch::rand({3}, generator)};
      };
    };
    auto one = at::make_generator<at::CPUGeneratorImpl>(3);
    auto two = at::make_generator<at::CPUGeneratorImpl>(3);
    expect_same(compiled, function(one), function(two));
    if (*reason == '\0') {
      EXPECT_THAT(compiled.report().refusals, IsEmpty());
      EXPECT_GT(compiled.report().replayed, 5);
    } else {
      EXPECT_THAT(compiled.report().refusals.at(0), here(reason));
    }
  };
  expect(false, false, "");
  expect(true, false, "seeds a random generator");
  expect(false, true, "another random generator");
}

TEST(CompiledHost, InputsGetTheirGradients) {
  Compiled compiled("it");
  for (int64_t call = 0; call < 14; ++call) {
    at::Tensor x = input_of(call).requires_grad_(true);
    compiled({.inputs = {x}, .names = {"x"}}, [&] {
      (x * x).sum().backward();
      return Results{};
    });
    ASSERT_TRUE(x.grad().defined()) << call;
    EXPECT_TRUE(torch::equal(x.grad(), 2 * x.detach())) << call;
  }
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GT(compiled.report().replayed, 5);
}

TEST(CompiledHost, AnInputThatItKeepsIsNamed) {  // "graph.record.kept_input"
  for (const auto& part : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& x) { return x; }, [](const at::Tensor& x) { return x.t(); },
           [](const at::Tensor& x) { return x.detach(); }}) {
    Compiled compiled("it");
    at::Tensor kept;
    for (int64_t call = 0; call < 8; ++call) {
      const at::Tensor x = input_of(call);
      compiled({.inputs = {x}, .names = {"x"}}, [&] {
        kept = part(x);
        return Results{x * 2};
      });
      EXPECT_TRUE(torch::equal(kept, part(x))) << call;
    }
    ASSERT_FALSE(compiled.report().refusals.empty());
    EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("it keeps its input x"));
  }
}

TEST(CompiledHost, WatchedStateThatTheHostWritesIsNamed) {
  for (const bool is_read : {false, true}) {
    const at::Tensor count = torch::zeros({3});
    Compiled compiled("it", {.watched = [&] { return Results{count}; }});
    for (int64_t call = 0; call < 8; ++call) {
      const at::Tensor x = input_of(call);
      const Results results = compiled({.inputs = {x}, .names = {"x"}}, [&] {
        count.data_ptr<float>()[0] += 1;
        return Results{is_read ? x + count : x + 1};
      });
      EXPECT_EQ(count[0].item<int64_t>(), call + 1);
    }
    ASSERT_FALSE(compiled.report().refusals.empty());
    EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("into a parameter or buffer [3]"));
  }
}

TEST(CompiledHost, ResultsThatAreInputsOrWeightsStayThat) {
  Compiled compiled("it");
  const at::Tensor weight = torch::ones({3, 2});
  for (int64_t call = 0; call < 14; ++call) {
    const at::Tensor x = input_of(call);
    const Results results = compiled({.inputs = {x}, .names = {"x"}}, [&] {
      weight.add_(1);
      return Results{x, x.t(), weight.select(0, 1), weight};
    });
    EXPECT_TRUE(results[0].is_same(x));
    EXPECT_TRUE(results[1].is_alias_of(x) && torch::equal(results[1], x.t()));
    EXPECT_TRUE(results[2].is_alias_of(weight) && torch::equal(results[2], weight[1])) << call;
    EXPECT_TRUE(results[3].is_alias_of(weight));
  }
  EXPECT_TRUE(torch::equal(weight, torch::full({3, 2}, 15.0)));
  EXPECT_GT(compiled.report().replayed, 5);
}

TEST(CompiledHost, ResultsThroughWhichBackwardGoesLaterAreNamed) {
  Compiled compiled("it");
  const at::Tensor weight = torch::ones({3}, torch::requires_grad());
  for (int64_t call = 0; call < 6; ++call) {
    weight.mutable_grad().reset();
    const at::Tensor x = input_of(call);
    compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{(x * weight).sum()}; })
        .at(0)
        .backward();
    EXPECT_TRUE(torch::equal(weight.grad(), x.sum(0))) << call;
  }
  EXPECT_THAT(compiled.report().refusals.at(0), HasSubstr("backward() runs through its results"));
}

}  // namespace compiled_host
