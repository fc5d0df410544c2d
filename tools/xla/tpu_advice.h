#pragma once
// tpu_advice: what a training step loses on a TPU by its sizes and types, and whether a core holds
// it; reckoned from the recorded graph alone. What `levin plan --tpu` prints.
//
//   std::cout << to_text(advice_of(step.graph(), tpu_slice("v5e:2x4"), 10));

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/graph/graph.h"
#include "tools/graph/plan_report.h"
#include "tools/xla/tpu.h"
#include "tools/xla/tpu_padding.h"

namespace levin::tools {

struct StepInput {
  std::string name;
  std::string type;        ///< "f32[64, 1, 28, 28]"
  int64_t batch_size = 0;  ///< the first dimension; 0 of one without
};

/// Operators of one kind and size.
struct PaddedProduct {
  std::string operation;  ///< "mm"
  std::string module;     ///< of the first
  int64_t count = 0;
  MatrixProduct sizes;  ///< of attention, queries by keys
  double flops = 0.0;   ///< of all of them, as in graph::cost_of
  double padded = 0.0;  ///< with what the tiles add
};

struct TpuAdvice {
  TpuSlice slice;
  Plan plan;
  std::vector<StepInput> inputs;
  double product_flops = 0.0;  ///< of all products
  double padded_flops = 0.0;
  double float32_flops = 0.0;  ///< of those, what is not computed in bfloat16
  int64_t state_bytes = 0;     ///< parameters, buffers, optimizer
  int64_t padded_state_bytes = 0;
  bool has_float64 = false;
  std::vector<PaddedProduct> products;  ///< the largest loss first
};

/// Throws Error "graph.cost" for a graph whose types are not known.
TpuAdvice advice_of(const graph::Graph& graph, const TpuSlice& slice, size_t num_largest);

/// The smallest size above that fills whole tiles; the size itself where it does.
int64_t next_full(int64_t size, int64_t tile);

std::string to_text(const TpuAdvice& advice);
std::string to_json(const TpuAdvice& advice);

}  // namespace levin::tools
