#pragma once
// ProgramArchive: the zip file of torch.export.save (.pt2): the program's JSON and its tensors.
//
//   const ProgramArchive archive("net.pt2");
//   const Program program = read_program(archive.program());
//   const Tensors weights = archive.weights();

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "levin/checkpoint/torch/zip_records.h"
#include "levin/files/memory_map.h"
#include "levin/interchange/program/program.h"

namespace levin::interchange {

/// By Python's names.
using Tensors = std::map<std::string, at::Tensor, std::less<>>;

/// The place of a tensor in the archive. Two tensors with one place are one tensor, as tied weights
/// are in Python.
struct TensorPlace {
  std::string record;  ///< "data/weights/weight_3"
  bool is_pickle = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  ///< in elements
  int64_t offset = 0;            ///< in elements

  bool operator==(const TensorPlace&) const = default;
};

/// Sizes or strides of the tensor `name`. Throws Error "interchange.archive" where one is no number from 0 on.
std::vector<int64_t> whole_numbers(const std::vector<Expression>& sizes, const std::string& name);

class ProgramArchive {
 public:
  /// Throws Error "files.read", and "interchange.archive" for a file that is no archive of
  /// torch.export.save, or one with several programs.
  explicit ProgramArchive(const std::filesystem::path& path);

  /// The JSON of the program, models/NAME.json.
  std::string program() const;
  /// Parameters and persistent buffers, and constants with the other buffers. They lie in the file's map,
  /// which is a copy of this process as soon as somebody writes to it; tensors of one record share memory.
  /// Throws Error "interchange.archive" for one that does not fit its record.
  Tensors weights() const { return tensors("weights"); }
  Tensors constants() const { return tensors("constants"); }
  /// Returns the places of weights(), whether or not the archive still holds their values. Empty if
  /// it lacks model_weights_config.json too.
  std::map<std::string, TensorPlace> weight_places() const { return places("weights"); }

 private:
  std::map<std::string, TensorPlace> places(const std::string& kind) const;
  Tensors tensors(const std::string& kind) const;

  std::shared_ptr<files::MemoryMap> map_;
  std::string model_ = "model";
  std::unique_ptr<detail::ZipRecords> records_;
};

}  // namespace levin::interchange
