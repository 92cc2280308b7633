#include "cmd/utf8.h"

#include <algorithm>
#include <utility>

namespace linkcpp::cmd {

namespace {

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// Bytes of the character that begins with `lead`; 1 for what cannot begin one.
size_t character_size(char lead) {
    const auto byte = static_cast<unsigned char>(lead);
    if (byte >= 0xc2 && byte < 0xe0) return 2;
    if (byte >= 0xe0 && byte < 0xf0) return 3;
    if (byte >= 0xf0 && byte < 0xf5) return 4;
    return 1;
}

/// Bytes at the end of `text` that begin a character and lack its rest.
size_t incomplete_tail(std::string_view text) {
    for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
        const char byte = text[text.size() - back];
        if (!continues(byte)) return character_size(byte) > back ? back : 0;
    }
    return 0;
}

}  // namespace

std::string Utf8Stream::add(std::string_view bytes) {
    held_ += bytes;
    const size_t whole = held_.size() - incomplete_tail(held_);
    std::string printable = held_.substr(0, whole);
    held_.erase(0, whole);
    return printable;
}

std::string Utf8Stream::finish() { return std::exchange(held_, {}); }

}  // namespace linkcpp::cmd
