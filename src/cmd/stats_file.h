#pragma once
// Statistics as JSON lines, one per layer and batch. Thread-safe.

#include "backend/config.h"
#include "base/status.h"

#include <fstream>
#include <memory>
#include <mutex>

namespace linkcpp::cmd {

class StatsFile {
  public:
    /// Overwrites `path`. Errors: io.
    static Result<std::unique_ptr<StatsFile>> open(const std::string& path);
    void write(const backend::LayerStats& stats);

  private:
    std::mutex mutex_;
    std::ofstream file_;  // protected by mutex_
};

}  // namespace linkcpp::cmd
