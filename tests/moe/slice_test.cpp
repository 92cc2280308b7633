#include "moe/files.h"
#include "moe/gguf_bytes.h"
#include "moe/slice_format.h"
#include "moe/slice_writer.h"

#include "ggml.h"
#include "gguf.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

using test::GgufBytes;
using test::TempFolder;

std::string small_model(const TempFolder& folder) {
    const std::string path = folder / "model.gguf";
    test::write_file(path, test::small_moe().bytes());
    return path;
}

Result<WrittenSlice> cut(const ModelFile& model, const SliceRequest& request, const std::string& path,
                         const WriteOptions& options = {}) {
    auto plan = plan_slice(model, request);
    if (!plan.ok()) return plan.status();
    return write_slice(model, *plan, path, options);
}

Result<WrittenSlice> cut(const std::string& model_path, const SliceRequest& request, const std::string& path) {
    auto model = ModelFile::open(model_path);
    if (!model.ok()) return model.status();
    return cut(*model, request, path);
}

void expect_slabs_of(const ModelFile& model, const SliceFile& slice) {
    for (const ExpertTensor& tensor : slice.tensors()) {
        const ExpertTensor* whole = model.find(tensor.name);
        ASSERT_NE(whole, nullptr) << tensor.name.str();
        EXPECT_EQ(tensor.type, whole->type);
        EXPECT_EQ(tensor.ne, whole->ne);
        const auto first = static_cast<size_t>(slice.info().expert_begin) * whole->slab_bytes;
        const ByteSpan expected = whole->data.subspan(first, tensor.data.size());
        EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(), expected.begin())) << tensor.name.str();
    }
}

TEST(Slice, HoldsExactlyTheBytesOfTheModel) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok()) << model.status().message();
    for (const SliceRequest& request : {SliceRequest{}, {0, 1, 0, 16}, {1, 3, 4, 9}, {3, 4, 15, 16}, {2, -1, 8, -1}}) {
        const std::string path = folder / "s.gguf";
        const auto written = cut(*model, request, path);
        ASSERT_TRUE(written.ok()) << written.status().message();
        auto slice = SliceFile::open(path);
        ASSERT_TRUE(slice.ok()) << slice.status().message();
        const SliceInfo& info = slice->info();
        EXPECT_EQ(info.layer_begin, request.layer_begin);
        EXPECT_EQ(info.layer_end, request.layer_end < 0 ? 4 : request.layer_end);
        EXPECT_EQ(info.expert_end, request.expert_end < 0 ? 16 : request.expert_end);
        EXPECT_EQ(info.digest, written->info.digest);
        EXPECT_EQ(info.model_fingerprint, model->info().fingerprint);
        EXPECT_EQ(info.architecture, "qwen35moe");
        EXPECT_EQ(info.n_expert, 16);
        EXPECT_EQ(info.n_expert_used, 4);
        EXPECT_EQ(info.n_embd, 256);
        EXPECT_EQ(slice->file_bytes(), written->bytes);
        EXPECT_EQ(slice->tensors().size(), static_cast<size_t>(info.layer_end - info.layer_begin) * 3);
        expect_slabs_of(*model, *slice);
        EXPECT_TRUE(slice->verify().ok());
    }
}

TEST(Slice, HoldsBiasesAndScales) {
    const TempFolder folder;
    auto model = ModelFile::open(small_model(folder));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->layers()[0].n_expert, 0);
    EXPECT_EQ(model->layers()[1].n_expert, 4);
    ASSERT_TRUE(cut(*model, {0, 2, 1, 3}, folder / "s.gguf").ok());
    auto slice = SliceFile::open(folder / "s.gguf");
    ASSERT_TRUE(slice.ok()) << slice.status().message();
    EXPECT_EQ(slice->tensors().size(), 5u);
    expect_slabs_of(*model, *slice);
}

TEST(Slice, IsReadByLlamaCpp) {
    const TempFolder folder;
    ASSERT_TRUE(cut(test::capitals_model(), {1, 2, 3, 8}, folder / "s.gguf").ok());
    auto slice = SliceFile::open(folder / "s.gguf");
    ggml_context* context = nullptr;
    gguf_context* gguf = gguf_init_from_file((folder / "s.gguf").c_str(), {false, &context});
    ASSERT_NE(gguf, nullptr);
    EXPECT_EQ(gguf_get_n_tensors(gguf), 3);
    for (const ExpertTensor& tensor : slice->tensors()) {
        const ggml_tensor* read = ggml_get_tensor(context, tensor.name.str().c_str());
        ASSERT_NE(read, nullptr);
        EXPECT_EQ(read->ne[2], 5);
        ASSERT_EQ(ggml_nbytes(read), tensor.data.size());
        EXPECT_EQ(std::memcmp(read->data, tensor.data.data(), tensor.data.size()), 0);
    }
    ggml_free(context);
    gguf_free(gguf);
}

TEST(Slice, ThePlanKnowsTheBytesWithoutAFile) {
    const TempFolder folder;
    auto model = ModelFile::open(small_model(folder));
    ASSERT_TRUE(model.ok());
    const auto plan = plan_slice(*model, {1, 2, 0, 3});
    ASSERT_TRUE(plan.ok());
    const auto header = slice_header(*model, *plan);
    ASSERT_TRUE(header.ok());
    Bytes streamed = header->bytes;
    EXPECT_EQ(streamed.size(), plan->header_bytes);
    for (const SourceRange& range : plan->ranges) {
        Bytes piece(static_cast<size_t>(range.bytes));
        if (range.file != SourceRange::padding) {
            ASSERT_TRUE(model->file(range.file).read_at(range.offset, piece).ok());
        }
        streamed.insert(streamed.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(streamed.size(), plan->total_bytes);
    const auto written = write_slice(*model, *plan, folder / "s.gguf");
    ASSERT_TRUE(written.ok());
    EXPECT_EQ(written->info.digest, header->digest);
    EXPECT_EQ(test::read_file(folder / "s.gguf"), streamed);
}

TEST(Slice, DigestIsTheDocumentedOne) {
    // The values were computed apart from this code, with Python's hashlib; see docs/SLICES.md.
    ExpertTensor up{{2, {Matrix::up, Role::weight}}, GGML_TYPE_F16, {3, 2}, 12, {}, {}};
    ExpertTensor bias{{2, {Matrix::up, Role::bias}}, GGML_TYPE_F32, {2, 1}, 8, {}, {}};
    for (uint8_t expert = 0; expert < 3; ++expert) {
        up.digests.push_back(sha256(Bytes(12, expert)));
        bias.digests.push_back(sha256(Bytes(8, expert)));
    }
    const Digest digest = slice_digest({up, bias}, 5);
    EXPECT_EQ(digest.hex(), "5904958fac34866afeb73c36a634a4486c71975a32688b1cef1aa10680ccb6b5");
    EXPECT_EQ(slice_digest({bias, up}, 5), digest);
    EXPECT_NE(slice_digest({up, bias}, 4), digest);
}

TEST(Slice, AFlippedByteInAnySlabIsFound) {
    const TempFolder folder;
    ASSERT_TRUE(cut(small_model(folder), {}, folder / "s.gguf").ok());
    const Bytes intact = test::read_file(folder / "s.gguf");
    const auto gguf = parse_gguf(intact, intact.size());
    int n_slabs = 0;
    for (const GgufTensor& tensor : gguf->tensors) {
        for (uint64_t slab = 0; slab < 4; ++slab, ++n_slabs) {
            Bytes damaged = intact;
            damaged[tensor.offset + slab * (tensor.bytes / 4) + static_cast<uint64_t>(n_slabs) % (tensor.bytes / 4)] ^=
                0x20;
            test::write_file(folder / "d.gguf", damaged);
            auto slice = SliceFile::open(folder / "d.gguf");
            ASSERT_TRUE(slice.ok());
            const Status status = slice->verify();
            EXPECT_EQ(status.code(), Code::corrupt);
            const std::string place = "expert " + std::to_string(slab) + " of " + std::string(tensor.name);
            EXPECT_NE(status.message().find(place), std::string::npos) << status.message();
        }
    }
    EXPECT_EQ(n_slabs, 20);
}

TEST(Slice, EveryTruncationAndExtensionIsRefused) {
    const TempFolder folder;
    ASSERT_TRUE(cut(small_model(folder), {1, 2, 0, 2}, folder / "s.gguf").ok());
    Bytes bytes = test::read_file(folder / "s.gguf");
    bytes.push_back(0);
    test::write_file(folder / "s.gguf", bytes);
    EXPECT_FALSE(SliceFile::open(folder / "s.gguf").ok());
    for (size_t size = bytes.size() - 1; size-- > 0;) {
        std::filesystem::resize_file(folder / "s.gguf", size);
        ASSERT_FALSE(SliceFile::open(folder / "s.gguf").ok()) << size;
    }
}

TEST(Slice, NoFlippedByteOfTheHeaderCrashes) {
    const TempFolder folder;
    ASSERT_TRUE(cut(small_model(folder), {1, 2, 0, 2}, folder / "s.gguf").ok());
    const Bytes bytes = test::read_file(folder / "s.gguf");
    const size_t header = parse_gguf(bytes, bytes.size())->data_offset;
    const int fd = ::open((folder / "s.gguf").c_str(), O_WRONLY | O_CLOEXEC);
    for (size_t i = 0; i < header; ++i) {
        const uint8_t flipped = bytes[i] ^ 0x81;
        ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(i)), 1);
        if (auto slice = SliceFile::open(folder / "s.gguf"); slice.ok()) (void)slice->verify().ok();
        if (auto model = ModelFile::open(folder / "s.gguf"); model.ok()) (void)model->info();
        ASSERT_EQ(pwrite(fd, &bytes[i], 1, static_cast<off_t>(i)), 1);
    }
    close(fd);
}

/// A slice whose parts were exchanged must not open.
class DamagedSlice : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(cut(small_model(folder_), {1, 2, 1, 3}, folder_ / "s.gguf").ok());
        slice_ = GgufBytes::from(test::read_file(folder_ / "s.gguf"));
    }
    void expect_refused(Code code, const std::string& saying) {
        test::write_file(folder_ / "d.gguf", slice_.bytes());
        const auto opened = SliceFile::open(folder_ / "d.gguf");
        ASSERT_FALSE(opened.ok());
        EXPECT_EQ(opened.status().code(), code) << opened.status().message();
        EXPECT_NE(opened.status().message().find(saying), std::string::npos) << opened.status().message();
    }
    TempFolder folder_;
    GgufBytes slice_;
};

TEST_F(DamagedSlice, UntouchedItOpens) {
    test::write_file(folder_ / "d.gguf", slice_.bytes());
    EXPECT_TRUE(SliceFile::open(folder_ / "d.gguf").ok());
}

TEST_F(DamagedSlice, OfAnotherVersion) {
    slice_.without(slice_key::version).u32(slice_key::version, 2);
    expect_refused(Code::unsupported, "format 2");
}

TEST_F(DamagedSlice, WithoutVersionItIsNoSlice) {
    slice_.without(slice_key::version);
    expect_refused(Code::invalid_argument, "not a slice");
}

TEST_F(DamagedSlice, WithoutEachKey) {
    for (const char* key : {slice_key::layer_begin, slice_key::layer_end, slice_key::expert_begin,
                            slice_key::expert_end, slice_key::n_expert, slice_key::n_expert_used, slice_key::n_embd,
                            slice_key::fingerprint, slice_key::digest}) {
        const GgufBytes intact = slice_;
        slice_.without(key);
        expect_refused(Code::corrupt, key);
        slice_ = intact;
    }
}

TEST_F(DamagedSlice, WithRangesThatMakeNoSense) {
    for (const auto& [key, value] :
         {std::pair(slice_key::layer_end, 1u), std::pair(slice_key::expert_end, 1u),
          std::pair(slice_key::expert_end, 5u), std::pair(slice_key::expert_end, 4u),
          std::pair(slice_key::layer_begin, 2000000000u), std::pair(slice_key::layer_begin, 3u)}) {
        const GgufBytes intact = slice_;
        slice_.without(key).u32(key, value);
        expect_refused(Code::corrupt, "");
        slice_ = intact;
    }
}

TEST_F(DamagedSlice, WithoutDigests) {
    slice_.without(slice_key::digests("blk.1.ffn_up_exps.weight"));
    expect_refused(Code::corrupt, "digests");
}

TEST_F(DamagedSlice, WithATextThatIsNoDigest) {
    slice_.without(slice_key::digest).text(slice_key::digest, std::string(64, 'G'));
    expect_refused(Code::corrupt, slice_key::digest);
}

TEST_F(DamagedSlice, WithADigestOfSomethingElse) {
    slice_.without(slice_key::digest).text(slice_key::digest, std::string(64, '0'));
    expect_refused(Code::corrupt, "not that of its slabs");
}

TEST_F(DamagedSlice, WithATensorMissing) {
    slice_.tensors.pop_back();
    expect_refused(Code::corrupt, "not that of its slabs");
}

TEST_F(DamagedSlice, WithoutTensors) {
    slice_.tensors.clear();
    expect_refused(Code::corrupt, "without experts");
}

TEST_F(DamagedSlice, WithAnotherTensor) {
    slice_.f32_tensor("output.weight", {8});
    expect_refused(Code::corrupt, "not one of experts");
}

TEST_F(DamagedSlice, WithATensorOfAnotherLayer) {
    slice_.f32_tensor("blk.0.ffn_up_exps.weight", {8, 6, 2});
    expect_refused(Code::corrupt, "outside of the slice's layers");
}

/// One field of a slice file at a time.
struct SliceDamage {
    const char* name;
    void (*damage)(GgufBytes& slice);
    Code code;
};
void PrintTo(const SliceDamage& damage, std::ostream* out) { *out << damage.name; }

class DamagedSliceField : public DamagedSlice, public testing::WithParamInterface<SliceDamage> {};

TEST_P(DamagedSliceField, IsRefused) {
    GetParam().damage(slice_);
    expect_refused(GetParam().code, "");
}

void set(GgufBytes& slice, const char* key, uint32_t value) { slice.without(key).u32(key, value); }
void set_text(GgufBytes& slice, const std::string& key, const std::string& text) { slice.without(key).text(key, text); }
void set_digests(GgufBytes& slice, const std::vector<std::string>& digests) {
    const std::string key = slice_key::digests("blk.1.ffn_up_exps.weight");
    ByteWriter value;
    value.u32(static_cast<uint32_t>(GgufType::string));
    value.u64(digests.size());
    for (const std::string& digest : digests)
        GgufBytes::put_string(value, digest);
    slice.without(key).field(key, GgufType::array, value.take());
}
GgufBytes::Tensor& up(GgufBytes& slice) {
    for (GgufBytes::Tensor& tensor : slice.tensors) {
        if (tensor.name == "blk.1.ffn_up_exps.weight") return tensor;
    }
    return slice.tensors.front();
}
const std::string some_digest(64, '0');

// The slice holds experts 1 to 2 of layer 1.
INSTANTIATE_TEST_SUITE_P(
    All, DamagedSliceField,
    testing::Values(
        SliceDamage{"magic", [](GgufBytes& s) { s.magic = "GGUX"; }, Code::invalid_argument},
        SliceDamage{"gguf_version", [](GgufBytes& s) { s.version = 99; }, Code::unsupported},
        SliceDamage{"count_of_metadata_less", [](GgufBytes& s) { s.n_fields = s.fields.size() - 1; }, Code::corrupt},
        SliceDamage{"count_of_metadata_largest", [](GgufBytes& s) { s.n_fields = UINT64_MAX; }, Code::corrupt},
        SliceDamage{"count_of_tensors_more", [](GgufBytes& s) { s.n_tensors = s.tensors.size() + 1; }, Code::corrupt},
        SliceDamage{"count_of_tensors_largest", [](GgufBytes& s) { s.n_tensors = UINT64_MAX; }, Code::corrupt},
        SliceDamage{"version_zero", [](GgufBytes& s) { set(s, slice_key::version, 0); }, Code::unsupported},
        SliceDamage{"version_text", [](GgufBytes& s) { set_text(s, slice_key::version, "1"); }, Code::invalid_argument},
        SliceDamage{"layer_begin_text", [](GgufBytes& s) { set_text(s, slice_key::layer_begin, "1"); }, Code::corrupt},
        SliceDamage{"layer_end_before_begin", [](GgufBytes& s) { set(s, slice_key::layer_end, 0); }, Code::corrupt},
        SliceDamage{"layer_end_largest", [](GgufBytes& s) { set(s, slice_key::layer_end, UINT32_MAX); }, Code::corrupt},
        SliceDamage{"expert_begin_another", [](GgufBytes& s) { set(s, slice_key::expert_begin, 2); }, Code::corrupt},
        SliceDamage{"expert_begin_largest", [](GgufBytes& s) { set(s, slice_key::expert_begin, UINT32_MAX); },
                    Code::corrupt},
        SliceDamage{"expert_end_largest", [](GgufBytes& s) { set(s, slice_key::expert_end, UINT32_MAX); },
                    Code::corrupt},
        SliceDamage{"experts_moved",
                    [](GgufBytes& s) { set(s, slice_key::expert_begin, 0), set(s, slice_key::expert_end, 2); },
                    Code::corrupt},
        SliceDamage{"n_expert_zero", [](GgufBytes& s) { set(s, slice_key::n_expert, 0); }, Code::corrupt},
        SliceDamage{"n_expert_largest", [](GgufBytes& s) { set(s, slice_key::n_expert, UINT32_MAX); }, Code::corrupt},
        SliceDamage{"n_expert_used_largest", [](GgufBytes& s) { set(s, slice_key::n_expert_used, UINT32_MAX); },
                    Code::corrupt},
        SliceDamage{"n_embd_largest", [](GgufBytes& s) { set(s, slice_key::n_embd, UINT32_MAX); }, Code::corrupt},
        SliceDamage{"n_embd_negative",
                    [](GgufBytes& s) {
                        s.without(slice_key::n_embd).field(slice_key::n_embd, GgufType::i32, {255, 255, 255, 255});
                    },
                    Code::corrupt},
        SliceDamage{"fingerprint_short", [](GgufBytes& s) { set_text(s, slice_key::fingerprint, "00"); },
                    Code::corrupt},
        SliceDamage{"fingerprint_number", [](GgufBytes& s) { set(s, slice_key::fingerprint, 1); }, Code::corrupt},
        SliceDamage{"digest_long", [](GgufBytes& s) { set_text(s, slice_key::digest, some_digest + "0"); },
                    Code::corrupt},
        SliceDamage{"digest_upper_case", [](GgufBytes& s) { set_text(s, slice_key::digest, std::string(64, 'A')); },
                    Code::corrupt},
        SliceDamage{"digest_number", [](GgufBytes& s) { set(s, slice_key::digest, 1); }, Code::corrupt},
        SliceDamage{"slab_digests_none", [](GgufBytes& s) { set_digests(s, {}); }, Code::corrupt},
        SliceDamage{"slab_digests_one_less", [](GgufBytes& s) { set_digests(s, {some_digest}); }, Code::corrupt},
        SliceDamage{"slab_digests_one_more",
                    [](GgufBytes& s) {
                        set_digests(s, {some_digest, some_digest, some_digest});
                    },
                    Code::corrupt},
        SliceDamage{"slab_digests_no_digests",
                    [](GgufBytes& s) {
                        set_digests(s, {"", ""});
                    },
                    Code::corrupt},
        SliceDamage{"slab_digests_of_other_slabs",
                    [](GgufBytes& s) {
                        set_digests(s, {some_digest, some_digest});
                    },
                    Code::corrupt},
        SliceDamage{"slab_digests_number",
                    [](GgufBytes& s) { set(s, slice_key::digests("blk.1.ffn_up_exps.weight").c_str(), 1); },
                    Code::corrupt},
        SliceDamage{"tensor_of_more_experts",
                    [](GgufBytes& s) {
                        up(s).ne = {8, 3, 4};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_without_experts",
                    [](GgufBytes& s) {
                        up(s).ne = {8, 6, 0};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_turned_round",
                    [](GgufBytes& s) {
                        up(s).ne = {6, 8, 2};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_of_another_type", [](GgufBytes& s) { up(s).type = 26; }, Code::corrupt},
        SliceDamage{"tensor_of_a_smaller_type", [](GgufBytes& s) { up(s).type = 1; }, Code::corrupt},
        SliceDamage{"tensor_type_negative", [](GgufBytes& s) { up(s).type = -1; }, Code::unsupported},
        SliceDamage{"tensor_type_largest", [](GgufBytes& s) { up(s).type = INT32_MAX; }, Code::unsupported},
        SliceDamage{"tensor_size_negative",
                    [](GgufBytes& s) {
                        up(s).ne = {-8, 6, 2};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_size_largest",
                    [](GgufBytes& s) {
                        up(s).ne = {INT64_MAX, 6, 2};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_with_no_dimensions", [](GgufBytes& s) { up(s).n_dims = 0; }, Code::corrupt},
        SliceDamage{"tensor_with_five_dimensions", [](GgufBytes& s) { up(s).n_dims = 5; }, Code::corrupt},
        SliceDamage{"tensor_with_a_fourth_dimension",
                    [](GgufBytes& s) {
                        up(s).ne = {8, 3, 2, 2};
                    },
                    Code::corrupt},
        SliceDamage{"tensor_offset_largest", [](GgufBytes& s) { up(s).offset = UINT64_MAX; }, Code::corrupt},
        SliceDamage{"tensor_offset_zero_twice", [](GgufBytes& s) { s.tensors.back().offset = 0; }, Code::corrupt},
        SliceDamage{"tensor_name_empty", [](GgufBytes& s) { up(s).name = ""; }, Code::corrupt},
        SliceDamage{"tensor_name_of_another_spelling", [](GgufBytes& s) { up(s).name = "blk.01.ffn_up_exps.weight"; },
                    Code::corrupt},
        SliceDamage{"tensor_name_of_a_huge_layer",
                    [](GgufBytes& s) { up(s).name = "blk.99999999999.ffn_up_exps.weight"; }, Code::corrupt},
        SliceDamage{"tensor_name_too_long", [](GgufBytes& s) { up(s).name = std::string(64, 'n'); }, Code::corrupt},
        SliceDamage{"tensor_name_twice", [](GgufBytes& s) { up(s).name = s.tensors.back().name; }, Code::corrupt},
        SliceDamage{"alignment_zero", [](GgufBytes& s) { set(s, "general.alignment", 0); }, Code::corrupt},
        SliceDamage{"alignment_odd", [](GgufBytes& s) { set(s, "general.alignment", 33); }, Code::corrupt}),
    [](const auto& test) { return test.param.name; });

TEST(SliceWriter, RangesThatTheModelDoesNotHaveAreRefused) {
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    for (const SliceRequest& request : {SliceRequest{0, 5, 0, -1},
                                        {4, -1, 0, -1},
                                        {2, 2, 0, -1},
                                        {3, 1, 0, -1},
                                        {-1, 2, 0, -1},
                                        {0, -1, 0, 17},
                                        {0, -1, 16, -1},
                                        {0, -1, 5, 5}}) {
        const auto plan = plan_slice(*model, request);
        ASSERT_FALSE(plan.ok());
        EXPECT_EQ(plan.status().code(), Code::invalid_argument);
    }
}

TEST(SliceWriter, DenseLayersAloneAreRefused) {
    const TempFolder folder;
    auto model = ModelFile::open(small_model(folder));
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(plan_slice(*model, {0, 1, 0, -1}).status().code(), Code::invalid_argument);
}

TEST(SliceWriter, DenseModelsAndSlicesAreRefused) {
    const TempFolder folder;
    GgufBytes dense = test::small_moe();
    dense.tensors.resize(3);
    test::write_file(folder / "dense.gguf", dense.bytes());
    auto model = ModelFile::open(folder / "dense.gguf");
    ASSERT_TRUE(model.ok());
    EXPECT_NE(plan_slice(*model, {}).status().message().find("dense"), std::string::npos);
    ASSERT_TRUE(cut(small_model(folder), {}, folder / "s.gguf").ok());
    EXPECT_EQ(ModelFile::open(folder / "s.gguf").status().code(), Code::invalid_argument);
}

TEST(SliceWriter, TheModelItselfIsNeverOverwritten) {
    const TempFolder folder;
    const std::string path = small_model(folder);
    std::filesystem::create_symlink(path, folder / "link.gguf");
    std::filesystem::create_hard_link(path, folder / "hard.gguf.part");
    const Bytes before = test::read_file(path);
    for (const char* name : {"model.gguf", "link.gguf", "hard.gguf"}) {
        EXPECT_EQ(cut(path, {}, folder / name).status().code(), Code::invalid_argument) << name;
    }
    EXPECT_EQ(test::read_file(path), before);
}

TEST(SliceWriter, WhenInterruptedNothingIsLeft) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    std::atomic<bool> cancelled = false;
    const WriteOptions options{[&cancelled](uint64_t done, uint64_t) { cancelled = done > 1000000; }, &cancelled};
    EXPECT_EQ(cut(*model, {}, folder / "s.gguf", options).status().code(), Code::unavailable);
    EXPECT_EQ(folder.n_files(), 0u);
}

TEST(SliceWriter, AFolderOrAMissingFolderIsRefused) {
    const TempFolder folder;
    EXPECT_EQ(cut(test::capitals_model(), {}, folder.path()).status().code(), Code::invalid_argument);
    EXPECT_EQ(cut(test::capitals_model(), {}, folder / "no/such/s.gguf").status().code(), Code::io);
    EXPECT_EQ(folder.n_files(), 0u);
}

}  // namespace
}  // namespace linkcpp::moe
