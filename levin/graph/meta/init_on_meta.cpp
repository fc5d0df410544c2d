#include "levin/graph/meta/init_on_meta.h"

#include <torch/nn/module.h>

#include <optional>

#include "levin/base/check.h"
#include "levin/graph/meta/build_handler_impl.h"
#include "levin/graph/record/current_place.h"

namespace levin::detail {

namespace {

thread_local MetaBuild* outermost = nullptr;

void name_contents(const std::string& name, const at::Tensor& tensor) {
  graph::meta::Contents* contents = graph::meta::contents_of(tensor);
  if (contents == nullptr || !contents->name.empty()) return;
  contents->name = name;
  graph::meta::refuse_pointers(
      tensor, fmt::format("{} was built by levin::init_on_meta and has no values yet; call "
                          "levin::materialize before they are read",
                          graph::meta::describe(tensor)));
}

}  // namespace

struct MetaBuild::State {
  graph::meta::BuildHandler handler;
  std::optional<graph::HandlerScope> scope{handler};
};

MetaBuild::MetaBuild() {
  if (outermost != nullptr) return;
  outermost = this;
  state_ = std::make_unique<State>();
}

MetaBuild::~MetaBuild() {
  if (outermost == this) outermost = nullptr;
}

void MetaBuild::finish(const torch::nn::Module* module) {
  if (state_ == nullptr) return;
  state_->scope.reset();
  state_->handler.settle();
  if (module == nullptr) return;
  for (const auto& item : module->named_parameters()) name_contents(item.key(), item.value());
  for (const auto& item : module->named_buffers()) name_contents(item.key(), item.value());
  state_->handler.log().has_names = true;
  std::erase_if(state_->handler.log().made, [](const auto& made) { return made.expired(); });
}

void MetaBuild::fail() {
  if (state_ == nullptr) throw;
  state_->scope.reset();
  state_->handler.settle_if_possible();
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const size_t at = text.find(graph::meta::kPointerRefused);
    if (at == std::string::npos) throw;
    const std::string tensor = text.substr(at + graph::meta::kPointerRefused.size());
    const std::string place =
        error.backtrace() == nullptr ? "" : graph::place_in(error.backtrace()->get());
    LEVIN_FAIL("graph.meta.values",
               "the constructor accesses the data of a tensor that init_on_meta builds without "
               "memory, {}{}; make it with device(torch::kCPU), or build without init_on_meta",
               tensor.substr(0, tensor.find('\n')), place);
  }
}

}  // namespace levin::detail
