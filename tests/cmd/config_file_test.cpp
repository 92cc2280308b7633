// The file with settings per model: what it means, and that a slip is named, not passed over.

#include "cmd/config_file.h"

#include <gtest/gtest.h>

namespace linkcpp::cmd {
namespace {

TEST(ConfigFile, ModelsBuildOnTheDefaultAndTheFirstPatternThatMatchesCounts) {
    backend::Config config;
    const Status status = parse_config(R"({
        "default": {"workers": ["127.0.0.1:1", "127.0.0.1:2"], "layers": "0:24", "expert_cache": "1G"},
        "models": [
            {"file": "draft-?.gguf", "workers": ["127.0.0.1:3"], "layers": ":", "fallback": "none"},
            {"file": "draft-*.gguf", "workers": [], "mode": "sums", "policy": "exact", "model": "full.gguf"}
        ]})",
                                       "/etc/swarm", {}, config);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto& first = config.for_file("/models/draft-1.gguf");
    ASSERT_EQ(first.workers.size(), 1u);
    EXPECT_EQ(first.workers[0].port, 3);
    EXPECT_EQ(first.fallback, backend::Fallback::none);
    EXPECT_EQ(first.expert_cache_bytes, 1000000000u) << "taken from the default";
    EXPECT_TRUE(first.covers(40));
    const auto& second = config.for_file("/models/draft-10.gguf");
    EXPECT_TRUE(second.workers.empty());
    EXPECT_EQ(second.split, dispatch::SplitMode::sums);
    EXPECT_EQ(second.policy, backend::Policy::exact);
    EXPECT_EQ(first.policy, backend::Policy::tolerant);
    EXPECT_EQ(second.layer_end, 24);
    EXPECT_EQ(second.model_path, "/etc/swarm/full.gguf");
    EXPECT_EQ(&config.for_file("/draft-1.gguf/main.gguf"), &config.defaults) << "folders are not looked at";
    EXPECT_EQ(&config.for_file(""), &config.defaults);
    EXPECT_TRUE(config.any_covers(40)) << "one model's settings let it go remote";
}

TEST(ConfigFile, WhatIsGivenBesideChangesTheDefaultAndWhatBuildsOnIt) {
    backend::Config config;
    const auto none = [](backend::ModelSettings& settings) { return set_model_setting(settings, "fallback", "none"); };
    ASSERT_TRUE(parse_config(R"({"default": {"fallback": "local"},
                                 "models": [{"file": "a"}, {"file": "b", "fallback": "auto"}]})",
                             ".", none, config)
                    .ok());
    EXPECT_EQ(config.defaults.fallback, backend::Fallback::none);
    EXPECT_EQ(config.for_file("a").fallback, backend::Fallback::none);
    EXPECT_EQ(config.for_file("b").fallback, backend::Fallback::automatic);
}

TEST(ConfigFile, HubsPerModel) {
    backend::Config config;
    const Status status = parse_config(R"({
        "default": {"hub": "http://10.0.0.2:19000", "hub_model": "qwen", "hub_data": "data", "wait": "5"},
        "models": [{"file": "here", "hub": ""}, {"file": "other", "hub": "https://hub:1", "hub_model": "", "wait": "0"}]})",
                                       "/etc/swarm", {}, config);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(config.defaults.hub.url->str(), "http://10.0.0.2:19000");
    EXPECT_EQ(config.defaults.hub.model, "qwen");
    EXPECT_EQ(config.defaults.hub.folder, "/etc/swarm/data");
    EXPECT_EQ(config.defaults.hub.wait, std::chrono::seconds(5));
    EXPECT_TRUE(config.defaults.has_workers());
    EXPECT_FALSE(config.for_file("here").has_workers());
    EXPECT_EQ(config.for_file("other").hub.url->str(), "https://hub:1");
    EXPECT_EQ(config.for_file("other").hub.model, "") << "the one with our fingerprint";
}

TEST(ConfigFile, ErrorsNameTheKey) {
    const std::pair<const char*, const char*> cases[] = {
        {"{", "not JSON"},
        {"[]", "JSON object"},
        {R"({"defaults": {}})", "'defaults'"},
        {R"({"default": {"worker": []}})", "default: unknown key 'worker'"},
        {R"({"default": {"file": "x"}})", "'file'"},
        {R"({"default": {"workers": "127.0.0.1:1"}})", "workers must be a list"},
        {R"({"default": {"workers": ["nonsense"]}})", "'nonsense'"},
        {R"({"default": {"workers": ["127.0.0.1:1", "127.0.0.1:1"]}})", "twice"},
        {R"({"default": {"hub": "ftp://x"}})", "default: hub: "},
        {R"({"default": {"wait": "1m"}})", "wait: '1m'"},
        {R"({"default": {"join_token": "no-such-file"}})", "join_token: "},
        {R"({"default": {"layers": 3}})", "layers must be a string"},
        {R"({"default": {"layers": "4:2"}})", "default: layers: '4:2'"},
        {R"({"default": {"mode": "fast"}})", "mode: 'fast'"},
        {R"({"default": {"policy": "strict"}})", "policy: 'strict'"},
        {R"({"default": {"fallback": "always"}})", "fallback: 'always'"},
        {R"({"default": {"expert_cache": "2X"}})", "expert_cache: '2X'"},
        {R"({"default": {"mode": "exact", "mode": "sums"}})", "'mode' is there twice"},
        {R"({"models": {}})", "models must be a list"},
        {R"({"models": [{"workers": []}]})", "models[0] lacks the key 'file'"},
        {R"({"models": [{"file": "a"}, {"file": "a"}]})", "models[1].file: 'a' is there twice"},
        {R"({"models": [{"file": "dir/a"}]})", "models[0].file"},
        {R"({"models": [{"file": "a", "layers": "x"}]})", "models[0]: layers: 'x'"},
    };
    for (const auto& [text, expected] : cases) {
        backend::Config config;
        const Status status = parse_config(text, ".", {}, config);
        EXPECT_FALSE(status.ok()) << text;
        EXPECT_NE(status.message().find(expected), std::string::npos) << text << " -> " << status.message();
    }
}

}  // namespace
}  // namespace linkcpp::cmd
