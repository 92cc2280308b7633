#pragma once
// A market in virtual time, and nodes that take part in it.

#include "hub/market/market.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>

namespace linkcpp::hub::market {

using namespace std::chrono_literals;

class ManualClock final : public Clock {
  public:
    Instant now() const override { return time; }
    Instant time{0};
};

/// "n7"
inline std::string numbered(const char* what, uint64_t number) { return fmt::format("{}{}", what, number); }

class Random {
  public:
    explicit Random(uint32_t seed) : engine(seed) {}
    /// From 0 to n - 1.
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(engine() % n); }
    std::mt19937 engine;
};

/// Layers 0..n_layer-1, all with the same experts.
inline ModelSpec even_model(const std::string& name, uint32_t n_layer, uint32_t n_expert, uint64_t expert_bytes = 1000,
                            uint32_t target = 2) {
    return {name, std::vector<LayerSpec>(n_layer, {n_expert, expert_bytes}), target};
}

inline Holding part(const std::string& model, Range layers, Range experts) { return {model, {layers, experts}}; }

inline Heartbeat serving(std::vector<Holding> holds) {
    Heartbeat heartbeat;
    heartbeat.holds = std::move(holds);
    heartbeat.address = "10.0.0.1:50071";
    heartbeat.numeric_class = "CPU";
    return heartbeat;
}

inline VolunteerRequest up_to_experts(uint64_t n) { return {{UINT64_MAX, n}, {}, {}}; }
inline VolunteerRequest up_to_bytes(uint64_t n) { return {{n, UINT64_MAX}, {}, {}}; }

}  // namespace linkcpp::hub::market
