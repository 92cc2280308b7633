#include "moe/gguf.h"
#include "moe/gguf_bytes.h"
#include "moe/gguf_writer.h"

#include "ggml.h"

#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

using test::GgufBytes;
using test::small_moe;

Result<Gguf> parse(const Bytes& bytes) { return parse_gguf(bytes, bytes.size()); }

void expect_refused(const GgufBytes& gguf, Code code, const std::string& saying) {
    const Bytes bytes = gguf.bytes();
    const auto parsed = parse(bytes);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.status().code(), code) << parsed.status().message();
    EXPECT_NE(parsed.status().message().find(saying), std::string::npos) << parsed.status().message();
}

Bytes array_value(GgufType element, uint64_t count, const Bytes& elements) {
    ByteWriter out;
    out.u32(static_cast<uint32_t>(element));
    out.u64(count);
    out.raw(elements);
    return out.take();
}

TEST(Gguf, ReadsAWholeFile) {
    const Bytes bytes = small_moe().bytes();
    const auto gguf = parse(bytes);
    ASSERT_TRUE(gguf.ok()) << gguf.status().message();
    EXPECT_EQ(gguf->version, 3u);
    EXPECT_EQ(gguf->text("general.name"), "Small");
    EXPECT_EQ(gguf->number("testmoe.expert_count"), 4u);
    EXPECT_EQ(gguf->find("no.such.key"), nullptr);
    ASSERT_EQ(gguf->tensors.size(), 9u);
    const GgufTensor& tensor = gguf->tensors[3];
    EXPECT_EQ(tensor.name, "blk.1.ffn_down_exps.weight");
    EXPECT_EQ(tensor.ne, (std::array<int64_t, 4>{6, 8, 4, 1}));
    EXPECT_EQ(tensor.bytes, 6u * 8 * 4 * 4);
    EXPECT_EQ(bytes[tensor.offset], 11);  // the seed of its data
}

TEST(Gguf, ReadsVersion2AndAnotherAlignment) {
    GgufBytes gguf = small_moe();
    gguf.version = 2;
    gguf.alignment = 128;
    gguf.u32("general.alignment", 128);
    const Bytes bytes = gguf.bytes();
    const auto parsed = parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->data_offset % 128, 0u);
    EXPECT_EQ(bytes[parsed->tensors[4].offset], 13);
}

TEST(Gguf, EveryMetadataTypeIsReadAndKeptAsBytes) {
    GgufBytes gguf;
    const std::pair<GgufType, size_t> types[] = {{GgufType::u8, 1},  {GgufType::i8, 1},      {GgufType::u16, 2},
                                                 {GgufType::i16, 2}, {GgufType::u32, 4},     {GgufType::i32, 4},
                                                 {GgufType::f32, 4}, {GgufType::boolean, 1}, {GgufType::u64, 8},
                                                 {GgufType::i64, 8}, {GgufType::f64, 8}};
    for (const auto& [type, size] : types) {
        Bytes one(size);
        one[0] = 1;
        gguf.field("one" + std::to_string(static_cast<int>(type)), type, one);
        gguf.field("many" + std::to_string(static_cast<int>(type)), GgufType::array,
                   array_value(type, 3, Bytes(3 * size)));
    }
    ByteWriter texts;
    for (const char* text : {"", "a", "bc"})
        GgufBytes::put_string(texts, text);
    gguf.field("texts", GgufType::array, array_value(GgufType::string, 3, texts.take()));
    const Bytes bytes = gguf.bytes();
    const auto parsed = parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->number("one4"), 1u);
    EXPECT_EQ(parsed->number("one11"), 1u);
    EXPECT_EQ(parsed->number("one6"), std::nullopt);  // a float is no number in this sense
    EXPECT_EQ(parsed->number("many4"), std::nullopt);
    EXPECT_EQ(parsed->text("one4"), std::nullopt);
    EXPECT_EQ(parsed->find("texts")->texts(), (std::vector<std::string_view>{"", "a", "bc"}));
    Bytes again;
    for (const GgufField& field : parsed->fields)
        again.insert(again.end(), field.raw.begin(), field.raw.end());
    EXPECT_TRUE(std::equal(again.begin(), again.end(), bytes.begin() + 24));
}

TEST(Gguf, TheWritersHeaderReadsBack) {
    const Bytes source = small_moe().bytes();
    const auto original = parse(source);
    GgufWriter writer(64);
    for (const GgufField& field : original->fields)
        writer.copy_all(field.raw, 1);
    writer.put_string("text", "value");
    const std::string texts[] = {"x", ""};
    writer.put_strings("texts", texts);
    const int64_t ne[] = {32, 3};
    EXPECT_EQ(writer.add_tensor("a", GGML_TYPE_Q8_0, ne, 102), 0u);
    EXPECT_EQ(writer.add_tensor("b", GGML_TYPE_F32, ne, 384), 128u);
    Bytes bytes = writer.header();
    EXPECT_EQ(bytes.size() % 64, 0u);
    bytes.resize(bytes.size() + writer.data_bytes());
    const auto parsed = parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->alignment, 64u);
    EXPECT_EQ(parsed->text("general.name"), "Small");
    EXPECT_EQ(parsed->find("texts")->texts(), (std::vector<std::string_view>{"x", ""}));
    EXPECT_EQ(parsed->tensors[1].bytes, 384u);
}

TEST(Gguf, TheHeaderAloneIsEnoughWhenTheSizeIsKnown) {
    const GgufBytes gguf = small_moe();
    const Bytes header = gguf.header();
    EXPECT_TRUE(parse_gguf(header, gguf.bytes().size()).ok());
    EXPECT_FALSE(parse_gguf(header, header.size()).ok());
}

TEST(Gguf, EveryTruncationIsRefused) {
    const Bytes bytes = small_moe().bytes();
    for (size_t size = 0; size < bytes.size(); ++size) {
        // A copy of exactly that size, so that reading one byte too many is seen by AddressSanitizer.
        const Bytes cut(bytes.begin(), bytes.begin() + static_cast<long>(size));
        EXPECT_FALSE(parse(cut).ok()) << size;
    }
    EXPECT_TRUE(parse(bytes).ok());
}

TEST(Gguf, NoFlippedByteOfTheHeaderCrashes) {
    const size_t header_size = small_moe().header().size();
    Bytes bytes = small_moe().bytes();
    for (size_t i = 0; i < header_size; ++i) {
        for (uint8_t flip : {0x01, 0x80, 0xff}) {
            bytes[i] ^= flip;
            (void)parse(bytes).ok();
            bytes[i] ^= flip;
        }
    }
}

TEST(GgufRefuses, AnotherMagic) {
    GgufBytes gguf = small_moe();
    gguf.magic = "GGML";
    expect_refused(gguf, Code::invalid_argument, "not a GGUF");
}

TEST(GgufRefuses, UnknownVersions) {
    for (uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
        GgufBytes gguf = small_moe();
        gguf.version = version;
        expect_refused(gguf, Code::unsupported, version & 0xffff ? "version" : "byte order");
    }
}

TEST(GgufRefuses, MoreMetadataThanTheFileCanHold) {
    for (uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, UINT64_MAX}) {
        GgufBytes gguf = small_moe();
        gguf.n_fields = count;
        expect_refused(gguf, Code::corrupt, count == 1000 ? "do not fit" : "too many");
    }
}

TEST(GgufRefuses, MoreTensorsThanTheFileCanHold) {
    for (uint64_t count : {uint64_t{1000}, uint64_t{1} << 40, UINT64_MAX}) {
        GgufBytes gguf = small_moe();
        gguf.n_tensors = count;
        expect_refused(gguf, Code::corrupt, count == 1000 ? "do not fit" : "too many");
    }
}

TEST(GgufRefuses, AStringLongerThanTheFile) {
    for (uint64_t length : {uint64_t{1} << 20, UINT64_MAX - 7, UINT64_MAX}) {
        ByteWriter value;
        value.u64(length);
        expect_refused(small_moe().field("long", GgufType::string, value.take()), Code::corrupt, "long");
    }
}

TEST(GgufRefuses, AnArrayLongerThanTheFile) {
    for (uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 61, UINT64_MAX}) {
        for (GgufType element : {GgufType::u8, GgufType::f64, GgufType::string}) {
            expect_refused(small_moe().field("list", GgufType::array, array_value(element, count, {})), Code::corrupt,
                           "list");
        }
    }
}

TEST(GgufRefuses, AnArrayOfArrays) {
    expect_refused(small_moe().field("nested", GgufType::array, array_value(GgufType::array, 1, Bytes(16))),
                   Code::corrupt, "type");
}

TEST(GgufRefuses, UnknownMetadataTypes) {
    expect_refused(small_moe().field("odd", static_cast<GgufType>(13), Bytes(8)), Code::corrupt, "type");
    expect_refused(small_moe().field("odd", GgufType::array, array_value(static_cast<GgufType>(99), 1, Bytes(8))),
                   Code::corrupt, "type");
}

TEST(GgufRefuses, AnEmptyKey) { expect_refused(small_moe().u32("", 1), Code::corrupt, "no name"); }

TEST(GgufRefuses, DuplicateKeys) {
    expect_refused(small_moe().u32("twice", 1).u32("twice", 1), Code::corrupt, "twice");
}

TEST(GgufRefuses, AnAlignmentThatIsNoPowerOfTwo) {
    for (uint32_t alignment : {0u, 3u, 33u}) {
        expect_refused(small_moe().u32("general.alignment", alignment), Code::corrupt, "power of two");
    }
}

TEST(GgufRefuses, AnAlignmentOfAnotherType) {
    ByteWriter value;
    value.u64(32);
    expect_refused(small_moe().field("general.alignment", GgufType::u64, value.take()), Code::corrupt, "uint32");
}

TEST(GgufRefuses, AHugeAlignment) {
    expect_refused(small_moe().u32("general.alignment", 1u << 31), Code::unsupported, "alignment");
}

TEST(GgufRefuses, DuplicateTensors) {
    expect_refused(small_moe().f32_tensor("token_embd.weight", {8}), Code::corrupt, "two tensors");
}

TEST(GgufRefuses, ATensorNameThatLlamaCppCannotHold) {
    expect_refused(small_moe().f32_tensor(std::string(64, 'n'), {8}), Code::corrupt, "too long");
}

TEST(GgufRefuses, TooManyDimensions) {
    GgufBytes gguf = small_moe();
    gguf.tensors[0].n_dims = 5;
    expect_refused(gguf, Code::corrupt, "dimensions");
}

TEST(GgufRefuses, ANegativeSize) {
    GgufBytes gguf = small_moe();
    gguf.tensors[0].ne = {-8, -16};
    expect_refused(gguf, Code::corrupt, "negative");
}

TEST(GgufRefuses, ShapesWhoseElementsOverflow) {
    for (std::vector<int64_t> ne :
         {std::vector<int64_t>{int64_t{1} << 40, int64_t{1} << 40}, {INT64_MAX, 2}, {4, INT64_MAX, 4, INT64_MAX}}) {
        GgufBytes gguf = small_moe();
        gguf.tensors[0].ne = ne;
        expect_refused(gguf, Code::corrupt, "elements");
    }
}

TEST(GgufRefuses, ShapesWhoseBytesOverflow) {
    GgufBytes gguf = small_moe();
    gguf.tensors[0].ne = {INT64_MAX / 2, 2};
    expect_refused(gguf, Code::corrupt, "bytes");
}

TEST(GgufRefuses, SizesThatOverflowInTheirSum) {
    GgufBytes gguf = small_moe();
    const int64_t large = INT64_MAX / 4;  // times four bytes: almost 2^63
    gguf.tensors[0].ne = gguf.tensors[1].ne = gguf.tensors[2].ne = {large};
    gguf.tensors[1].offset = (static_cast<uint64_t>(large) * 4 + 31) / 32 * 32;
    gguf.tensors[2].offset = 2 * *gguf.tensors[1].offset;
    expect_refused(gguf, Code::corrupt, "");
}

TEST(GgufRefuses, UnknownTensorTypes) {
    for (int32_t type : {-1, 1000, INT32_MAX, static_cast<int32_t>(GGML_TYPE_COUNT)}) {
        GgufBytes gguf = small_moe();
        gguf.tensors[0].type = type;
        expect_refused(gguf, Code::unsupported, "type");
    }
}

TEST(GgufRefuses, TensorTypesThatWereRemoved) {
    for (int32_t type : {4, 5, 31, 32, 33, 36, 37, 38}) {
        GgufBytes gguf = small_moe();
        gguf.tensors[0].type = type;
        expect_refused(gguf, Code::unsupported, "not used any more");
    }
}

TEST(GgufRefuses, RowsThatAreNoMultipleOfTheBlock) {
    GgufBytes gguf = small_moe();
    gguf.tensors[0].type = GGML_TYPE_Q8_0;  // blocks of 32, rows of 8
    expect_refused(gguf, Code::corrupt, "block size");
}

TEST(GgufRefuses, OverlappingTensors) {
    GgufBytes gguf = small_moe();
    gguf.tensors[2].offset = 0;
    expect_refused(gguf, Code::corrupt, "is said to be at");
}

TEST(GgufRefuses, GapsBetweenTensors) {
    GgufBytes gguf = small_moe();
    gguf.tensors.back().offset = UINT64_MAX - 31;
    expect_refused(gguf, Code::corrupt, "is said to be at");
}

TEST(GgufRefuses, ATensorThatEndsBeyondTheFile) {
    GgufBytes gguf = small_moe();
    gguf.tensors.back().ne = {8, 17};
    expect_refused(gguf, Code::corrupt, "cut short");
}

}  // namespace
}  // namespace linkcpp::moe
