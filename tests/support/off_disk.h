#pragma once
// A data set as if it were read from a disk, so that a loader starts every worker it is asked for:
// for data in memory it starts no more than the machine has cores to spare.

#include <memory>
#include <utility>

#include "levin/data/dataset.h"

namespace levin::test {

inline std::shared_ptr<Dataset> off_disk(DatasetPtr data) {
  class OffDisk final : public Dataset {
   public:
    explicit OffDisk(DatasetPtr data) : data_(std::move(data)) {}
    int64_t size() const override { return data_->size(); }
    Batch get(std::span<const int64_t> indices) const override { return data_->get(indices); }
    Batch draw(std::span<const int64_t> indices, const DrawContext& context,
               Batch reuse) const override {
      return data_->draw(indices, context, std::move(reuse));
    }

   private:
    DatasetPtr data_;
  };
  return std::make_shared<OffDisk>(std::move(data));
}

}  // namespace levin::test
