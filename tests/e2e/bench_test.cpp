// `linkcpp bench`: everything it promises to measure is measured, and its own numbers fit together.

#include "e2e/swarm.h"

#include <set>

namespace linkcpp::test {
namespace {

TEST_F(Swarm, TheBenchSuiteMeasuresBothEnginesAtEveryRoundTrip) {
    const std::string json = folder / "report.json", svg = folder / "report.svg", scratch = folder / "scratch";
    std::filesystem::create_directory(scratch);
    const Finished done =
        run({program("linkcpp"), "bench", "-m", capitals_model(), "--suite", "--rounds", "2", "--prompt", "32",
             "--batches", "1,16", "-t", "1", "--json", json, "--plot", svg, "--scratch", scratch});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_TRUE(std::filesystem::is_empty(scratch)) << "slices are gone";
    const Bytes bytes = read_file(json);
    const auto report = nlohmann::json::parse(bytes.begin(), bytes.end());
    ASSERT_EQ(report["worker"].size(), 2u);
    for (const auto& point : report["worker"]) {
        EXPECT_GT(point["ratio"]["median"], 0.0) << point.dump();
        EXPECT_GT(point["stream_ratio"]["median"], 0.0) << point.dump();
        EXPECT_GT(point["echo_us"]["median"], 0.0) << point.dump();
        // A row of activations out and a sum back, 256 numbers each, for every token; and little around it.
        const double per_token =
            (point["bytes_out"].get<double>() + point["bytes_in"].get<double>()) / point["batch"].get<double>();
        EXPECT_GE(per_token, 2 * 256 * 4);
        EXPECT_LT(per_token, 2 * 256 * 4 + 400);
    }
    std::set<std::tuple<std::string, int, int, int>> points;
    for (const auto& point : report["decode"]) {
        points.emplace(point["engine"], point["layers"], point["round_trip_ms"], point["batch"]);
        EXPECT_GT(point["decode_tps"]["median"], 0.0) << point.dump();
        EXPECT_GT(point["local_tps"]["median"], 0.0) << point.dump();
        const int round_trip = point["round_trip_ms"], layers = point["layers"];
        // A token cannot be faster than the network: one round trip for every remote layer.
        if (round_trip > 0) {
            EXPECT_GE(1000.0 * point["batch"].get<int>() / point["decode_tps"]["median"].get<double>(),
                      0.99 * round_trip * layers);
        }
        // Weights are sent by one of the two only.
        if (round_trip > 0) {
            EXPECT_EQ(point["load_mb"].get<double>() > 1, point["engine"] == "rpc") << point.dump();
        }
    }
    for (const int round_trip : {0, 20, 100}) {
        for (const int layers : {1, 4}) {
            EXPECT_TRUE(points.contains({"linkcpp", layers, round_trip, 1}));
            EXPECT_TRUE(points.contains({"linkcpp", layers, round_trip, 8}));
            EXPECT_TRUE(points.contains({"rpc", layers, round_trip, 1}));
        }
    }
    const Bytes picture = read_file(svg);
    EXPECT_EQ(std::string(picture.begin(), picture.begin() + 4), "<svg");
}

/// Experts in the middle of the model: numbers of the model are not those of the slice.
TEST_F(Swarm, AWorkerMeasuresItself) {
    const Finished done =
        run({program("linkcpp-expert-worker"), "--bench", "--json", "--threads", "1", "--model", slice("", "5:14")});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    const auto points = nlohmann::json::parse(done.out);
    std::vector<int> batches;
    for (const auto& point : points) {
        batches.push_back(point["batch"]);
        EXPECT_GT(point["tokens_per_second"]["median"], 0.0) << point.dump();
        EXPECT_GT(point["bare_tokens_per_second"]["median"], 0.0) << point.dump();
        EXPECT_GT(point["overhead_us"]["median"], 0.0) << point.dump();
    }
    EXPECT_EQ(batches, (std::vector<int>{1, 4, 16, 64, 256, 512}));
}

TEST_F(Swarm, ABenchOfADenseOrSparseModelSaysWhy) {
    const Finished done = run({program("linkcpp"), "bench", "-m", backbone()});
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("backbone file"), std::string::npos) << done.err;
}

/// Before anything is measured, which takes minutes.
TEST_F(Swarm, ABenchOfMoreLayersThanThereAreSaysSo) {
    const Finished done = run({program("linkcpp"), "bench", "-m", capitals_model(), "--layers", "1,9"});
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_NE(done.err.find("--layers 9: the model has 4"), std::string::npos) << done.err;
    EXPECT_EQ(done.err.find("measuring"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace linkcpp::test
