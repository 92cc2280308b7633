#pragma once
// A manifest as JSON, the form in which it travels; docs/SLICES.md describes it.

#include "base/signing_key.h"
#include "moe/manifest.h"

namespace linkcpp::hub {

/// `name`: what the hub calls the model.
Bytes manifest_json(const moe::Manifest& manifest, const std::string& name, const SigningKey& key);

}  // namespace linkcpp::hub
