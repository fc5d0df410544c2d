#include <iostream>

#include "levin/base/error.h"
#include "levin/base/random.h"

int main() {
  const levin::Error error("consumer.check", "an error of the user's own");
  if (levin::seed_everything(7) != 7 || error.id() != "consumer.check") return 1;
  std::cout << "levin works\n";
}
