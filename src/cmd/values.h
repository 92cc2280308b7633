#pragma once
// Values as they stand in options and environment variables, shared by all programs. Pure functions; an error names the
// value and what it should look like.

#include "base/status.h"
#include "net/loop.h"

#include <string>
#include <utility>
#include <vector>

namespace linkcpp::cmd {

/// "a:b" (half-open, both may be left out: ":4", "4:"), or "n" for n:n+1. `end` when the end is left out.
Result<std::pair<int, int>> parse_range(const std::string& text, int end);

/// "2G", "512M", "1.5 GB", "64k", "1000000": decimal units, bytes without one. "GiB", "MiB", "KiB" are binary.
Result<uint64_t> parse_size(const std::string& text);

/// A share from 0 to 1: "0.01", "1/256", "1".
Result<double> parse_share(const std::string& text);

/// A whole number of seconds, up to a day.
Result<Duration> parse_seconds(const std::string& text);

/// "host:port,host:port,…"; empty items are ignored.
Result<std::vector<net::Address>> parse_addresses(const std::string& text);

}  // namespace linkcpp::cmd
