#include "levin/accelerator/processes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "levin/accelerator/engine/device.h"
#include "levin/accelerator/engine/host_memory.h"
#include "levin/accelerator/preparation.h"
#include "levin/accelerator/stepping/out_of_memory.h"
#include "levin/base/check.h"
#include "levin/base/log.h"

namespace levin {

struct Processes::Shared {
  detail::Preparation preparation;
  bool triggered = false;
  bool has_split = false;
};

Processes::Processes(RankInfo rank, comm::ProcessGroup world, double prepare_timeout_s)
    : rank_(rank),
      world_(std::move(world)),
      shared_(std::make_shared<Shared>(detail::Preparation(world_, prepare_timeout_s))) {}

bool Processes::has_split() const { return shared_->has_split; }
void Processes::set_trigger() { shared_->triggered = true; }

void Processes::on_main_process(const Body& body) const { on_process(0, body); }
void Processes::on_local_main_process(const Body& body) const { on_local_process(0, body); }
void Processes::on_last_process(const Body& body) const { on_process(rank_.world_size - 1, body); }

void Processes::on_process(int64_t process_index, const Body& body) const {
  LEVIN_CHECK(process_index >= 0 && process_index < rank_.world_size, "accelerator.process",
              "got process {}, wanted 0 to {}", process_index, rank_.world_size - 1);
  if (rank_.rank == process_index) body();
}

void Processes::on_local_process(int64_t local_process_index, const Body& body) const {
  LEVIN_CHECK(local_process_index >= 0 && local_process_index < rank_.local_world_size,
              "accelerator.process", "got process {} of this machine, wanted 0 to {}",
              local_process_index, rank_.local_world_size - 1);
  if (rank_.local_rank == local_process_index) body();
}

void Processes::main_process_first(const Body& body) {
  shared_->preparation.run(is_main_process(), body);
  if (!is_main_process()) body();
}

void Processes::local_main_process_first(const Body& body) {
  prepare_on_local_main(body);
  if (!is_local_main_process()) body();
}

void Processes::prepare_on_local_main(const Body& body) {
  shared_->preparation.run(is_local_main_process(), body);
}

void Processes::print(std::string_view line) const {
  if (!is_local_main_process()) return;
  const std::string text = std::string(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

namespace {

/// Between processes tensors go by way of the host, but for what a program exchanges by itself.
at::Tensor on_carrier(const at::Tensor& value) { return value.is_xla() ? value.cpu() : value; }

}  // namespace

at::Tensor Processes::reduce(const at::Tensor& value, ReduceOp op, double scale) {
  if (rank_.world_size == 1) return scale == 1.0 ? value : value * scale;
  at::Tensor reduced = on_carrier(value.detach()).clone();
  world_.all_reduce(reduced, op);
  if (scale != 1.0) reduced = reduced * scale;
  return reduced.to(value.device());
}

at::Tensor Processes::gather(const at::Tensor& value) {
  if (rank_.world_size == 1) return value;
  std::vector<int64_t> sizes = value.sizes().vec();
  if (sizes.empty()) sizes.push_back(1);
  sizes.front() *= rank_.world_size;
  const at::Tensor own = on_carrier(value).contiguous();
  at::Tensor all = at::empty(sizes, own.options());
  world_.all_gather(all, own);
  return all.to(value.device());
}

at::Tensor Processes::pad_across_processes(const at::Tensor& value, int64_t dim, double pad_value,
                                           bool pad_first) {
  LEVIN_CHECK(dim >= -value.dim() && dim < value.dim(), "accelerator.pad",
              "got dim {} for a tensor with {} dims, wanted an existing dim", dim, value.dim());
  if (dim < 0) dim += value.dim();
  if (rank_.world_size == 1) return value;
  const int64_t own = value.size(dim);
  const int64_t most = gather(at::full({1}, own, at::kLong)).max().item<int64_t>();
  if (own == most) return value;
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes[static_cast<size_t>(dim)] = most;
  at::Tensor padded = at::full(sizes, pad_value, value.options());
  padded.narrow(dim, pad_first ? most - own : 0, own).copy_(value);
  return padded;
}

std::vector<int64_t> Processes::own_part(int64_t count, bool apply_padding) const {
  shared_->has_split = true;
  const int64_t each = count / rank_.world_size, more = count % rank_.world_size;
  const int64_t begin = rank_.rank * each + std::min(rank_.rank, more);
  const int64_t own = each + (rank_.rank < more ? 1 : 0);
  std::vector<int64_t> items;
  for (int64_t i = 0; i < own; ++i) items.push_back(begin + i);
  const bool is_short = more > 0 && rank_.rank >= more;
  if (apply_padding && is_short) items.push_back(own > 0 ? items.back() : count - 1);
  return items;
}

at::Tensor Processes::split_between_processes(const at::Tensor& value, bool apply_padding) const {
  LEVIN_CHECK(value.dim() > 0, "accelerator.split", "got a scalar, wanted a tensor with rows");
  return value.index_select(0,
                            at::tensor(own_part(value.size(0), apply_padding)).to(value.device()));
}

bool Processes::check_trigger() { return any(std::exchange(shared_->triggered, false)); }

bool Processes::from_main(bool flag) { return world_.any(flag && is_main_process()); }

double Processes::from_main(double value) {
  const at::Tensor word = at::full({1}, value, at::kDouble);
  world_.broadcast(word, 0);
  return word.item<double>();
}

void Processes::all_or_throw(const Body& body) {
  if (num_processes() == 1) return body();
  State outcome;
  const auto failed = [&](const Error& error) {
    outcome.set("id", error.id()).set("text", error.text());
  };
  try {
    body();
  } catch (const Error& error) {
    failed(error);
  } catch (const std::exception& error) {
    const auto named = Error("accelerator.process_failed", error.what());
    failed(named);
  } catch (...) {
    const auto named =
        Error("accelerator.process_failed", "it threw an exception that is not a std::exception");
    failed(named);
  }
  const std::vector<State> outcomes = gather_object(outcome);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].empty()) continue;
    throw Error(outcomes[i].text("id"), fmt::format("on rank {}: {}", i, outcomes[i].text("text")));
  }
}

MultiProcessLogger::MultiProcessLogger(Processes processes, std::string name,
                                       std::optional<log::Level> level)
    : processes_(std::move(processes)), name_(std::move(name)), level_(level) {}

void MultiProcessLogger::log(log::Level level, std::string_view message,
                             const LogMessageOptions& options) {
  if (level < level_.value_or(log::threshold())) return;
  const auto write = [&] { log::write(level, fmt::format("{}: {}", name_, message)); };
  if (options.in_order) {
    for (int64_t turn = 0; turn < processes_.num_processes(); ++turn) {
      if (turn == processes_.process_index()) write();
      processes_.wait_for_everyone();
    }
  } else if (processes_.is_main_process() || !options.main_process_only) {
    write();
  }
}

void MultiProcessLogger::warning_once(std::string_view message, const LogMessageOptions& options) {
  if (warned_.emplace(message).second) warning(message, options);
}

MultiProcessLogger get_logger(const Processes& processes, std::string name,
                              std::optional<log::Level> log_level) {
  return {processes, std::move(name), log_level};
}

namespace detail {
namespace {

void free_caches() {
  return_freed_memory();
  if (num_gpus() > 0) at::getDeviceAllocator(at::kCUDA)->emptyCache();
}

}  // namespace

void begin_batch_size_search(int64_t starting_batch_size) {
  const int64_t ranks = rank_from_environment().world_size;
  LEVIN_CHECK(
      ranks == 1, "accelerator.executable_batch_size",
      "got find_executable_batch_size in a run of {} processes, where one that runs out of "
      "memory would leave the others waiting; use levin::Tuner's scale_batch_size (ddp), or "
      "search with one process",
      ranks);
  LEVIN_CHECK(starting_batch_size >= 1, "accelerator.executable_batch_size",
              "got a starting batch size of {}, wanted at least 1", starting_batch_size);
  free_caches();
}

std::optional<int64_t> reduced_batch_size(const std::exception& error, int64_t batch_size,
                                          const ReduceBatchSize& reduce) {
  if (!is_out_of_memory(error)) return std::nullopt;
  free_caches();
  const int64_t next =
      reduce ? reduce(batch_size) : static_cast<int64_t>(static_cast<double>(batch_size) * 0.9);
  LEVIN_CHECK(next < batch_size && next >= 0, "accelerator.executable_batch_size",
              "the function to reduce a batch size of {} returned {}, wanted a smaller one",
              batch_size, next);
  LEVIN_CHECK(next > 0, "accelerator.executable_batch_size",
              "no batch size fits into memory: {} did not, and the next one is 0; free memory, or "
              "use a smaller model. The last error was: {}",
              batch_size, error.what());
  log::info("accelerator: a batch size of {} does not fit into memory; trying {}", batch_size,
            next);
  return next;
}

}  // namespace detail
}  // namespace levin
