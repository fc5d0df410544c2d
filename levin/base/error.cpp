#include "levin/base/error.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "levin/base/rank.h"

namespace levin {
namespace {

std::string compose(std::string_view id, std::string_view text) {
  std::string message(id);
  message.append(": ").append(text);
  const RankInfo rank = rank_from_environment();
  if (rank.world_size > 1) message += " [rank " + std::to_string(rank.rank) + "]";
  return message;
}

std::terminate_handler other_handler = nullptr;

/// A mistake of the user is no crash: its text, and the code of a program that failed. A core file
/// and "terminate called" would only hide it.
void end_with_text() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    std::fflush(nullptr);
    std::_Exit(EXIT_FAILURE);
  } catch (...) {
    other_handler();
  }
  other_handler();
}

/// Only for programs that meet an Error.
void install_end_with_text() {
  static const bool installed = [] {
    other_handler = std::set_terminate(end_with_text);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

Error::Error(std::string id, std::string_view text, std::string_view file, int line)
    : std::runtime_error(compose(id, text)),
      id_(std::move(id)),
      text_(text),
      where_(file.empty() ? "" : std::string(file) + ":" + std::to_string(line)),
      rank_(rank_from_environment().rank) {
  install_end_with_text();
}

}  // namespace levin
