#pragma once
// What a call throws, as a value: the Error's id and text, so that one EXPECT says all.

#include <string>

#include "levin/base/error.h"

namespace levin::test {

/// "id: text" of the Error that the call throws; "no error" when it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The same without the rank that says it: what all ranks are to say alike.
template <class Call>
std::string told_by(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id() + ": " + error.text();
  }
  return "no error";
}

/// The id alone.
template <class Call>
std::string error_id(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.id();
  }
  return "no error";
}

}  // namespace levin::test
