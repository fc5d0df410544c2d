#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/torch/zip_records.h"
#include "levin/files/memory_map.h"
#include "levin/interchange/load_exported.h"

namespace levin {
namespace {

/// LibTorch's words without its frames.
std::string words_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string words = of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
  return printable(words.substr(0, words.find("\nException raised from")));
}

/// LibTorch reads other archives too, and says nothing of use about them.
void check_is_script(const std::filesystem::path& path) {
  const files::MemoryMap map(path);
  std::string found = "not a zip archive";
  try {
    const detail::ZipRecords records(map.bytes());
    if (records.contains("constants.pkl")) return;
    found = records.contains("archive_format")
                ? "a torch.export program; read it with levin::load_exported"
                : "not TorchScript; if it is a state dict of torch.save, read it with "
                  "levin::load_weights";
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it is no zip archive
  }
  LEVIN_FAIL("interchange.archive", "{} is {}", path.string(), found);
}

}  // namespace

std::shared_ptr<JitModule> load_torchscript(const std::filesystem::path& path) {
  check_is_script(path);
  try {
    return std::make_shared<JitModule>(torch::jit::load(path.string(), at::kCPU));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    LEVIN_FAIL("interchange.archive", "{} cannot be read: {}", path.string(), words_of(error));
  }
}

}  // namespace levin
