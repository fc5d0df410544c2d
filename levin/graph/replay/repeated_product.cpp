#include "levin/graph/replay/repeated_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "levin/graph/plain_calls.h"
#include "levin/graph/replay/matmul_choice_impl.h"
#include "levin/graph/replay/matmul_impl.h"

namespace levin::graph {
namespace {

// A trial takes as long as some ten products. It is not worth it for a product that comes once, as
// with texts of ever different lengths.
constexpr int64_t kTimesBefore = 32;
constexpr size_t kMostSizes = 4096;   // sizes to remember
constexpr double kFewestFlops = 1e6;  // below, the search for what is known takes too much of it

/// Sizes and strides of a, b and what is added.
using Key = std::array<int64_t, 11>;

Key key_of(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added) {
  Key key{a.size(0), a.size(1), a.stride(0), a.stride(1), b.size(1), b.stride(0), b.stride(1)};
  if (added.defined()) {
    key[7] = added.dim();
    key[8] = added.size(-1);
    key[9] = added.stride(-1);
    key[10] = added.dim() == 2 ? added.stride(0) : 0;
  }
  return key;
}

struct Product {
  int64_t times = 0;
  std::optional<int64_t> block_k = {};  ///< block_k of Matmul; none: ATen's kernel
};

/// The products of one thread: ranks that are threads make their own trials.
struct Products {
  MatmulSettings settings = MatmulSettings::now();
  MatmulChoice choice;
  std::map<Key, Product> known;

  static Products& here() {
    thread_local Products products;
    if (const auto now = MatmulSettings::now(); !(now == products.settings))
      products = Products{.settings = now};
    return products;
  }
};

at::Tensor by_aten(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added) {
  return added.defined() ? at::addmm(added, a, b) : at::mm(a, b);
}

bool may_be_other(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added) {
  static const bool is_available = Matmul::is_available();
  const auto is_matrix = [](const at::Tensor& matrix) {
    return matrix.dim() == 2 && matrix.is_cpu() && matrix.scalar_type() == at::kFloat &&
           !matrix.is_neg() && !matrix._is_zerotensor();
  };
  if (!is_available || !is_matrix(a) || !is_matrix(b) || a.size(1) != b.size(0)) return false;
  const double flops = 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1));
  return flops >= kFewestFlops && (!added.defined() || added.dim() == 1 || added.dim() == 2) &&
         has_plain_calls();
}

}  // namespace

at::Tensor repeated_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added) {
  if (!may_be_other(a, b, added)) return by_aten(a, b, added);
  Products& products = Products::here();
  if (products.known.size() >= kMostSizes) products.known.clear();
  Product& product = products.known[key_of(a, b, added)];
  product.times = std::min(product.times + 1, kTimesBefore + 1);
  const bool is_tried = product.times > kTimesBefore;
  if (product.times < kTimesBefore || (is_tried && !product.block_k)) return by_aten(a, b, added);
  static const auto mm = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "out");
  static const auto addmm = c10::Dispatcher::singleton().findSchemaOrThrow("aten::addmm", "out");
  const c10::OperatorHandle& op = added.defined() ? addmm : mm;
  const at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  torch::jit::Stack arguments;
  if (added.defined()) arguments.emplace_back(added);
  arguments.insert(arguments.end(), {a, b});
  if (added.defined()) arguments.insert(arguments.end(), {1, 1});
  arguments.emplace_back(out);
  if (!is_tried) product.block_k = products.choice.block_k(op, arguments);
  const auto operands = product.block_k ? matmul_operands(op, arguments) : std::nullopt;
  if (!operands) return by_aten(a, b, added);
  const auto scratch = at::empty({Matmul::scratch_numel(*operands, *product.block_k)}, a.options());
  Matmul(*operands, *product.block_k, scratch)();
  return out;
}

}  // namespace levin::graph
