// linkcpp slice: cuts experts out of a model, or makes the model's backbone file without them.

#include "cmd/commands.h"

#include "base/log.h"
#include "cmd/interrupt.h"
#include "cmd/progress.h"
#include "cmd/units.h"
#include "cmd/values.h"
#include "moe/backbone_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

constexpr const char* examples = R"(
Examples:
  linkcpp slice model.gguf -o whole.gguf                     all experts of all layers
  linkcpp slice model.gguf --layers 0:8 -o first.gguf        all experts of layers 0 to 7
  linkcpp slice model.gguf --experts 64:128 -o part.gguf     experts 64 to 127 of every layer
  linkcpp slice model.gguf --backbone -o backbone.gguf       everything but the experts
Ranges are begin:end, the end is exclusive; either may be left out. Of a split model, name any part.
)";

struct Options {
    std::string model, output, layers = ":", experts = ":";
    bool backbone = false, json = false;
};

constexpr int to_the_last = INT32_MAX;

std::string check_range(const std::string& text) {
    const auto range = parse_range(text, to_the_last);
    return range.ok() ? "" : range.status().message();
}

int fail(const Status& status) {
    log_error("{}", status.message());
    return exit_failed;
}

/// Runs `write` with a bar that can be interrupted; the bar is gone before anything else is printed.
template <typename Write>
auto with_progress(const char* label, Write write) {
    const SteadyClock clock;
    ProgressBar bar(label, clock, stderr_is_terminal());
    return write({[&bar](uint64_t done, uint64_t total) { bar.update(done, total); }, &catch_interrupts()});
}

int report_slice(const Options& options, const moe::WrittenSlice& slice) {
    const moe::SliceInfo& info = slice.info;
    if (options.json) {
        const ordered_json record = {{"kind", "slice"},
                                     {"path", options.output},
                                     {"bytes", slice.bytes},
                                     {"layer_begin", info.layer_begin},
                                     {"layer_end", info.layer_end},
                                     {"expert_begin", info.expert_begin},
                                     {"expert_end", info.expert_end},
                                     {"n_expert", info.n_expert},
                                     {"digest", info.digest.hex()},
                                     {"fingerprint", info.model_fingerprint.hex()}};
        fmt::print("{}\n", record.dump(2, ' ', false, ordered_json::error_handler_t::replace));
        return 0;
    }
    fmt::print("{}: layers {}:{}, experts {}:{} of {}, {}, digest {}\n", options.output, info.layer_begin,
               info.layer_end, info.expert_begin, info.expert_end, info.n_expert, human_bytes(slice.bytes),
               info.digest.brief());
    return 0;
}

int write_slice(const Options& options, const moe::ModelFile& model) {
    const auto layers = *parse_range(options.layers, to_the_last), experts = *parse_range(options.experts, to_the_last);
    const auto end = [](int value) { return value == to_the_last ? -1 : value; };
    auto plan = moe::plan_slice(model, {layers.first, end(layers.second), experts.first, end(experts.second)});
    if (!plan.ok()) return fail(plan.status());
    auto written = with_progress("Writing the slice", [&](const moe::WriteOptions& how) {
        return moe::write_slice(model, *plan, options.output, how);
    });
    if (!written.ok()) return fail(written.status());
    return report_slice(options, *written);
}

int report_backbone(const Options& options, const moe::ModelFile& model, const moe::WrittenBackbone& backbone) {
    if (options.json) {
        const ordered_json record = {{"kind", "backbone"},
                                     {"paths", backbone.paths},
                                     {"bytes", backbone.bytes},
                                     {"bytes_on_disk", backbone.allocated_bytes},
                                     {"bytes_left_out", backbone.n_bytes_holes},
                                     {"fingerprint", model.info().fingerprint.hex()}};
        fmt::print("{}\n", record.dump(2, ' ', false, ordered_json::error_handler_t::replace));
        return 0;
    }
    for (const std::string& path : backbone.paths)
        fmt::print("{}\n", path);
    fmt::print("{} of experts left out; takes {} of disk space, shown as {}\n", human_bytes(backbone.n_bytes_holes),
               human_bytes(backbone.allocated_bytes), human_bytes(backbone.bytes));
    return 0;
}

int write_backbone(const Options& options, const moe::ModelFile& model) {
    auto written = with_progress("Writing the backbone", [&](const moe::WriteOptions& how) {
        return moe::write_backbone(model, options.output, how);
    });
    if (!written.ok()) return fail(written.status());
    return report_backbone(options, model, *written);
}

int run(const Options& options) {
    auto model = moe::ModelFile::open(options.model);
    if (!model.ok()) return fail(model.status());
    return options.backbone ? write_backbone(options, *model) : write_slice(options, *model);
}

}  // namespace

void add_slice(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* slice = app.add_subcommand("slice", "Cut experts out of a model, or make its backbone file without them");
    slice->footer(examples);
    slice->add_option("model", options->model, "The model, a GGUF file")->required()->type_name("MODEL.gguf");
    slice->add_option("-o,--output", options->output, "The file to write")->required()->type_name("FILE");
    auto* layers =
        slice->add_option("--layers", options->layers, "Layers of the slice (default: all)")->type_name("A:B");
    auto* experts =
        slice->add_option("--experts", options->experts, "Experts of each layer (default: all)")->type_name("C:D");
    layers->check(CLI::Validator(check_range, ""));
    experts->check(CLI::Validator(check_range, ""));
    slice
        ->add_flag("--backbone", options->backbone,
                   "Write the backbone: everything but the experts, holes in their place")
        ->excludes(layers)
        ->excludes(experts);
    slice->add_flag("--json", options->json, "Print the result as JSON");
    slice->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
