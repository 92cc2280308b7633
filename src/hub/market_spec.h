#pragma once
// What the market has to know of a model that is served: experts and their bytes, layer by layer, from its tensor table.

#include "hub/market/block.h"
#include "hub/shelf.h"

#include <map>

namespace linkcpp::hub {

/// Replicas that are wanted of every expert of a model.
struct ReplicaTargets {
    uint32_t others = 2;  ///< of models without one of their own
    std::map<std::string, uint32_t> by_model;
};

/// Errors: not_found (a target for a model that is not on the shelf).
Result<std::vector<market::ModelSpec>> market_specs(const Shelf& shelf, const ReplicaTargets& targets);

}  // namespace linkcpp::hub
