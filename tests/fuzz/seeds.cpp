// Writes the inputs that the fuzzers begin with, made by the project's own encoders: fuzz_seeds FOLDER gives
// FOLDER/<target>/<number>. Every option of a target and every kind of message, program and file occurs.
#include "moe/backbone_writer.h"
#include "moe/files.h"
#include "moe/gguf_bytes.h"
#include "moe/hole_marker.h"
#include "moe/program.h"
#include "moe/slice_writer.h"
#include "wire/samples.h"

#include <cstdio>
#include <map>

namespace {

using namespace linkcpp;

class Corpus {
  public:
    explicit Corpus(std::string folder) : folder_(std::move(folder)) {}
    void add(const std::string& target, const Bytes& front, const Bytes& rest) {
        Bytes input = front;
        input.insert(input.end(), rest.begin(), rest.end());
        std::filesystem::create_directories(folder_ + "/" + target);
        test::write_file(folder_ + "/" + target + "/" + std::to_string(++count_[target]), input);
    }

  private:
    std::string folder_;
    std::map<std::string, int> count_;
};

void add_sessions(Corpus& corpus) {
    constexpr uint8_t backbone = 1, sealed = 2, open = 4, pieces = 0x50;
    Bytes to_worker = wire::encode(wire::test::sample_hello()),
          to_backbone = wire::encode(wire::test::sample_welcome());
    for (const Bytes& frame : wire::test::sample_frames()) {
        for (uint8_t side : {uint8_t{0}, backbone}) {
            corpus.add("session", {static_cast<uint8_t>(side | sealed | open)}, frame);
            corpus.add("session", {static_cast<uint8_t>(side | sealed)}, frame);
        }
        const auto type = static_cast<wire::FrameType>(frame[6]);
        if (type == wire::FrameType::hello || type == wire::FrameType::welcome) continue;
        const bool answer = type == wire::FrameType::result || type == wire::FrameType::refuse;
        if (!answer) to_worker.insert(to_worker.end(), frame.begin(), frame.end());
        if (type != wire::FrameType::program && type != wire::FrameType::compute)
            to_backbone.insert(to_backbone.end(), frame.begin(), frame.end());
    }
    for (uint8_t options : {uint8_t{0}, sealed, pieces}) {
        corpus.add("session", {options}, to_worker);
        corpus.add("session", {static_cast<uint8_t>(options | backbone)}, to_backbone);
    }
}

void add_programs(Corpus& corpus) {
    using moe::Matrix;
    using moe::Op;
    ByteWriter shapes;
    for (int64_t matrix = 0; matrix < 4; ++matrix) {
        shapes.u8(3);
        shapes.put<int64_t>(matrix == 3 ? 24 : 8);
        shapes.put<int64_t>(matrix == 3 ? 8 : matrix == 2 ? 48 : 24);
    }
    for (uint8_t op = 1; op <= 46; ++op) {
        moe::Program program;
        program.weighted = op % 2 == 0;
        program.steps = {{.op = Op::matmul, .matrix = Matrix::up},
                         {.op = Op::matmul, .matrix = Matrix::gate},
                         {.op = static_cast<Op>(op), .a = 1, .b = static_cast<uint8_t>(op >= 30 ? 2 : 0)},
                         {.op = Op::matmul, .matrix = Matrix::down, .a = 3}};
        if (op == 21 || op == 22 || op == 45) program.steps[2].p = {0.5f, 2.0f};
        if (op == 46) program.steps[2].p[0] = 7.0f;
        corpus.add("program", shapes.bytes(), moe::encode_program(program));
    }
}

Status add_files(Corpus& corpus) {
    const test::TempFolder folder;
    test::write_file(folder / "model.gguf", test::small_moe().bytes());
    for (uint8_t options : {uint8_t{0}, uint8_t{1}})
        corpus.add("model", {options}, test::read_file(folder / "model.gguf"));
    auto model = moe::ModelFile::open(folder / "model.gguf");
    if (!model.ok()) return model.status();
    for (int first : {0, 2}) {
        const auto plan = moe::plan_slice(*model, {.expert_begin = first, .expert_end = first + 2});
        if (!plan.ok()) return plan.status();
        const auto written = moe::write_slice(*model, *plan, folder / "slice.gguf");
        if (!written.ok()) return written.status();
        for (uint8_t options : {uint8_t{0}, uint8_t{1}})
            corpus.add("slice", {options}, test::read_file(folder / "slice.gguf"));
        corpus.add("model", {0}, test::read_file(folder / "slice.gguf"));
    }
    const auto backbone = moe::write_backbone(*model, folder / "backbone.gguf");
    if (!backbone.ok()) return backbone.status();
    for (uint8_t options : {uint8_t{0}, uint8_t{1}})
        corpus.add("model", {options}, test::read_file(folder / "backbone.gguf"));
    for (uint8_t options : {uint8_t{0}, uint8_t{1}}) {
        corpus.add("marker", {options}, moe::encode_hole_marker({.kind = 3, .layer = 1, .digests = {}}));
        corpus.add("marker", {options}, moe::encode_hole_marker({.kind = 0, .layer = 9, .digests = {{}, {}, {}}}));
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    std::filesystem::remove_all(argv[1]);
    Corpus corpus(argv[1]);
    add_sessions(corpus);
    add_programs(corpus);
    const Status status = add_files(corpus);
    if (!status.ok()) std::fprintf(stderr, "fuzz_seeds: %s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
}
