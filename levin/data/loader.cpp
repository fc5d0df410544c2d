#include "levin/data/loader.h"

#include <optional>
#include <utility>

#include "levin/base/check.h"
#include "levin/data/loading/combined_loader.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/data/loading/streams/read_before.h"
#include "levin/data/loading/streams/stream_loader.h"

namespace levin {

DataLoader::DataLoader(DatasetPtr dataset, DataLoaderOptions options)
    : impl_(detail::make_map_loader(std::move(dataset), std::move(options))) {}
DataLoader::DataLoader(std::nullptr_t, DataLoaderOptions options)
    : DataLoader(DatasetPtr(), std::move(options)) {}
DataLoader::DataLoader(IterableDatasetPtr dataset, DataLoaderOptions options)
    : impl_(std::make_shared<detail::StreamLoader>(std::move(dataset), std::move(options))) {}
DataLoader::DataLoader(std::shared_ptr<detail::LoaderImpl> impl) : impl_(std::move(impl)) {}

DataLoader DataLoader::copy() const { return DataLoader(impl_->copy()); }

bool DataLoader::has_size() const { return impl_->size().has_value(); }

int64_t DataLoader::size() const {
  const std::optional<int64_t> size = impl_->size();
  LEVIN_CHECK(size.has_value(), "data.loader.size",
              "the number of batches of this iterable dataset is unknown; call has_size() first, "
              "or override shard_size() of the dataset");
  return *size;
}

const DatasetPtr& DataLoader::dataset() const { return impl_->dataset(); }
const DataLoaderOptions& DataLoader::options() const { return impl_->options(); }
void DataLoader::set_slice(DataSlice slice, bool even) { impl_->set_slice(slice, even); }
void DataLoader::end_together(const std::function<bool(bool ended)>& any_ended) {
  impl_->end_together(any_ended);
}
void DataLoader::set_pin_memory(bool pin_memory) { impl_->set_pin_memory(pin_memory); }
bool DataLoader::next(Batch& batch) { return impl_->next_padded(batch); }
bool DataLoader::at_end() { return impl_->at_end(); }
int64_t DataLoader::padding() const { return impl_->padding(); }
int64_t DataLoader::added() const { return impl_->added(); }
int64_t DataLoader::epoch() const { return impl_->epoch(); }
int64_t DataLoader::batches_done() const { return impl_->batches_done(); }
void DataLoader::set_epoch(int64_t epoch) { impl_->set_epoch(epoch); }
void DataLoader::mark() { impl_->mark(); }
bool DataLoader::rewind() { return impl_->rewind(); }
State DataLoader::state_dict() const { return impl_->state_dict(); }
void DataLoader::load_state_dict(const State& state) { impl_->load_state_dict(state); }
State DataLoader::merged_state(const std::vector<State>& ranks) {
  const bool is_combined = !ranks.empty() && ranks.front().contains("parts");
  return is_combined ? detail::merged_parts(ranks) : detail::merged_places(ranks);
}

DataLoader::Iterator DataLoader::begin() { return Iterator(impl_); }

DataLoader::Iterator::Iterator(std::shared_ptr<detail::LoaderImpl> impl)
    : impl_(std::move(impl)), iteration_(impl_->iterate()) {
  advance();
}

void DataLoader::Iterator::advance() {
  const bool latest = iteration_ == impl_->iteration();
  batch_ = {};
  if (!latest || !impl_->next_padded(batch_)) impl_ = nullptr;
}

}  // namespace levin
