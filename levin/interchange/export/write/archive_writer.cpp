#include "levin/interchange/export/write/archive_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <span>
#include <tuple>

#include "levin/checkpoint/torch/write_torch_file.h"
#include "levin/checkpoint/torch/zip_writer.h"
#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"
#include "levin/interchange/export/write/exported_constant.h"
#include "levin/interchange/export/write/program_json.h"

namespace levin::interchange {
namespace {

using nlohmann::json;

struct NamedTensorOf {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

json sizes_of(at::IntArrayRef numbers) {
  json list = json::array();
  for (const int64_t number : numbers) list.push_back({{"as_int", number}});
  return list;
}

class Writer {
 public:
  explicit Writer(files::FileWriter& file)
      : zip_([&file](std::span<const std::byte> bytes) { file.write(bytes); }) {}

  void text(const std::string& name, std::string_view text) { zip_.add(name, text); }

  /// kind: "weights" and "weight_", or "constants" and "tensor_".
  void tensors(const std::string& kind, const std::string& record_name,
               const std::vector<NamedTensorOf>& tensors) {
    const std::string folder = "data/" + kind + "/";
    // Tied tensors are one record; a part of a larger storage is written without the rest of it.
    using Place =
        std::tuple<const void*, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
    std::map<Place, std::string> records;
    json config = json::object();
    for (const auto& [name, tensor, is_parameter] : tensors) {
      const at::Tensor whole = tensor.detach().cpu().contiguous();
      Place place{tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(),
                  tensor.strides().vec()};
      // Empty tensors have no place of their own.
      if (tensor.numel() == 0) std::get<0>(place) = &tensor;
      auto record = records.find(place);
      if (record == records.end()) {
        const std::string path = fmt::format("{}{}", record_name, records.size());
        zip_.add(folder + path,
                 std::span(static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()));
        record = records.emplace(std::move(place), path).first;
      }
      config[name] = {{"path_name", record->second},
                      {"is_param", is_parameter},
                      {"use_pickle", false},
                      {"tensor_meta",
                       exported_meta(whole.scalar_type(), tensor.device(), sizes_of(whole.sizes()),
                                     sizes_of(whole.strides()), /*storage_offset=*/0,
                                     is_parameter && tensor.requires_grad())}};
    }
    text(folder + "model_" + kind + "_config.json", json{{"config", std::move(config)}}.dump());
  }

  void finish() { zip_.finish(); }

 private:
  detail::ZipWriter zip_;
};

}  // namespace

void write_archive(const std::filesystem::path& path, const ArchiveContents& contents) {
  files::StagedFile staged(path);
  files::FileWriter file(staged.path());
  {
    Writer writer(file);
    std::vector<NamedTensorOf> weights, constants;
    for (const ModuleTensor& each : contents.tensors) {
      weights.push_back({each.name, each.tensor, each.is_parameter});
    }
    for (size_t i = 0; i < contents.constants.size(); ++i) {
      constants.push_back({constant_name(contents.constants_prefix, i), contents.constants[i]});
    }
    writer.tensors("weights", "weight_", weights);
    writer.tensors("constants", "tensor_", constants);
    writer.text("models/model.json", contents.program);
    writer.text("data/sample_inputs/model.pt", detail::torch_file_of_arguments(contents.example));
    writer.text("archive_format", "pt2");
    writer.text("archive_version", "0");
    writer.text("byteorder", "little");
    writer.finish();
  }
  file.close();
  staged.commit();
}

}  // namespace levin::interchange
