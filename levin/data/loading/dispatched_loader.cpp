#include "levin/data/loading/dispatched_loader.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/data/loading/packed_batch.h"
#include "levin/data/loading/worker_thread.h"

namespace levin {
namespace detail {
namespace {

/// DispatchedLoader: a loader whose data rank 0 alone reads and hands out to all ranks.
class DispatchedLoader final : public LoaderImpl {
 public:
  DispatchedLoader(const LoaderImpl& loader, comm::ProcessGroup group, bool even)
      : LoaderImpl(loader.options()),
        group_(std::move(group)),
        even_(even),
        pin_memory_(options().pin_memory.value_or(false)) {
    const State about = told_by_root([&] {
      loader_ = loader.widened(group_.size());
      loader_->set_pin_memory(false);  // the parts are what goes to a device
      stands_ = loader_->state_dict();
      State told;
      told.set("epoch", loader_->epoch()).set("batches", loader_->batches_done());
      if (const std::optional<int64_t> size = loader_->size()) told.set("size", *size);
      return told;
    });
    jump(about.integer("epoch"), about.integer("batches"));
    if (about.contains("size")) size_ = about.integer("size");
  }

  std::optional<int64_t> size() const override { return size_; }
  /// The split is the dispatcher's own.
  void set_slice(DataSlice, bool) override {}

  void set_pin_memory(bool pin_memory) override {
    check_pin_memory(pin_memory);
    pin_memory_ = pin_memory;
  }

  std::shared_ptr<LoaderImpl> copy() const override { return widened(1); }
  std::shared_ptr<LoaderImpl> widened(int64_t) const override {
    LEVIN_FAIL("data.loader.dispatch",
               "this loader is already dispatched; dispatch the original loader");
  }

  std::shared_ptr<LoaderImpl> in_order() const override { return widened(1); }

  bool next(Batch& batch) override {
    batch = {};
    if (at_end()) {
      jump(epoch_ + 1, 0);
      if (is_root()) {
        loader_->set_epoch(epoch_);
        stands_ = loader_->state_dict();
      }
      return false;
    }
    batch = std::move(ahead_->batch);
    padding_ = ahead_->padding;
    if (is_root()) stands_ = std::move(ahead_->after);
    ahead_.reset();
    ++batches_;
    return true;
  }

  bool at_end() override {
    if (!ahead_ && !ended_) receive();
    return !ahead_.has_value();
  }

  int64_t epoch() const override { return epoch_; }
  int64_t padding() const override { return padding_; }
  int64_t batches_done() const override { return batches_; }

  void set_epoch(int64_t epoch) override {
    LEVIN_CHECK(epoch >= 0, "data.loader.epoch", "got epoch {}, wanted 0 or more", epoch);
    if (epoch == epoch_ && batches_ == 0) return;
    jump(epoch, 0);
    if (!is_root()) return;
    loader_->set_epoch(epoch);
    stands_ = loader_->state_dict();
  }

  /// Rank 0's is the state of the loader of the data; of one read by index a run without dispatch
  /// takes it up too. All ranks load together, and rank 0's is what counts.
  State state_dict() const override {
    if (is_root()) return stands_;
    State state;
    return std::move(state.set("epoch", epoch_).set("batches", batches_));
  }

  void load_state_dict(const State& state) override {
    const State told = told_by_root([&] {
      loader_->load_state_dict(state);
      stands_ = loader_->state_dict();
      State place;
      return std::move(
          place.set("epoch", loader_->epoch()).set("batches", loader_->batches_done()));
    });
    jump(told.integer("epoch"), told.integer("batches"));
  }

 private:
  /// The batches that rank 0 read for all.
  struct Global {
    Batch batch = {};  ///< empty at the epoch's end
    State after = {};  ///< the loader's, behind it
    int64_t padding = 0;
    std::exception_ptr error = {};
  };

  /// This rank's part of the next batch.
  struct Part {
    Batch batch = {};
    State after = {};
    int64_t padding = 0;  ///< padding of all ranks' parts together
  };

  bool has_begun() const override { return batches_ > start_; }
  bool is_root() const { return group_.rank() == 0; }

  /// The result of read() on rank 0, or its exception, on every rank.
  template <class Read>
  State told_by_root(const Read& read) {
    State told;
    std::exception_ptr error;
    if (is_root()) {
      try {
        told = read();
      } catch (const Error& thrown) {
        error = std::current_exception();
        told.set("error", thrown.id()).set("text", thrown.text());
      } catch (...) {
        error = std::current_exception();
        told.set("error", "data.loader.dispatch").set("text", current_message());
      }
    }
    told = group_.broadcast(told, 0);
    if (error) std::rethrow_exception(error);
    if (told.contains("error")) throw Error(told.text("error"), "on rank 0: " + told.text("text"));
    return told;
  }

  void receive() {
    Global whole;
    const State header = told_by_root([&] { return next_header(whole); });
    const int64_t samples = header.integer("samples");
    ended_ = header.boolean("is_last");
    if (samples == 0) return;
    const auto layout = BatchLayout::from(header.child("layout"));
    std::vector<at::Tensor> parts;
    for (int64_t rank = 0; is_root() && rank < group_.size(); ++rank) {
      parts.push_back(pack(whole.batch, layout, rank, group_.size()));
    }
    const at::Tensor bytes = at::empty({layout.bytes}, at::TensorOptions(at::kByte));
    group_.scatter(bytes, parts, 0);
    const int64_t rows = rows_of(samples, group_.rank(), group_.size());
    if (rows == 0) return;
    Batch part = unpack(bytes, layout, rows);
    if (pin_memory_) part = part.pin_memory();
    ahead_ = Part{.batch = std::move(part),
                  .after = std::move(whole.after),
                  .padding = header.integer("padding")};
  }

  /// On rank 0: the batch to be sent, none at the end, and what the others must know of it.
  State next_header(Global& next) {
    if (!read_) read_ = read_global();
    next = *std::exchange(read_, std::nullopt);
    if (next.error) std::rethrow_exception(next.error);
    State told;
    if (next.batch.empty()) return std::move(told.set("samples", int64_t{0}).set("is_last", true));
    read_ = read_global();
    const bool is_last = !read_->error && read_->batch.empty();
    const int64_t samples = next.batch.size();
    const int64_t least = even_ || is_last ? 1 : group_.size();
    if (samples < least) {
      read_.reset();
      loader_->load_state_dict(stands_);
      LEVIN_FAIL("data.loader.dispatch",
                 "a batch of {} samples cannot be split over {} ranks, wanted at least {} samples",
                 samples, group_.size(), least);
    }
    told.set("samples", samples).set("padding", next.padding).set("is_last", is_last);
    return std::move(told.set("layout", BatchLayout::of(next.batch, group_.size()).state_dict()));
  }

  /// An exception waits here until its batch's turn comes.
  Global read_global() {
    Global global;
    try {
      const bool pads = even_ && !options().drop_last;
      if (pads && opening_epoch_ != loader_->epoch() && loader_->batches_done() > 0) read_opening();
      const int64_t epoch = loader_->epoch();
      if (!loader_->next(global.batch)) return {};
      global.after = loader_->state_dict();
      if (pads && opening_epoch_ != epoch) {
        remember_opening(global.batch);
        opening_epoch_ = epoch;
      }
      if (pads) global.padding = fill_up(global.batch);
    } catch (...) {
      global = {.error = std::current_exception()};
    }
    return global;
  }

  /// The loader stands in the middle of an epoch.
  void read_opening() {
    const State here = loader_->state_dict();
    Batch first;
    try {
      loader_->set_epoch(loader_->epoch());
      loader_->next(first);
    } catch (...) {
      loader_->load_state_dict(here);
      throw;
    }
    loader_->load_state_dict(here);
    remember_opening(first);
    opening_epoch_ = loader_->epoch();
  }

  /// Repeats samples from the epoch's start until every rank gets as many, and says how many.
  int64_t fill_up(Batch& batch) {
    const int64_t samples = batch.size();
    const int64_t missing = (group_.size() - samples % group_.size()) % group_.size();
    if (missing == 0 || opening_.empty()) return 0;
    const at::Tensor which = at::arange(missing, at::kLong).remainder(opening_.size());
    Batch filled;
    for (const auto& [name, tensor] : batch) {
      const bool is_split = tensor.dim() > 0 && tensor.size(0) == samples;
      filled.set(name,
                 is_split ? at::cat({tensor, opening_[name].index_select(0, which)}) : tensor);
    }
    batch = std::move(filled);
    return missing;
  }

  void remember_opening(const Batch& batch) {
    opening_ = {};
    const int64_t count = std::min(batch.size(), group_.size() - 1);
    const int64_t samples = batch.size();
    for (const auto& [name, tensor] : batch) {
      const bool is_split = tensor.dim() > 0 && tensor.size(0) == samples;
      opening_.set(name, is_split ? tensor.narrow(0, 0, count).clone() : tensor.clone());
    }
  }

  void jump(int64_t epoch, int64_t batches) {
    epoch_ = epoch;
    batches_ = start_ = batches;
    ended_ = false;
    ahead_.reset();
    read_.reset();
  }

  comm::ProcessGroup group_;
  bool even_;
  bool pin_memory_ = false;
  std::optional<int64_t> size_;

  int64_t epoch_ = 0;
  int64_t batches_ = 0;
  int64_t start_ = 0;
  int64_t padding_ = 0;
  std::optional<Part> ahead_;  ///< received and not handed out yet
  bool ended_ = false;         ///< nothing more will be received in this epoch

  // Rank 0's.
  std::shared_ptr<LoaderImpl> loader_;
  std::optional<Global> read_;  ///< one global batch ahead, to know which is the last
  State stands_;                ///< the loader's, as of what was handed out
  Batch opening_;               ///< the epoch's first world_size - 1 samples
  int64_t opening_epoch_ = -1;
};

}  // namespace
}  // namespace detail

DataLoader dispatched(const DataLoader& loader, comm::ProcessGroup group, bool even) {
  const bool is_already =
      dynamic_cast<const detail::DispatchedLoader*>(impl_of(loader).get()) != nullptr;
  if (group.size() == 1 || is_already) return loader;
  if (const auto* parts = dynamic_cast<const detail::CombinedLoader*>(impl_of(loader).get())) {
    LEVIN_CHECK(even, "data.loader.dispatch",
                "dispatch_batches with combined loaders is for training; evaluate with one loader "
                "at a time, or set dispatch_batches = false");
    return make_loader(parts->dispatched_parts(group));
  }
  return make_loader(
      std::make_shared<detail::DispatchedLoader>(*impl_of(loader), std::move(group), even));
}

}  // namespace levin
