#include "hub/market/market.h"

#include "hub/market/reward.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace linkcpp::hub::market {

namespace {

Status no_such_model(const std::string& name) {
    return {Code::not_found, "there is no model \"" + name + "\" here; GET /api/proxy/models lists them"};
}

Status no_room() { return {Code::exhausted, "this hub has no room for more nodes"}; }

/// A move has to leave the place that is given up with more replicas than the other place will have, so every move makes
/// the map more even and they come to an end.
constexpr uint32_t move_gain = 2;

}  // namespace

Market::Market(const Clock& clock, Settings settings) : clock_(clock), settings_(std::move(settings)) {}

void Market::add_model(ModelSpec spec) {
    const std::string name = spec.name;
    models_.emplace(name, Model(std::move(spec), settings_.first_version));
}

const ModelSpec* Market::model(const std::string& name) const {
    const auto found = models_.find(name);
    return found == models_.end() ? nullptr : &found->second.map.spec();
}

std::vector<std::string> Market::models() const {
    std::vector<std::string> names;
    for (const auto& [name, model] : models_)
        names.push_back(name);
    return names;
}

double Market::rows_per_minute(const Model& model) const {
    // A steady stream of r rows per minute has a decayed sum of r * half-life / ln 2.
    const double half_lives = static_cast<double>((clock_.now() - model.rows_at).count()) /
                              static_cast<double>(settings_.demand_half_life.count());
    const double minutes = std::chrono::duration<double, std::ratio<60>>(settings_.demand_half_life).count();
    return model.rows * std::exp2(-half_lives) * std::log(2.0) / minutes;
}

void Market::note_rows(const std::string& name, uint64_t rows) {
    const auto model = models_.find(name);
    if (model == models_.end()) return;
    const double half_lives = static_cast<double>((clock_.now() - model->second.rows_at).count()) /
                              static_cast<double>(settings_.demand_half_life.count());
    model->second.rows = model->second.rows * std::exp2(-half_lives) + static_cast<double>(rows);
    model->second.rows_at = clock_.now();
}

uint64_t Market::reward_of(const Model& model, uint32_t replicas, uint64_t expert_bytes) const {
    return reward_per_1000_rows({model.map.scarcity(replicas), expert_bytes, rows_per_minute(model)});
}

Result<std::vector<DemandSegment>> Market::demand(const std::string& name) {
    sweep();
    const auto found = models_.find(name);
    if (found == models_.end()) return no_such_model(name);
    const Model& model = found->second;
    const ModelSpec& spec = model.map.spec();
    std::vector<DemandSegment> segments;
    for (const Run& run : model.map.runs()) {
        segments.push_back({run.layer, run.experts, run.replicas, spec.target, model.map.scarcity(run.replicas),
                            reward_of(model, run.replicas, spec.layers[run.layer].expert_bytes)});
    }
    return segments;
}

std::vector<Block> Market::taken(const Node* node, const std::string& model) const {
    std::vector<Block> blocks;
    if (node == nullptr) return blocks;
    for (const Held& held : node->holds) {
        if (held.what.model == model) blocks.push_back(held.what.block);
    }
    for (const std::string& lease : node->leases) {
        const Holding& what = leases_.at(lease).what;
        if (what.model == model) blocks.push_back(what.block);
    }
    return blocks;
}

Result<const Market::Held*> Market::given_up(const Node* node, const VolunteerRequest& request) const {
    if (!request.instead_of) return static_cast<const Held*>(nullptr);
    if (node != nullptr) {
        for (const Held& held : node->holds) {
            if (held.what == *request.instead_of && !held.leaving) return &held;
        }
    }
    return {Code::invalid_argument, "instead_of is not what this node holds; give one of its segments, whole"};
}

std::optional<Market::Place> Market::rarest(const Node* node, const VolunteerRequest& request) const {
    std::optional<Place> best;
    double best_ratio = 0;
    for (const auto& [name, model] : models_) {
        if (request.model && *request.model != name) continue;
        const auto offer = model.map.rarest(request.budget, taken(node, name));
        if (!offer) continue;
        const double ratio = static_cast<double>(offer->replicas) / std::max(1u, model.map.spec().target);
        const bool better = !best || ratio < best_ratio ||
                            (ratio == best_ratio && rows_per_minute(model) > rows_per_minute(*best->model));
        if (!better) continue;
        best = Place{&model, *offer};
        best_ratio = ratio;
    }
    return best;
}

Result<Lease> Market::volunteer(const std::string& id, const VolunteerRequest& request) {
    sweep();
    if (request.model && !models_.count(*request.model)) return no_such_model(*request.model);
    const auto known = nodes_.find(id);
    const Node* node = known == nodes_.end() ? nullptr : &known->second;
    if (node == nullptr && nodes_.size() >= settings_.max_nodes) return no_room();
    if (node != nullptr && node->leases.size() >= settings_.max_leases) {
        return {Code::exhausted,
                fmt::format("this node has {} open leases; fulfil them or let them lapse", node->leases.size())};
    }
    const Result<const Held*> held = given_up(node, request);
    if (!held.ok()) return held.status();
    const std::optional<Place> place = rarest(node, request);
    if (!place) return {Code::not_found, "nothing is left that fits this node's budget and that it does not have"};
    if (*held != nullptr) {
        const Holding& what = (*held)->what;
        const uint32_t here = models_.at(what.model).map.fewest_live(what.block);
        if (here < place->offer.replicas + move_gain) {
            return {Code::unavailable,
                    fmt::format("moving would not help: {} replicas here, {} there", here, place->offer.replicas)};
        }
    }
    return give_lease(id, *place, request);
}

Lease Market::give_lease(const std::string& id, const Place& place, const VolunteerRequest& request) {
    const auto& [model, offer] = place;
    const ModelSpec& spec = model->map.spec();
    Lease lease;
    lease.id = fmt::format("{}-{}", settings_.lease_prefix, ++last_lease_);
    lease.node = id;
    lease.what = {spec.name, offer.block};
    lease.replicas = offer.replicas;
    lease.target = spec.target;
    lease.scarcity = model->map.scarcity(offer.replicas);
    lease.reward = reward_of(*model, offer.replicas, model->map.largest_expert_bytes(offer.block));
    lease.bytes = model->map.bytes(offer.block);
    lease.ends = clock_.now() + settings_.lease_time +
                 std::chrono::seconds(lease.bytes / std::max<uint64_t>(settings_.slowest_download, 1));
    lease.instead_of = request.instead_of;

    Node& node = nodes_.count(id) ? nodes_.at(id) : touch(id);
    for (Held& held : node.holds) {
        if (held.what != lease.instead_of) continue;
        held.leaving = true;
        if (!node.draining) models_.at(held.what.model).map.add(held.what.block, Tally::leaving);
    }
    models_.at(lease.what.model).map.add(lease.what.block, Tally::coming);
    node.leases.insert(lease.id);
    schedule(lease, clock_.now() + settings_.lease_time);
    return leases_.emplace(lease.id, lease).first->second;
}

void Market::schedule(Lease& lease, Instant expires) {
    lapses_.erase({lease.expires, lease.id});
    lease.expires = std::min(expires, lease.ends);
    lapses_.insert({lease.expires, lease.id});
}

}  // namespace linkcpp::hub::market
