#include "levin/checkpoint/foreign_file.h"

#include <array>
#include <span>
#include <string>

#include "levin/base/reading/regular_file.h"

namespace levin::detail {
namespace {

struct ForeignKind {
  size_t at;
  std::string_view bytes;
  std::string_view name;
};

constexpr std::array<ForeignKind, 5> kKinds = {{
    {0, "GGUF", "a GGUF file (llama.cpp)"},
    {0, "\x89HDF", "an HDF5 file (Keras)"},
    {0, "\x93NUMPY", "an array of NumPy"},
    {0, "\x1f\x8b", "compressed by gzip"},
    {257, "ustar", "a tar archive (also of torch.save before PyTorch 0.1.10)"},
}};

}  // namespace

std::string_view foreign_kind(const std::filesystem::path& file) {
  std::string first(512, '\0'), ignored;
  if (const auto opened = posix::open_regular(file, ignored)) {
    posix::read_some(opened->file, std::as_writable_bytes(std::span(first)));
  }
  for (const ForeignKind& kind : kKinds) {
    if (std::string_view(first).substr(kind.at, kind.bytes.size()) == kind.bytes) return kind.name;
  }
  return file.extension() == ".onnx" ? "a graph of ONNX" : "";
}

}  // namespace levin::detail
