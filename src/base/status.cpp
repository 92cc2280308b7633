#include "base/status.h"

namespace linkcpp {

const char* code_name(Code code) {
    switch (code) {
        case Code::ok: return "ok";
        case Code::invalid_argument: return "invalid_argument";
        case Code::not_found: return "not_found";
        case Code::corrupt: return "corrupt";
        case Code::mismatch: return "mismatch";
        case Code::unavailable: return "unavailable";
        case Code::timeout: return "timeout";
        case Code::exhausted: return "exhausted";
        case Code::unsupported: return "unsupported";
        case Code::io: return "io";
    }
    return "unknown";
}

}  // namespace linkcpp
