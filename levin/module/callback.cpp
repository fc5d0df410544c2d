#include "levin/module/module.h"

namespace levin {

Callback::~Callback() = default;

}  // namespace levin
