#pragma once
// What a call throws, as a value: the Error's id and text, so that one EXPECT says all.

#include <gmock/gmock.h>

#include <string>

#include "levin/base/error.h"

namespace levin::test {

/// "id: text" of the Error that the call throws, "" when it throws none.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace levin::test
