// The real worker as a process: what it computes, says and refuses.
#include "worker/process_fixture.h"

namespace linkcpp::worker {
namespace {

TEST_F(WorkerProcess, computes_what_the_engine_computes) {
    const std::string path = cut("part.gguf", {.layer_begin = 1, .layer_end = 3, .expert_begin = 4, .expert_end = 12});
    auto file = moe::SliceFile::open(path);
    ASSERT_TRUE(file.ok());
    auto device = moe::Device::open("", 1);
    ASSERT_TRUE(device.ok());
    auto engine = moe::Engine::load(*device, file->tensors());
    ASSERT_TRUE(engine.ok());

    Process process(command({"--model", path, "--threads", "1"}));
    Backbone one(port_of(process)), other(port_of(process));
    EXPECT_EQ(one.end.welcome->numeric_class, (*device)->numeric_class());
    ASSERT_EQ(one.end.welcome->slices.size(), 1u);
    const wire::SliceOffer& offer = one.end.welcome->slices[0];
    EXPECT_EQ(offer, (wire::SliceOffer{id_of(file->info()), 1, 3, 4, 12}));

    const moe::Program program = gated_program();
    for (Backbone* backbone : {&one, &other}) {
        backbone->send(wire::encode(header(file->info(), 0, 0), wire::ProgramFrame{1, 1, 3, encode_program(program)}));
    }
    // Two clients at once; sizes from a decoded token to a prompt that is computed in parts.
    std::map<uint64_t, wire::Compute> computes;
    uint64_t request = 0;
    for (uint32_t n_tokens : {1u, 2u, 7u, 33u, 400u}) {
        for (bool sums : {false, true}) {
            wire::Compute compute = prompt(n_tokens, 8, n_tokens);
            if (sums) {
                compute.output = wire::Output::sums;
                compute.n_rows_out = n_tokens;
                compute.group = compute.x_row;
                for (size_t p = 0; p < compute.x_row.size(); ++p)
                    compute.weight.push_back(0.1f * static_cast<float>(p % 7));
            }
            computes[++request] = compute;
            one.send(wire::encode(header(file->info(), request, 2), compute));
            other.send(wire::encode(header(file->info(), request, 2), compute));
        }
    }
    for (const auto& [number, compute] : computes) {
        std::vector<float> expected(compute.x_row.size() * 256);
        ASSERT_TRUE((*engine)->compute(2, program, compute.x, compute.x_row, compute.expert, expected).ok());
        if (compute.output == wire::Output::sums) {
            std::vector<float> sums(size_t{compute.n_rows_out} * 256);
            moe::weighted_sums(expected, compute.weight, compute.group, 256, sums);
            expected = sums;
        }
        for (Backbone* backbone : {&one, &other}) {
            const TestBackbone::Answer answer = backbone->answer(number);
            EXPECT_FALSE(answer.refused.has_value());
            ASSERT_EQ(answer.rows.size(), expected.size());
            EXPECT_EQ(std::memcmp(answer.rows.data(), expected.data(), expected.size() * sizeof(float)), 0)
                << compute.n_x << " tokens, " << (compute.output == wire::Output::sums ? "sums" : "rows");
        }
    }
}

TEST_F(WorkerProcess, refuses_and_goes_on) {
    const std::string path = cut("whole.gguf", {});
    auto file = moe::SliceFile::open(path);
    ASSERT_TRUE(file.ok());
    Process process(command({"--model", path, "--threads", "1"}));
    Backbone backbone(port_of(process));
    const moe::SliceInfo& info = file->info();
    backbone.send(wire::encode(header(info, 0, 0), wire::ProgramFrame{1, 0, 4, encode_program(gated_program())}));
    wire::Compute compute = prompt(2, 16, 1);
    compute.expert[3] = 16;
    backbone.send(wire::encode(header(info, 1, 0), compute));
    backbone.send(wire::encode(header(info, 2, 4), prompt(2, 16, 1)));
    backbone.send(wire::encode(header(info, 3, 0), wire::ProgramFrame{2, 0, 4, {'x'}}));
    backbone.send(wire::encode(header(info, 4, 0), prompt(2, 16, 1)));
    EXPECT_EQ(backbone.answer(1).refused->code, wire::RefuseCode::malformed);
    EXPECT_EQ(backbone.answer(2).refused->code, wire::RefuseCode::unknown_slice);
    EXPECT_EQ(backbone.answer(3).refused->code, wire::RefuseCode::malformed);
    EXPECT_TRUE(backbone.answer(4).complete);
}

TEST_F(WorkerProcess, sigterm_finishes_what_is_in_flight) {
    const std::string path = cut("whole.gguf", {});
    auto file = moe::SliceFile::open(path);
    ASSERT_TRUE(file.ok());
    Process process(command({"--model", path}));
    Backbone backbone(port_of(process));
    const moe::SliceInfo& info = file->info();
    backbone.send(wire::encode(header(info, 0, 0), wire::ProgramFrame{1, 0, 4, encode_program(gated_program())}));
    for (uint64_t request : {1, 2, 3})
        backbone.send(wire::encode(header(info, request, 1), prompt(1000, 16, 1)));
    backbone.send(wire::encode(wire::Ping{1}));
    ASSERT_TRUE(backbone.wait([&] { return !backbone.end.pongs.empty(); }));
    process.signal(SIGTERM);
    for (uint64_t request : {1, 2, 3})
        EXPECT_TRUE(backbone.answer(request).complete) << request;
    EXPECT_TRUE(backbone.wait([&] { return backbone.end.closed; }));
    EXPECT_TRUE(backbone.end.goaway.has_value());
    EXPECT_EQ(process.wait().exit_code, 0);
}

TEST_F(WorkerProcess, says_what_it_serves) {
    const std::string first = cut("first.gguf", {.layer_begin = 0, .layer_end = 2});
    const std::string second = cut("second.gguf", {.layer_begin = 2, .expert_end = 1});
    Process process(command({"--model", first, "--model", second}));
    ASSERT_NE(port_of(process), 0);
    process.signal(SIGINT);
    const test::Finished text = process.wait();
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_NE(text.out.find("first.gguf: Capitals MoE 15M (qwen35moe), layers 0-1, experts 0-15 of 16"),
              std::string::npos)
        << text.out;
    EXPECT_NE(text.out.find("second.gguf: Capitals MoE 15M (qwen35moe), layers 2-3, experts 0-0 of 16"),
              std::string::npos);

    Process json(command({"--model", first, "--json", "--quiet"}));
    const auto line = json.wait_for_line("{");
    ASSERT_TRUE(line.has_value());
    EXPECT_NE(line->find("\"layer_end\":2"), std::string::npos) << *line;
    EXPECT_NE(line->find("\"port\":"), std::string::npos);
}

TEST_F(WorkerProcess, does_not_start_with_what_it_cannot_serve) {
    const std::string path = cut("whole.gguf", {});
    test::Finished limited = test::run(command({"--model", path, "--max-memory", "1MB"}));
    EXPECT_EQ(limited.exit_code, 1);
    EXPECT_NE(limited.err.find("--max-memory allows 1.0 MB"), std::string::npos) << limited.err;

    Bytes bytes = test::read_file(path);
    bytes[bytes.size() - 1000] ^= 1;
    test::write_file(folder / "flipped.gguf", bytes);
    test::Finished corrupt = test::run(command({"--model", folder / "flipped.gguf"}));
    EXPECT_EQ(corrupt.exit_code, 1);
    EXPECT_NE(corrupt.err.find("flipped.gguf"), std::string::npos) << corrupt.err;
    EXPECT_EQ(corrupt.out.find("serving on"), std::string::npos);

    EXPECT_EQ(test::run(command({"--model", path, "--model", path})).exit_code, 1);
    EXPECT_EQ(test::run(command({"--model", test::capitals_model()})).exit_code, 1);
    EXPECT_EQ(test::run(command({"--model", folder / "nothing.gguf"})).exit_code, 1);
    EXPECT_EQ(test::run(command({"--model", path, "--device", "Abacus"})).exit_code, 1);
}

TEST_F(WorkerProcess, refuses_command_lines_that_make_no_sense) {
    const std::string worker = test::program("linkcpp-expert-worker");
    const test::Finished open = test::run({worker, "--serve", "0.0.0.0:0", "--model", "x.gguf"});
    EXPECT_EQ(open.exit_code, 2);
    EXPECT_NE(open.err.find("no encryption or authentication"), std::string::npos) << open.err;
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{},
                                               {"--serve", "0"},
                                               {"--model", "x"},
                                               {"--serve", "x:y:z", "--model", "x"},
                                               {"--bogus"},
                                               {"--serve", "0", "--model", "x", "--threads", "0"},
                                               {"--serve", "0", "--model", "x", "--max-memory", "1 cow"}}) {
        std::vector<std::string> all = {worker};
        all.insert(all.end(), arguments.begin(), arguments.end());
        EXPECT_EQ(test::run(all).exit_code, 2);
    }
    EXPECT_EQ(test::run({worker, "--version"}).exit_code, 0);
    EXPECT_EQ(test::run({worker, "--help"}).exit_code, 0);
}

}  // namespace
}  // namespace linkcpp::worker
