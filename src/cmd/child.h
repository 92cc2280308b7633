#pragma once
// This program once more, as a process of its own that works for this one and never outlives it.

#include "base/status.h"

#include <atomic>
#include <string>
#include <vector>

namespace linkcpp::cmd {

/// A file without a name: it is gone with the last process that has it open, whatever happens. Close-on-exec.
class UnnamedFile {
  public:
    /// In TMPDIR, or in the system's folder for temporary files. Errors: io.
    static Result<UnnamedFile> create();
    UnnamedFile(UnnamedFile&& other) noexcept;
    UnnamedFile& operator=(UnnamedFile&&) = delete;
    ~UnnamedFile();

    int descriptor() const { return descriptor_; }
    Status write(const std::string& text);  ///< and goes back to the beginning

  private:
    explicit UnnamedFile(int descriptor) : descriptor_(descriptor) {}
    int descriptor_;
};

/// The descriptor under which the child finds the `file` given to run_self().
constexpr int child_file = 3;

/// Runs this program with `arguments`, `input` on its standard input and `file` as descriptor child_file; returns what it
/// wrote to standard output. Its standard error is ours. It is ended when `stop` is set. One thread only, and none other
/// may run. Errors: io, unavailable (it failed, or was ended).
Result<std::string> run_self(const std::vector<std::string>& arguments, const std::string& input, int file,
                             const std::atomic<bool>& stop);

}  // namespace linkcpp::cmd
