#pragma once
// ShardedParameter: a parameter that is sharded over ranks. Not for users.
//
// The tensor in the module stays the same object with two sizes: this rank's rows, and, while a pass
// computes, the full parameter. This object has everything that a strategy knows of one parameter:
// its slice, its rows, its full values in each dtype, its gradient and the writes to it. It is found
// by the tensor in the module (of), and by any tensor that shows its full values (of_values), so that
// gathers, gradients, optimizers, clipping and checkpoints ask one registry.
//
//   ShardedParameter weight(leaf, mesh, layout);       // as long as it lives
//   weight.set_values(rows, full);
//   weight.show_full();  net->forward(x);  weight.show_rows();

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/device_mesh.h"
#include "levin/shard/full_values.h"
#include "levin/shard/gradient_slot.h"
#include "levin/shard/layout.h"

namespace levin::shard {

class LEVIN_API ShardedParameter {
 public:
  /// Registers the leaf: a parameter that has this rank's rows, or is about to. Throws Error
  /// "shard.mesh" if the layout is of another mesh, and "shard.leaf" if the leaf is registered.
  ShardedParameter(const at::Tensor& leaf, const comm::DeviceMesh& mesh, Layout layout);
  ~ShardedParameter();
  ShardedParameter(const ShardedParameter&) = delete;
  ShardedParameter& operator=(const ShardedParameter&) = delete;

  /// Returns the registered parameter that a leaf is; nullptr if it is not sharded.
  static ShardedParameter* of(const at::Tensor& leaf);
  /// Returns the parameter whose full values, in any dtype, a tensor or a view shows, or nullptr.
  static ShardedParameter* of_values(const at::Tensor& tensor);

  /// Names for messages.
  void set_names(std::string name, std::string unit);
  const std::string& name() const { return name_; }
  const std::string& unit_name() const { return unit_name_; }
  /// The error's text for reading the full values while they are not here.
  const std::string& unseen_text() const { return unseen_; }

  const at::Tensor& leaf() const { return leaf_; }
  const comm::DeviceMesh& mesh() const { return mesh_; }
  const std::shared_ptr<const Layout>& layout() const { return layout_; }
  /// Sizes of the full parameter.
  const std::vector<int64_t>& sizes() const { return layout_->sizes(); }
  int64_t numel() const { return layout_->numel(); }
  /// This rank's part of it.
  const Slice& slice() const { return slice_; }

  /// Sets the tensor that has this rank's rows, to be written, and the one that shows the full values.
  /// The leaf shows its rows from now on.
  void set_values(at::Tensor rows, FullValues full);
  const at::Tensor& rows() const { return rows_; }
  const FullValues& full() const { return full_; }
  /// Returns the full values in a dtype; make_full() makes those of another dtype than the leaf's.
  const FullValues& full(at::ScalarType type) const;
  /// Makes full values in a dtype, without memory, where there are none.
  void make_full(at::ScalarType type);

  /// Throws Error "strategy.fsdp.outside" if a graph of the rows is alive, and
  /// "strategy.fsdp.replaced" if the leaf was set to another tensor during a pass. Takes over a
  /// tensor of the rows' sizes that was set in the place of the rows.
  void check_before_pass();
  /// The leaf takes its full size for a pass, or is its rows again.
  void begin_pass();
  void end_pass();
  /// Between runs: who reads the leaf sees the full parameter, or an error that says how to get it.
  /// wake() takes over a tensor that was set in its place meanwhile.
  void rest();
  void wake();
  /// Returns whether the leaf shows the full parameter.
  bool shows_full() const { return shows_full_; }
  /// Returns whether the leaf was set to another tensor while it showed the full parameter.
  bool is_replaced() const { return shows_full_ && !holds(full_.tensor()); }
  /// Throws Error "strategy.fsdp.outside" if a graph of the rows is alive: it would give a gradient of
  /// their sizes to a parameter that is full in backward, and for one row LibTorch would silently sum
  /// the full gradient.
  void check_no_graph_of_rows() const;

  /// Returns whether the rows were written to since note_values().
  bool is_written() const { return static_cast<int64_t>(leaf_._version()) != version_; }
  void note_values() { version_ = static_cast<int64_t>(leaf_._version()); }

  /// The gradient, while ranks reduce it.
  GradientSlot& gradient() { return gradient_; }
  const GradientSlot& gradient() const { return gradient_; }

  /// Numbers by which the object that gathers the parameter finds it.
  struct Place {
    const void* gatherer = nullptr;
    size_t unit = 0;
    size_t number = 0;  ///< in the unit
  };
  const Place& place() const { return place_; }
  void set_place(const Place& place) { place_ = place; }

 private:
  using NodePointer = decltype(torch::autograd::Edge::function);

  bool holds(const at::Tensor& values) const;
  void show(const at::Tensor& values, bool is_full);
  void adopt();

  std::string name_;
  std::string unit_name_;
  std::string unseen_;
  at::Tensor leaf_;  ///< held, so that no other tensor gets its address meanwhile
  comm::DeviceMesh mesh_;
  std::shared_ptr<const Layout> layout_;
  Slice slice_;
  at::Tensor rows_;
  FullValues full_;
  std::vector<FullValues> casts_;
  std::atomic<bool> shows_full_ = false;
  /// The node that accumulates gradients of the full sizes; none before the first pass with them.
  NodePointer accumulator_ = {};
  bool was_replaced_ = false;  ///< by another tensor, during a pass
  int64_t version_ = 0;        ///< version of the leaf when the other ranks last knew its values
  GradientSlot gradient_;
  Place place_;
};

}  // namespace levin::shard
