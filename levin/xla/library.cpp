#include "levin/xla/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <filesystem>

#include "levin/base/check.h"

namespace levin::xla {
namespace {

std::atomic<const Library*> provided = nullptr;

/// Loads liblevin_xla from the folder of levin::core's own library. Its initialization calls provide().
void load() {
#ifdef LEVIN_XLA_LIBRARY
  Dl_info info;
  std::filesystem::path file = LEVIN_XLA_LIBRARY;
  if (::dladdr(reinterpret_cast<const void*>(&library), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code ignored;
    file = std::filesystem::absolute(info.dli_fname, ignored).parent_path() / file;
  }
  LEVIN_CHECK(
      ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr, "xla.library",
      "the library of levin::xla cannot be loaded: {}; install it beside liblevin, or build "
      "the target levin_xla",
      ::dlerror());
#endif
}

}  // namespace

void provide(const Library& library) { provided.store(&library, std::memory_order_release); }

const Library* loaded_library() { return provided.load(std::memory_order_acquire); }

const Library& library() {
  if (loaded_library() == nullptr) load();
  const Library* library = loaded_library();
  LEVIN_CHECK(library != nullptr, "xla.library",
              "this program does not contain levin::xla; link levin::xla to it");
  return *library;
}

Runtime::Runtime() = default;
Runtime::~Runtime() = default;

std::shared_ptr<Runtime> Runtime::open(const RuntimeOptions& options) {
  return library().open(options);
}

std::shared_ptr<Runtime> Runtime::current() {
  const Library* library = loaded_library();
  return library == nullptr ? nullptr : library->current();
}

std::string RuntimeReport::summary() const {
  return fmt::format(
      "{} programs compiled in {:.2f} s and {} read from disk, {} runs ({:.2f} s to start them), "
      "{} "
      "transfers to the devices and {} back ({:.2f} s), {} operators computed by the host",
      compilations, compile_s, disk_cache_hits, executions, execute_s, uploads, downloads,
      transfer_s, host_fallbacks);
}

std::string metrics_report() {
  const std::shared_ptr<Runtime> runtime = Runtime::current();
  if (runtime == nullptr) return "";
  const RuntimeReport report = runtime->report();
  std::string text = report.summary() + "\n";
  for (const Compilation& program : report.programs) {
    text += fmt::format("  {:6.2f} s {}: {} operators; {}\n", program.seconds,
                        program.from_disk ? "from disk" : "compiled ", program.num_operators,
                        program.reason);
  }
  return text;
}

}  // namespace levin::xla
