#include <protozero/pbf_writer.hpp>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt::detail {
namespace {

using protozero::pbf_writer;

// DeviceAssignmentProto {1 replica_count, 2 computation_count, 3 computation_devices {1
// replica_device_ids}}; a computation is a partition.
std::string device_assignment(const CompileOptions& options) {
  std::string bytes;
  pbf_writer assignment(bytes);
  assignment.add_int32(1, static_cast<int32_t>(options.num_replicas));
  assignment.add_int32(2, static_cast<int32_t>(options.num_partitions));
  for (int64_t partition = 0; partition < options.num_partitions; ++partition) {
    std::vector<int64_t> ids;
    for (int64_t replica = 0; replica < options.num_replicas; ++replica) {
      ids.push_back(
          options.device_ids[static_cast<size_t>(replica * options.num_partitions + partition)]);
    }
    pbf_writer devices(assignment, 3);
    devices.add_packed_int64(1, ids.begin(), ids.end());
  }
  return bytes;
}

}  // namespace

// CompileOptionsProto {3 executable_build_options {4 num_replicas, 5 num_partitions,
// 6 use_spmd_partitioning, 9 device_assignment}}, xla/pjrt/proto/compile_options.proto.
std::string encoded(const CompileOptions& options) {
  LEVIN_CHECK(options.num_replicas >= 1 && options.num_partitions >= 1, "xla.option",
              "got num_replicas {} and num_partitions {}, wanted 1 or more", options.num_replicas,
              options.num_partitions);
  const int64_t count = options.num_replicas * options.num_partitions;
  LEVIN_CHECK(
      options.device_ids.empty() || static_cast<int64_t>(options.device_ids.size()) == count,
      "xla.option", "got {} device_ids for {} replicas of {} partitions, wanted {} or none",
      options.device_ids.size(), options.num_replicas, options.num_partitions, count);
  std::string bytes;
  pbf_writer message(bytes);
  pbf_writer build(message, 3);
  build.add_int64(4, options.num_replicas);
  build.add_int64(5, options.num_partitions);
  build.add_bool(6, options.use_spmd_partitioning);
  if (!options.device_ids.empty()) build.add_message(9, device_assignment(options));
  build.commit();
  return bytes;
}

PJRT_Program program_of(std::string_view text) {
  constexpr std::string_view kFormat = "mlir";
  PJRT_Program program = {};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = const_cast<char*>(text.data());  // the compiler only reads it
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

}  // namespace levin::xla::pjrt::detail
