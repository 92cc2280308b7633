// linkcpp-make-model: writes a MoE model of any architecture of llama.cpp with random weights, for tests and benchmarks.

#include "base/clock.h"
#include "cmd/progress.h"
#include "cmd/units.h"
#include "moe/output_file.h"
#include "recipe.h"
#include "shapes.h"
#include "weights.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <iostream>

namespace linkcpp::maker {

namespace {

struct Options {
    Recipe recipe;
    std::string output, expert_type = "f32", dense_type = "f32";
    std::vector<std::string> types;
    uint32_t n_parts = 1;
    bool no_vocab = false, list = false, quiet = false;
};

Result<ggml_type> parse_type(const std::string& text) {
    const std::string wanted = CLI::detail::to_lower(text);
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        const char* name = ggml_type_name(static_cast<ggml_type>(type));
        if (name != nullptr && ggml_blck_size(static_cast<ggml_type>(type)) > 0 &&
            CLI::detail::to_lower(name) == wanted)
            return static_cast<ggml_type>(type);
    }
    return {Code::invalid_argument,
            fmt::format("'{}' is not a tensor type (f32, f16, bf16, q8_0, q4_K, iq4_nl, mxfp4, …)", text)};
}

Status read_types(Options& options) {
    for (const auto& [text, type] : {std::pair{&options.expert_type, &options.recipe.expert_type},
                                     std::pair{&options.dense_type, &options.recipe.dense_type}}) {
        const auto parsed = parse_type(*text);
        if (!parsed.ok()) return parsed.status();
        *type = *parsed;
    }
    for (const std::string& text : options.types) {
        const size_t equals = text.rfind('=');
        if (equals == std::string::npos)
            return {Code::invalid_argument, "--type " + text + ": it should look like down_exps=q6_K"};
        const auto parsed = parse_type(text.substr(equals + 1));
        if (!parsed.ok()) return parsed.status().in("--type " + text);
        options.recipe.types.push_back({text.substr(0, equals), *parsed});
    }
    return {};
}

/// The names that llama.cpp expects of a split model's files.
std::string part_path(const std::string& path, uint32_t part, uint32_t n_parts) {
    if (n_parts == 1) return path;
    const std::string stem = path.ends_with(".gguf") ? path.substr(0, path.size() - 5) : path;
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem, part + 1, n_parts);
}

void add_tensor(gguf_context* context, const TensorPlan& plan) {
    ggml_tensor tensor{};
    tensor.type = plan.type;
    std::copy(plan.ne.begin(), plan.ne.end(), tensor.ne);
    tensor.nb[0] = ggml_type_size(plan.type);
    tensor.nb[1] = ggml_row_size(plan.type, plan.ne[0]);
    for (int dim = 2; dim < GGML_MAX_DIMS; ++dim)
        tensor.nb[dim] = tensor.nb[dim - 1] * static_cast<size_t>(tensor.ne[dim - 1]);
    ggml_set_name(&tensor, plan.name.c_str());
    gguf_add_tensor(context, &tensor);
}

uint64_t tensor_bytes(const TensorPlan& plan) {
    uint64_t bytes = ggml_row_size(plan.type, plan.ne[0]);
    for (size_t dim = 1; dim < plan.ne.size(); ++dim)
        bytes *= static_cast<uint64_t>(plan.ne[dim]);
    return bytes;
}

class Maker {
  public:
    Maker(const Options& options, gguf_context* metadata, std::vector<TensorPlan> plans)
        : options_(options), metadata_(metadata), plans_(std::move(plans)), stream_(options.recipe.seed),
          bar_("Making model", clock_, cmd::stderr_is_terminal()) {
        for (const TensorPlan& plan : plans_)
            total_ += tensor_bytes(plan);
    }

    Status write() {
        for (uint32_t part = 0; part < options_.n_parts; ++part)
            LINKCPP_TRY(write_part(part));
        return {};
    }
    uint64_t total() const { return total_; }

  private:
    Status write_part(uint32_t part) {
        const size_t begin = plans_.size() * part / options_.n_parts,
                     end = plans_.size() * (part + 1) / options_.n_parts;
        Metadata header(gguf_init_empty());
        if (part == 0) gguf_set_kv(header.get(), metadata_);
        if (options_.n_parts > 1) {
            gguf_set_val_u16(header.get(), "split.no", static_cast<uint16_t>(part));
            gguf_set_val_u16(header.get(), "split.count", static_cast<uint16_t>(options_.n_parts));
            gguf_set_val_i32(header.get(), "split.tensors.count", static_cast<int32_t>(plans_.size()));
        }
        for (size_t i = begin; i < end; ++i)
            add_tensor(header.get(), plans_[i]);
        Bytes bytes(gguf_get_meta_size(header.get()));
        gguf_get_meta_data(header.get(), bytes.data());

        uint64_t size = bytes.size();
        for (size_t i = begin; i < end; ++i)
            size = std::max(size, bytes.size() + gguf_get_tensor_offset(header.get(), static_cast<int64_t>(i - begin)) +
                                      tensor_bytes(plans_[i]));
        const uint64_t alignment = gguf_get_alignment(header.get());
        size = (size + alignment - 1) / alignment * alignment;
        auto file = moe::OutputFile::create(part_path(options_.output, part, options_.n_parts), size);
        if (!file.ok()) return file.status();
        LINKCPP_TRY(file->resize(size));
        LINKCPP_TRY(file->write_at(0, bytes));
        for (size_t i = begin; i < end; ++i) {
            uint64_t at = bytes.size() + gguf_get_tensor_offset(header.get(), static_cast<int64_t>(i - begin));
            const auto write = [&](ByteSpan piece) { return write_piece(*file, at, piece); };
            LINKCPP_TRY(stream_.make(plans_[i], write).in(plans_[i].name));
        }
        return file->publish();
    }

    Status write_piece(moe::OutputFile& file, uint64_t& at, ByteSpan piece) {
        LINKCPP_TRY(file.write_at(at, piece));
        at += piece.size();
        done_ += piece.size();
        if (!options_.quiet) bar_.update(done_, total_);
        return {};
    }

    const Options& options_;
    gguf_context* metadata_;
    const std::vector<TensorPlan> plans_;
    WeightStream stream_;
    SteadyClock clock_;
    cmd::ProgressBar bar_;
    uint64_t total_ = 0, done_ = 0;
};

Status run(Options& options) {
    LINKCPP_TRY(read_types(options));
    options.recipe.has_vocab = !options.no_vocab;
    if (options.n_parts == 0) return {Code::invalid_argument, "a model has at least one part"};
    auto metadata = make_metadata(options.recipe);
    if (!metadata.ok()) return metadata.status();
    auto plans = plan_tensors(options.recipe, metadata->get());
    if (!plans.ok()) return plans.status();
    if (options.list) {
        for (const TensorPlan& plan : *plans)
            std::cout << fmt::format("{:<44} {:>8}  [{}]\n", plan.name, ggml_type_name(plan.type),
                                     fmt::join(plan.ne, ", "));
        return {};
    }
    if (options.n_parts > plans->size()) return {Code::invalid_argument, "more parts than tensors"};
    Maker maker(options, metadata->get(), std::move(*plans));
    LINKCPP_TRY(maker.write());
    if (!options.quiet)
        std::cout << fmt::format("{}: {} of weights\n", options.output, cmd::human_bytes(maker.total()));
    return {};
}

void add_options(CLI::App& app, Options& options) {
    Recipe& recipe = options.recipe;
    app.add_option("-o,--output", options.output, "File to write (with --parts: FILE-00001-of-0000N.gguf)");
    app.add_option("--arch", recipe.arch, "Architecture, as llama.cpp names it")->capture_default_str();
    app.add_option("--layers", recipe.n_layer, "Layers (default: the fewest that show every kind)");
    app.add_option("--embd", recipe.n_embd, "Width of the embedding")->capture_default_str();
    app.add_option("--heads", recipe.n_head, "Attention heads")->capture_default_str();
    app.add_option("--heads-kv", recipe.n_head_kv, "Heads of keys and values")->capture_default_str();
    app.add_option("--head-dim", recipe.n_embd_head, "Width of a head (default: embedding / heads)");
    app.add_option("--experts", recipe.n_expert, "Experts of a layer")->capture_default_str();
    app.add_option("--used", recipe.n_expert_used, "Experts that a token uses")->capture_default_str();
    app.add_option("--ff-exp", recipe.n_ff_exp, "Hidden width of an expert")->capture_default_str();
    app.add_option("--ff-shexp", recipe.n_ff_shexp, "Hidden width of the shared expert")->capture_default_str();
    app.add_option("--ff", recipe.n_ff, "Hidden width of layers without experts")->capture_default_str();
    app.add_option("--dense-layers", recipe.n_layer_dense,
                   "Leading layers without experts, where the architecture has them");
    app.add_option("--ctx", recipe.n_ctx_train, "Context that the model claims")->capture_default_str();
    app.add_option("--vocab", recipe.n_vocab, "Tokens")->capture_default_str();
    app.add_flag("--no-vocab", options.no_vocab, "Token ids only, no texts");
    app.add_option("--expert-type", options.expert_type, "Type of the experts' matrices")->capture_default_str();
    app.add_option("--dense-type", options.dense_type, "Type of the other matrices")->capture_default_str();
    app.add_option("--type", options.types, "EXPRESSION=TYPE for the tensors whose name matches; the first match wins");
    app.add_flag("--merged", recipe.merged_gate_up, "Gate and up in one tensor, where the architecture allows it");
    app.add_flag("--scales", recipe.expert_scales, "A scale per expert, where the architecture allows it");
    app.add_option("--without", recipe.without, "Leave out tensors whose name matches this expression");
    app.add_option("--set", recipe.set, "KEY=TYPE:VALUE in the metadata (u32, f32, bool, str, u32s:1,2,3)");
    app.add_option("--seed", recipe.seed, "Other seed, other weights")->capture_default_str();
    app.add_option("--parts", options.n_parts, "Split the model into so many files")->capture_default_str();
    app.add_flag("--list", options.list, "Print the tensors, write nothing");
    app.add_flag("-q,--quiet", options.quiet, "Print nothing but errors");
}

}  // namespace

}  // namespace linkcpp::maker

int main(int argc, char** argv) {
    using namespace linkcpp;
    CLI::App app("Writes a mixture-of-experts model with random, well-scaled weights: any architecture, geometry and\n"
                 "tensor types of llama.cpp, as a stream.\n");
    app.footer("Examples:\n"
               "  linkcpp-make-model --arch gpt-oss --expert-type mxfp4 -o gpt-oss.gguf\n"
               "  linkcpp-make-model --arch qwen35moe --embd 3072 --experts 256 --used 8 --ff-exp 1024 \\\n"
               "      --expert-type q4_K --type down_exps=q6_K --layers 4 -o big.gguf\n"
               "  linkcpp-make-model --arch deepseek2 --dense-layers 1 --list");
    maker::Options options;
    maker::add_options(app, options);
    CLI11_PARSE(app, argc, argv);
    if (options.output.empty() && !options.list) {
        std::cerr << "linkcpp-make-model: say where to write the model: -o FILE (or --list)\n";
        return 2;
    }
    if (const Status status = maker::run(options); !status.ok()) {
        std::cerr << "linkcpp-make-model: " << status.message() << "\n";
        return 1;
    }
    return 0;
}
