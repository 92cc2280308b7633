#pragma once
// What one process has once: the configuration, the network thread, the models whose experts lie in our buffers.
// Created when the backend is registered; the network thread starts with the first model and ends with the last.
// Thread-safe.

#include "backend/config.h"
#include "net/tcp.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace linkcpp::backend {

class Runtime {
  public:
    /// Sets the configuration. Called once, before the backend is registered.
    static void configure(Config config);
    static Runtime& get();

    const Config& config() const { return config_; }
    /// The network; it lives as long as somebody holds it.
    std::shared_ptr<net::TcpNetwork> network();

    void set_n_threads(int n_threads) { n_threads_ = n_threads; }
    int n_threads() const;

    /// Adds what a layer, or a model's dispatcher at its end, reports.
    void add_layer(const LayerStats& stats);
    void add_totals(const Totals& totals);
    Totals totals() const;

    std::atomic<bool> expert_tensors_seen{false};  ///< a loader put expert tensors into our buffer type

  private:
    Config config_;
    std::atomic<int> n_threads_{0};
    mutable std::mutex mutex_;
    std::weak_ptr<net::TcpNetwork> network_;  // protected by mutex_
    Totals totals_;                           // protected by mutex_
};

}  // namespace linkcpp::backend
