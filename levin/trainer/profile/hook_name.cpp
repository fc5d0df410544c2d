#include "levin/trainer/profile/hook_name.h"

#include <map>

#include "levin/module/module.h"

namespace levin::detail {
namespace {

template <class Hook>
std::string bytes_of(Hook hook) {
  return {reinterpret_cast<const char*>(&hook), sizeof(hook)};
}

std::map<std::string, std::string> make_names() {
  return {
      {bytes_of(&Callback::setup), "setup"},
      {bytes_of(&Callback::teardown), "teardown"},
      {bytes_of(&Callback::on_exception), "on_exception"},
      {bytes_of(&Callback::on_fit_start), "on_fit_start"},
      {bytes_of(&Callback::on_fit_end), "on_fit_end"},
      {bytes_of(&Callback::on_sanity_check_start), "on_sanity_check_start"},
      {bytes_of(&Callback::on_sanity_check_end), "on_sanity_check_end"},
      {bytes_of(&Callback::on_train_start), "on_train_start"},
      {bytes_of(&Callback::on_train_end), "on_train_end"},
      {bytes_of(&Callback::on_train_epoch_start), "on_train_epoch_start"},
      {bytes_of(&Callback::on_train_epoch_end), "on_train_epoch_end"},
      {bytes_of(&Callback::on_train_batch_start), "on_train_batch_start"},
      {bytes_of(&Callback::on_train_batch_end), "on_train_batch_end"},
      {bytes_of(&Callback::on_before_zero_grad), "on_before_zero_grad"},
      {bytes_of(&Callback::on_before_backward), "on_before_backward"},
      {bytes_of(&Callback::on_after_backward), "on_after_backward"},
      {bytes_of(&Callback::on_before_optimizer_step), "on_before_optimizer_step"},
      {bytes_of(&Callback::on_evaluation_start), "on_evaluation_start"},
      {bytes_of(&Callback::on_evaluation_end), "on_evaluation_end"},
      {bytes_of(&Callback::on_evaluation_batch_start), "on_evaluation_batch_start"},
      {bytes_of(&Callback::on_evaluation_batch_end), "on_evaluation_batch_end"},
      {bytes_of(&Callback::on_save_weights), "on_save_weights"},
      {bytes_of(&Callback::on_save_checkpoint), "on_save_checkpoint"},
      {bytes_of(&Callback::on_load_checkpoint), "on_load_checkpoint"},
  };
}

}  // namespace

std::string hook_name_of(const char* pointer, size_t bytes) {
  static const std::map<std::string, std::string> kNames = make_names();
  const auto found = kNames.find(std::string(pointer, bytes));
  return found == kNames.end() ? "hook" : found->second;
}

}  // namespace levin::detail
