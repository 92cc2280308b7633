#include "base/bytes.h"
#include "base/digest.h"
#include "base/floats.h"
#include "base/status.h"

#include <gtest/gtest.h>
#include <limits>
#include <utility>

namespace linkcpp {
namespace {

Bytes bytes_of(std::string_view text) { return Bytes(text.begin(), text.end()); }

TEST(Bytes, AreLittleEndian) {
    ByteWriter out;
    out.u8(1);
    out.u16(0x0203);
    out.u32(0x04050607);
    out.u64(0x08090a0b0c0d0e0full);
    out.f32(1.0f);
    out.string16("ab");
    const Bytes golden = {1,    3, 2, 7, 6, 5,    4,    0x0f, 0x0e, 0x0d, 0x0c, 0x0b,
                          0x0a, 9, 8, 0, 0, 0x80, 0x3f, 2,    0,    'a',  'b'};
    EXPECT_EQ(out.bytes(), golden);
    ByteReader in(golden);
    EXPECT_EQ(in.u8(), 1);
    EXPECT_EQ(in.u16(), 0x0203);
    EXPECT_EQ(in.u32(), 0x04050607u);
    EXPECT_EQ(in.u64(), 0x08090a0b0c0d0e0full);
    EXPECT_EQ(in.f32(), 1.0f);
    EXPECT_EQ(in.string16(), "ab");
    EXPECT_TRUE(in.done());
}

TEST(Bytes, AReaderNeverReadsBeyondItsEndAndStaysFailed) {
    const Bytes three = {1, 2, 3};
    ByteReader in(three);
    EXPECT_EQ(in.u32(), 0u);
    EXPECT_FALSE(in.ok());
    EXPECT_EQ(in.u8(), 0) << "what came before the failure does not come back";
    EXPECT_EQ(in.left(), 0u);
    EXPECT_TRUE(in.take(SIZE_MAX).empty());
    const Bytes long_string = {0xff, 0xff, 'x'};
    ByteReader text(long_string);
    EXPECT_EQ(text.string16(), "");
    EXPECT_FALSE(text.ok());
}

TEST(Digest, IsSha256) {
    // FIPS 180-2, appendix B.1, and the digest of nothing.
    EXPECT_EQ(sha256(bytes_of("abc")).hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256({}).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    Sha256 streamed;
    streamed.update(bytes_of("a"));
    streamed.update(bytes_of("bc"));
    EXPECT_EQ(streamed.finish(), sha256(bytes_of("abc")));
}

/// The test vectors of Certificate Transparency's reference implementation (RFC 9162 trees), leaves as given there.
TEST(Digest, MerkleRootsAreThoseOfCertificateTransparency) {
    const std::vector<Bytes> leaves = {
        {},
        {0x00},
        {0x10},
        {0x20, 0x21},
        {0x30, 0x31},
        {0x40, 0x41, 0x42, 0x43},
        {0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57},
        {0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f}};
    const char* roots[] = {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                           "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
                           "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
                           "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
                           "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
                           "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
                           "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
                           "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
                           "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"};
    for (size_t n = 0; n <= leaves.size(); ++n) {
        EXPECT_EQ(merkle_root({leaves.begin(), leaves.begin() + static_cast<long>(n)}).hex(), roots[n])
            << n << " leaves";
    }
}

TEST(Status, SaysWhereAndKeepsItsCode) {
    const Status status = Status(Code::corrupt, "a tensor ends beyond the file").in("slice.gguf");
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_EQ(status.message(), "slice.gguf: a tensor ends beyond the file");
    EXPECT_TRUE(Status().in("anywhere").ok());
    Result<int> result = Status(Code::io, "no");
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::io);
    result = 7;
    EXPECT_EQ(*result, 7);
    EXPECT_TRUE(result.status().ok());
}

TEST(Floats, OneInfinityOrNaNAnywhereIsFound) {
    using limits = std::numeric_limits<float>;
    for (const size_t size : {0u, 1u, 3u, 8u, 33u, 100u}) {
        std::vector<float> values(size, 0.0f);
        const float finite[] = {limits::max(), limits::lowest(), limits::denorm_min(), -0.0f, 1.0f};
        for (size_t i = 0; i < size; ++i)
            values[i] = finite[i % std::size(finite)];
        EXPECT_TRUE(all_finite(values));
        for (size_t i = 0; i < size; ++i) {
            for (const float bad : {limits::infinity(), -limits::infinity(), limits::quiet_NaN(), -limits::quiet_NaN(),
                                    limits::signaling_NaN()}) {
                const float before = std::exchange(values[i], bad);
                EXPECT_FALSE(all_finite(values)) << bad << " at " << i << " of " << size;
                values[i] = before;
            }
        }
    }
}

}  // namespace
}  // namespace linkcpp
