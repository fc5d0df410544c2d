#include "levin/interchange/export/archive_writer.h"

#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/jit/serialization/pickler.h>

#include <map>
#include <span>
#include <tuple>

#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"
#include "levin/interchange/export/exported_constant.h"
#include "levin/interchange/export/program_json.h"

namespace levin::interchange {
namespace {

using nlohmann::json;

struct NamedTensorOf {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
};

json meta_of(const at::Tensor& tensor, bool requires_grad) {
  const auto sizes = [](at::IntArrayRef numbers) {
    json list = json::array();
    for (const int64_t number : numbers) list.push_back({{"as_int", number}});
    return list;
  };
  constexpr int64_t kStrided = 7;
  return {{"dtype", exported_dtype(tensor.scalar_type())},
          {"sizes", sizes(tensor.sizes())},
          {"requires_grad", requires_grad},
          {"device", exported_device(tensor.device())},
          {"strides", sizes(tensor.strides())},
          {"storage_offset", {{"as_int", 0}}},
          {"layout", kStrided}};
}

class Writer {
 public:
  explicit Writer(files::FileWriter& file)
      : zip_([&file](const void* bytes, size_t size) {
          file.write(std::span(static_cast<const std::byte*>(bytes), size));
          return size;
        }) {}

  void text(const std::string& name, const std::string& text) {
    zip_.writeRecord(name, text.data(), text.size());
  }

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
        zip_.writeRecord(folder + path, whole.const_data_ptr(), whole.nbytes());
        record = records.emplace(std::move(place), path).first;
      }
      json meta = meta_of(whole, is_parameter && tensor.requires_grad());
      meta["device"] = exported_device(tensor.device());
      config[name] = {{"path_name", record->second},
                      {"is_param", is_parameter},
                      {"use_pickle", false},
                      {"tensor_meta", std::move(meta)}};
    }
    text(folder + "model_" + kind + "_config.json", json{{"config", std::move(config)}}.dump());
  }

  /// A tuple of the arguments and a dict of the named ones, as torch.save writes it.
  void example(const std::vector<at::Tensor>& inputs) {
    std::vector<c10::IValue> arguments;
    for (const at::Tensor& input : inputs) arguments.emplace_back(input.detach().cpu().clone());
    const c10::impl::GenericDict named(c10::StringType::get(), c10::TensorType::get());
    std::string pickle;
    // Without tags of types, which torch.load(weights_only=True) does not take.
    torch::jit::Pickler pickler([&](const char* bytes, size_t size) { pickle.append(bytes, size); },
                                /*tensor_table=*/nullptr, /*type_renamer=*/{},
                                /*memoized_class_types=*/nullptr,
                                /*get_tensor_id=*/nullptr, /*tag_aggregates=*/false);
    pickler.protocol();
    pickler.pushIValue(c10::ivalue::Tuple::create(
        {c10::ivalue::Tuple::create(std::move(arguments)), c10::IValue(named)}));
    pickler.stop();
    std::string file;
    caffe2::serialize::PyTorchStreamWriter zip([&](const void* bytes, size_t size) {
      file.append(static_cast<const char*>(bytes), size);
      return size;
    });
    zip.writeRecord("data.pkl", pickle.data(), pickle.size());
    for (size_t i = 0; i < pickler.tensorData().size(); ++i) {
      const at::Tensor& tensor = pickler.tensorData()[i];
      zip.writeRecord(fmt::format("data/{}", i), tensor.storage().data(),
                      tensor.storage().nbytes());
    }
    zip.writeRecord("byteorder", "little", 6);
    zip.writeEndOfFile();
    zip_.writeRecord("data/sample_inputs/model.pt", file.data(), file.size());
  }

  void finish() { zip_.writeEndOfFile(); }

 private:
  caffe2::serialize::PyTorchStreamWriter zip_;
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
      constants.push_back({constant_name(i), contents.constants[i]});
    }
    writer.tensors("weights", "weight_", weights);
    writer.tensors("constants", "tensor_", constants);
    writer.text("models/model.json", contents.program);
    writer.example(contents.example);
    writer.text("archive_format", "pt2");
    writer.text("archive_version", "0");
    writer.text("byteorder", "little");
    writer.finish();
  }
  file.close();
  staged.commit();
}

}  // namespace levin::interchange
