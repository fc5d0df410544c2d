// The collectives of a forecast against those that strategies call: number and bytes, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "levin/base/autocast.h"
#include "levin/module/wrap.h"
#include "tests/strategy/forecast/recorded.h"
#include "tests/support/world.h"

namespace levin::test::forecast_bytes {
namespace {

using table::Case;
using Totals = std::map<std::string, std::pair<int64_t, int64_t>>;  // calls and bytes, by name

Totals totals_of(const comm::ProcessGroup& group) {
  Totals totals;
  for (const comm::CollectiveTotal& total : group.totals()) {
    totals[total.name] = {total.calls, total.bytes};
  }
  return totals;
}

std::string to_text(const Totals& totals) {
  std::string text;
  for (const auto& [name, total] : totals) {
    if (total.first > 0)
      text += fmt::format("{}: {} of {} bytes; ", name, total.first, total.second);
  }
  return text;
}

/// Returns the collectives of a step once uses and orders are learnt.
Totals counted(const Case& c, const comm::ProcessGroup& group) {
  constexpr int64_t kLearns = 12;
  table::Setup setup(c, group);
  for (int64_t step = 0; step < kLearns; ++step) setup.step(c, step);
  const Totals before = totals_of(group);
  setup.step(c, kLearns);
  Totals after = totals_of(group);
  for (const auto& [name, total] : before) {
    after[name].first -= total.first;
    after[name].second -= total.second;
  }
  return after;
}

Totals planned(const Case& c, int64_t ranks) {
  const RecordedCase recorded = recorded_case(c, ranks);
  forecast::Cluster cluster = forecast::read_cluster("cpu");
  cluster.inside.backend = c.backend;
  const forecast::Mesh mesh =
      c.fsdp.mesh.empty() ? forecast::Mesh{.replicate = ranks} : forecast::mesh_of(c.fsdp.mesh);
  forecast::Setting setting = forecast::setting_of(c.strategy, mesh);
  setting.zero_stage = c.fsdp.zero_stage;
  Totals totals;
  for (const auto& each :
       forecast::forecast_of(recorded.step, recorded.description, setting, cluster).collectives) {
    ++totals[each.name].first;
    totals[each.name].second += each.bytes;
  }
  return totals;
}

Task gpt_in_bfloat16() {
  Task task = gpt();
  task.loss = [loss = task.loss](const at::Tensor& inputs) {
    const AutocastScope autocast(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    return loss(inputs);
  };
  return task;
}

class ForecastBytes : public ::testing::TestWithParam<Case> {};

TEST_P(ForecastBytes, AreThoseThatTheStrategySends) {
  const Case& c = GetParam();
  for (const int64_t ranks : c.sizes) {
    const Totals totals = planned(c, ranks);
    const std::string wanted = to_text(totals);
    const auto words = run_world(ranks, [&](int64_t, const auto&) {
      const comm::ProcessGroup group = connect(c.backend);
      return to_text(counted(c, group));
    });
    if (c.fsdp.mesh.empty()) {
      EXPECT_THAT(words, ::testing::Each(wanted));
      continue;
    }
    // Replicas reduce the rows of a rank, which may be more than another's: it is of the rank that has most.
    Totals same = totals;
    same.erase("all_reduce");
    EXPECT_THAT(words, ::testing::Contains(wanted).Times(2));
    EXPECT_THAT(words, ::testing::Each(::testing::EndsWith(to_text({*same.rbegin()}))));
    EXPECT_THAT(words, ::testing::Each(::testing::HasSubstr(
                           fmt::format("all_reduce: {} of ", totals.at("all_reduce").first))));
  }
}

void wrap_blocks(torch::nn::Module& module) {
  for (const auto& each : module.named_modules()) {
    const std::string& name = each.key();
    const size_t at = name.rfind("h.");
    if (at != std::string::npos && name.find('.', at + 2) == std::string::npos) wrap(each.value());
  }
}

/// More blocks than are gathered at a time.
Task deep_gpt() {
  models::GPT2 net(models::GPT2Config{.vocab_size = 17,
                                      .n_positions = 8,
                                      .n_embd = 16,
                                      .n_layer = 7,
                                      .n_head = 2,
                                      .resid_pdrop = 0,
                                      .embd_pdrop = 0,
                                      .attn_pdrop = 0});
  Task task = gpt();
  task.module = net.ptr();
  task.loss = [net](const at::Tensor& tokens) mutable {
    const at::Tensor logits = net->forward(tokens);
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.flatten());
  };
  return task;
}

void wrap_blocks_with_options(torch::nn::Module& module) {
  wrap_blocks(module);
  for (const auto& each : module.named_modules()) {
    if (each.key().ends_with("h.1")) wrap(each.value(), {.reshard_after_forward = true});
    if (each.key().ends_with("h.2")) wrap(each.value(), {.reshard_after_forward = false});
    if (each.key().ends_with("h.3")) wrap(each.value(), {.reduce_dtype = at::kDouble});
    if (each.key().ends_with("h.4")) wrap(each.value(), {.reduce_dtype = at::kBFloat16});
  }
}

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const char* backend : {"shm", "gloo"}) {
    const std::string of = std::string("_") + backend;
    for (const auto& [name, task, wrap] :
         std::vector<std::tuple<std::string, Task (*)(), void (*)(torch::nn::Module&)>>{
             {"mlp", &mlp, &wrap_all},
             {"gpt", &gpt, &wrap_blocks},
             {"gpt_bf16", &gpt_in_bfloat16, &wrap_blocks}}) {
      cases.push_back({.name = "ddp_" + name + of,
                       .strategy = "ddp",
                       .backend = backend,
                       .task = task,
                       .ddp = {.bucket_cap_mb = 0.01, .first_bucket_mb = 0.002},
                       .sizes = {2, 3}});
      cases.push_back({.name = "fsdp_" + name + of,
                       .strategy = "fsdp",
                       .backend = backend,
                       .task = task,
                       .wrap = wrap,
                       .sizes = {2, 3}});
      cases.push_back({.name = "hsdp_" + name + of,
                       .strategy = "fsdp",
                       .backend = backend,
                       .task = task,
                       .fsdp = {.mesh = "replicate=2,fsdp=2"},
                       .wrap = wrap,
                       .sizes = {4}});
      for (const int64_t stage : {1, 2, 3}) {
        cases.push_back({.name = "zero" + std::to_string(stage) + "_" + name + of,
                         .strategy = "zero",
                         .backend = backend,
                         .task = task,
                         .fsdp = {.zero_stage = stage},
                         .wrap = wrap,
                         .sizes = {2}});
      }
    }
    cases.push_back({.name = "fsdp_ignored" + of,
                     .strategy = "fsdp",
                     .backend = backend,
                     .task = gpt,
                     .accumulate = 2,
                     .fsdp = {.ignored_params = "*.bias,transformer.wte.*"},
                     .wrap = wrap_blocks,
                     .sizes = {2, 3}});
    cases.push_back({.name = "fsdp_unwrapped" + of,
                     .strategy = "fsdp",
                     .backend = backend,
                     .task = gpt,
                     .fsdp = {.unit_mb = 0.005},
                     .sizes = {2}});
    for (const char* strategy : {"ddp", "fsdp"}) {
      cases.push_back({.name = std::string(strategy) + "_accumulated" + of,
                       .strategy = strategy,
                       .backend = backend,
                       .task = mlp,
                       .accumulate = 3,
                       .wrap = wrap_all,
                       .sizes = {2}});
    }
    cases.push_back({.name = "fsdp_kept" + of,
                     .strategy = "fsdp",
                     .backend = backend,
                     .task = gpt,
                     .fsdp = {.gathered_mb = -1},
                     .wrap = wrap_blocks,
                     .sizes = {2}});
    for (const auto& [name, value] : std::vector<std::pair<std::string, ReshardAfterForward>>{
             {"freed", true}, {"not_freed", false}, {"near", 2}}) {
      cases.push_back({.name = "fsdp_" + name + of,
                       .strategy = "fsdp",
                       .backend = backend,
                       .task = deep_gpt,
                       .fsdp = {.reshard_after_forward = value},
                       .wrap = wrap_blocks,
                       .sizes = {4}});
    }
    cases.push_back({.name = "fsdp_options_of_units" + of,
                     .strategy = "fsdp",
                     .backend = backend,
                     .task = deep_gpt,
                     .fsdp = {.reshard_after_forward = 2},
                     .wrap = wrap_blocks_with_options,
                     .sizes = {4}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Strategies, ForecastBytes, ::testing::ValuesIn(cases()), table::name_of);

}  // namespace
}  // namespace levin::test::forecast_bytes
