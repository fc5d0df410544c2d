#include "levin/strategy/fsdp/unit_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <future>
#include <numeric>
#include <span>
#include <utility>

namespace levin::fsdp {
namespace {

using shard::ShardedParameter;

/// All ranks map one memory; each writes its own run.
class SharedMemory final : public UnitMemory {
 public:
  SharedMemory(UnitLayout layout, at::ScalarType type, comm::ProcessGroup group)
      : UnitMemory(std::move(layout), type) {
    comm::SharedTensor shared = group.share(this->layout().runs(), type);
    own_ = std::move(shared.own);
    mapped_ = std::move(shared.whole);
  }

  void set_parameters(std::vector<ShardedParameter*> parameters) override {
    UnitMemory::set_parameters(std::move(parameters));
    attach(mapped_);
  }
  bool is_always_here() const override { return true; }
  comm::Work start(const at::Tensor&) override { return {}; }
};

/// The ranks of each host map one memory, into which each of them fetches a part from the ranks with
/// its place on the other hosts.
class HostMemory final : public UnitMemory {
 public:
  HostMemory(UnitLayout layout, at::ScalarType type, Hosts& hosts)
      : UnitMemory(std::move(layout), type), hosts_(hosts) {
    const auto num_hosts = hosts.num_hosts();
    std::vector<int64_t> of_places;
    const std::vector<int64_t>& runs = this->layout().runs();
    for (auto run = runs.begin(); run != runs.end(); run += num_hosts) {
      of_places.push_back(std::accumulate(run, run + num_hosts, int64_t{0}));
    }
    const auto first = runs.begin() + hosts.local.rank() * num_hosts;
    runs_of_place_.assign(first, first + num_hosts);
    comm::SharedTensor shared = hosts.local.share(of_places, type);
    part_of_place_ = std::move(shared.own);
    mapped_ = std::move(shared.whole);
    const auto own = runs_of_place_.begin() + hosts.across.rank();
    own_ = part_of_place_.narrow(0, std::accumulate(runs_of_place_.begin(), own, int64_t{0}), *own);
  }

  comm::Work start(const at::Tensor&) override {
    return hosts_.across.all_gather(part_of_place_, own_, runs_of_place_, comm::Return::kAsync);
  }
  void finish(const at::Tensor&) override {
    hosts_.local.barrier();  // the parts of the others
    attach(mapped_);
  }

 private:
  Hosts& hosts_;
  std::vector<int64_t> runs_of_place_;
  at::Tensor part_of_place_;
};

/// Each rank has its run, and gathers the others' into a buffer.
class BufferedMemory final : public UnitMemory {
 public:
  BufferedMemory(UnitLayout layout, at::ScalarType type, at::Device device,
                 const comm::ProcessGroup& group)
      : UnitMemory(std::move(layout), type), group_(group) {
    own_ = at::zeros({this->layout().run(group_.rank())}, at::TensorOptions(type).device(device));
  }

  comm::Work start(const at::Tensor& buffer) override {
    return group_.all_gather(typed(buffer), own_, layout().runs(), comm::Return::kAsync);
  }

 private:
  comm::ProcessGroup group_;
};

/// Each rank has its run in a file, reads it into its part of a buffer, and gathers the others'.
class FileMemory final : public UnitMemory {
 public:
  FileMemory(UnitLayout layout, at::ScalarType type, const comm::ProcessGroup& group,
             std::shared_ptr<files::ScratchFile> file)
      : UnitMemory(std::move(layout), type), group_(group), file_(std::move(file)) {
    const int64_t count = this->layout().run(group_.rank());
    bytes_ = count * static_cast<int64_t>(c10::elementSize(type));
    own_ = at::empty({0}, type);
    if (bytes_ == 0) return;
    begin_ = file_->take(bytes_);
    own_ = file_->tensor(begin_, {count}, {1}, type);
  }
  ~FileMemory() override { wait_read(); }

  comm::Work start(const at::Tensor& buffer) override {
    const at::Tensor own = own_part(buffer);
    reading_ = std::async(std::launch::async, [this, own] {
      const std::span<std::byte> to(static_cast<std::byte*>(own.data_ptr()),
                                    static_cast<size_t>(bytes_));
      if (bytes_ > 0) file_->read(begin_, to);
    });
    return {};
  }
  void finish(const at::Tensor& buffer) override {
    reading_.get();
    if (group_.size() > 1) group_.all_gather(typed(buffer), own_part(buffer), layout().runs());
    UnitMemory::finish(buffer);
  }
  void release() override {
    wait_read();
    UnitMemory::release();
  }
  void leave_memory() override {
    if (bytes_ > 0) file_->drop(begin_, bytes_);
  }

 private:
  at::Tensor own_part(const at::Tensor& buffer) const {
    const int64_t rank = group_.rank();
    return typed(buffer).narrow(0, layout().run_begin(rank), layout().run(rank));
  }
  /// A gather that nobody finishes any more still writes to its buffer.
  void wait_read() {
    if (reading_.valid()) reading_.wait();
    reading_ = {};
  }

  comm::ProcessGroup group_;
  std::shared_ptr<files::ScratchFile> file_;
  int64_t begin_ = 0;  ///< of this rank's run in the file
  int64_t bytes_ = 0;
  std::future<void> reading_;
};

/// Each rank casts its rows into its part of a buffer, and gathers the others'.
class CastMemory final : public UnitMemory {
 public:
  CastMemory(UnitLayout layout, at::ScalarType type, const comm::ProcessGroup& group,
             UnitMemory& unit)
      : UnitMemory(std::move(layout), type), group_(group), unit_(unit) {}

  comm::Work start(const at::Tensor& buffer) override {
    const at::NoGradGuard no_grad;
    const at::Tensor full = typed(buffer);
    const int64_t rank = group_.rank();
    for (size_t i = 0; i < parameters().size(); ++i) {
      const at::Tensor& rows = parameters()[i]->rows();
      if (rows.numel() == 0) continue;
      const at::Tensor& values = parameters()[i]->full().tensor();
      full.as_strided(rows.sizes(), values.strides(), layout().offset(i, rank)).copy_(rows);
    }
    unit_.leave_memory();
    return group_.all_gather(full, full.narrow(0, layout().run_begin(rank), layout().run(rank)),
                             layout().runs(), comm::Return::kAsync);
  }

 private:
  comm::ProcessGroup group_;
  UnitMemory& unit_;
};

}  // namespace

int64_t alignment_of(at::ScalarType type) {
  constexpr int64_t kBytes = 64;  // size of a vector register and of a cache line
  return std::max<int64_t>(kBytes / static_cast<int64_t>(c10::elementSize(type)), 1);
}

UnitMemory::~UnitMemory() = default;

void UnitMemory::set_parameters(std::vector<ShardedParameter*> parameters) {
  parameters_ = std::move(parameters);
  for (ShardedParameter* parameter : parameters_) parameter->make_full(type_);
  release();
}

int64_t UnitMemory::bytes() const {
  return layout_.numel() * static_cast<int64_t>(c10::elementSize(type_));
}

at::Tensor UnitMemory::typed(const at::Tensor& buffer) const {
  return buffer.narrow(0, 0, bytes()).view(type_);
}

void UnitMemory::finish(const at::Tensor& buffer) { show(buffer); }

void UnitMemory::attach(const at::Tensor& memory) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i]->full(type_).attach(memory, layout_.offset(i));
  }
}

void UnitMemory::release() {
  for (const ShardedParameter* parameter : parameters_) {
    parameter->full(type_).detach(parameter->unseen_text());
  }
}

std::unique_ptr<UnitMemory> make_unit_memory(UnitLayout layout, at::ScalarType type,
                                             at::Device device, const comm::ProcessGroup& group,
                                             const MemoryPlace& place) {
  if (place.file != nullptr) {
    return std::make_unique<FileMemory>(std::move(layout), type, group, place.file);
  }
  if (place.shared) return std::make_unique<SharedMemory>(std::move(layout), type, group);
  if (place.hosts != nullptr) {
    return std::make_unique<HostMemory>(std::move(layout), type, *place.hosts);
  }
  return std::make_unique<BufferedMemory>(std::move(layout), type, device, group);
}

std::unique_ptr<UnitMemory> make_cast_memory(UnitMemory& unit,
                                             const std::vector<size_t>& parameters,
                                             at::ScalarType type, const comm::ProcessGroup& group) {
  auto memory = std::make_unique<CastMemory>(unit.layout().only(parameters, alignment_of(type)),
                                             type, group, unit);
  std::vector<ShardedParameter*> some;
  for (const size_t number : parameters) some.push_back(unit.parameters()[number]);
  memory->set_parameters(std::move(some));
  return memory;
}

}  // namespace levin::fsdp
