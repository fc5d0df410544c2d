// A step that is recorded without memory: its batches, and what a forecast needs beside the graph.
#include <filesystem>

#include "levin/accelerator/compiled/graph_file.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/files/atomic.h"
#include "levin/strategy/forecast/description.h"

namespace levin {

Batch Engine::for_step(const Batch& batch) const {
  if (!fake_) return batch;
  Batch fake;
  for (const auto& [name, tensor] : batch) fake.set(name, graph::without_memory(tensor));
  return fake;
}

Batch Engine::taken_for_step(Batch batch) {
  if (!fake_) return batch;
  batch = for_step(batch);
  loop_recording_.take_input(batch);
  return batch;
}

void Engine::describe() const {
  const std::filesystem::path file = detail::description_file();
  if (file.empty()) return;
  forecast::Description description = forecast::describe(modules_, planned_fsdp_);
  description.samples = batch_size_;
  description.batches = options_.accumulation_steps();
  description.precision = precision_.name;
  description.ddp = planned_ddp_;
  if (fake_) description.reads = fake_->reads();
  files::write_file_atomically(file, forecast::to_json(description));
}

}  // namespace levin
