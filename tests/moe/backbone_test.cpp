#include "moe/backbone_writer.h"
#include "moe/files.h"
#include "moe/gguf_bytes.h"
#include "moe/hole_marker.h"

#include "ggml.h"
#include "gguf.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

using test::GgufBytes;
using test::TempFolder;

/// 8 layers of 4 experts of 64 kB per matrix: 3 MB of experts, enough for holes.
GgufBytes roomy_moe() {
    GgufBytes gguf;
    gguf.text("general.architecture", "testmoe").u32("testmoe.block_count", 4).u32("testmoe.expert_count", 4);
    for (int layer = 0; layer < 4; ++layer) {
        const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
        gguf.f32_tensor(prefix + "norm.weight", {128}).f32_tensor(prefix + "up_exps.weight", {128, 128, 4});
        gguf.f32_tensor(prefix + "down_exps.bias", {128, 4}).f32_tensor(prefix + "down_exps.weight", {128, 128, 4});
        gguf.f32_tensor(prefix + "up_exps.scale", {4});
    }
    return gguf;
}

std::vector<std::string> write_parts(const TempFolder& folder, const std::vector<GgufBytes>& parts) {
    std::vector<std::string> paths;
    for (size_t i = 0; i < parts.size(); ++i) {
        paths.push_back(folder /
                        ("m-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(parts.size()) + ".gguf"));
        test::write_file(paths.back(), parts[i].bytes());
    }
    return paths;
}

TEST(Backbone, EqualsTheModelOutsideOfItsHoles) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    const auto written = write_backbone(*model, folder / "b.gguf");
    ASSERT_TRUE(written.ok()) << written.status().message();
    EXPECT_EQ(written->n_bytes_holes, model->info().n_bytes_experts);
    Bytes expected = test::read_file(test::capitals_model());
    for (const ExpertTensor& tensor : model->expert_tensors()) {
        const SourceRange range = model->source(tensor, 0, tensor.n_slabs);
        std::fill_n(expected.begin() + static_cast<long>(range.offset), range.bytes, uint8_t{0});
        HoleMarker marker{
            model->info().fingerprint, tensor.name.kind.code(), static_cast<uint32_t>(tensor.name.layer), {}};
        for (int i = 0; i < tensor.n_slabs; ++i)
            marker.digests.push_back(*model->slab_digest(tensor, i));
        const Bytes head = encode_hole_marker(marker);
        std::copy(head.begin(), head.end(), expected.begin() + static_cast<long>(range.offset));
    }
    EXPECT_EQ(test::read_file(folder / "b.gguf"), expected);
}

TEST(Backbone, HasRealHoles) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(write_backbone(*model, folder / "b.gguf").ok());
    const MappedFile file = std::move(*MappedFile::open(folder / "b.gguf"));
    if (lseek(file.fd(), 0, SEEK_HOLE) == static_cast<off_t>(file.bytes().size())) {
        GTEST_SKIP() << "the file system of the temporary folder has no holes";
    }
    for (const ExpertTensor& tensor : model->expert_tensors()) {
        const SourceRange range = model->source(tensor, 0, tensor.n_slabs);
        const off_t hole = lseek(file.fd(), static_cast<off_t>(range.offset), SEEK_HOLE);
        EXPECT_LT(hole, static_cast<off_t>(range.offset + range.bytes)) << tensor.name.str();
    }
    const uint64_t kept = model->info().n_bytes - model->info().n_bytes_experts;
    EXPECT_LT(test::allocated_bytes(folder / "b.gguf"), kept + kept / 4);
}

TEST(Backbone, OpensAsTheSameModelWithoutExperts) {
    const TempFolder folder;
    test::write_file(folder / "m.gguf", roomy_moe().bytes());
    auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model.ok()) << model.status().message();
    ASSERT_TRUE(write_backbone(*model, folder / "b.gguf").ok());
    auto backbone = ModelFile::open(folder / "b.gguf");
    ASSERT_TRUE(backbone.ok()) << backbone.status().message();
    EXPECT_TRUE(backbone->info().sparse);
    EXPECT_FALSE(model->info().sparse);
    EXPECT_EQ(backbone->info().fingerprint, model->info().fingerprint);
    EXPECT_EQ(backbone->info().n_bytes_experts, model->info().n_bytes_experts);
    ASSERT_TRUE(model->compute_digests().ok());
    for (const ExpertTensor& tensor : model->expert_tensors()) {
        const ExpertTensor* hole = backbone->find(tensor.name);
        ASSERT_NE(hole, nullptr);
        EXPECT_EQ(hole->n_slabs, 4);
        if (tensor.name.kind.role == Role::scale) {  // 16 bytes: no room for a marker, so it is all there
            EXPECT_TRUE(std::equal(hole->data.begin(), hole->data.end(), tensor.data.begin(), tensor.data.end()));
            EXPECT_EQ(*backbone->slab_digest(*hole, 3), tensor.digests[3]);
        } else {
            EXPECT_TRUE(hole->data.empty());
            EXPECT_EQ(hole->digests, tensor.digests);
            EXPECT_EQ(*backbone->slab_digest(*hole, 3), tensor.digests[3]);
        }
    }
    EXPECT_EQ(plan_slice(*backbone, {}).status().code(), Code::invalid_argument);
    EXPECT_EQ(write_backbone(*backbone, folder / "b2.gguf").status().code(), Code::invalid_argument);
}

TEST(Backbone, IsReadByLlamaCpp) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(write_backbone(*model, folder / "b.gguf").ok());
    ggml_context* context = nullptr;
    gguf_context* gguf = gguf_init_from_file((folder / "b.gguf").c_str(), {false, &context});
    ASSERT_NE(gguf, nullptr);
    EXPECT_EQ(static_cast<size_t>(gguf_get_n_tensors(gguf)), model->gguf(0).tensors.size());
    const Bytes original = test::read_file(test::capitals_model());
    for (const GgufTensor& entry : model->gguf(0).tensors) {
        if (ExpertTensorName::parse(entry.name)) continue;
        const ggml_tensor* read = ggml_get_tensor(context, std::string(entry.name).c_str());
        ASSERT_NE(read, nullptr) << entry.name;
        EXPECT_EQ(std::memcmp(read->data, original.data() + entry.offset, entry.bytes), 0) << entry.name;
    }
    ggml_free(context);
    gguf_free(gguf);
}

TEST(Backbone, MarkersOfAnotherModelOrTensorAreRefused) {
    const TempFolder folder;
    test::write_file(folder / "m.gguf", roomy_moe().bytes());
    auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(write_backbone(*model, folder / "b.gguf").ok());
    const Bytes intact = test::read_file(folder / "b.gguf");
    const ExpertTensor* first = model->find({0, {Matrix::up, Role::weight}});
    const ExpertTensor* second = model->find({1, {Matrix::up, Role::weight}});
    const auto marker_at = [&](const ExpertTensor* tensor) {
        return intact.begin() + static_cast<long>(model->source(*tensor, 0, 0).offset);
    };
    const auto size = static_cast<long>(hole_marker_size(4));

    Bytes exchanged = intact;
    std::copy(marker_at(second), marker_at(second) + size, exchanged.begin() + (marker_at(first) - intact.begin()));
    test::write_file(folder / "x.gguf", exchanged);
    EXPECT_EQ(ModelFile::open(folder / "x.gguf").status().code(), Code::corrupt);

    Bytes damaged = intact;
    damaged[static_cast<size_t>(marker_at(first) - intact.begin()) + 80] ^= 1;
    test::write_file(folder / "x.gguf", damaged);
    EXPECT_EQ(ModelFile::open(folder / "x.gguf").status().code(), Code::corrupt);

    GgufBytes other = GgufBytes::from(intact);
    other.text("general.name", "another model");
    test::write_file(folder / "x.gguf", other.bytes());
    EXPECT_EQ(ModelFile::open(folder / "x.gguf").status().code(), Code::mismatch);
}

TEST(SplitModel, OpensFromAnyPart) {
    const TempFolder folder;
    const GgufBytes whole = roomy_moe();
    test::write_file(folder / "whole.gguf", whole.bytes());
    auto single = ModelFile::open(folder / "whole.gguf");
    ASSERT_TRUE(single.ok());
    for (const std::string& path : write_parts(folder, test::split(whole, 3))) {
        auto model = ModelFile::open(path);
        ASSERT_TRUE(model.ok()) << model.status().message();
        EXPECT_EQ(model->info().n_files, 3);
        EXPECT_EQ(model->info().n_bytes, single->info().n_bytes);
        EXPECT_EQ(model->expert_tensors().size(), single->expert_tensors().size());
        for (const ExpertTensor& tensor : single->expert_tensors()) {
            const ExpertTensor* part = model->find(tensor.name);
            ASSERT_NE(part, nullptr);
            EXPECT_TRUE(std::equal(part->data.begin(), part->data.end(), tensor.data.begin(), tensor.data.end()));
        }
    }
}

TEST(SplitModel, GivesTheSameSliceAsTheWholeOne) {
    const TempFolder folder;
    const GgufBytes whole = roomy_moe();
    test::write_file(folder / "whole.gguf", whole.bytes());
    const auto paths = write_parts(folder, test::split(whole, 3));
    Digest digests[2];
    for (size_t i = 0; i < 2; ++i) {
        auto model = ModelFile::open(i == 0 ? folder / "whole.gguf" : paths[1]);
        ASSERT_TRUE(model.ok());
        const auto plan = plan_slice(*model, {1, 4, 1, 3});
        ASSERT_TRUE(plan.ok());
        const auto written = write_slice(*model, *plan, folder / "s.gguf");
        ASSERT_TRUE(written.ok());
        auto slice = SliceFile::open(folder / "s.gguf");
        ASSERT_TRUE(slice.ok() && slice->verify().ok());
        digests[i] = written->info.digest;
    }
    EXPECT_EQ(digests[0], digests[1]);
}

TEST(SplitModel, GivesASplitBackbone) {
    const TempFolder folder;
    auto model = ModelFile::open(write_parts(folder, test::split(roomy_moe(), 3))[0]);
    ASSERT_TRUE(model.ok());
    for (const char* name : {"b.gguf", "c-00001-of-00003.gguf"}) {
        const auto written = write_backbone(*model, folder / name);
        ASSERT_TRUE(written.ok()) << written.status().message();
        ASSERT_EQ(written->paths.size(), 3u);
        EXPECT_EQ(written->paths[1], folder / (std::string(name, 1) + "-00002-of-00003.gguf"));
        auto backbone = ModelFile::open(written->paths[2]);
        ASSERT_TRUE(backbone.ok()) << backbone.status().message();
        EXPECT_TRUE(backbone->info().sparse);
        EXPECT_EQ(backbone->info().fingerprint, model->info().fingerprint);
    }
    EXPECT_EQ(write_backbone(*model, folder / "m.gguf").status().code(), Code::invalid_argument);
}

TEST(SplitModel, MissingForeignAndRenamedPartsAreRefused) {
    const TempFolder folder;
    auto parts = test::split(roomy_moe(), 3);
    const auto paths = write_parts(folder, parts);
    std::filesystem::rename(paths[1], folder / "away.gguf");
    auto opened = ModelFile::open(paths[0]);
    EXPECT_EQ(opened.status().code(), Code::not_found);
    EXPECT_NE(opened.status().message().find("part 2 of 3"), std::string::npos) << opened.status().message();
    EXPECT_EQ(ModelFile::open(folder / "away.gguf").status().code(), Code::invalid_argument);

    test::write_file(paths[1], parts[2].bytes());  // says that it is part 3
    EXPECT_EQ(ModelFile::open(paths[0]).status().code(), Code::corrupt);

    parts[1].tensors.pop_back();
    test::write_file(paths[1], parts[1].bytes());
    EXPECT_EQ(ModelFile::open(paths[0]).status().code(), Code::corrupt);

    parts[1].tensors.push_back(parts[0].tensors[1]);
    test::write_file(paths[1], parts[1].bytes());
    EXPECT_EQ(ModelFile::open(paths[0]).status().code(), Code::corrupt);
}

void expect_no_model(GgufBytes gguf, Code code) {
    const TempFolder folder;
    test::write_file(folder / "m.gguf", gguf.bytes());
    EXPECT_EQ(ModelFile::open(folder / "m.gguf").status().code(), code);
}

TEST(ModelFile, WhatMakesNoSenseIsRefused) {
    expect_no_model(test::small_moe().without("general.architecture"), Code::invalid_argument);
    expect_no_model(test::small_moe().without("testmoe.block_count"), Code::invalid_argument);
    expect_no_model(test::small_moe().without("testmoe.block_count").u32("testmoe.block_count", 4000000000),
                    Code::corrupt);
    expect_no_model(test::small_moe().without("testmoe.block_count").u32("testmoe.block_count", 1), Code::corrupt);
    expect_no_model(test::small_moe().f32_tensor("blk.2000000000.ffn_up_exps.weight", {8, 6, 4}), Code::corrupt);
    expect_no_model(test::small_moe().f32_tensor("blk.1.ffn_gate_up_exps.weight", {8, 12, 5}), Code::corrupt);
    expect_no_model(test::small_moe().f32_tensor("blk.1.ffn_gate_up_exps.weight", {8, 12, 4, 2}), Code::corrupt);
    expect_no_model(test::small_moe().f32_tensor("blk.1.ffn_gate_exps.scale", {4, 2}), Code::corrupt);
    expect_no_model(test::small_moe().f32_tensor("blk.1.ffn_gate_up_exps.weight", {0, 12, 4}), Code::corrupt);
    GgufBytes blocks = test::small_moe();
    blocks.tensors.push_back({"blk.1.ffn_gate_exps.scale", {32}, GGML_TYPE_Q8_0, Bytes(34), {}, {}});
    expect_no_model(blocks, Code::unsupported);
}

TEST(ModelFile, MissingFilesFoldersAndEmptyFiles) {
    const TempFolder folder;
    test::write_file(folder / "empty.gguf", {});
    EXPECT_EQ(ModelFile::open(folder / "none.gguf").status().code(), Code::not_found);
    EXPECT_EQ(ModelFile::open(folder.path()).status().code(), Code::invalid_argument);
    EXPECT_EQ(ModelFile::open(folder / "empty.gguf").status().code(), Code::corrupt);
}

}  // namespace
}  // namespace linkcpp::moe
