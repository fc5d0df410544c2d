#pragma once
// Worker threads of loaders: what they inherit from the thread that starts them, and how what they
// throw is put into words.

#include <functional>
#include <stop_token>
#include <string>
#include <thread>

namespace levin::detail {

/// A thread with the caller's LibTorch settings (autocast, grad mode, ...) whose operators do not
/// spread over further threads.
std::jthread start_worker(std::function<void(const std::stop_token&)> work);

/// In a catch block: the text of what was caught, without LibTorch's backtrace.
std::string current_message();

}  // namespace levin::detail
