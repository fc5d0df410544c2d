// Links levin::xla, which is loaded with the program.
#include <iostream>

#include <levin/base/error.h>
#include <levin/xla/device/runtime.h>

int main() {
  try {
    levin::xla::Runtime::open({.plugin = "no_such_plugin"});
  } catch (const levin::Error& error) {
    std::cout << error.what() << "\n";
  }
}
