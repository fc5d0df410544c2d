// What was compiled and why, and where the time went.
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

constexpr int64_t kManyInARow = 8;
constexpr int64_t kFewRuns = 4;

std::vector<std::string> inputs_of(const Program& program) {
  std::vector<std::string> inputs;
  for (const graph::Node* node : program.inputs) {
    const graph::ValueType& type = node->output().type();
    inputs.push_back(fmt::format("{} {}", node->name(), type_text(type.dtype, type.sizes)));
  }
  return inputs;
}

std::string difference(const std::vector<std::string>& before, const std::vector<std::string>& now,
                       int64_t operators_before, int64_t operators) {
  if (operators_before < 0) return "the first program";
  if (before.size() == now.size()) {
    for (size_t i = 0; i < now.size(); ++i) {
      if (before[i] != now[i]) return fmt::format("takes {}, took {}", now[i], before[i]);
    }
  }
  if (operators_before != operators) {
    return fmt::format("other code: {} operators, were {}", operators, operators_before);
  }
  if (before.size() != now.size()) {
    return fmt::format("{} tensors go in, were {}", now.size(), before.size());
  }
  return "an operator, or a number that it is made for, is another";
}

}  // namespace

void Runtime::Impl::note_compilation(const Program& program, double seconds, bool from_disk) {
  std::vector<std::string> inputs = inputs_of(program);
  const std::string reason = difference(last_inputs, inputs, last_operators, program.num_operators);
  (from_disk ? report.disk_cache_hits : report.compilations) += 1;
  if (!from_disk) report.compile_s += seconds;
  report.programs.push_back({reason, program.num_operators, seconds, from_disk});
  last_inputs = std::move(inputs);
  last_operators = program.num_operators;
  num_in_a_row = report.executions - compiled_at <= kFewRuns ? num_in_a_row + 1 : 1;
  compiled_at = report.executions;
  if (num_in_a_row % kManyInARow == 0) {
    log::warn(
        "xla: {} programs were compiled within {} runs, {:.1f} s in all; the last {}. Keep "
        "shapes and numbers the same from step to step, or pad batches to a few sizes",
        num_in_a_row, num_in_a_row * kFewRuns, report.compile_s, reason);
  }
}

std::string metrics_report() {
  const std::shared_ptr<Runtime> runtime = Runtime::current();
  if (runtime == nullptr) return "";
  const RuntimeReport report = runtime->report();
  std::string text = fmt::format(
      "compiled {} programs in {:.2f} s, took {} from disk, ran them {} times ({:.2f} s to start)\n"
      "{} transfers to the devices, {} back, {:.2f} s\n"
      "{} operators computed by the host\n",
      report.compilations, report.compile_s, report.disk_cache_hits, report.executions,
      report.execute_s, report.uploads, report.downloads, report.transfer_s, report.host_fallbacks);
  for (const Compilation& program : report.programs) {
    text += fmt::format("  {:6.2f} s {}: {} operators; {}\n", program.seconds,
                        program.from_disk ? "from disk" : "compiled ", program.num_operators,
                        program.reason);
  }
  return text;
}

}  // namespace levin::xla
