#pragma once
// The one error type. Every function that can fail for a reason outside this program returns Status, or Result<T> when
// there is a value. The message is a sentence for the person who runs the program: what happened and what to do.
// No exception crosses a room's face; asserts are only for our own bugs. Values are immutable and may cross threads.

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace linkcpp {

enum class Code {
    ok,
    invalid_argument,  ///< the caller (a user, a peer) asked for something that makes no sense
    not_found,         ///< a file, tensor, layer, expert or holder does not exist
    corrupt,           ///< bytes that are not what they claim to be
    mismatch,          ///< well-formed, but of another model, quantisation, version or numeric class
    unavailable,       ///< a peer is gone, refuses or is busy; another attempt elsewhere may succeed
    timeout,           ///< no progress within the time allowed
    exhausted,         ///< memory, disk or a cap
    unsupported,       ///< valid, but this version does not do it
    io,                ///< the operating system said no
};

/// The name of a code, e.g. "not_found"; used in `--json` output and logs.
const char* code_name(Code code);

class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

    bool ok() const { return code_ == Code::ok; }
    Code code() const { return code_; }
    const std::string& message() const { return message_; }

    /// The same error with the place it happened in front: "slice.gguf: tensor … ends beyond the file".
    Status in(const std::string& where) const { return ok() ? *this : Status(code_, where + ": " + message_); }

  private:
    Code code_ = Code::ok;
    std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}
    Result(Status status) : value_(std::move(status)) { assert(!std::get<Status>(value_).ok()); }
    Result(Code code, std::string message) : value_(Status(code, std::move(message))) {}

    bool ok() const { return std::holds_alternative<T>(value_); }
    Status status() const { return ok() ? Status() : std::get<Status>(value_); }

    T& operator*() { return std::get<T>(value_); }
    const T& operator*() const { return std::get<T>(value_); }
    T* operator->() { return &std::get<T>(value_); }
    const T* operator->() const { return &std::get<T>(value_); }

  private:
    std::variant<T, Status> value_;
};

/// Returns the error of an expression to the caller: `LINKCPP_TRY(file.read(...));`
#define LINKCPP_TRY(expression)                                                                                        \
    do {                                                                                                               \
        if (::linkcpp::Status linkcpp_status_ = (expression); !linkcpp_status_.ok()) return linkcpp_status_;           \
    } while (false)

}  // namespace linkcpp
