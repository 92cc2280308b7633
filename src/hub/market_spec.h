#pragma once
// What the market has to know of a model that is served: experts and their bytes, layer by layer, from its tensor table.

#include "hub/market/block.h"
#include "hub/shelf.h"

namespace linkcpp::hub {

/// `target`: replicas wanted of every expert.
std::vector<market::ModelSpec> market_specs(const Shelf& shelf, uint32_t target);

}  // namespace linkcpp::hub
