// Nodes: what they tell, what becomes of their leases, and when they are off the map.
#include "hub/market/market.h"
#include "hub/market/reward.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::hub::market {

namespace {

bool covers(const Block& whole, const Block& part) {
    return whole.layers.begin <= part.layers.begin && part.layers.end <= whole.layers.end &&
           whole.experts.begin <= part.experts.begin && part.experts.end <= whole.experts.end;
}

bool covers(const Holding& whole, const Holding& part) {
    return whole.model == part.model && covers(whole.block, part.block);
}

}  // namespace

/// The node was heard of now.
Market::Node& Market::touch(const std::string& id) {
    Node& node = nodes_[id];
    node.seen = clock_.now();
    if (node.heard) {
        by_age_.splice(by_age_.end(), by_age_, node.turn);
    } else {
        node.turn = by_age_.insert(by_age_.end(), id);
        node.heard = true;
    }
    return node;
}

Status Market::check(const Heartbeat& heartbeat) const {
    if (heartbeat.holds.size() > settings_.max_holdings) {
        return {Code::exhausted,
                fmt::format("{} segments; a node may hold {}", heartbeat.holds.size(), settings_.max_holdings)};
    }
    for (size_t i = 0; i < heartbeat.holds.size(); ++i) {
        const Holding& what = heartbeat.holds[i];
        const auto model = models_.find(what.model);
        if (model == models_.end()) return {Code::not_found, "there is no model \"" + what.model + "\" here"};
        LINKCPP_TRY(model->second.map.check(what.block));
        for (size_t j = 0; j < i; ++j) {
            if (heartbeat.holds[j].model == what.model && heartbeat.holds[j].block.overlaps(what.block)) {
                return {Code::invalid_argument, fmt::format("segments {} and {} overlap", j, i)};
            }
        }
    }
    return {};
}

void Market::count(const Node& node, bool add) {
    if (node.draining) return;
    for (const Held& held : node.holds) {
        ModelMap& map = models_.at(held.what.model).map;
        for (Tally tally : {Tally::live, Tally::leaving}) {
            if (tally == Tally::leaving && !held.leaving) continue;
            if (add) {
                map.add(held.what.block, tally);
            } else {
                map.remove(held.what.block, tally);
            }
        }
    }
}

void Market::publish(const std::string& id, const std::vector<Held>& before, const std::vector<Held>& after) {
    std::set<std::string> concerned;
    for (const std::vector<Held>* list : {&before, &after}) {
        for (const Held& held : *list)
            concerned.insert(held.what.model);
    }
    for (const std::string& name : concerned) {
        Model& model = models_.at(name);
        model.version += 1;
        n_changes_ += 1;
        const bool holds =
            std::any_of(after.begin(), after.end(), [&](const Held& held) { return held.what.model == name; });
        if (holds) {
            model.holders.insert(id);
        } else {
            model.holders.erase(id);
        }
    }
}

/// What a lease was given for earns what was promised with it; so does what was promised before. Anything else earns what
/// experts that are not scarce do: nobody asked for it.
uint64_t Market::first_reward(const std::string& id, const Node& node, const Holding& what) const {
    for (const std::string& name : node.leases) {
        const Lease& lease = leases_.at(name);
        if (lease.what == what) return lease.reward;
    }
    if (settings_.promised) {
        if (const auto reward = settings_.promised(id, what)) return *reward;
    }
    const Model& model = models_.at(what.model);
    return reward_of(model, model.map.spec().target, model.map.largest_expert_bytes(what.block));
}

std::vector<Market::Held> Market::held_now(const std::string& id, const Node& node, const Heartbeat& heartbeat) const {
    std::vector<Held> holds;
    for (const Holding& what : heartbeat.holds) {
        const auto same =
            std::find_if(node.holds.begin(), node.holds.end(), [&](const Held& held) { return held.what == what; });
        holds.push_back(same != node.holds.end() ? *same : Held{what, first_reward(id, node, what), false, true});
    }
    return holds;
}

void Market::replace_holdings(const std::string& id, Node& node, const Heartbeat& heartbeat) {
    const bool same = node.address == heartbeat.address && node.numeric_class == heartbeat.numeric_class &&
                      node.draining == heartbeat.draining &&
                      std::equal(node.holds.begin(), node.holds.end(), heartbeat.holds.begin(), heartbeat.holds.end(),
                                 [](const Held& held, const Holding& what) { return held.what == what; });
    if (same) return;
    std::vector<Held> holds = held_now(id, node, heartbeat);
    count(node, false);
    publish(id, node.holds, holds);
    node.holds = std::move(holds);
    node.address = heartbeat.address;
    node.numeric_class = heartbeat.numeric_class;
    node.draining = heartbeat.draining;
    count(node, true);
    fulfil(node);
}

void Market::fulfil(const Node& node) {
    const std::set<std::string> leases = node.leases;
    for (const std::string& id : leases) {
        const Holding what = leases_.at(id).what;
        if (std::any_of(node.holds.begin(), node.holds.end(),
                        [&](const Held& held) { return covers(held.what, what); }))
            end_lease(id);
    }
}

void Market::renew(const Node& node, const Heartbeat& heartbeat, HeartbeatAnswer& answer) {
    for (const LeaseProgress& progress : heartbeat.progress) {
        if (!node.leases.count(progress.lease)) {
            answer.unknown.push_back(progress.lease);
            continue;
        }
        Lease& lease = leases_.at(progress.lease);
        const uint64_t bytes = std::min(progress.bytes, lease.bytes);
        if (bytes <= lease.downloaded) continue;
        lease.downloaded = bytes;
        schedule(lease, clock_.now() + settings_.lease_time);
    }
}

Result<HeartbeatAnswer> Market::heartbeat(const std::string& id, const Heartbeat& heartbeat) {
    sweep();
    LINKCPP_TRY(check(heartbeat));
    if (!nodes_.count(id) && nodes_.size() >= settings_.max_nodes)
        return {Code::exhausted, "this hub has no room for more nodes"};
    Node& node = touch(id);
    node.load = heartbeat.load;
    HeartbeatAnswer answer;
    replace_holdings(id, node, heartbeat);
    renew(node, heartbeat, answer);
    for (const std::string& lease : node.leases)
        answer.leases.push_back(leases_.at(lease));
    for (Held& held : node.holds) {
        const ModelMap& map = models_.at(held.what.model).map;
        answer.holds.push_back({held.reward, map.fewest_replicas(held.what.block), map.spec().target, held.fresh});
        held.fresh = false;
    }
    return answer;
}

void Market::drop_holdings(const std::string& id, Node& node) {
    count(node, false);
    publish(id, node.holds, {});
    node.holds.clear();
    if (node.heard) by_age_.erase(node.turn);
    node.heard = false;
}

bool Market::leave(const std::string& id) {
    sweep();
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) return false;
    drop_holdings(id, found->second);
    const std::set<std::string> leases = found->second.leases;
    for (const std::string& lease : leases)
        end_lease(lease);
    forget_if_empty(id);
    return true;
}

void Market::forget_if_empty(const std::string& id) {
    const auto found = nodes_.find(id);
    if (found != nodes_.end() && !found->second.heard && found->second.leases.empty()) nodes_.erase(found);
}

void Market::end_lease(const std::string& id) {
    const auto found = leases_.find(id);
    const Lease lease = std::move(found->second);
    leases_.erase(found);
    lapses_.erase({lease.expires, lease.id});
    models_.at(lease.what.model).map.remove(lease.what.block, Tally::coming);
    Node& node = nodes_.at(lease.node);
    node.leases.erase(lease.id);
    for (Held& held : node.holds) {
        if (!held.leaving || held.what != lease.instead_of) continue;
        held.leaving = false;
        if (!node.draining) models_.at(held.what.model).map.remove(held.what.block, Tally::leaving);
    }
}

void Market::sweep() {
    const Instant now = clock_.now();
    while (!lapses_.empty() && lapses_.begin()->first <= now) {
        const std::string lease = lapses_.begin()->second, node = leases_.at(lease).node;
        end_lease(lease);
        forget_if_empty(node);
    }
    while (!by_age_.empty() && now - nodes_.at(by_age_.front()).seen >= settings_.stale_after) {
        const std::string id = by_age_.front();
        drop_holdings(id, nodes_.at(id));  // its leases lapse in their own time
        forget_if_empty(id);
    }
}

Result<std::vector<Holder>> Market::placement(const std::string& name) {
    sweep();
    const auto model = models_.find(name);
    if (model == models_.end()) return {Code::not_found, "there is no model \"" + name + "\" here"};
    std::vector<Holder> holders;
    for (const std::string& id : model->second.holders) {
        const Node& node = nodes_.at(id);
        Holder holder{id, node.address, node.numeric_class, node.load, node.draining, {}};
        for (const Held& held : node.holds) {
            if (held.what.model == name) holder.blocks.push_back(held.what.block);
        }
        holders.push_back(std::move(holder));
    }
    return holders;
}

uint64_t Market::placement_version(const std::string& name) {
    sweep();
    const auto model = models_.find(name);
    return model == models_.end() ? 0 : model->second.version;
}

std::optional<uint64_t> Market::reward(const std::string& id, const Holding& part) {
    sweep();
    const auto node = nodes_.find(id);
    if (node == nodes_.end()) return std::nullopt;
    for (const Held& held : node->second.holds) {
        if (covers(held.what, part)) return held.reward;
    }
    return std::nullopt;
}

}  // namespace linkcpp::hub::market
