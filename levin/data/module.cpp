#include "levin/data/module.h"

namespace levin {

DataModule::~DataModule() = default;

}  // namespace levin
