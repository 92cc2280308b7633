#include "cmd/bench/worker.h"

#include "cmd/bench/service.h"
#include "cmd/bench/worker_batches.h"
#include "cmd/own_folder.h"
#include "moe/engine.h"
#include "net/loop.h"

namespace linkcpp::cmd::bench {

Status measure_worker(const WorkerPlan& plan, const std::atomic<bool>& stop, Report& report) {
    auto model = moe::ModelFile::open(plan.model);
    if (!model.ok()) return model.status();
    const auto layer = ExpertLayer::of(*model);
    if (!layer.ok()) return layer.status();
    const auto program = beside_this_program("linkcpp-expert-worker");
    if (!program.ok()) return program.status();

    const SteadyClock clock;
    const Instant begin = clock.now();
    auto worker = Service::start({*program, "--serve", "127.0.0.1:0", "--model", plan.slice, "--threads",
                                  std::to_string(plan.n_threads), plan.verbose ? "--verbose" : "--quiet"},
                                 !plan.verbose);
    if (!worker.ok()) return worker.status();
    const auto address = worker->hear("serving on ", stop);
    if (!address.ok()) return address.status().in("the worker");
    report.slice_to_serving_s = std::chrono::duration<double>(clock.now() - begin).count();

    auto device = moe::Device::open("", plan.n_threads);
    if (!device.ok()) return device.status();
    auto slice = moe::SliceFile::open(plan.slice);
    if (!slice.ok()) return slice.status();
    report.slice_bytes = slice->file_bytes();
    auto engine = moe::Engine::load(*device, slice->tensors());
    if (!engine.ok()) return engine.status();
    auto points = measure_batches(*layer, *net::Address::parse(*address), **engine, plan.batches, stop);
    if (!points.ok()) return points.status();
    report.worker = std::move(*points);
    return {};
}

}  // namespace linkcpp::cmd::bench
