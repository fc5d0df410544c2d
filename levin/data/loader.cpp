#include "levin/data/loader.h"

#include "levin/data/loader_impl.h"

namespace levin {

DataLoader::DataLoader(DatasetPtr dataset, DataLoaderOptions options)
    : impl_(std::make_shared<Impl>(std::move(dataset), std::move(options))) {}

int64_t DataLoader::size() const { return impl_->size(); }
const DatasetPtr& DataLoader::dataset() const { return impl_->dataset(); }
const DataLoaderOptions& DataLoader::options() const { return impl_->options(); }
void DataLoader::set_slice(DataSlice slice, bool even) { impl_->set_slice(slice, even); }
void DataLoader::set_pin_memory(bool pin_memory) { impl_->set_pin_memory(pin_memory); }
bool DataLoader::next(Batch& batch) { return impl_->next(batch); }
int64_t DataLoader::epoch() const { return impl_->epoch(); }
int64_t DataLoader::batches_done() const { return impl_->batches_done(); }
void DataLoader::set_epoch(int64_t epoch) { impl_->set_epoch(epoch); }
State DataLoader::state_dict() const { return impl_->state_dict(); }
void DataLoader::load_state_dict(const State& state) { impl_->load_state_dict(state); }

DataLoader::Iterator DataLoader::begin() { return Iterator(impl_); }

DataLoader::Iterator::Iterator(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)), iteration_(impl_->iterate()) {
  advance();
}

void DataLoader::Iterator::advance() {
  const bool latest = iteration_ == impl_->iteration();
  batch_ = {};
  if (!latest || !impl_->next(batch_)) impl_ = nullptr;
}

}  // namespace levin
