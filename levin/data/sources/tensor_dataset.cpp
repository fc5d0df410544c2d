#include <algorithm>

#include "levin/base/check.h"
#include "levin/data/collate/gather.h"
#include "levin/data/sources/sources.h"

namespace levin::data {
namespace {

struct Source {
  std::string name;
  at::Tensor rows;  ///< contiguous, on the CPU
  bool normalized = false;
  float mean = 0;   ///< in units of v
  float scale = 1;  ///< 1 / deviation
};

/// source.narrow(0, first, count); the way through the dispatcher takes longer than small batches
/// do.
at::Tensor rows_of(const at::Tensor& source, int64_t first, int64_t count) {
  at::Tensor rows(source.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  c10::TensorImpl* impl = rows.unsafeGetTensorImpl();
  impl->set_storage_offset(source.storage_offset() + first * source.stride(0));
  impl->set_size(0, count);
  return rows;
}

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(std::vector<Source> sources) : sources_(std::move(sources)) {}

  int64_t size() const override { return sources_.front().rows.size(0); }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }
  bool in_memory() const override { return true; }

  Batch draw(std::span<const int64_t> indices, const DrawContext&, Batch reuse) const override {
    const bool run = detail::is_run(indices, size());
    Batch batch;
    for (const Source& source : sources_) {
      batch.set(source.name, run && !source.normalized && !indices.empty()
                                 ? rows_of(source.rows, indices.front(), std::ssize(indices))
                                 : gather(source, indices, reuse));
    }
    return batch;
  }

 private:
  static at::Tensor gather(const Source& source, std::span<const int64_t> indices,
                           const Batch& reuse) {
    at::DimVector sizes(source.rows.sizes());
    sizes[0] = std::ssize(indices);
    const auto dtype = source.normalized ? at::kFloat : source.rows.scalar_type();
    at::Tensor out = detail::output_for(reuse, source.name, sizes, dtype);
    if (source.normalized) {
      detail::gather_normalized(source.rows, indices, source.mean, source.scale, out);
    } else {
      detail::gather_rows(source.rows, indices, out);
    }
    return out;
  }

  std::vector<Source> sources_;
};

void check_fields(const Batch& fields) {
  LEVIN_CHECK(!fields.empty(), "data.tensors.empty", "got no fields, wanted at least one tensor");
  const auto& [first_name, first] = *fields.begin();
  for (const auto& [name, tensor] : fields) {
    LEVIN_CHECK(tensor.defined() && tensor.dim() > 0, "data.tensors.size",
                "'{}' is {}, wanted a tensor with the samples along dim 0", name,
                tensor.defined() ? "a scalar" : "undefined");
    LEVIN_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided, "data.tensors.device",
                "'{}' is a {} tensor on {}, wanted a dense one on the CPU; the loader's batches "
                "are moved to the device later",
                name, c10::str(tensor.layout()), tensor.device().str());
    LEVIN_CHECK(tensor.size(0) == first.size(0), "data.tensors.size",
                "'{}' holds {} samples but '{}' holds {}, wanted the same number in each field",
                name, tensor.size(0), first_name, first.size(0));
  }
}

void set_normalize(std::vector<Source>& sources, const Normalize& normalize) {
  const auto source = std::ranges::find(sources, normalize.field, &Source::name);
  LEVIN_CHECK(source != sources.end(), "data.tensors.normalize",
              "got no field '{}' to normalize; name a field of the dataset", normalize.field);
  LEVIN_CHECK(!source->normalized, "data.tensors.normalize",
              "got the field '{}' twice to normalize, wanted it once", normalize.field);
  LEVIN_CHECK(source->rows.scalar_type() == at::kByte, "data.tensors.normalize",
              "'{}' is {}, wanted uint8", normalize.field,
              c10::toString(source->rows.scalar_type()));
  LEVIN_CHECK(normalize.std > 0, "data.tensors.normalize",
              "'{}' has the standard deviation {}, wanted one above 0", normalize.field,
              normalize.std);
  source->normalized = true;
  source->mean = static_cast<float>(255.0 * normalize.mean);
  source->scale = static_cast<float>(1.0 / (255.0 * normalize.std));
}

}  // namespace

std::shared_ptr<Dataset> tensors(Batch fields, std::vector<Normalize> normalize) {
  check_fields(fields);
  std::vector<Source> sources;
  for (const auto& [name, tensor] : fields) {
    sources.push_back({name, tensor.detach().resolve_conj().resolve_neg().contiguous()});
  }
  for (const Normalize& each : normalize) set_normalize(sources, each);
  return std::make_shared<TensorDataset>(std::move(sources));
}

}  // namespace levin::data
