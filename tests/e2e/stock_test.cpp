// More of llama.cpp's own tools with the plugin: what they measure, serve and collect is what they do without it.

#include "e2e/http_server.h"
#include "e2e/swarm.h"
#include "moe/gguf_bytes.h"
#include "moe/model_file.h"

#include <cstring>

namespace linkcpp::test {
namespace {

class Stock : public Swarm {
  protected:
    Environment environment() {
        return {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                {"LINKCPP_WORKERS", all_workers()},
                {"LINKCPP_FALLBACK", "none"}};
    }
    std::string text_file() {
        std::string words;
        for (int i = 0; i < 8; ++i)
            words += long_prompt()[1] + " ";
        const std::string path = folder / "text.txt";
        write_file(path, {reinterpret_cast<const uint8_t*>(words.data()), words.size()});
        return path;
    }
    void start_two_workers() {
        start_worker({slice("", "0:7")});
        start_worker({slice("", "7:16")});
    }
};

TEST_F(Stock, LlamaBatchedBenchRuns) {
    start_two_workers();
    const Finished done = run({program("llama-batched-bench"), "-m", backbone(), "-c", "512", "-npp", "16", "-ntg", "8",
                               "-npl", "1,4", "-t", "1", "--output-format", "jsonl"},
                              environment());
    EXPECT_EQ(done.exit_code, 0) << done.err;
    int n_rows = 0;
    for (size_t at = 0; (at = done.out.find("\"n_kv_max\"", at)) != std::string::npos; ++at)
        ++n_rows;
    EXPECT_EQ(n_rows, 2) << done.out;
}

/// Four clients at once. Which tokens share a batch depends on timing; with this model, whose CPU kernels compute a row
/// alike in every batch, the text of each client is that of a server that answers them one after another.
TEST_F(Stock, FourStreamingClientsOfLlamaServerGetTheTextsOfAStockServer) {
    start_two_workers();
    const std::vector<std::string> command = {
        program("llama-server"), "-m", capitals_model(), "-np", "4", "-c", "1024", "-t", "1"};
    const char* const countries[] = {"France", "Italy", "Japan", "Kenya"};
    const auto question = [](const char* country, bool stream) {
        return nlohmann::json{{"prompt", std::string("The capital of ") + country + " is"},
                              {"n_predict", 48},
                              {"temperature", 0},
                              {"cache_prompt", false},
                              {"stream", stream}};
    };
    std::map<std::string, std::string> expected;
    {
        HttpServer stock(command, {});
        for (const char* country : countries)
            expected[country] = stock.ask(question(country, false))["content"];
    }
    HttpServer server(command, environment());
    ASSERT_NE(server.url, "");
    std::map<std::string, std::unique_ptr<Process>> clients;
    for (const char* country : countries)
        clients[country] = std::make_unique<Process>(server.post("/completion", question(country, true)));
    for (auto& [country, client] : clients) {
        std::string text;
        const std::string events = client->wait().out;
        for (size_t at = 0; (at = events.find("data: {", at)) != std::string::npos;) {
            const size_t begin = at + 6, end = events.find('\n', at);
            text += nlohmann::json::parse(events.substr(begin, end - begin))["content"].get<std::string>();
            at = end;
        }
        EXPECT_FALSE(text.empty()) << events;
        EXPECT_EQ(text, expected[country]) << country;
    }
}

/// It looks at the activations of every expert while the graph is computed.
TEST_F(Stock, LlamaImatrixCollectsTheSame) {
    start_two_workers();
    const auto collect = [&](const std::string& name, const Environment& with) {
        const std::string path = folder / name;
        const Finished done = run({program("llama-imatrix"), "-m", capitals_model(), "-f", text_file(), "-o", path,
                                   "-c", "128", "-b", "128", "-t", "1"},
                                  with);
        EXPECT_EQ(done.exit_code, 0) << done.err;
        return read_file(path);
    };
    const Bytes expected = collect("stock.gguf", {});
    ASSERT_GT(expected.size(), 10000u);
    EXPECT_TRUE(collect("plugin.gguf", environment()) == expected);
}

/// An adapter whose matrices belong to experts, of rank 2, with numbers that change what the model says.
std::string expert_adapter(const std::string& path) {
    const auto model = moe::ModelFile::open(capitals_model());
    EXPECT_TRUE(model.ok());
    GgufBytes adapter;
    adapter.text("general.type", "adapter");
    adapter.text("general.architecture", model->info().architecture);
    adapter.text("adapter.type", "lora");
    constexpr float alpha = 2;
    Bytes encoded(sizeof(alpha));
    std::memcpy(encoded.data(), &alpha, sizeof(alpha));
    adapter.field("adapter.lora.alpha", moe::GgufType::f32, encoded);
    uint32_t random = 1;
    const auto add = [&](const std::string& name, std::vector<int64_t> ne) {
        std::vector<float> values(static_cast<size_t>(ne[0] * ne[1] * ne[2]));
        for (float& value : values) {
            random = random * 1664525u + 1013904223u;
            value = 0.2f * (static_cast<float>(random >> 8) / 8388608.0f - 1);
        }
        Bytes data(values.size() * sizeof(float));
        std::memcpy(data.data(), values.data(), data.size());
        adapter.tensors.push_back({name, std::move(ne), 0, std::move(data), {}, {}});
    };
    for (const moe::ExpertTensor& tensor : model->expert_tensors()) {
        if (tensor.name.kind.role != moe::Role::weight) continue;
        add(tensor.name.str() + ".lora_a", {tensor.ne[0], 2, tensor.n_slabs});
        add(tensor.name.str() + ".lora_b", {2, tensor.ne[1], tensor.n_slabs});
    }
    write_file(path, adapter.bytes());
    return path;
}

TEST_F(Stock, ALoraAdapterOfExpertsChangesTheModelAsInAStockRun) {
    start_two_workers();
    const std::string adapter = expert_adapter(folder / "adapter.gguf"), text = text_file();
    const auto estimate = [&](std::vector<std::string> more, const Environment& with) {
        std::vector<std::string> command = {
            program("llama-perplexity"), "-m", capitals_model(), "-f", text, "-c", "128", "-b", "128", "-t", "1"};
        command.insert(command.end(), more.begin(), more.end());
        return perplexity(command, with);
    };
    const std::string plain = estimate({}, {}), expected = estimate({"--lora", adapter}, {});
    ASSERT_TRUE(expected.starts_with("Final")) << expected;
    ASSERT_NE(expected, plain) << "the adapter changes something";
    EXPECT_EQ(estimate({"--lora", adapter}, environment()), expected);
}

}  // namespace
}  // namespace linkcpp::test
