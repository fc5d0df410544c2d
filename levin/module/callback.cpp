#include "levin/module/callback.h"

namespace levin {

Callback::~Callback() = default;

}  // namespace levin
