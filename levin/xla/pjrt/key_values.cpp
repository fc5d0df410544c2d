#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt::detail {
namespace {

using Clock = std::chrono::steady_clock;

PJRT_Error* error_by(PJRT_CallbackError* make, PJRT_Error_Code code, const std::string& text) {
  return (*make)(code, text.data(), text.size());
}

// Not the store's own wait(): a TCPStore lets no other thread of this process in meanwhile, and the
// plugin may put from another one what a peer needs to answer.
bool comes(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  for (auto pause = std::chrono::milliseconds(1);;
       pause = std::min(2 * pause, std::chrono::milliseconds(20))) {
    if (store.check({key})) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

template <class Args>
PJRT_Error* KeyValues::look_up(Args* args, std::chrono::milliseconds timeout) {
  const std::string key(args->key, args->key_size);
  try {
    c10d::Store& store = *static_cast<KeyValues*>(args->user_arg)->store_;
    if (!comes(store, key, timeout)) {
      const bool waited = timeout.count() > 0;
      return error_by(args->callback_error,
                      waited ? PJRT_Error_Code_DEADLINE_EXCEEDED : PJRT_Error_Code_NOT_FOUND,
                      waited ? fmt::format("no process put '{}' within {} ms", key, timeout.count())
                             : fmt::format("'{}' is not in the store", key));
    }
    const std::vector<uint8_t> value = store.get(key);
    args->value = new char[value.size()];
    std::memcpy(args->value, value.data(), value.size());
    args->value_size = value.size();
    args->value_deleter_callback = [](char* bytes) { delete[] bytes; };
    return nullptr;
  } catch (const std::exception& error) {
    return error_by(args->callback_error, PJRT_Error_Code_UNAVAILABLE,
                    fmt::format("the store failed at '{}': {}", key, error.what()));
  }
}

PJRT_Error* KeyValues::get(PJRT_KeyValueGetCallback_Args* args) {
  return look_up(args, std::chrono::milliseconds(std::max(1, args->timeout_in_ms)));
}

PJRT_Error* KeyValues::try_get(PJRT_KeyValueTryGetCallback_Args* args) {
  return look_up(args, std::chrono::milliseconds(0));
}

PJRT_Error* KeyValues::put(PJRT_KeyValuePutCallback_Args* args) {
  const std::string key(args->key, args->key_size);
  try {
    static_cast<KeyValues*>(args->user_arg)
        ->store_->set(key, std::vector<uint8_t>(args->value, args->value + args->value_size));
    return nullptr;
  } catch (const std::exception& error) {
    return error_by(args->callback_error, PJRT_Error_Code_UNAVAILABLE,
                    fmt::format("the store failed at '{}': {}", key, error.what()));
  }
}

void KeyValues::give_to(PJRT_Client_Create_Args& args) {
  args.kv_get_callback = &KeyValues::get;
  args.kv_try_get_callback = &KeyValues::try_get;
  args.kv_put_callback = &KeyValues::put;
  args.kv_get_user_arg = args.kv_try_get_user_arg = args.kv_put_user_arg = this;
}

}  // namespace levin::xla::pjrt::detail
