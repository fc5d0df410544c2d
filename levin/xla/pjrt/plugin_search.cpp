#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "levin/base/check.h"
#include "levin/files/folder.h"
#include "levin/files/trust.h"
#include "levin/xla/pjrt/plugin.h"
#include "levin/xla/pjrt/plugin_file_impl.h"

namespace levin::xla::pjrt {
namespace fs = std::filesystem;
namespace {

// Paths of plugins in Python packages, below site-packages.
constexpr std::string_view kInPackages[] = {
    "libtpu/libtpu.so",
    "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
    "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
    "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
    "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
};

/// The plugins that were found, and all places that were searched.
struct Search {
  std::vector<PluginFile> found;
  std::vector<std::string> places;

  void name(const fs::path& path, std::string kind = "") { take(path, std::move(kind), true); }
  void take(const fs::path& path, std::string kind = "", bool named = false) {
    if (kind.empty()) kind = detail::plugin_kind(path.string());
    const auto same = [&](const PluginFile& file) { return file.path == path.string(); };
    if (std::ranges::none_of(found, same)) found.push_back({std::move(kind), path.string(), named});
  }
  void take_if_there(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) take(path);
  }
};

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

// "cpu:/a/plugin.so,tpu:/b/libtpu.so"
void take_named(const std::string& list, Search& search) {
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, end - at);
    const size_t colon = entry.find(':');
    if (colon != std::string::npos) search.name(entry.substr(colon + 1), entry.substr(0, colon));
    at = end + 1;
  }
}

void look_at_environment(Search& search) {
  const std::string own = variable("LEVIN_PJRT_PLUGIN");
  if (!own.empty()) search.name(own);
  for (const auto& [name, kind] :
       {std::pair("PJRT_TPU_LIBRARY_PATH", "tpu"), std::pair("TPU_LIBRARY_PATH", "tpu"),
        std::pair("PJRT_CUDA_LIBRARY_PATH", "cuda"), std::pair("PJRT_CPU_LIBRARY_PATH", "cpu")}) {
    const std::string path = variable(name);
    if (!path.empty()) search.name(path, kind);
  }
  take_named(variable("PJRT_NAMES_AND_LIBRARY_PATHS"), search);
  search.places.emplace_back(
      "LEVIN_PJRT_PLUGIN, PJRT_CPU_LIBRARY_PATH, TPU_LIBRARY_PATH and the like");
}

/// The plugins in a folder, by name.
void look_in_folder(const fs::path& folder, Search& search) {
  for (const fs::path& entry : files::entries_of(folder)) {
    const std::string name = entry.filename().string();
    const bool is_named = name.find("pjrt") != std::string::npos || name == "libtpu.so" ||
                          name == "xla_cuda_plugin.so";
    if (is_named && name.ends_with(".so")) search.take_if_there(entry);
  }
  search.places.push_back(folder.string());
}

fs::path folder_of_levin() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&find_plugin), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  return fs::absolute(info.dli_fname, ignored).parent_path();
}

/// The prefix of the python3 that PATH names, as it stands there: a virtual environment's own.
fs::path prefix_of_python() {
  const std::string path = variable("PATH");
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const fs::path folder = path.substr(at, end - at);
    std::error_code ignored;
    if (!folder.empty() && fs::exists(folder / "python3", ignored)) return folder.parent_path();
    at = end + 1;
  }
  return {};
}

void look_in_packages(const fs::path& prefix, Search& search) {
  if (prefix.empty()) return;
  std::vector<fs::path> sites;
  for (const char* lib : {"lib", "lib64"}) {
    for (const fs::path& entry : files::entries_of(prefix / lib)) {
      if (!entry.filename().string().starts_with("python3")) continue;
      for (const char* kind : {"site-packages", "dist-packages"}) sites.push_back(entry / kind);
    }
  }
  std::ranges::sort(sites, std::greater<>());  // the newer Python's first
  for (const fs::path& site : sites) {
    for (const std::string_view name : kInPackages) search.take_if_there(site / name);
  }
  search.places.push_back((prefix / "lib/python3*/site-packages").string());
}

Search search_all() {
  Search search;
  look_at_environment(search);
  const fs::path own = folder_of_levin();
  if (!own.empty()) {
    look_in_folder(own, search);
    look_in_folder(own / "levin_plugins", search);
  }
  const std::string home = variable("HOME");
  std::vector<fs::path> prefixes = {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"),
                                    prefix_of_python()};
  if (!home.empty()) prefixes.push_back(fs::path(home) / ".local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const auto before = prefixes.begin() + static_cast<ptrdiff_t>(i);
    if (std::find(prefixes.begin(), before, prefixes[i]) == before)
      look_in_packages(prefixes[i], search);
  }
  return search;
}

/// Returns whether this machine has devices of that plugin's kind.
bool has_devices(const std::string& kind) {
  std::error_code ignored;
  const auto any = [&](std::initializer_list<const char*> nodes) {
    return std::ranges::any_of(nodes, [&](const char* node) { return fs::exists(node, ignored); });
  };
  if (kind == "tpu") return any({"/dev/accel0", "/dev/vfio/0"});
  if (kind == "cuda") return any({"/dev/nvidia0", "/dev/dxg"});
  return true;
}

// A loaded file runs as this user, whoever has put it there.
void check_trust(const PluginFile& file) {
  const std::string doubt = file.named ? "" : files::detail::distrust(fs::path(file.path));
  LEVIN_CHECK(doubt.empty(), "xla.plugin.trust",
              "{} is not loaded: {}; make yourself or root its owner and only writer (chown, chmod "
              "go-w), or set LEVIN_PJRT_PLUGIN to its path",
              file.path, doubt);
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += "\n  " + word;
  return text;
}

}  // namespace

namespace detail {

std::string plugin_kind(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (name.find("tpu") != std::string::npos) return "tpu";
  if (name.find("cuda") != std::string::npos) return "cuda";
  return name.find("cpu") != std::string::npos ? "cpu" : "";
}

}  // namespace detail

std::vector<PluginFile> found_plugins() {
  std::vector<PluginFile> found = search_all().found;
  // A TPU before a GPU before the CPU, and last what has no device here; else as it was found.
  const auto rank = [](const PluginFile& file) {
    if (!has_devices(file.kind)) return 3;
    return file.kind == "tpu" ? 0 : file.kind == "cuda" ? 1 : 2;
  };
  // The file that levin's own variable names comes before all.
  const bool named = !variable("LEVIN_PJRT_PLUGIN").empty();
  std::stable_sort(found.begin() + (named ? 1 : 0), found.end(),
                   [&](const PluginFile& a, const PluginFile& b) { return rank(a) < rank(b); });
  return found;
}

std::string find_plugin(const std::string& wanted) {
  LEVIN_CHECK(
      is_available(), "xla.unavailable",
      "this build of levin has no PJRT; run `make xla`, or configure with "
      "-DLEVIN_PJRT=DIR, where DIR is the folder that holds pjrt_c_api.h, and build it again");
  if (wanted.find('/') != std::string::npos) return wanted;
  for (const PluginFile& file : found_plugins()) {
    if (wanted.empty() ? has_devices(file.kind) : file.kind.empty() || file.kind == wanted) {
      check_trust(file);
      return file.path;
    }
  }
  LEVIN_FAIL("xla.plugin.absent",
             "found no PJRT plugin{}{}; looked at{}\ninstall one: `make xla` fetches the CPU's, "
             "`pip install libtpu` a TPU's, `pip install jax-cuda13-pjrt` a GPU's; or set "
             "LEVIN_PJRT_PLUGIN to its file",
             wanted.empty() ? "" : " for ", wanted, listed(search_all().places));
}

}  // namespace levin::xla::pjrt
