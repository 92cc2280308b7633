#include "backend/swarm_link.h"

#include "base/log.h"

#include <algorithm>

namespace linkcpp::backend {

namespace {

using namespace std::chrono_literals;

constexpr Duration finish_limit = 5s;

std::string folder_of(const HubSettings& hub, const Config& config) {
    return hub.folder.empty() ? config.data_folder + "/" + hub.url->folder_name() : hub.folder;
}

}  // namespace

Result<std::unique_ptr<SwarmLink>> SwarmLink::open(const ModelSettings& settings, const SwarmModel& model,
                                                   const Config& config) {
    const HubSettings& hub = settings.hub;
    if (hub.model.empty() && model.fingerprint.empty()) {
        return {Code::invalid_argument,
                "it is not known which model this is (it was loaded without mmap); say what the "
                "hub calls it"};
    }
    auto account = client::HubAccount::open({*hub.url,
                                             folder_of(hub, config),
                                             hub.join_token,
                                             {.connect_limit = 5s, .silence_limit = 10s, .ca_file = hub.ca_file},
                                             hub.key});
    if (!account.ok()) return account.status();
    std::unique_ptr<SwarmLink> link(new SwarmLink(settings.workers));
    link->account_ = std::move(*account);
    SwarmLink* self = link.get();
    link->book_ = std::make_unique<client::ReceiptBook>(*link->account_, [self] { return self->take_rows(); });
    client::WatchSettings watch{hub.model, model.fingerprint, {}};
    watch.roster = {.self = link->account_->node(), .numeric_class = model.numeric_class};
    link->watch_ = std::make_unique<client::PlacementWatch>(
        *link->account_, std::move(watch),
        [self](const std::string& name, const auto& nodes) { self->changed(name, nodes); });
    LINKCPP_TRY(link->watch_->wait_for_first(config.stop));
    return link;
}

std::vector<net::Address> SwarmLink::workers() const {
    std::vector<net::Address> all = fixed_;
    const std::lock_guard lock(mutex_);
    for (const auto& [text, node] : nodes_) {
        const auto address = net::Address::parse(text);
        if (!address.ok() || address->port == 0)
            log_debug("the hub names a worker at '{}', which is no address", text);
        else if (std::find(all.begin(), all.end(), *address) == all.end())
            all.push_back(*address);
    }
    return all;
}

void SwarmLink::attach(dispatch::Dispatcher& dispatcher) {
    {
        const std::lock_guard lock(mutex_);
        dispatcher_ = &dispatcher;
    }
    dispatcher.set_workers(workers());
}

/// The watch's thread.
void SwarmLink::changed(const std::string& model, const std::map<std::string, std::string>& nodes) {
    // What was done until now, was done by the nodes that were there until now.
    book_->add(take_rows());
    dispatch::Dispatcher* dispatcher = nullptr;
    {
        const std::lock_guard lock(mutex_);
        model_ = model;
        nodes_ = nodes;
        dispatcher = dispatcher_;
    }
    if (dispatcher == nullptr) return;
    log_debug("hub {}: {} workers", account_->url().str(), nodes.size());
    dispatcher->set_workers(workers());
}

/// Rows of workers that no node stands behind are left out: nobody can be paid for them.
std::vector<client::EarnedRows> SwarmLink::take_rows() {
    dispatch::Dispatcher* dispatcher = nullptr;
    {
        const std::lock_guard lock(mutex_);
        dispatcher = dispatcher_;
    }
    std::vector<client::EarnedRows> earned;
    if (dispatcher == nullptr) return earned;
    std::vector<dispatch::AcceptedRows> rows;
    dispatcher->loop().run([&] { rows = dispatcher->take_accepted_rows(); });
    const std::lock_guard lock(mutex_);
    for (const dispatch::AcceptedRows& entry : rows) {
        const auto node = nodes_.find(entry.worker.str());
        if (node == nodes_.end() || node->second.empty() || node->second == account_->node()) continue;
        const dispatch::SliceRange& slice = entry.slice;
        earned.push_back({node->second,
                          {model_, slice.layer_begin, slice.layer_end, slice.expert_begin, slice.expert_end},
                          entry.rows});
    }
    return earned;
}

void SwarmLink::finish(Totals& totals) {
    watch_.reset();
    book_->add(take_rows());
    const client::ReceiptReport report = book_->finish(finish_limit);
    const std::lock_guard lock(mutex_);
    dispatcher_ = nullptr;
    for (const auto& [node, rows] : report.rows_by_node)
        totals.pairs_by_node[node] += rows;
    for (const auto& [node, rows] : report.paid_by_node)
        totals.pairs_recorded += rows;
    totals.receipts_waiting = report.n_waiting;
}

}  // namespace linkcpp::backend
