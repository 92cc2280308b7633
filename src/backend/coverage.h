#pragma once
// Who holds what of a model, for people. Pure.

#include "backend/config.h"
#include "dispatch/dispatcher.h"

namespace linkcpp::backend {

/// The experts that nobody holds, of the layers that may go remote: "layers 0:2 experts 4:8, layer 3 all 16 experts"; ""
/// when there are none. `layers`: layer -> experts.
std::string missing_experts(const std::map<int, int>& layers, const ModelSettings& settings,
                            const std::vector<dispatch::HolderInfo>& holders);

/// One line per range of layers that the same workers compute: "layers 0:2  experts 0:8 at 10.0.0.5:50071".
std::vector<std::string> describe_holders(const std::map<int, int>& layers, const ModelSettings& settings,
                                          const std::vector<dispatch::HolderInfo>& holders, bool fallback);

}  // namespace linkcpp::backend
