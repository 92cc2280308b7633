// Manifests: what is in them, that their bytes are canonical, and that nothing damaged gets through.

#include "moe/manifest.h"

#include "moe/files.h"
#include "moe/gguf_bytes.h"
#include "moe/slice_writer.h"

#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

using test::TempFolder;

Manifest manifest_of(const std::string& path) {
    auto model = ModelFile::open(path);
    EXPECT_TRUE(model.ok()) << model.status().message();
    auto manifest = make_manifest(*model);
    EXPECT_TRUE(manifest.ok()) << manifest.status().message();
    return *manifest;
}

std::string split_model(const TempFolder& folder) {
    const auto parts = test::split(test::small_moe(), 3);
    for (int i = 0; i < 3; ++i)
        test::write_file(folder / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf"),
                         parts[static_cast<size_t>(i)].bytes());
    return folder / "m-00001-of-00003.gguf";
}

TEST(Manifest, KnowsEveryByteOfTheModel) {
    const TempFolder folder;
    for (const std::string& path : {test::capitals_model(), split_model(folder)}) {
        auto model = ModelFile::open(path);
        ASSERT_TRUE(model.ok());
        const Manifest manifest = manifest_of(path);
        ASSERT_EQ(static_cast<int>(manifest.files.size()), model->info().n_files);
        // The files again, out of what the digests cover and zeros.
        for (int file = 0; file < model->info().n_files; ++file) {
            const ByteSpan bytes = model->file(file).bytes();
            const ManifestFile& of = manifest.files[static_cast<size_t>(file)];
            Bytes covered(bytes.size());
            const auto cover = [&](uint64_t offset, uint64_t size, const Digest& digest) {
                const ByteSpan part = bytes.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
                EXPECT_EQ(sha256(part), digest);
                std::copy(part.begin(), part.end(), covered.begin() + static_cast<long>(offset));
            };
            cover(0, of.header_bytes, of.header);
            for (const ManifestTensor& tensor : manifest.tensors) {
                if (tensor.file != file) continue;
                const uint64_t part = tensor.bytes / tensor.digests.size();
                for (size_t i = 0; i < tensor.digests.size(); ++i)
                    cover(tensor.offset + i * part, part, tensor.digests[i]);
            }
            EXPECT_TRUE(std::equal(covered.begin(), covered.end(), bytes.begin()));
        }
    }
}

TEST(Manifest, LaysOutTheSliceOfTheModel) {
    const TempFolder folder;
    for (const std::string& path : {test::capitals_model(), split_model(folder)}) {
        auto model = ModelFile::open(path);
        ASSERT_TRUE(model.ok());
        const SliceRequest request{1, 2, 1, 3};
        const auto by_file = plan_slice(*model, request);
        const auto by_manifest = plan_slice(outline_of(manifest_of(path), "m"), request);
        ASSERT_TRUE(by_file.ok() && by_manifest.ok());
        const auto header = slice_header(*model, *by_file);
        ASSERT_TRUE(header.ok());
        EXPECT_EQ(slice_header(*by_manifest).bytes, header->bytes);
        EXPECT_EQ(by_manifest->total_bytes, by_file->total_bytes);
        ASSERT_EQ(by_manifest->ranges.size(), by_file->ranges.size());
        for (size_t i = 0; i < by_file->ranges.size(); ++i) {
            EXPECT_EQ(by_manifest->ranges[i].file, by_file->ranges[i].file);
            EXPECT_EQ(by_manifest->ranges[i].offset, by_file->ranges[i].offset);
            EXPECT_EQ(by_manifest->ranges[i].bytes, by_file->ranges[i].bytes);
        }
    }
}

TEST(Manifest, OneByteOfTheModelMakesAnotherId) {
    const TempFolder folder;
    test::GgufBytes gguf = test::small_moe();
    test::write_file(folder / "a.gguf", gguf.bytes());
    gguf.tensors[0].data[0] ^= 1;
    test::write_file(folder / "b.gguf", gguf.bytes());
    const Manifest a = manifest_of(folder / "a.gguf"), b = manifest_of(folder / "b.gguf");
    EXPECT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_NE(model_id(a), model_id(b));
    EXPECT_EQ(model_id(a), model_id(manifest_of(folder / "a.gguf")));
}

TEST(Manifest, BytesThatNoDigestCoversAreRefused) {
    const TempFolder folder;
    Bytes bytes = test::small_moe().bytes();
    bytes.insert(bytes.end(), 100, 0);
    test::write_file(folder / "zeros.gguf", bytes);
    manifest_of(folder / "zeros.gguf");
    bytes.back() = 1;
    test::write_file(folder / "m.gguf", bytes);
    auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(make_manifest(*model).status().code(), Code::unsupported);
}

TEST(Manifest, EncodingIsCanonical) {
    const TempFolder folder;
    const Bytes bytes = encode_manifest(manifest_of(split_model(folder)));
    const auto decoded = decode_manifest(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(encode_manifest(*decoded), bytes);
    EXPECT_EQ(model_id(*decoded), sha256(bytes));
}

TEST(Manifest, DamagedBytesAreRefusedOrAnotherModel) {
    const TempFolder folder;
    test::write_file(folder / "m.gguf", test::small_moe().bytes());
    const Bytes bytes = encode_manifest(manifest_of(folder / "m.gguf"));
    for (size_t size = 0; size < bytes.size(); ++size)
        EXPECT_FALSE(decode_manifest(ByteSpan(bytes).first(size)).ok()) << size;
    Bytes longer = bytes;
    longer.push_back(0);
    EXPECT_FALSE(decode_manifest(longer).ok());
    for (size_t at = 0; at < bytes.size(); ++at) {
        for (const uint8_t mask : {0x01, 0x80, 0xff}) {
            Bytes damaged = bytes;
            damaged[at] ^= mask;
            const auto decoded = decode_manifest(damaged);
            if (decoded.ok()) {
                EXPECT_EQ(encode_manifest(*decoded), damaged) << at;
            }
        }
    }
}

TEST(Manifest, WhatDoesNotFitTogetherIsRefused) {
    const TempFolder folder;
    test::write_file(folder / "m.gguf", test::small_moe().bytes());
    const Manifest good = manifest_of(folder / "m.gguf");
    const auto refused = [&good](const std::function<void(Manifest&)>& spoil) {
        Manifest manifest = good;
        spoil(manifest);
        return check_manifest(manifest).code() == Code::corrupt && !decode_manifest(encode_manifest(manifest)).ok();
    };
    EXPECT_TRUE(refused([](Manifest& m) { m.alignment = 48; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.files.clear(); }));
    EXPECT_TRUE(refused([](Manifest& m) { m.files[0].header_bytes = m.files[0].bytes + 1; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.files[0].bytes = UINT64_MAX; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.files[0].bytes -= 4096; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.n_layer = 1; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.n_expert = UINT32_MAX; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].file = 1; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].offset = UINT64_MAX; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].bytes += 1; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].type = 4; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].ne[0] = -1; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].name = m.tensors[1].name; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].name = "a\033[31m"; }));
    EXPECT_TRUE(refused([](Manifest& m) { std::swap(m.tensors[0], m.tensors[1]); }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[1].offset = m.tensors[0].offset; }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors.back().digests.pop_back(); }));
    EXPECT_TRUE(refused([](Manifest& m) { m.tensors[0].digests.push_back({}); }));
}

}  // namespace
}  // namespace linkcpp::moe
