#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "levin/base/check.h"
#include "levin/graph/meta/evaluation_impl.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/graph/meta/row_builder_impl.h"
#include "levin/module/parameters.h"

namespace levin {
namespace graph::meta {
namespace {

/// Tensors of one storage.
struct Group {
  std::string name;
  std::vector<at::Tensor> tensors;  ///< the module's first
  std::ptrdiff_t num_registered = 0;
  /// The tensors that autograd names as bases of views; usually nothing else refers to them.
  std::vector<at::Tensor> bases;
  std::optional<RowRange> rows;

  Contents& contents() const { return *contents_of(tensors.front()); }
  const at::Tensor& first() const { return tensors.front(); }
};

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> all;
  for (const auto& item : module.named_parameters()) all.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) all.push_back({item.key(), item.value()});
  std::erase_if(all, [](const NamedTensor& named) { return !named.tensor.defined(); });
  return all;
}

/// The tensor takes the other's memory, sizes and device; what autograd knows of it stays. That is
/// set_data without its check that devices are of a kind.
void adopt(const at::Tensor& tensor, const at::Tensor& real) {
  if (torch::autograd::AutogradMeta* autograd = torch::autograd::impl::get_autograd_meta(tensor)) {
    const std::scoped_lock lock(autograd->mutex_);
    autograd->grad_accumulator_.reset();  // it knows the device
    if (autograd->grad_.defined() && autograd->grad_.is_meta()) autograd->grad_.reset();
  }
  tensor.unsafeGetTensorImpl()->shallow_copy_from(real.getIntrusivePtr());
}

class Materializer {
 public:
  Materializer(const torch::nn::Module& module, const MaterializeOptions& options)
      : options_(options) {
    LEVIN_CHECK(!options.device.is_meta(), "graph.meta.device",
                "got device meta, wanted a device with memory");
    for (const NamedTensor& named : tensors_of(module)) add(named);
    for (Group& group : groups_) group.num_registered = std::ssize(group.tensors);
    add_alive();
    for (Group& group : groups_) {
      if (options_.rows) group.rows = options_.rows(group.name, group.first());
      join_bases(group);
      if (group.rows) check_rows(group);
    }
    for (Group& group : loose_) join_bases(group);
  }

  void run() {
    for (const Group& group : groups_) {
      make(group, options_.values);
      if (options_.made) options_.made(group.name, group.first());
    }
    for (const Group& group : loose_) make(group, InitValues::kSeeded);
    for (const at::Tensor& tensor : real_) {
      if (tensor.device() != options_.device) tensor.set_data(tensor.to(options_.device));
    }
  }

 private:
  void add(const NamedTensor& named) {
    const auto& [key, tensor] = named;
    if (!tensor.is_meta()) return real_.push_back(tensor);
    const Contents* contents = contents_of(tensor);
    const std::string name = options_.prefix + key;
    LEVIN_CHECK(contents != nullptr, "graph.meta.lost",
                "{} {} is on the meta device but init_on_meta did not make it, so its values are "
                "unknown; build and convert the module within init_on_meta",
                name, c10::str(tensor.sizes()));
    note_logs(contents->log);
    const auto [entry, is_new] = numbers_.try_emplace(storage_of(tensor), groups_.size());
    if (is_new) {
      groups_.push_back({.name = contents->name.empty() ? name : contents->name});
    }
    add_to(groups_[entry->second], tensor);
  }

  static c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }

  static void add_to(Group& group, const at::Tensor& tensor) {
    for (const at::Tensor& known : group.tensors) {
      if (known.is_same(tensor)) return;
    }
    group.tensors.push_back(tensor);
    if (tensor.is_view()) group.bases.emplace_back(tensor._base());
  }

  /// A base that lies as the others is one of them, and so is any base where all rows are wanted.
  static void join_bases(Group& group) {
    for (const at::Tensor& base : std::exchange(group.bases, {})) {
      const bool lies_so = Part::of(base) == Part::of(group.first());
      if (!group.rows || lies_so) {
        add_to(group, base);
      } else {
        const auto others = group.tensors.begin() + group.num_registered;
        group.tensors.erase(
            std::remove_if(others, group.tensors.end(),
                           [&](const at::Tensor& tensor) { return tensor.is_same(base); }),
            group.tensors.end());
      }
    }
  }

  void note_logs(const std::shared_ptr<BuildLog>& log) {
    if (!logs_.insert(log).second) return;
    for (const auto& earlier : log->earlier) note_logs(earlier);
  }

  /// Tensors that somebody holds beside the module's, of the same memory or of their own.
  void add_alive() {
    std::map<c10::StorageImpl*, size_t> loose;
    for (const auto& log : logs_) {
      for (const auto& made : log->made) {
        const auto alive = made.lock();
        if (!alive) continue;
        const at::Tensor tensor{alive};
        const Contents* contents = contents_of(tensor);
        if (contents == nullptr) continue;
        const auto known = numbers_.find(storage_of(tensor));
        if (known != numbers_.end()) {
          add_to(groups_[known->second], tensor);
        } else if (log->has_names && contents->name.empty()) {
          const auto [entry, is_new] = loose.try_emplace(storage_of(tensor), loose_.size());
          if (is_new) loose_.emplace_back();
          add_to(loose_[entry->second], tensor);
        }
      }
    }
  }

  static void check_rows(const Group& group) {
    const auto [begin, end] = *group.rows;
    const int64_t size = group.first().dim() == 0 ? 0 : group.first().size(0);
    LEVIN_CHECK(0 <= begin && begin <= end && end <= size, "graph.meta.rows",
                "got rows [{}, {}) of {} {}, wanted rows within [0, {})", begin, end, group.name,
                c10::str(group.first().sizes()), size);
    for (const at::Tensor& tensor : group.tensors) {
      LEVIN_CHECK(Part::of(tensor) == Part::of(group.first()), "graph.meta.rows",
                  "got rows [{}, {}) of {} {}, which shares its memory with a tensor {} of another "
                  "layout; keep it full",
                  begin, end, group.name, c10::str(group.first().sizes()),
                  c10::str(tensor.sizes()));
    }
  }

  void make(const Group& group, InitValues values) {
    const PlainMode plain;
    // Its storage holds what is known of it, and the first tensor that is adopted lets go of that.
    const at::Storage old = group.first().storage();
    if (group.rows) {
      const at::Tensor rows = rows_of(group, values).to(options_.device);
      for (const at::Tensor& tensor : group.tensors) adopt(tensor, rows);
      return;
    }
    std::vector<Part> parts;
    for (const at::Tensor& tensor : group.tensors) parts.push_back(Part::of(tensor));
    at::Storage memory = whole_of(group, values);
    const bool is_one =
        std::ranges::all_of(parts, [&](const Part& part) { return part == parts[0]; });
    if (is_one) {
      const at::Tensor whole = view_of(memory, parts[0]).to(options_.device);
      for (const at::Tensor& tensor : group.tensors) adopt(tensor, whole);
      return;
    }
    const auto bytes = static_cast<int64_t>(memory.nbytes());
    memory = view_of(memory, {.dtype = at::kByte, .sizes = {bytes}, .strides = {1}})
                 .to(options_.device)
                 .storage();
    for (size_t i = 0; i < parts.size(); ++i) adopt(group.tensors[i], view_of(memory, parts[i]));
  }

  FillByName by_name(const Group& group) const {
    return {options_.seed.value_or(group.contents().log->seed), group.name};
  }

  at::Storage whole_of(const Group& group, InitValues values) {
    const Contents& contents = group.contents();
    const Evaluation::Target target{contents.value, group.first().storage().nbytes()};
    if (values == InitValues::kNone) {
      return at::empty({static_cast<int64_t>(target.bytes)},
                       at::dtype(at::kByte).device(options_.device))
          .storage();
    }
    if (values == InitValues::kSeeded)
      return Evaluation(&put_at_place).storages(std::span(&target, 1)).front();
    FillByName fill = by_name(group);
    const Part part = Part::of(group.first());
    const RowBuilder rows(rules_, std::ref(fill));
    if (rows.can(contents.value, part) && part.reach() >= target.bytes) {
      return rows.make(contents.value, part, 0, part.sizes[0]).storage();
    }
    return evaluated_by_name(fill, target);
  }

  static at::Storage evaluated_by_name(FillByName& fill, const Evaluation::Target& target) {
    return Evaluation([&](const Step& step, at::CPUGeneratorImpl& generator) {
             fill.put(step, generator);
           })
        .storages(std::span(&target, 1))
        .front();
  }

  at::Tensor rows_of(const Group& group, InitValues values) {
    const auto [begin, end] = *group.rows;
    const Part part = Part::of(group.first());
    if (values == InitValues::kNone) {
      at::DimVector sizes = part.sizes;
      sizes[0] = end - begin;
      return at::empty(sizes, at::dtype(part.dtype).device(options_.device));
    }
    const ValueRef value = group.contents().value;
    const Evaluation::Target target{value, part.reach()};
    FillByName fill = by_name(group);
    FillRows fill_rows = std::ref(fill);
    if (values == InitValues::kSeeded) {
      fill_rows = [&](const Step& step, const Part& whole, int64_t first, const at::Tensor& out) {
        fill_as_built(rules_, step, whole, first, out);
      };
    }
    const RowBuilder rows(rules_, fill_rows);
    if (rows.can(value, part)) return rows.make(value, part, begin, end);
    const at::Storage whole =
        values == InitValues::kSeeded
            ? Evaluation(&put_at_place).storages(std::span(&target, 1)).front()
            : evaluated_by_name(fill, target);
    return view_of(whole, part).narrow(0, begin, end - begin).clone(at::MemoryFormat::Contiguous);
  }

  const MaterializeOptions& options_;
  DrawRules rules_;
  std::vector<Group> groups_;
  std::vector<Group> loose_;
  std::vector<at::Tensor> real_;
  std::map<c10::StorageImpl*, size_t> numbers_;
  std::set<std::shared_ptr<BuildLog>> logs_;
};

}  // namespace
}  // namespace graph::meta

bool is_on_meta(const torch::nn::Module& module) {
  return std::ranges::any_of(graph::meta::tensors_of(module),
                             [](const NamedTensor& named) { return named.tensor.is_meta(); });
}

void materialize(torch::nn::Module& module, const MaterializeOptions& options) {
  graph::meta::Materializer(module, options).run();
}

}  // namespace levin
