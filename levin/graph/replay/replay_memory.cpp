#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "levin/graph/replay/replay_memory_impl.h"

namespace levin::graph {

size_t ReplayMemory::add(MemoryKind kind, c10::Storage storage, int64_t bytes) {
  const bool may_change = kind == MemoryKind::kPlanned || kind == MemoryKind::kAdopted;
  memories_.push_back({.kind = kind,
                       .storage = std::move(storage),
                       .need = {.bytes = bytes, .first = step_, .last = step_},
                       .may_change = may_change});
  return liveness_.add_memory();
}

PlacedTensor ReplayMemory::make(const ValueType& type, MemoryKind kind) {
  const auto itemsize = static_cast<size_t>(c10::elementSize(type.dtype));
  const auto bytes =
      static_cast<int64_t>(at::detail::computeStorageNbytes(type.sizes, type.strides, itemsize));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, type.device),
                       /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type.dtype).device(type.device));
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storage);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type.sizes, type.strides);
  return {std::move(tensor), add(kind, std::move(storage), bytes)};
}

PlacedTensor ReplayMemory::keep(const at::Tensor& tensor, MemoryKind kind) {
  return {tensor, add(kind, tensor.storage(), 0)};
}

void ReplayMemory::store(const Value& value, const PlacedTensor& placed) {
  slots_[&value] = {placed.tensor, liveness_.make(placed.memory, value.users().size())};
}

PlacedTensor ReplayMemory::at(const Value& value) const {
  const Slot& slot = slots_.at(&value);
  return {slot.tensor, slot.live.memory};
}

MemoryKind ReplayMemory::kind(const Value& value) const {
  return memories_[slots_.at(&value).live.memory].kind;
}

void ReplayMemory::allow_writes(const Value& value) {
  memories_[slots_.at(&value).live.memory].may_change = true;
}

bool ReplayMemory::may_change(const Value& value) const {
  return memories_[slots_.at(&value).live.memory].may_change;
}

void ReplayMemory::use(const Value& value) {
  Live& live = slots_.at(&value).live;
  liveness_.use(live);
  memories_[live.memory].need.last = step_;
}

void ReplayMemory::use_at_end(const Value& value) {
  memories_[slots_.at(&value).live.memory].need.last = step_;
}

bool ReplayMemory::may_write(const Value& value) const {
  const Live& live = slots_.at(&value).live;
  return memories_[live.memory].may_change && liveness_.may_write(live);
}

std::vector<ReplayMemory::Released> ReplayMemory::released(
    const std::vector<const Value*>& used) const {
  std::vector<Released> released;
  std::unordered_set<size_t> looked_at;
  for (const Value* value : used) {
    const size_t number = slots_.at(value).live.memory;
    const bool is_adopted = memories_[number].kind == MemoryKind::kAdopted;
    if (!is_adopted || !liveness_.is_free(number) || !looked_at.insert(number).second) continue;
    released.push_back({number, memories_[number].storage});
  }
  return released;
}

std::vector<const Value*> ReplayMemory::overlapping(const std::vector<const Value*>& values) const {
  struct Extent {
    const char* begin;
    const char* end;
    const Value* value;
  };
  std::vector<Extent> extents;
  for (const Value* value : values) {
    const at::Tensor& tensor = slots_.at(value).tensor;
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    const auto bytes = static_cast<int64_t>(
        at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize()));
    extents.push_back({begin, begin + bytes, value});
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  std::vector<const Value*> found;
  for (size_t i = 1, widest = 0; i < extents.size(); ++i) {
    if (extents[i].begin < extents[widest].end) {
      found.insert(found.end(), {extents[i].value, extents[widest].value});
    }
    if (extents[i].end > extents[widest].end) widest = i;
  }
  return found;
}

bool ReplayMemory::may_join(const PlacedTensor& placed) const {
  const Memory& memory = memories_[placed.memory];
  return memory.kind == MemoryKind::kPlanned && !memory.is_in_row &&
         placed.tensor.is_contiguous() && placed.tensor.storage_offset() == 0 &&
         static_cast<int64_t>(placed.tensor.nbytes()) == memory.need.bytes;
}

void ReplayMemory::join(const std::vector<PlacedTensor>& row) {
  std::vector<size_t> members;
  for (const PlacedTensor& placed : row) {
    if (!may_join(placed) || std::ranges::count(members, placed.memory) > 0) return;
    members.push_back(placed.memory);
  }
  for (const size_t member : members) memories_[member].is_in_row = true;
  rows_.push_back(std::move(members));
}

/// The groups of memory that lie together in the arena: rows, and each memory that is in no row.
std::vector<std::vector<size_t>> ReplayMemory::planned() const {
  std::vector<std::vector<size_t>> planned = rows_;
  for (size_t i = 0; i < memories_.size(); ++i) {
    const Memory& memory = memories_[i];
    const bool is_alone = !memory.is_in_row && !memory.is_laid_out;
    if (memory.kind == MemoryKind::kPlanned && is_alone) planned.push_back({i});
  }
  return planned;
}

void ReplayMemory::note_sent(const Value& value) {
  memories_[slots_.at(&value).live.memory].is_sent = true;
}

/// Puts the memory there. What lies in it may outlive the replay, as gradients do, and keeps the place
/// alive.
void ReplayMemory::place(const Memory& memory, const at::Tensor& in, int64_t offset) const {
  memory.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
      {static_cast<char*>(in.mutable_data_ptr()) + offset, new at::Tensor(in),
       [](void* held) { delete static_cast<at::Tensor*>(held); }, memory.storage.device()});
}

int64_t ReplayMemory::lay_out_sent(const std::vector<at::Tensor>& places) {
  std::vector<Memory*> sent;
  for (Memory& memory : memories_) {
    const bool may_move = memory.kind == MemoryKind::kPlanned && !memory.is_in_row;
    if (memory.is_sent && may_move && memory.storage.device().is_cpu()) sent.push_back(&memory);
  }
  std::ranges::stable_sort(sent, {}, [](const Memory* memory) {
    return std::pair(memory->need.last - memory->need.first, -memory->need.bytes);
  });
  std::vector<std::vector<const Memory*>> taken(places.size());
  int64_t count = 0;
  for (Memory* memory : sent) {
    const auto is_apart = [&](const Memory* other) {
      return other->need.last < memory->need.first || memory->need.last < other->need.first;
    };
    for (size_t i = 0; i < places.size(); ++i) {
      const bool fits = memory->need.bytes <= static_cast<int64_t>(places[i].nbytes());
      if (!fits || !std::ranges::all_of(taken[i], is_apart)) continue;
      place(*memory, places[i], 0);
      memory->is_laid_out = true;
      taken[i].push_back(memory);
      ++count;
      break;
    }
  }
  return count;
}

std::vector<at::Tensor> ReplayMemory::lay_out(int64_t& bytes, int64_t& needed) const {
  std::map<std::string, std::vector<std::vector<size_t>>> by_device;
  for (std::vector<size_t>& row : planned()) {
    by_device[memories_[row.front()].storage.device().str()].push_back(std::move(row));
  }
  std::vector<at::Tensor> arenas;
  bytes = needed = 0;
  for (const auto& [device, rows] : by_device) {
    MemoryPlan plan;
    arenas.push_back(lay_out(rows, plan));
    bytes += plan.bytes;
    needed += plan.needed;
  }
  return arenas;
}

/// Lays the rows of one device.
at::Tensor ReplayMemory::lay_out(const std::vector<std::vector<size_t>>& planned,
                                 MemoryPlan& plan) const {
  std::vector<MemoryNeed> needs;
  for (const std::vector<size_t>& row : planned) {
    MemoryNeed need = {.bytes = 0, .first = SIZE_MAX, .last = 0};
    for (const size_t member : row) {
      const MemoryNeed& its = memories_[member].need;
      need = {need.bytes + its.bytes, std::min(need.first, its.first),
              std::max(need.last, its.last)};
    }
    needs.push_back(need);
  }
  const c10::Device device = memories_[planned.front().front()].storage.device();
  plan = plan_memory(needs, device.is_cuda() ? kCudaAlignment : kHostAlignment);
  at::Tensor arena = at::empty({plan.bytes}, at::TensorOptions().dtype(at::kByte).device(device));
  for (size_t i = 0; i < planned.size(); ++i) {
    int64_t offset = plan.offsets[i];
    for (const size_t member : planned[i]) {
      place(memories_[member], arena, offset);
      offset += memories_[member].need.bytes;
    }
  }
  return arena;
}

}  // namespace levin::graph
