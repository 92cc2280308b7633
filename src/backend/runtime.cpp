#include "backend/runtime.h"

#include <algorithm>
#include <thread>

namespace linkcpp::backend {

namespace {

Runtime& instance() {
    // Never destroyed: the host process may free models while its own statics are being destroyed.
    static auto* runtime = new Runtime;
    return *runtime;
}

}  // namespace

void Runtime::configure(Config config) { instance().config_ = std::move(config); }

Runtime& Runtime::get() { return instance(); }

std::shared_ptr<net::TcpNetwork> Runtime::network() {
    const std::lock_guard lock(mutex_);
    auto network = network_.lock();
    if (network == nullptr) {
        network = std::make_shared<net::TcpNetwork>();
        network_ = network;
    }
    return network;
}

int Runtime::n_threads() const {
    if (config_.n_threads > 0) return config_.n_threads;
    const int told = n_threads_;
    return told > 0 ? told : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void Runtime::add_layer(const LayerStats& stats) {
    {
        const std::lock_guard lock(mutex_);
        totals_.layer_calls += 1;
        totals_.tokens += stats.n_tokens;
        totals_.pairs_remote += stats.pairs_remote;
        totals_.pairs_local += stats.pairs_local;
    }
    if (config_.on_layer) config_.on_layer(stats);
}

void Runtime::add_totals(const Totals& totals) {
    const std::lock_guard lock(mutex_);
    totals_.bytes_out += totals.bytes_out;
    totals_.bytes_in += totals.bytes_in;
    totals_.failovers += totals.failovers;
    totals_.pairs_recorded += totals.pairs_recorded;
    totals_.receipts_waiting = std::max(totals_.receipts_waiting, totals.receipts_waiting);
    for (const auto& [node, pairs] : totals.pairs_by_node)
        totals_.pairs_by_node[node] += pairs;
    totals_.round_trip_p50 = std::max(totals_.round_trip_p50, totals.round_trip_p50);
    totals_.round_trip_p99 = std::max(totals_.round_trip_p99, totals.round_trip_p99);
    for (const auto& [worker, pairs] : totals.pairs_by_worker)
        totals_.pairs_by_worker[worker] += pairs;
    for (const auto& [worker, name] : totals.class_by_worker)
        totals_.class_by_worker[worker] = name;
}

Totals Runtime::totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
}

}  // namespace linkcpp::backend
