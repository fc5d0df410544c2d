#include "tools/collectives.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

namespace levin::tools {
namespace {

constexpr std::array<std::string_view, 6> kKinds = {"all-reduce",         "all-gather",
                                                    "reduce-scatter",     "all-to-all",
                                                    "collective-permute", "collective-broadcast"};

/// "f32" is 32; the 8 of "f8e4m3fn". 0 where the word has no number: of a predicate 8.
int64_t bits_of(std::string_view type) {
  if (type == "pred") return 8;
  const size_t digit = type.find_first_of("0123456789");
  if (digit == std::string_view::npos) return 0;
  int64_t bits = 0;
  std::from_chars(type.data() + digit, type.data() + type.size(), bits);
  return bits;
}

/// The text between the name of an instruction and its operands:
/// "%all-reduce.4 = (f32[2], f32[3]) all-reduce(%a, %b), ..."
std::optional<std::pair<std::string_view, std::string_view>> shape_and_opcode(
    std::string_view line) {
  const size_t equals = line.find(" = ");
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(equals + 3);
  const size_t shape_end = rest.starts_with('(') ? rest.find(") ") + 1 : rest.find(' ');
  if (shape_end == std::string_view::npos || shape_end == 0) return std::nullopt;
  const size_t operands = rest.find('(', shape_end);
  if (operands == std::string_view::npos) return std::nullopt;
  return std::pair(rest.substr(0, shape_end), rest.substr(shape_end + 1, operands - shape_end - 1));
}

/// An asynchronous collective counts at its start, whose result also holds the
/// operands.
std::optional<Collective> collective_of(std::string_view line) {
  const auto parts = shape_and_opcode(line);
  if (!parts) return std::nullopt;
  for (const std::string_view kind : kKinds) {
    const bool is_start =
        parts->second.size() > kind.size() && parts->second.substr(kind.size()) == "-start";
    if (!parts->second.starts_with(kind) || (parts->second != kind && !is_start)) continue;
    const bool holds_operand = is_start && kind != "all-reduce";
    const int64_t bytes = bytes_of_shape(parts->first);
    return Collective{std::string(kind), 1, holds_operand ? bytes / 2 : bytes};
  }
  return std::nullopt;
}

}  // namespace

int64_t bytes_of_shape(std::string_view shape) {
  int64_t bytes = 0;
  for (size_t open = shape.find('['); open != std::string_view::npos;
       open = shape.find('[', open + 1)) {
    size_t begin = open;
    while (begin > 0 && std::isalnum(static_cast<unsigned char>(shape[begin - 1])) != 0) --begin;
    int64_t elements = 1;
    size_t at = open + 1;
    while (at < shape.size() && std::isdigit(static_cast<unsigned char>(shape[at])) != 0) {
      int64_t size = 0;
      const char* const end =
          std::from_chars(shape.data() + at, shape.data() + shape.size(), size).ptr;
      elements *= size;
      at = static_cast<size_t>(end - shape.data()) + 1;
    }
    bytes += (elements * bits_of(shape.substr(begin, open - begin)) + 7) / 8;
  }
  return bytes;
}

std::vector<Collective> collectives_of(std::string_view optimized_text) {
  std::map<std::string, Collective> kinds;
  for (size_t at = 0; at < optimized_text.size();) {
    const size_t end = std::min(optimized_text.find('\n', at), optimized_text.size());
    if (const auto one = collective_of(optimized_text.substr(at, end - at))) {
      Collective& all = kinds.try_emplace(one->kind, Collective{one->kind, 0, 0}).first->second;
      all.count += one->count;
      all.bytes += one->bytes;
    }
    at = end + 1;
  }
  std::vector<Collective> found;
  for (auto& [kind, all] : kinds) found.push_back(std::move(all));
  std::ranges::stable_sort(found, std::greater(), &Collective::bytes);
  return found;
}

}  // namespace levin::tools
