#pragma once
// The join token of a private swarm: a file with one line that the operator gives to those who may join.

#include "base/bytes.h"
#include "base/status.h"

#include <string>

namespace linkcpp::cmd {

/// Without white space around it. Errors: io, invalid_argument (shorter than 16 characters: it could be guessed).
Result<Bytes> read_join_token(const std::string& path);

}  // namespace linkcpp::cmd
