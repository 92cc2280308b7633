#pragma once
// Another program that works for this one: lines go in and out, and it never outlives us.

#include "base/status.h"

#include <atomic>
#include <string>
#include <sys/types.h>
#include <vector>

namespace linkcpp::cmd::bench {

class Service {
  public:
    /// `command`: the program's path and its arguments. What it says on standard error is dropped if `quiet`. Errors: io.
    static Result<Service> start(const std::vector<std::string>& command, bool quiet);
    Service(Service&& other) noexcept;
    Service& operator=(Service&& other) noexcept;
    /// Ends it, and waits until it is gone.
    ~Service();

    Status say(const std::string& line);
    /// The next line of its standard output. Errors: unavailable (it ended, or `stop` was set).
    Result<std::string> hear(const std::atomic<bool>& stop);
    /// The rest of the next line that begins with `prefix`.
    Result<std::string> hear(const std::string& prefix, const std::atomic<bool>& stop);

  private:
    Service(pid_t process, int in, int out) : process_(process), in_(in), out_(out) {}
    void end();

    pid_t process_ = -1;
    int in_ = -1, out_ = -1;
    std::string heard_;  // not yet a whole line
};

}  // namespace linkcpp::cmd::bench
