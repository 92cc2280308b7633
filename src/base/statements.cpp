#include "base/statements.h"

#include "base/digest.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp {

namespace {

Bytes bytes_from(const std::string& text) { return Bytes(text.begin(), text.end()); }

}  // namespace

Bytes RegistrationStatement::bytes() const {
    return bytes_from(
        fmt::format("linkcpp node registration 1\nhub {}\nnonce {}\nnode {}\n", hub.hex(), nonce, node.hex()));
}

Bytes Receipt::bytes() const {
    return bytes_from(
        fmt::format("linkcpp receipt 1\nbackbone {}\npayer {}\nnode {}\nmodel {}\nlayers {}:{}\nexperts {}:{}\n"
                    "rows {}\nperiod {}:{}\nsequence {}\n",
                    backbone, payer, node, model, layer_begin, layer_end, expert_begin, expert_end, rows, period_begin,
                    period_end, sequence));
}

std::string Receipt::id() const { return sha256(bytes()).hex(); }

bool is_plain_name(const std::string& text) {
    return !text.empty() && text.size() <= 200 && std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7f;
    });
}

}  // namespace linkcpp
