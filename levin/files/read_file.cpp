#include "levin/files/read_file.h"

#include "levin/files/memory_map.h"

namespace levin::files {

std::string read_file(const std::filesystem::path& path) {
  const MemoryMap map(path);
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}

}  // namespace levin::files
