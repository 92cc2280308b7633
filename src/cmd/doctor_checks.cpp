#include "cmd/doctor.h"

#include "backend/model_source.h"
#include "cmd/child.h"
#include "cmd/own_folder.h"
#include "cmd/units.h"
#include "moe/engine.h"
#include "moe/model_file.h"

#include <algorithm>
#include <chrono>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

using Findings = std::vector<Finding>;

std::string layers_text(const std::set<int>& layers) {
    std::string text;
    for (auto it = layers.begin(); it != layers.end();) {
        const int begin = *it;
        int end = begin;
        while (it != layers.end() && *it == end) {
            ++it;
            ++end;
        }
        text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", begin, end);
    }
    return text;
}

/// A backbone file that lost its markers as well looks like a model whose experts are all zero.
bool experts_are_zero(const moe::ModelFile& model) {
    const auto zero = [](const moe::ExpertTensor& tensor) {
        const ByteSpan slab = tensor.data.first(std::min<size_t>(tensor.slab_bytes, tensor.data.size()));
        return std::all_of(slab.begin(), slab.end(), [](uint8_t byte) { return byte == 0; });
    };
    return !model.expert_tensors().empty() && zero(model.expert_tensors().front()) &&
           zero(model.expert_tensors().back());
}

std::optional<moe::ModelFile> check_file(const std::string& path, const char* check, Findings& findings) {
    auto model = moe::ModelFile::open(path);
    if (!model.ok()) {
        findings.push_back({Level::problem, check, path + ": " + model.status().message(),
                            "get the file again, or cut it again with `linkcpp slice`"});
        return std::nullopt;
    }
    const moe::ModelInfo& info = model->info();
    if (info.n_bytes_experts == 0) {
        findings.push_back({Level::problem, check, path + " has no experts: a dense model",
                            "linkcpp computes the experts of mixture-of-experts models only"});
    } else if (!info.sparse && experts_are_zero(*model)) {
        findings.push_back({Level::problem, check,
                            path + ": its experts are all zero; a backbone file that lost its markers?",
                            "cut the backbone file again with `linkcpp slice --backbone`"});
    } else if (info.sparse && !is_file_with_holes(path)) {
        findings.push_back(
            {Level::warning, check,
             fmt::format("{}: a backbone file whose holes were filled by a copy, {} for nothing; "
                         "its markers are intact, so nothing is computed with them",
                         path, human_bytes(info.n_bytes_experts)),
             "`fallocate --dig-holes FILE` makes the holes again; copy with `cp --sparse=always` or `rsync -S`"});
    } else {
        findings.push_back({Level::ok, check,
                            fmt::format("{}: {}, {} layers, {} experts{}", path, info.architecture, info.n_layer,
                                        info.n_expert, info.sparse ? "; a backbone file, its markers are intact" : ""),
                            ""});
    }
    return std::move(*model);
}

/// What the slices of a worker that are this model's hold is added to `held`.
void check_slices(const wire::Welcome& welcome, const backend::ModelSource& source, const std::string& check,
                  std::map<int, std::set<int>>& held, Findings& findings) {
    if (welcome.slices.empty()) {
        findings.push_back({Level::problem, check, "it holds no slices", "start it with --model SLICE.gguf"});
    }
    for (const wire::SliceOffer& offer : welcome.slices) {
        const std::string what = fmt::format("its slice of layers {}:{}, experts {}:{}", offer.layer_begin,
                                             offer.layer_end, offer.expert_begin, offer.expert_end);
        const int expert_end = static_cast<int>(offer.expert_end);
        const auto digest = source.digest(static_cast<int>(offer.layer_begin), static_cast<int>(offer.layer_end),
                                          static_cast<int>(offer.expert_begin), expert_end);
        if (!digest.ok() || !std::equal(offer.slice.begin(), offer.slice.end(), digest->bytes.begin())) {
            findings.push_back({Level::problem, check,
                                what + " is not of this model" + (digest.ok() ? "" : ": " + digest.status().message()),
                                "cut the slice from the file that the backbone uses, with `linkcpp slice`"});
            continue;
        }
        findings.push_back({Level::ok, check, what + " is of this model", ""});
        for (const auto& [layer, n_expert] : source.layers()) {
            if (layer < static_cast<int>(offer.layer_begin) || layer >= static_cast<int>(offer.layer_end)) continue;
            for (int e = static_cast<int>(offer.expert_begin); e < std::min(expert_end, n_expert); ++e)
                held[layer].insert(e);
        }
    }
}

/// Layers with experts that nobody has, by how those are called.
void check_coverage(const Setup& setup, const backend::ModelSource& source, bool has_weights,
                    std::map<int, std::set<int>>& held, Findings& findings) {
    std::map<std::string, std::set<int>> layers_by_experts;
    for (const auto& [layer, n_expert] : source.layers()) {
        if (!setup.settings.covers(layer)) continue;
        std::set<int> missing;
        for (int e = 0; e < n_expert; ++e) {
            if (!held[layer].contains(e)) missing.insert(e);
        }
        if (!missing.empty()) layers_by_experts[layers_text(missing)].insert(layer);
    }
    if (layers_by_experts.empty()) {
        findings.push_back({Level::ok, "coverage", "every expert has a worker", ""});
        return;
    }
    const bool here = has_weights && setup.settings.fallback != backend::Fallback::none;
    for (const auto& [experts, layers] : layers_by_experts) {
        const std::string what = fmt::format("experts {} of layers {} are at no worker", experts, layers_text(layers));
        const std::string cut = fmt::format("start a worker for them: `linkcpp slice MODEL --layers {} --experts {}`",
                                            layers_text(layers), experts);
        findings.push_back({here ? Level::warning : Level::problem, "coverage",
                            what + (here ? "; they are computed here" : ", and not here: every decode fails"), cut});
    }
}

/// Nothing between backbone and worker depends on the time of day, but certificates and the tokens of a hub do. A clock
/// that was never set (many devices start in 1970) is behind the files that it is asked about.
void check_clock(const Setup& setup, Findings& findings) {
    using namespace std::chrono;
    const auto now = system_clock::now();
    std::string newest;
    auto latest = now + minutes(5);
    for (const std::string& path : {setup.model, setup.backbone, std::string("/proc/self/exe")}) {
        struct stat info {};
        if (path.empty() || stat(path.c_str(), &info) != 0) continue;
        const auto written = system_clock::time_point(seconds(info.st_mtime));
        if (written <= latest) continue;
        latest = written;
        newest = path;
    }
    if (newest.empty()) {
        findings.push_back({Level::ok, "clock", fmt::format("{:%Y-%m-%d %H:%M} UTC", floor<seconds>(now)), ""});
    } else {
        findings.push_back({Level::warning, "clock",
                            fmt::format("{:%Y-%m-%d %H:%M} UTC, but {} was written at {:%Y-%m-%d %H:%M}",
                                        floor<seconds>(now), newest, floor<seconds>(latest)),
                            "set the clock: certificates and tokens of a hub are not valid at a wrong time"});
    }
}

}  // namespace

void check_programs(Findings& findings) {
    findings.push_back({Level::ok, "version", "linkcpp " LINKCPP_VERSION, ""});
    const auto server = beside_this_program("llama-server");
    if (server.ok())
        findings.push_back({Level::ok, "llama-server", *server, ""});
    else
        findings.push_back(
            {Level::warning, "llama-server", server.status().message(), "needed for `linkcpp serve` only"});
    const auto plugin = beside_this_program("libggml-linkcpp.so");
    if (!plugin.ok()) {
        findings.push_back(
            {Level::warning, "plugin", plugin.status().message(), "needed for stock llama.cpp tools only"});
        return;
    }
    // In a process of its own: a library that cannot be loaded can end one.
    auto nothing = UnnamedFile::create();
    const std::atomic<bool> never = false;
    const auto said = nothing.ok() ? run_self({"doctor-plugin", *plugin}, "", nothing->descriptor(), never)
                                   : Result<std::string>(nothing.status());
    std::string text = said.ok() ? *said : *plugin + " cannot be loaded: " + said.status().message();
    while (text.ends_with('\n'))
        text.pop_back();
    findings.push_back({said.ok() ? Level::ok : Level::problem, "plugin", text,
                        said.ok() ? "" : "it must be built with the llama.cpp that it runs in; install both anew"});
}

void check_files(const Setup& setup, Findings& findings) {
    std::optional<moe::ModelFile> model, backbone;
    if (!setup.model.empty()) model = check_file(setup.model, "model", findings);
    if (!setup.backbone.empty()) backbone = check_file(setup.backbone, "backbone", findings);
    if (backbone && !backbone->info().sparse)
        findings.push_back({Level::warning, "backbone", setup.backbone + " is a full model, not a backbone file",
                            "cut one with `linkcpp slice --backbone`"});
    if (model && backbone && model->info().fingerprint != backbone->info().fingerprint)
        findings.push_back({Level::problem, "backbone", setup.backbone + " was not cut from " + setup.model,
                            "cut it again with `linkcpp slice --backbone`"});
}

void check_workers(const Setup& setup, Findings& findings) {
    if (setup.settings.workers.empty()) return;
    const auto own_class = moe::numeric_class("");
    const std::string here = own_class.ok() ? *own_class : "";
    backend::ModelSource source;
    const std::string& path = setup.backbone.empty() ? setup.model : setup.backbone;
    if (!path.empty()) source.seal(path);
    std::map<int, std::set<int>> held;
    const std::vector<Probe> probes = probe_workers(setup.settings.workers, here);
    for (size_t i = 0; i < probes.size(); ++i) {
        const Probe& probe = probes[i];
        const std::string check = "worker " + setup.settings.workers[i].str();
        if (!probe.status.ok()) {
            findings.push_back({Level::problem, check, probe.status.message(),
                                "is linkcpp-expert-worker running there, and is the port open to this machine?"});
            continue;
        }
        findings.push_back(
            {Level::ok, check,
             fmt::format("{}, answers in {:.2f} ms", probe.welcome.build, milliseconds(probe.round_trip)), ""});
        if (probe.welcome.numeric_class != here) {
            const bool refused = setup.settings.policy == backend::Policy::exact;
            findings.push_back(
                {refused ? Level::problem : Level::warning, check,
                 "computes with other instructions (" + probe.welcome.numeric_class + ", here " + here +
                     (refused ? "): the policy 'exact' rules it out" : "): results differ in the last bits"),
                 "for tokens exactly as here use a worker with the same processor features"});
        }
        if (!path.empty()) check_slices(probe.welcome, source, check, held, findings);
    }
    // Weights may also come from the file named with --weights.
    const bool has_weights = source.has_weights() || !setup.settings.model_path.empty();
    if (!source.layers().empty()) check_coverage(setup, source, has_weights, held, findings);
}

void check_machine(const Setup& setup, Findings& findings) {
    check_clock(setup, findings);
    const std::string& path = setup.backbone.empty() ? setup.model : setup.backbone;
    const auto ram = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (const auto model = moe::ModelFile::open(path); model.ok()) {
        const uint64_t dense = model->info().n_bytes - model->info().n_bytes_experts;
        const bool local = setup.settings.fallback != backend::Fallback::none &&
                           (!model->info().sparse || !setup.settings.model_path.empty());
        const uint64_t cache = local ? std::min(setup.settings.expert_cache_bytes, model->info().n_bytes_experts) : 0;
        const std::string text =
            fmt::format("{} for the dense part, up to {} for experts computed here, of {} (and the "
                        "context comes on top)",
                        human_bytes(dense), human_bytes(cache), human_bytes(ram));
        if (dense > ram)
            findings.push_back({Level::problem, "memory", text, "a machine with more memory, or a smaller model"});
        else if (dense + cache > ram)
            findings.push_back({Level::warning, "memory", text, "make --expert-cache smaller"});
        else
            findings.push_back({Level::ok, "memory", text, ""});
    }
    const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    if (setup.n_threads > cores)
        findings.push_back({Level::warning, "threads", fmt::format("{} threads on {} cores", setup.n_threads, cores),
                            fmt::format("use -t {}: threads without a core of their own slow all others down", cores)});
    else
        findings.push_back({Level::ok, "threads",
                            fmt::format("{} of {} cores", setup.n_threads > 0 ? setup.n_threads : cores, cores), ""});
}

}  // namespace linkcpp::cmd
