#include "backend/admission.h"

#include "base/threads.h"
#include "dispatch/compare.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>

namespace linkcpp::backend {

Admission::Admission(const ModelSource& source, LocalExperts* local, std::string numeric_class, Policy policy,
                     bool audits)
    : source_(source), local_(local), policy_(policy), audits_(audits && local != nullptr),
      numeric_class_(std::move(numeric_class)), checks_("lc-check"), auditor_("lc-audit") {}

TaskThread::TaskThread(const char* name) : thread_(start_thread(name, [this] { run(); })) {}

TaskThread::~TaskThread() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void TaskThread::add(std::function<void()> task) {
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
}

void TaskThread::run() {
    for (;;) {
        std::function<void()> task;
        {
            std::unique_lock lock(mutex_);
            wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
            if (stop_) return;
            task = std::move(tasks_.front());
            tasks_.pop_front();
        }
        task();
    }
}

void Admission::admit(const std::string& worker, const wire::Welcome& welcome,
                      std::function<void(Result<std::vector<dispatch::Canary>>)> done) {
    checks_.add([this, worker, welcome, done = std::move(done)] { done(decide(worker, welcome)); });
}

void Admission::audit(dispatch::AuditRequest request, std::function<void(Status)> done) {
    // Shared, because a task must be copyable.
    auto shared = std::make_shared<dispatch::AuditRequest>(std::move(request));
    auditor_.add([this, shared, done = std::move(done)] { done(compute_again(*shared)); });
}

Status Admission::compute_again(const dispatch::AuditRequest& request) const {
    const auto program = moe::decode_program(request.program->code);
    if (!program.ok()) return {Code::unsupported, program.status().message()};
    const wire::Compute& compute = request.compute;
    const size_t n_out = request.program->n_out;
    std::vector<float> rows(compute.expert.size() * n_out);
    const Status computed =
        local_->compute(static_cast<int>(request.layer), *program, compute.x, compute.x_row, compute.expert, rows);
    if (!computed.ok()) return {Code::unavailable, computed.message()};
    if (compute.output == wire::Output::sums) {
        std::vector<float> sums(compute.n_rows_out * n_out);
        moe::weighted_sums(rows, compute.weight, compute.group, n_out, sums);
        rows = std::move(sums);
    }
    return dispatch::compare_rows(rows, request.rows, n_out, request.tolerance);
}

Result<std::vector<dispatch::Canary>> Admission::decide(const std::string&, const wire::Welcome& welcome) const {
    if (welcome.slices.empty()) return {Code::mismatch, "it holds no slices"};
    const double tolerance = dispatch::tolerance(welcome.numeric_class, numeric_class_, dispatch::Depth::matrix);
    if (policy_ == Policy::exact && tolerance > 0) {
        return {Code::mismatch,
                fmt::format("it computes with other instructions ({}; here {}), which the policy 'exact' rules out",
                            welcome.numeric_class, numeric_class_)};
    }
    std::vector<dispatch::Canary> all;
    for (const wire::SliceOffer& offer : welcome.slices) {
        const std::string what = fmt::format("its slice of layers {}:{}, experts {}:{}", offer.layer_begin,
                                             offer.layer_end, offer.expert_begin, offer.expert_end);
        if (offer.layer_end > INT32_MAX || offer.expert_end > INT32_MAX)
            return {Code::corrupt, what + ": impossible ranges"};
        const auto digest =
            source_.digest(static_cast<int>(offer.layer_begin), static_cast<int>(offer.layer_end),
                           static_cast<int>(offer.expert_begin), static_cast<int>(offer.expert_end), &progress_);
        if (!digest.ok()) return digest.status().in(what);
        if (!std::equal(offer.slice.begin(), offer.slice.end(), digest->bytes.begin())) {
            return {Code::mismatch, what + " is not of this model: the digests of the weights differ (another model, "
                                           "another quantisation, or an older version); "
                                           "cut the slice again from the file that the backbone uses"};
        }
        auto tests = canaries(offer, tolerance);
        if (!tests.ok()) return tests.status().in(what);
        std::move(tests->begin(), tests->end(), std::back_inserter(all));
    }
    return all;
}

/// Each matrix of the slice's first layer alone, for its first and last expert.
Result<std::vector<dispatch::Canary>> Admission::canaries(const wire::SliceOffer& offer, double tolerance) const {
    std::vector<dispatch::Canary> tests;
    if (local_ == nullptr) return tests;
    const auto layer = std::find_if(source_.layers().begin(), source_.layers().end(), [&](const auto& entry) {
        return entry.first >= static_cast<int>(offer.layer_begin) && entry.first < static_cast<int>(offer.layer_end);
    });
    if (layer == source_.layers().end()) return tests;
    const auto last = std::min<uint32_t>(offer.expert_end, static_cast<uint32_t>(layer->second)) - 1;
    const std::vector<uint32_t> experts = {offer.expert_begin, last};
    for (const moe::ExpertTensor* tensor : source_.tensors(layer->first)) {
        if (tensor->name.kind.role != moe::Role::weight) continue;
        moe::Program program;
        program.steps.push_back({moe::Op::matmul, tensor->name.kind.matrix, 0, 0, {0, 0}});
        dispatch::Canary test;
        test.slice = offer.slice;
        test.layer = static_cast<uint32_t>(layer->first);
        test.program = {moe::encode_program(program), static_cast<uint32_t>(tensor->ne[0]),
                        static_cast<uint32_t>(tensor->ne[1]), false};
        std::minstd_rand random(1);
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < experts.size() * test.program.n_in; ++i)
            test.x.push_back(normal(random));
        for (uint32_t expert : experts)
            test.expert.push_back(expert - offer.expert_begin);
        std::vector<float> expected(experts.size() * test.program.n_out);
        const std::vector<uint32_t> rows = {0, 1};
        LINKCPP_TRY(local_->compute(layer->first, program, test.x, rows, experts, expected));
        test.judge = [expected = std::move(expected), tolerance, n_out = test.program.n_out,
                      name = tensor->name.str()](std::span<const float> y) {
            return dispatch::compare_rows(expected, y, n_out, tolerance).in(name);
        };
        tests.push_back(std::move(test));
    }
    return tests;
}

}  // namespace linkcpp::backend
