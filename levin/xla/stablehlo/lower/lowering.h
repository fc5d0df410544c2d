#pragma once
// Lowering: writes one node of a graph into a StableHLO program. The lowering of an operator uses
// its functions.
//
//   void lower_tanh(Lowering& at) { at.give(at.hlo.unary("tanh", at.tensor(0))); }

#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/xla/stablehlo/builder.h"

namespace levin::xla {

/// The state that all nodes of a program share: values that exist already, and the host's inputs to
/// each run.
class LoweringState {
 public:
  virtual ~LoweringState() = default;
  /// The value of an earlier node.
  virtual const Hlo& value_of(const graph::Value& value) = 0;
  /// An input that is a number of the host, in that dtype; no value where it is something else.
  virtual std::optional<Hlo> number_of(const graph::Value& value, at::ScalarType dtype) = 0;
  /// A number that may be another one in the next run of the same program: f32 or f64, no
  /// dimensions. It is that argument of the node, or was made of such.
  virtual Hlo runtime_number(double number, at::ScalarType dtype,
                             std::optional<size_t> argument) = 0;
  /// The program depends on what that argument is.
  virtual void depend_on(size_t argument) = 0;
  /// The key of this run's random numbers: two of ui32[], and which draw of the program this is.
  virtual std::pair<Hlo, Hlo> random_key() = 0;
  virtual int64_t next_draw() = 0;
  /// LowerOptions::num_replicas.
  virtual int64_t num_replicas() const = 0;
};

class Lowering {
 public:
  Lowering(Builder& builder, const graph::Node& of, LoweringState& state)
      : hlo(builder), node(of), state_(state), results_(of.outputs().size()) {}

  Builder& hlo;
  const graph::Node& node;

  // Arguments, by their place in the operator's schema.
  bool has(size_t index) const;  ///< it is not None
  Hlo tensor(size_t index);      ///< also a number, then of no dimensions
  Hlo tensor(size_t index, at::ScalarType dtype);
  std::vector<Hlo> tensors(size_t index);
  Hlo tensor_of(const graph::Value& value, at::ScalarType dtype);
  std::vector<std::optional<Hlo>> optional_tensors(size_t index);
  /// A number without dimensions that the program does not depend on: the next run may have
  /// another.
  Hlo scalar(size_t index, at::ScalarType dtype);
  /// Numbers that the program depends on.
  double number(size_t index) const;
  /// Returns whether the number is 1, so that no multiplication is needed. The program does not
  /// depend on another value.
  bool is_one(size_t index) const;
  int64_t integer(size_t index) const;
  int64_t integer(size_t index, int64_t otherwise) const;
  bool flag(size_t index) const;
  Dims list(size_t index) const;
  std::string_view text(size_t index) const;
  /// A dimension from 0 on.
  int64_t dim(size_t index, int64_t rank) const;
  /// Reads `dim=[...]`: an empty list means all.
  Dims dims(size_t index, int64_t rank) const;

  /// The type that ATen gave the result: lowerings take sizes and dtypes from it.
  const graph::ValueType& type(size_t result = 0) const;
  Dims sizes(size_t result = 0) const;
  at::ScalarType dtype(size_t result = 0) const { return type(result).dtype; }
  /// Returns whether the result is a tensor: a result that an output_mask leaves out is not.
  bool wants(size_t result) const;

  /// The results in their order, then the new values of written arguments; converted to the dtype
  /// and repeated to the sizes that they are to have.
  void give(const Hlo& value) { give(next_++, value); }
  void give(size_t result, const Hlo& value);
  const std::vector<std::optional<Hlo>>& results() const { return results_; }

  /// Copies of the program that run at once.
  int64_t num_replicas() const { return state_.num_replicas(); }

  // Helpers that many lowerings need.
  /// Returns the dtype in which ATen computes: f32 for f16 and bf16.
  static at::ScalarType compute_dtype(at::ScalarType dtype);
  /// Returns at::result_type of these arguments.
  at::ScalarType promoted(std::initializer_list<size_t> arguments) const;
  /// The same number in each run, or another: of no dimensions.
  Hlo runtime(double number, at::ScalarType dtype) { return runtime(number, dtype, std::nullopt); }
  /// One number for all elements, of the dtype and sizes of another value.
  Hlo like(const at::Scalar& number, const Hlo& other);
  Hlo spread(const Hlo& scalar, const Hlo& other) { return hlo.expand(scalar, other.sizes); }
  Hlo sum(const Hlo& x, const Dims& dims, bool keepdim);
  Hlo maximum(const Hlo& x, const Dims& dims, bool keepdim);
  /// The same sizes with ones where dimensions were reduced.
  Hlo keep_dims(const Hlo& reduced, const Hlo& whole, const Dims& dims);
  /// Returns how many binary digits a float of the dtype holds.
  static int num_digits(at::ScalarType dtype);
  /// Uniform in [0, 1): 24 random bits, or as many as the dtype has digits (53 for f64).
  Hlo uniform(at::ScalarType dtype, const Dims& sizes);
  /// By the inverse of its distribution function, of a uniform number.
  Hlo normal(at::ScalarType dtype, const Dims& sizes);
  /// Uniform in (0, 1), without either end: of 23 random bits (52 for f64), in f32 or f64.
  Hlo open_uniform(at::ScalarType dtype, const Dims& sizes);
  /// Random bits, ui32 and ui64.
  Hlo random_bits(const Dims& sizes);
  Hlo random_wide_bits(const Dims& sizes);

 private:
  const c10::IValue& constant(size_t index) const;
  /// One that the program depends on.
  const c10::IValue& fixed(size_t index) const;
  Hlo number_like(size_t index, at::ScalarType dtype);
  Hlo runtime(double number, at::ScalarType dtype, std::optional<size_t> argument);

  LoweringState& state_;
  std::vector<std::optional<Hlo>> results_;
  size_t next_ = 0;
};

using LowerFunction = std::function<void(Lowering&)>;
/// By name and overload as "aten::add.Tensor".
using LoweringTable = std::unordered_map<std::string_view, LowerFunction>;

/// Returns the lowering of an operator; add_.Tensor and add.out have that of add.Tensor. nullptr if
/// there is none.
const LowerFunction* find_lowering(const c10::OperatorHandle& op);
/// The lowering of an operator that only a recording on the CPU has: on xla LibTorch takes it
/// apart, or chooses another one in its place.
const LowerFunction* find_host_lowering(const c10::OperatorHandle& op);
/// The condition on an operator's arguments under which its lowering holds.
using LowerCondition = bool (*)(at::ArrayRef<c10::IValue>);
/// Returns nullptr if the operator has no condition of its own.
LowerCondition condition_of(const c10::OperatorHandle& op);
/// Returns whether the lowering holds for these arguments: not for sizes that depend on values (a
/// mask as an index), nor for the caller's own generator. The host computes the others.
bool can_lower(LowerCondition condition, at::ArrayRef<c10::IValue> arguments);

// The table, family by family: one source each.
void add_pointwise(LoweringTable& table);
void add_special(LoweringTable& table);
void add_activations(LoweringTable& table);
void add_infinities(LoweringTable& table);
void add_views(LoweringTable& table);
void add_strided_views(LoweringTable& table);
void add_windows(LoweringTable& table);
void add_factories(LoweringTable& table);
void add_reductions(LoweringTable& table);
void add_linear_algebra(LoweringTable& table);
void add_convolutions(LoweringTable& table);
void add_max_pools(LoweringTable& table);
void add_mean_pools(LoweringTable& table);
void add_normalizations(LoweringTable& table);
void add_weight_norms(LoweringTable& table);
void add_indexing(LoweringTable& table);
void add_scatters(LoweringTable& table);
void add_embeddings(LoweringTable& table);
void add_sorting(LoweringTable& table);
void add_scans(LoweringTable& table);
void add_losses(LoweringTable& table);
void add_class_losses(LoweringTable& table);
void add_chunked_nll(LoweringTable& table);
void add_random(LoweringTable& table);
void add_draws(LoweringTable& table);
void add_optimizers(LoweringTable& table);
void add_upsampling(LoweringTable& table);
void add_borders(LoweringTable& table);
void add_pixels(LoweringTable& table);
void add_exchanges(LoweringTable& table);
/// Not of that table: for find_host_lowering.
void add_host_operators(LoweringTable& table);
void add_host_activations(LoweringTable& table);
void add_host_attention(LoweringTable& table);

}  // namespace levin::xla
