#include "moe/hole_marker.h"

#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

HoleMarker example(size_t n_expert) {
    HoleMarker marker;
    marker.model_fingerprint.bytes.fill(0xab);
    marker.kind = 7;
    marker.layer = 258;
    for (size_t i = 0; i < n_expert; ++i) {
        Digest digest;
        digest.bytes.fill(static_cast<uint8_t>(i + 1));
        marker.digests.push_back(digest);
    }
    return marker;
}

TEST(HoleMarker, IsReadBack) {
    for (size_t n_expert : {size_t{0}, size_t{1}, size_t{256}}) {
        const HoleMarker marker = example(n_expert);
        Bytes bytes = encode_hole_marker(marker);
        EXPECT_EQ(bytes.size(), hole_marker_size(n_expert));
        bytes.resize(bytes.size() + 100);  // what follows in the hole
        const auto decoded = decode_hole_marker(bytes);
        ASSERT_TRUE(decoded.ok() && *decoded);
        EXPECT_EQ((*decoded)->model_fingerprint, marker.model_fingerprint);
        EXPECT_EQ((*decoded)->kind, marker.kind);
        EXPECT_EQ((*decoded)->layer, marker.layer);
        EXPECT_EQ((*decoded)->digests, marker.digests);
    }
}

TEST(HoleMarker, HasTheDocumentedBytes) {
    const Bytes bytes = encode_hole_marker(example(1));
    Bytes expected = {'l', 'i', 'n', 'k', 'c', 'p', 'p', ':', 'h', 'o', 'l', 'e', '\r', '\n', 0x1a, 0,
                      1,   0,   0,   0,   7,   0,   0,   0,   2,   1,   0,   0,   1,    0,    0,    0};
    expected.insert(expected.end(), 32, 0xab);
    expected.insert(expected.end(), 32, 0x01);
    const Digest checksum = sha256(expected);
    EXPECT_EQ(checksum.hex(), "fa7dfc79c7c64f9d04b65ba6154bbd93ca54e7c857b5cbb70cb6ca0352728d84");
    expected.insert(expected.end(), checksum.bytes.begin(), checksum.bytes.end());
    EXPECT_EQ(bytes, expected);
}

TEST(HoleMarker, RealWeightsHaveNone) {
    for (const Bytes& bytes : {Bytes(), Bytes(5), Bytes(4096), Bytes(4096, 0xff)}) {
        const auto decoded = decode_hole_marker(bytes);
        ASSERT_TRUE(decoded.ok());
        EXPECT_FALSE(*decoded);
    }
}

TEST(HoleMarker, EveryDamageBehindTheMagicIsFound) {
    const Bytes intact = encode_hole_marker(example(3));
    for (size_t i = 16; i < intact.size(); ++i) {
        Bytes bytes = intact;
        bytes[i] ^= 0x10;
        EXPECT_FALSE(decode_hole_marker(bytes).ok()) << i;
    }
    for (size_t size = 16; size < intact.size(); ++size) {
        const Bytes cut(intact.begin(), intact.begin() + static_cast<long>(size));
        EXPECT_FALSE(decode_hole_marker(cut).ok()) << size;
    }
}

}  // namespace
}  // namespace linkcpp::moe
