#pragma once
// A hub's manifest as JSON (docs/HUB.md), believed only after its signature was checked. Pure functions, any thread.

#include "base/signing_key.h"
#include "moe/manifest.h"

namespace linkcpp::client {

struct SignedManifest {
    moe::Manifest manifest;
    Digest model_id;
    PublicKey hub_key;  ///< whose signature it has
};

/// Errors: corrupt (not JSON, fields missing or wrong, or not what was signed), unsupported (another version).
Result<SignedManifest> read_manifest(const std::string& json_text);

}  // namespace linkcpp::client
