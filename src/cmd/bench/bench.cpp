// linkcpp bench: what dispatch, a worker and whole decodes cost on this machine, everything beside its reference in one run.

#include "cmd/bench/decode.h"
#include "cmd/bench/worker.h"
#include "cmd/commands.h"

#include "base/log.h"
#include "cmd/interrupt.h"
#include "cmd/progress.h"
#include "moe/slice_writer.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

constexpr const char* examples = R"(
Examples:
  linkcpp bench -m model.gguf
  linkcpp bench -m big.gguf --suite --json report.json --plot report.svg
  linkcpp bench -m model.gguf --only worker --batches 1,64,512
  linkcpp bench -m model.gguf --only decode --layers 1 --delays 100 --rounds 20
It starts what it needs on loopback (a worker, llama.cpp's RPC server with --suite, a relay that delays) and ends it again.
Slices are written to a temporary folder: as much space as the model's experts take, see --scratch.
)";

struct Options {
    ModelOptions compute;
    bool suite = false;
    std::string only, json, plot, scratch;
    std::vector<uint32_t> batches = {1, 4, 16, 64, 256, 512}, decode_batches = {1};
    std::vector<int> delays = {0};
    std::vector<int> layers;  // remote ones; none named: all of the model
    int n_rounds = 5, n_prompt = 512;
};

/// A folder of our own that goes with us.
class Scratch {
  public:
    explicit Scratch(const std::string& parent) {
        std::string path =
            (parent.empty() ? std::filesystem::temp_directory_path().string() : parent) + "/linkcpp-XXXXXX";
        if (mkdtemp(path.data()) != nullptr) path_ = path;
    }
    ~Scratch() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

std::string machine() {
    std::ifstream info("/proc/cpuinfo");
    std::string name = "unknown processor";
    for (std::string line; std::getline(info, line);) {
        if (!line.starts_with("model name")) continue;
        name = line.substr(line.find(':') + 2);
        break;
    }
    const double memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e9;
    return fmt::format("{}, {} cores, {:.0f} GB", name, std::thread::hardware_concurrency(), memory);
}

Status cut(const moe::ModelFile& model, const moe::SliceRequest& request, const std::string& path,
           const std::atomic<bool>& stop) {
    const auto plan = moe::plan_slice(model, request);
    if (!plan.ok()) return plan.status();
    const SteadyClock clock;
    ProgressBar bar("Cutting the slice", clock, stderr_is_terminal());
    const auto written =
        moe::write_slice(model, *plan, path, {[&](uint64_t done, uint64_t total) { bar.update(done, total); }, &stop});
    return written.status();
}

Status measure_one_layer(const Options& options, const moe::ModelFile& model, const std::string& folder,
                         const std::atomic<bool>& stop, bench::Report& report) {
    const auto layer = bench::ExpertLayer::of(model);
    if (!layer.ok()) return layer.status();
    bench::WorkerPlan plan;
    plan.model = options.compute.model;
    plan.slice = folder + "/layer.gguf";
    plan.batches = options.batches;
    plan.n_threads = options.compute.threads();
    plan.verbose = options.compute.verbose;
    LINKCPP_TRY(cut(model, {layer->layer, layer->layer + 1, 0, -1}, plan.slice, stop));
    return measure_worker(plan, stop, report);
}

Status measure_decodes(const Options& options, const moe::ModelFile& model, const std::string& folder,
                       const std::atomic<bool>& stop, bench::Report& report) {
    bench::DecodePlan plan;
    plan.compute = options.compute;
    plan.cut = [&](int begin, int end, const std::string& path) { return cut(model, {begin, end, 0, -1}, path, stop); };
    for (const moe::ModelLayer& layer : model.layers()) {
        if (layer.n_expert > 0) plan.expert_layers.push_back(layer.layer);
    }
    plan.slice = folder + "/layers.gguf";
    plan.round_trips = options.delays;
    plan.batches = options.decode_batches;
    plan.n_rounds = options.n_rounds;
    plan.n_prompt = options.n_prompt;
    plan.rpc = options.suite;
    plan.layers = options.layers;
    if (plan.layers.empty()) {
        plan.layers = {report.layers};
        if (options.suite && report.layers > 2) plan.layers.push_back(2);
        if (options.suite && report.layers > 1) plan.layers.push_back(1);
    }
    return measure_decode(plan, stop, report);
}

Status measure(const Options& options, const std::atomic<bool>& stop, bench::Report& report) {
    const auto model = moe::ModelFile::open(options.compute.model);
    if (!model.ok()) return model.status();
    report.date = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
    report.machine = machine();
    report.version = LINKCPP_VERSION;
    report.model = std::filesystem::path(options.compute.model).filename();
    report.n_threads = options.compute.threads();
    report.layers = static_cast<int>(std::count_if(model->layers().begin(), model->layers().end(),
                                                   [](const moe::ModelLayer& layer) { return layer.n_expert > 0; }));
    if (report.layers == 0) return {Code::invalid_argument, options.compute.model + ": the model has no experts"};
    for (const int layers : options.layers) {
        if (layers <= report.layers) continue;
        return {Code::invalid_argument,
                fmt::format("--layers {}: the model has {} with experts", layers, report.layers)};
    }
    const Scratch scratch(options.scratch);
    if (scratch.path().empty()) return {Code::io, "no temporary folder can be made; name one with --scratch"};
    if (options.only != "decode") LINKCPP_TRY(measure_one_layer(options, *model, scratch.path(), stop, report));
    if (options.only != "worker") LINKCPP_TRY(measure_decodes(options, *model, scratch.path(), stop, report));
    return {};
}

int run(Options options) {
    const std::atomic<bool>& stop = catch_interrupts();
    if (options.compute.verbose) set_log_level(LogLevel::debug);
    if (options.suite) {
        options.delays = {0, 20, 100};
        options.decode_batches = {1, 8};
    }
    bench::Report report;
    Status status = measure(options, stop, report);
    if (stop) return exit_interrupted;
    if (status.ok() && !options.json.empty()) status = bench::write_text(options.json, to_json(report).dump(2) + "\n");
    if (status.ok() && !options.plot.empty()) status = bench::write_text(options.plot, bench::plot(report));
    if (!status.ok()) {
        log_error("{}", status.message());
        return exit_failed;
    }
    print_tables(report);
    return std::fflush(stdout) == 0 ? 0 : exit_failed;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* command = app.add_subcommand("bench", "Measure a worker and whole decodes, each beside its reference");
    command->footer(examples);
    command->add_option("-m,--model", options->compute.model, "A full MoE model")
        ->required()
        ->check(CLI::ExistingFile)
        ->type_name("MODEL.gguf");
    command->add_flag(
        "--suite", options->suite,
        "Everything: also llama.cpp's RPC backend, round trips of 20 and 100 ms, one and two remote layers, "
        "8 sequences at once");
    command->add_option("--only", options->only, "One part of it")
        ->check(CLI::IsMember({"worker", "decode"}))
        ->type_name("worker|decode");
    command->add_option("--batches", options->batches, "Tokens in a request to the worker")
        ->delimiter(',')
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
    command->add_option("--delays", options->delays, "Round trips of the decodes, ms")
        ->delimiter(',')
        ->check(CLI::Range(0, 10000))
        ->capture_default_str();
    command->add_option("--layers", options->layers, "How many layers are remote in the decodes (default: all)")
        ->delimiter(',')
        ->check(CLI::Range(1, INT16_MAX));
    command->add_option("--rounds", options->n_rounds, "Repetitions of each decode")
        ->check(CLI::Range(2, 1000))
        ->capture_default_str();
    command->add_option("--prompt", options->n_prompt, "Tokens of the prompt that is measured")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_option("--json", options->json, "Write the report as JSON")->type_name("FILE");
    command->add_option("--plot", options->plot, "Write its curves as SVG")->type_name("FILE");
    command->add_option("--scratch", options->scratch, "Folder for slices (default: the system's for temporary files)")
        ->check(CLI::ExistingDirectory)
        ->type_name("FOLDER");
    add_compute_options(*command, options->compute);
    command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
