// What users see when workers die, lie about what they hold, or are not there.

#include "e2e/swarm.h"
#include "moe/model_file.h"

namespace linkcpp::test {
namespace {

class Failing : public Swarm {
  protected:
    std::vector<std::string> generate(const std::string& model, int n_tokens) const {
        return {program("linkcpp"),
                "generate",
                "-m",
                model,
                "-p",
                "The capital of France is",
                "-n",
                std::to_string(n_tokens),
                "--ignore-eos",
                "-t",
                "1",
                "--workers",
                all_workers(),
                "--fallback",
                "none"};
    }
    static size_t prompt_bytes() { return 40; }
};

TEST_F(Failing, KillingOneOfTwoReplicasInMidSequenceChangesNoByte) {
    const std::string all = slice("", ""), sparse = backbone();
    start_worker({all});
    const Finished expected = run(generate(sparse, 200));
    ASSERT_EQ(expected.exit_code, 0) << expected.err;

    start_worker({all});
    for (const size_t victim : {0u, 1u}) {
        Process decode(generate(sparse, 200));
        ASSERT_TRUE(decode.wait_for_output(prompt_bytes()));
        workers[victim]->signal(SIGKILL);
        const Finished done = decode.wait();
        EXPECT_EQ(done.exit_code, 0) << done.err;
        EXPECT_EQ(done.out, expected.out);
        // The next round needs two again: a fresh one in the place of the dead.
        workers.erase(workers.begin() + static_cast<long>(victim));
        addresses.erase(addresses.begin() + static_cast<long>(victim));
        start_worker({all});
        std::swap(workers[0], workers[1]);
        std::swap(addresses[0], addresses[1]);
    }
}

TEST_F(Failing, AStoppedReplicaChangesNoByteEither) {
    const std::string all = slice("", ""), sparse = backbone();
    start_worker({all});
    start_worker({all});
    const Finished expected = run(generate(sparse, 200));
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    for (auto& worker : workers) {
        Process decode(generate(sparse, 200));
        ASSERT_TRUE(decode.wait_for_output(prompt_bytes()));
        worker->signal(SIGSTOP);
        const Finished done = decode.wait();
        worker->signal(SIGCONT);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        EXPECT_EQ(done.out, expected.out);
    }
}

TEST_F(Failing, KillingTheOnlyHolderIsAClearErrorInTime) {
    start_worker({slice("", "0:8")});
    start_worker({slice("", "8:16")});
    const std::string sparse = backbone();
    Process decode(generate(sparse, 400));
    ASSERT_TRUE(decode.wait_for_output(prompt_bytes()));
    workers[1]->signal(SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    const Finished done = decode.wait();
    // The promise is to a user who waits, so it is a time: an error, not a hang. Twice the promise, for slow machines.
    EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(10));
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("layer "), std::string::npos) << done.err;
    EXPECT_NE(done.err.find("expert"), std::string::npos) << done.err;
}

TEST_F(Failing, KillingTheOnlyHolderGoesOnWithLocalWeights) {
    start_worker({slice("", "")});
    auto command = generate(capitals_model(), 200);
    command.back() = "local";
    const Finished expected = run(command);
    ASSERT_EQ(expected.exit_code, 0) << expected.err;
    Process decode(command);
    ASSERT_TRUE(decode.wait_for_output(prompt_bytes()));
    workers[0]->signal(SIGKILL);
    const Finished done = decode.wait();
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out, expected.out);
}

TEST_F(Failing, AWorkerThatIsRestartedIsUsedAgain) {
    const std::string all = slice("", ""), sparse = backbone();
    const std::string address = start_worker({all});
    const Finished expected = run(generate(sparse, 300));
    Process decode(generate(sparse, 300));
    ASSERT_TRUE(decode.wait_for_output(prompt_bytes()));
    workers[0]->signal(SIGKILL);
    workers[0] = std::make_unique<Process>(
        std::vector<std::string>{program("linkcpp-expert-worker"), "--serve", address, "--model", all});
    const Finished done = decode.wait();
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out, expected.out);
}

TEST_F(Failing, SlicesOfAnotherQuantisationAreRefusedWithTheReason) {
    const std::string q8 = folder / "q8.gguf";
    ASSERT_EQ(run({program("llama-quantize"), "--allow-requantize", capitals_model(), q8, "Q8_0"}).exit_code, 0);
    start_worker({slice("", "", q8)});
    for (const std::string& model : {backbone(), capitals_model()}) {
        const Finished done = run(generate(model, 8));
        EXPECT_EQ(done.exit_code, 1);
        EXPECT_NE(done.err.find("another quantisation"), std::string::npos) << done.err;
    }
}

TEST_F(Failing, SlicesOfTheSameShapeWithOneOtherByteAreRefused) {
    // The same model but for one bit of one expert: same name, same types, same shapes.
    Bytes bytes = read_file(capitals_model());
    const auto model = moe::ModelFile::open(capitals_model());
    ASSERT_TRUE(model.ok());
    const moe::ExpertTensor& tensor = model->expert_tensors().back();
    bytes[static_cast<size_t>(tensor.data.data() - model->file(0).bytes().data()) + 1000] ^= 1;
    const std::string other = folder / "other.gguf";
    write_file(other, bytes);
    start_worker({slice("", "", other)});
    const Finished done = run(generate(backbone(), 8));
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("not of this model"), std::string::npos) << done.err;
}

TEST_F(Failing, ADamagedSliceIsNotServed) {
    const std::string path = slice("", "");
    Bytes bytes = read_file(path);
    bytes[bytes.size() - 5000] ^= 1;
    write_file(path, bytes);
    const Finished done = run({program("linkcpp-expert-worker"), "--serve", "127.0.0.1:0", "--model", path});
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("blk."), std::string::npos) << "the slab is named: " << done.err;
}

TEST_F(Failing, ASparseModelIsNeverComputedWithItsHoles) {
    const std::string sparse = backbone();
    addresses = {"127.0.0.1:1"};  // nothing listens there
    for (const char* fallback : {"none", "auto", "local"}) {
        auto command = generate(sparse, 8);
        command.back() = fallback;
        const Finished done = run(command);
        EXPECT_EQ(done.exit_code, 1) << fallback;
        EXPECT_EQ(done.out.find("Paris"), std::string::npos);
    }
}

/// Layers that do not go to workers would be computed with the holes: never, with our program or a stock one.
TEST_F(Failing, ASparseModelWithLayersThatStayHereIsRefused) {
    start_worker({slice("", "")});
    const std::string sparse = backbone();
    for (const char* layers : {"1:3", "0:1", "90:91"}) {
        auto command = generate(sparse, 8);
        command.insert(command.end(), {"--layers", layers});
        const Finished done = run(command);
        EXPECT_EQ(done.exit_code, 1) << layers;
        EXPECT_EQ(done.out, "") << layers;
        EXPECT_NE(done.err.find("backbone file"), std::string::npos) << done.err;
    }
    const Finished stock = run({program("llama-completion"), "-m", sparse, "-p", "x", "-n", "4", "-no-cnv", "-c", "64"},
                               {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                                {"LINKCPP_WORKERS", all_workers()},
                                {"LINKCPP_LAYERS", "1:3"}});
    EXPECT_NE(stock.exit_code, 0);
    EXPECT_NE(stock.err.find("layer 0"), std::string::npos) << stock.err;
}

}  // namespace
}  // namespace linkcpp::test
