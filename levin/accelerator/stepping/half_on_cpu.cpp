#include "levin/accelerator/stepping/half_on_cpu.h"

#include <ATen/cpu/Utils.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "levin/base/log.h"

namespace levin {
namespace {

/// Words of LibTorch about dtypes that do not fit together, and about kernels that a CPU lacks.
constexpr std::array<std::string_view, 9> kOfDtypes = {
    "same dtype",           "scalar type", "attn_mask dtype",
    "primitive descriptor", "mkldnn",      "onednn",
    "not implemented for",  "BFloat16",    "Half"};

std::optional<at::ScalarType> half_type(const Precision& precision) {
  const auto type = precision.autocast ? precision.autocast : precision.parameters;
  return type && c10::isReducedFloatingType(*type) ? type : std::nullopt;
}

}  // namespace

// LibTorch lists other names on other kinds of processors: then nothing is known.
HalfInstructions HalfInstructions::of_this_cpu() {
  const std::unordered_map<std::string, c10::IValue> capabilities = at::cpu::get_cpu_capabilities();
  const auto has_one = [&](std::initializer_list<const char*> names) {
    bool is_known = false, is_there = false;
    for (const char* name : names) {
      const auto found = capabilities.find(name);
      if (found == capabilities.end() || !found->second.isBool()) continue;
      is_known = true;
      is_there |= found->second.toBool();
    }
    return !is_known || is_there;
  };
  return {
      .bfloat16 = has_one({"avx512_bf16", "amx_bf16", "avx10_2", "bf16", "arm_bf16"}),
      .float16 = has_one({"avx512_fp16", "amx_fp16", "avx10_1", "avx10_2", "fp16", "fp16_arith"})};
}

std::string warning_of_slow_half(const Precision& precision, const HalfInstructions& instructions) {
  const auto type = half_type(precision);
  if (type == at::kBFloat16 && !instructions.bfloat16) {
    return fmt::format(
        "precision: this CPU has no bfloat16 instructions, so {} is up to 11 times slower than "
        "32-true; set --precision 32-true",
        precision.name);
  }
  if (type == at::kHalf && !instructions.float16) {
    return fmt::format(
        "precision: this CPU has no float16 instructions, so {} is up to 100 times slower than "
        "32-true; set --precision {}",
        precision.name, instructions.bfloat16 ? "bf16-mixed or 32-true" : "32-true");
  }
  return "";
}

void warn_of_slow_half(const Precision& precision) {
  if (!half_type(precision)) return;
  const std::string words = warning_of_slow_half(precision, HalfInstructions::of_this_cpu());
  if (!words.empty()) log::warn("{}", words);
}

std::string half_hint(const Precision& precision, std::string_view error) {
  const auto type = half_type(precision);
  const bool is_of_dtypes = std::ranges::any_of(kOfDtypes, [&](std::string_view words) {
    return error.find(words) != std::string_view::npos;
  });
  if (!type || !is_of_dtypes) return "";
  const std::string_view name = type == at::kHalf ? "float16" : "bfloat16";
  const std::string in_float =
      precision.autocast
          ? "within levin::AutocastScope(x.device().type(), {}), on x.to(torch::kFloat)"
          : "with --precision 32-true or bf16-mixed";
  if (error.find("attn_output_weights.masked_fill") != std::string_view::npos) {
    return fmt::format(
        "with --precision {}, MultiheadAttention and Transformer of LibTorch do not accept a "
        "key_padding_mask; pass it as attention mask (-inf for masked positions), or compute them "
        "in float32 {}",
        precision.name, in_float);
  }
  return fmt::format(
      "with --precision {}, a {} tensor meets a float32 tensor; create the states of an LSTM or "
      "GRU and masks with the dtype of the input, torch::zeros(sizes, x.options()) or "
      ".to(x.scalar_type()), or compute that part in float32 {}",
      precision.name, name, in_float);
}

}  // namespace levin
