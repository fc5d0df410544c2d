#pragma once
// The options of torch::nn's layers by name, and a hash of them. Not for users.

#include <torch/nn/modules.h>

#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace levin::detail {

// Every name that a TORCH_ARG of a layer's options has.
// clang-format off
#define LEVIN_OPTIONS_OF_LAYERS(X) \
  X(_random_samples) X(_weight) X(activation) X(add_bias_kv) X(add_zero_attn) X(affine) \
  X(align_corners) X(alpha) X(approximate) X(batch_first) X(beta) X(bias) X(bidirectional) \
  X(blank) X(ceil_mode) X(count_include_pad) X(custom_decoder) X(custom_encoder) X(cutoffs) \
  X(d_model) X(decoder_layer) X(delta) X(dilation) X(dim) X(dim_feedforward) \
  X(distance_function) X(div_value) X(divisor_override) X(downscale_factor) X(dropout) \
  X(elementwise_affine) X(embed_dim) X(embedding_dim) X(encoder_layer) X(end_dim) X(eps) X(full) \
  X(groups) X(head_bias) X(hidden_size) X(ignore_index) X(in1_features) X(in2_features) \
  X(in_channels) X(in_features) X(include_last_offset) X(init) X(inplace) X(input_size) X(k) \
  X(kdim) X(keepdim) X(kernel_size) X(label_smoothing) X(lambda) X(log_input) X(log_target) \
  X(lower) X(margin) X(max_norm) X(max_val) X(min_val) X(mode) X(momentum) X(n_classes) \
  X(negative_slope) X(nhead) X(nonlinearity) X(norm) X(norm_type) X(normalized_shape) \
  X(num_channels) X(num_chunks) X(num_decoder_layers) X(num_embeddings) X(num_encoder_layers) \
  X(num_features) X(num_groups) X(num_heads) X(num_layers) X(num_parameters) X(out_channels) \
  X(out_features) X(output_padding) X(output_ratio) X(output_size) X(p) X(padding) \
  X(padding_idx) X(padding_mode) X(pos_weight) X(proj_size) X(reduction) X(scale_factor) \
  X(scale_grad_by_freq) X(size) X(sizes) X(sparse) X(start_dim) X(stride) X(swap) X(threshold) \
  X(track_running_stats) X(transposed) X(upper) X(upscale_factor) X(value) X(vdim) X(weight) \
  X(zero_infinity)
// clang-format on

/// Calls visit(name, value) with each option, in a fixed order.
template <class Options, class Visit>
void visit_options(Options& options, Visit&& visit) {
#define LEVIN_VISIT(name) \
  if constexpr (requires { options.name(); }) visit(#name, options.name());
  LEVIN_OPTIONS_OF_LAYERS(LEVIN_VISIT)
#undef LEVIN_VISIT
}

#undef LEVIN_OPTIONS_OF_LAYERS

/// Does so with the layer's options, and with the numbers that its forward pass has beside them.
template <class T, class Visit>
void visit_layer(T& layer, Visit&& visit) {
  if constexpr (requires { layer.options; }) visit_options(layer.options, visit);
  // Recurrent layers read this copy.
  if constexpr (requires { layer.options_base; }) visit_options(layer.options_base, visit);
  if constexpr (requires { layer.shortlist_size; }) {
    visit("cutoffs", layer.cutoffs);
    visit("shortlist_size", layer.shortlist_size);
    visit("n_clusters", layer.n_clusters);
    visit("head_size", layer.head_size);
  }
  if constexpr (requires { layer._qkv_same_embed_dim; }) {
    visit("_qkv_same_embed_dim", layer._qkv_same_embed_dim);
    visit("head_dim", layer.head_dim);
  }
}

/// A hash of what an option may be. It is another one after one word changed. Tensors and modules count
/// by identity.
class OptionsHash {
 public:
  int64_t value() const { return static_cast<int64_t>(hash_); }

  template <class T>
    requires std::is_arithmetic_v<T>
  void add(T number) {
    if constexpr (std::is_floating_point_v<T>) {
      add_word(std::bit_cast<uint64_t>(static_cast<double>(number)));
    } else {
      add_word(static_cast<uint64_t>(number));
    }
  }
  void add(const std::string& text) { add_word(std::hash<std::string_view>()(text)); }
  void add(const at::Tensor& tensor) { add_address(tensor.unsafeGetTensorImpl()); }
  void add(const torch::nn::AnyModule& module) {
    add_address(module.is_empty() ? nullptr : module.ptr().get());
  }
  template <class Impl>
  void add(const torch::nn::ModuleHolder<Impl>& module) {
    add_address(module.is_empty() ? nullptr : module.get());
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    for (const T& value : values) add(value);
  }
  template <size_t n, class T>
  void add(const torch::ExpandingArray<n, T>& values) {
    for (const T& value : *values) add(value);
  }
  template <class... Choices>
  void add(const std::variant<Choices...>& choice) {
    add(choice.index());
    std::visit(
        [&]<class Choice>(const Choice& value) {
          if constexpr (!std::is_empty_v<Choice>) add(value);
        },
        choice);
  }
  /// The contents of a lambda cannot be compared: only another lambda is another one.
  template <class Result, class... Arguments>
  void add(const std::function<Result(Arguments...)>& function) {
    add_word(function.target_type().hash_code());
    const auto* pointer = function.template target<Result (*)(Arguments...)>();
    add_word(pointer == nullptr ? 0 : std::bit_cast<uintptr_t>(*pointer));
  }

 private:
  void add_address(const void* address) { add_word(std::bit_cast<uintptr_t>(address)); }
  /// Each step can be undone, so that no two words give the same hash.
  void add_word(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 32;
  }

  uint64_t hash_ = 0;
};

}  // namespace levin::detail
