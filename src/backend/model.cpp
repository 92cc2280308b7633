#include "backend/model.h"

#include "backend/coverage.h"
#include "backend/finish.h"
#include "base/log.h"

#include <algorithm>
#include <fmt/format.h>
#include <thread>

namespace linkcpp::backend {

namespace {
constexpr uint64_t audit_cache_bytes = 32u << 20;
constexpr std::chrono::milliseconds look_around{50};
}  // namespace

Model::~Model() {
    if (dispatcher_ == nullptr) return;
    Totals all = totals();
    if (swarm_ != nullptr) swarm_->finish(all);
    Runtime::get().add_totals(all);
    network_->loop().run([this] { dispatcher_.reset(); });
}

void Model::tensor_loaded(const ggml_tensor* tensor, ByteSpan data) {
    const auto name = moe::ExpertTensorName::parse(tensor->name);
    if (!name) return;
    const bool is_weight = name->kind.role == moe::Role::weight;
    moe::ExpertTensor shape;
    shape.name = *name;
    shape.type = tensor->type;
    shape.ne = {tensor->ne[0], is_weight ? tensor->ne[1] : 1};
    const auto n_expert = static_cast<int>(is_weight ? tensor->ne[2] : tensor->ne[1]);
    shape.slab_bytes = is_weight ? tensor->nb[2] : tensor->nb[1];
    source_.loaded(shape, n_expert, data);
}

Status Model::check_configuration() const {
    if (settings_.fallback == Fallback::local && !fallback_) {
        return {Code::invalid_argument,
                "local experts are asked for, but there are none: " + source_.no_weights_reason()};
    }
    if (!source_.is_sparse()) return {};
    // The loader left the other layers to the CPU, which would take their holes for weights.
    for (const auto& [layer, n_expert] : source_.layers()) {
        if (!settings_.covers(layer)) {
            return {
                Code::invalid_argument,
                fmt::format("layer {} is outside the layers that may go remote ({}:{}), but the model is a backbone "
                            "file without experts; use the full model, or let all layers go remote",
                            layer, settings_.layer_begin, settings_.layer_end)};
        }
    }
    return {};
}

void Model::prepare() {
    const Config& config = Runtime::get().config();
    settings_ = config.for_file(source_.loaded_path());
    name_ = file_name(source_.loaded_path());
    if (name_.empty() && !config.models.empty()) {
        log_warning(
            "the model was loaded without mmap, so the name of its file is not known: it gets the default settings");
    }
    source_.seal(settings_.model_path);
    fallback_ = settings_.fallback != Fallback::none && source_.has_weights();
    unusable_ = check_configuration();

    std::string numeric_class;
    if (auto device = local_device(); device.ok()) {
        numeric_class = (*device)->numeric_class();
        if (source_.has_weights()) make_local_experts(*device);
    } else {
        log_warning("{}", device.status().message());
    }
    dispatch::Settings settings;
    settings.build =
        std::string("linkcpp ") + LINKCPP_VERSION + ", ggml " + ggml_version() + " (" + ggml_commit() + ")";
    settings.numeric_class = numeric_class;
    settings.split = settings_.split;
    settings.audit_share = settings_.audit;
    settings.stop = config.stop;
    network_ = Runtime::get().network();
    if (!unusable_.ok()) return;
    std::vector<net::Address> workers = settings_.workers;
    if (settings_.hub.url) {
        auto swarm = SwarmLink::open(settings_, {source_.fingerprint(), numeric_class}, config);
        if (!swarm.ok() && workers.empty()) {
            unusable_ = swarm.status();
            return;
        }
        if (!swarm.ok()) log_warning("{}; going on with the workers that were named", swarm.status().message());
        if (swarm.ok()) swarm_ = std::move(*swarm);
        if (swarm_ != nullptr) workers = swarm_->workers();
        settings.no_holder = std::max(settings.no_holder, settings_.hub.wait);
    }
    admission_ = std::make_unique<Admission>(source_, checked_.get(), numeric_class, settings_.policy, fallback_);
    dispatcher_ =
        std::make_unique<dispatch::Dispatcher>(*network_, std::move(settings), std::move(workers), admission_.get());
    if (swarm_ != nullptr) swarm_->attach(*dispatcher_);
    await_workers();
}

void Model::make_local_experts(const std::shared_ptr<moe::GgmlDevice>& device) {
    const uint64_t bytes = settings_.expert_cache_bytes;
    local_ = std::make_unique<LocalExperts>(source_, device, bytes);
    // Audits look at any expert, so they would fill the whole cache in time, and throw out what fallback needs.
    checked_ = std::make_unique<LocalExperts>(source_, device, std::min(bytes, audit_cache_bytes));
}

/// Waits until the workers were tried; with a hub and no local weights, until all experts have a holder.
void Model::await_workers() {
    const auto holders = [this] {
        std::vector<dispatch::HolderInfo> all;
        network_->loop().run([&] { all = dispatcher_->holders(); });
        return all;
    };
    std::atomic<bool> is_settled = false;
    network_->loop().run([&] { dispatcher_->when_settled(!fallback_, [&] { is_settled = true; }); });
    network_->loop().run_until([&] { return is_settled.load(); });
    const std::atomic<bool>* stop = Runtime::get().config().stop;
    const Instant begin = network_->loop().now();
    std::string told, missing;
    while (swarm_ != nullptr && !fallback_ && (stop == nullptr || !*stop)) {
        missing = missing_experts(source_.layers(), settings_, holders());
        const Duration left = settings_.hub.wait - (network_->loop().now() - begin);
        if (missing.empty() || left <= Duration::zero()) break;
        if (missing != told) {
            log_info("waiting for workers, for {} s at most; nobody has: {}",
                     std::chrono::duration_cast<std::chrono::seconds>(left).count(), missing);
        }
        told = missing;
        std::this_thread::sleep_for(look_around);
    }
    if (!missing.empty()) log_warning("going on without holders of {}", missing);
    // Which model this is goes without saying as long as all are computed alike.
    const std::string prefix = Runtime::get().config().models.empty() || name_.empty() ? "" : name_ + ": ";
    for (const std::string& line : describe_holders(source_.layers(), settings_, holders(), fallback_))
        log_info("{}{}", prefix, line);
}

Status Model::compute(const Region& region) {
    std::call_once(prepared_, [this] { prepare(); });
    LINKCPP_TRY(unusable_);
    const Instant begin = network_->loop().now();

    moe::LayerShapes shapes;
    for (const moe::ExpertTensor* tensor : source_.tensors(region.layer)) {
        auto& entry = shapes.matrix[static_cast<size_t>(tensor->name.kind.matrix)];
        if (tensor->name.kind.role == moe::Role::weight) entry = {true, entry.has_bias, tensor->ne[0], tensor->ne[1]};
        if (tensor->name.kind.role == moe::Role::bias) entry.has_bias = true;
    }
    const auto widths = moe::check_program(region.program, shapes);
    if (!widths.ok()) return widths.status();
    auto program = std::make_shared<dispatch::ProgramCode>();
    program->code = moe::encode_program(region.program);
    program->n_in = static_cast<uint32_t>(widths->n_in);
    program->n_out = static_cast<uint32_t>(widths->n_out);
    program->weighted = region.program.weighted;

    JobInputs inputs;
    dispatch::ExpertJob job;
    LINKCPP_TRY(make_job(region, std::move(program), source_.n_expert(region.layer), inputs, job));
    job.accept_missing = fallback_;
    dispatch::JobResult result = take_memory();
    if (settings_.covers(region.layer)) {
        LINKCPP_TRY(dispatcher_->run(job, result));
    } else {  // here only because another model's settings let this layer through
        result.rows.resize(size_t{job.n_pairs()} * job.program->n_out);
        result.state.assign(job.n_pairs(), dispatch::RowState::missing);
    }
    uint32_t n_local = 0;
    LINKCPP_TRY(compute_missing(job, region.program, result, n_local));
    write_output(region, job, result);
    keep_memory(std::move(result));

    Runtime::get().add_layer({name_, region.layer, job.n_tokens, job.n_pairs(), job.n_pairs() - n_local, n_local,
                              network_->loop().now() - begin});
    return {};
}

dispatch::JobResult Model::take_memory() {
    const std::lock_guard lock(memory_mutex_);
    return std::exchange(memory_, {});
}

/// Of the rows of a prompt most are contained in sums, as a rule; they were never written, so they hold no pages.
void Model::keep_memory(dispatch::JobResult result) {
    if (result.state.empty()) return;
    const auto n_written = static_cast<size_t>(std::count_if(
        result.state.begin(), result.state.end(), [](auto state) { return state != dispatch::RowState::covered; }));
    if (n_written * (result.rows.size() / result.state.size()) * sizeof(float) > max_kept_bytes) return;
    const std::lock_guard lock(memory_mutex_);
    memory_ = std::move(result);
}

Status Model::compute_missing(const dispatch::ExpertJob& job, const moe::Program& program, dispatch::JobResult& result,
                              uint32_t& n_local) {
    std::vector<uint32_t> pairs, rows, experts;
    for (uint32_t pair = 0; pair < job.n_pairs(); ++pair) {
        if (result.state[pair] != dispatch::RowState::missing) continue;
        pairs.push_back(pair);
        rows.push_back(job.x_per_pair ? pair : pair / job.n_used);
        experts.push_back(static_cast<uint32_t>(job.expert[pair]));
    }
    n_local = static_cast<uint32_t>(pairs.size());
    if (pairs.empty()) return {};
    const size_t n_out = job.program->n_out;
    std::vector<float> y(pairs.size() * n_out);
    if (local_ == nullptr)
        return {Code::unavailable, fmt::format("layer {}: experts without a holder, and no local weights", job.layer)};
    LINKCPP_TRY(local_->compute(static_cast<int>(job.layer), program, job.x, rows, experts, y)
                    .in(fmt::format("layer {}, computed here", job.layer)));
    for (size_t i = 0; i < pairs.size(); ++i) {
        std::copy_n(y.data() + i * n_out, n_out, result.rows.data() + pairs[i] * n_out);
        result.state[pairs[i]] = dispatch::RowState::raw;
    }
    return {};
}

Result<std::shared_ptr<moe::GgmlDevice>> Model::local_device() {
    const std::lock_guard lock(device_mutex_);
    if (device_ == nullptr) {
        auto device =
            moe::GgmlDevice::create(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), Runtime::get().n_threads());
        if (!device.ok()) return device.status();
        device_ = std::move(*device);
    }
    return device_;
}

Totals Model::totals() const {
    Totals totals;
    if (dispatcher_ == nullptr) return totals;
    network_->loop().run([&] {
        const dispatch::DispatchStats stats = dispatcher_->stats();
        totals.failovers = stats.failovers;
        totals.round_trip_p50 = stats.round_trip_p50;
        totals.round_trip_p99 = stats.round_trip_p99;
        for (const dispatch::PeerStats& peer : stats.peers) {
            totals.bytes_out += peer.bytes_out;
            totals.bytes_in += peer.bytes_in;
            totals.pairs_by_worker[peer.address] += peer.rows;
            totals.class_by_worker[peer.address] = peer.numeric_class;
        }
    });
    return totals;
}

}  // namespace linkcpp::backend
