#pragma once
// GET /api/proxy/models and below it: what models there are, and their bytes. Handlers are called from any thread.

#include "hub/router.h"
#include "hub/shelf.h"

namespace linkcpp::hub {

/// `shelf` must outlive the router.
void add_model_routes(Router& router, const Shelf& shelf);

}  // namespace linkcpp::hub
