#include "cmd/anatomy.h"

#include "cmd/units.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

void add_tensors(Anatomy& anatomy, const std::vector<moe::ExpertTensor>& tensors, int n_expert) {
    for (const moe::ExpertTensor& tensor : tensors) {
        anatomy.expert_bytes[tensor.name.layer] += tensor.slab_bytes;
        anatomy.n_expert[tensor.name.layer] = n_expert > 0 ? n_expert : tensor.n_slabs;
        KindAnatomy& kind = anatomy.kinds[moe::kind_name(tensor.name.kind)];
        const bool first = kind.n_by_type.empty();
        ++kind.n_by_type[tensor.type];
        kind.ne = tensor.ne;
        kind.slab_bytes_min = first ? tensor.slab_bytes : std::min(kind.slab_bytes_min, tensor.slab_bytes);
        kind.slab_bytes_max = std::max(kind.slab_bytes_max, tensor.slab_bytes);
    }
}

uint64_t disk_bytes(int fd) {
    struct stat stat {};
    return fstat(fd, &stat) == 0 ? static_cast<uint64_t>(stat.st_blocks) * 512 : 0;
}

Anatomy anatomy_of(const moe::ModelFile& model, const std::string& path) {
    Anatomy anatomy;
    anatomy.kind = model.info().sparse ? "backbone" : "model";
    anatomy.path = path;
    anatomy.model = model.info();
    for (int i = 0; i < model.info().n_files; ++i) {
        anatomy.file_bytes += model.file(i).bytes().size();
        anatomy.disk_bytes += disk_bytes(model.file(i).fd());
    }
    add_tensors(anatomy, model.expert_tensors(), 0);
    return anatomy;
}

Anatomy anatomy_of(const moe::SliceFile& slice, const std::string& path) {
    Anatomy anatomy;
    anatomy.kind = "slice";
    anatomy.path = path;
    anatomy.slice = slice.info();
    anatomy.model.architecture = slice.info().architecture;
    anatomy.model.name = slice.info().model_name;
    anatomy.model.n_embd = slice.info().n_embd;
    anatomy.model.n_expert = slice.info().n_expert;
    anatomy.model.n_expert_used = slice.info().n_expert_used;
    anatomy.model.fingerprint = slice.info().model_fingerprint;
    for (const moe::ExpertTensor& tensor : slice.tensors()) {
        if (tensor.name.kind == moe::TensorKind{moe::Matrix::down, moe::Role::weight}) {
            anatomy.model.n_ff_exp = static_cast<int>(std::min<int64_t>(tensor.ne[0], INT32_MAX));
        }
        anatomy.model.n_bytes += tensor.data.size();
    }
    anatomy.model.n_bytes_experts = anatomy.model.n_bytes;
    anatomy.file_bytes = anatomy.disk_bytes = slice.file_bytes();
    add_tensors(anatomy, slice.tensors(), slice.info().n_expert);
    return anatomy;
}

/// "0-2, 4" of the layers that are keys.
std::string layer_list(const std::map<int, int>& layers) {
    std::string text;
    for (auto it = layers.begin(); it != layers.end();) {
        const int first = it->first;
        int last = first;
        for (++it; it != layers.end() && it->first == last + 1; ++it)
            last = it->first;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
        if (last > first) text += fmt::format("-{}", last);
    }
    return text;
}

/// Text from a file, without what could steer a terminal.
std::string printable(std::string text) {
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return text;
}

std::string bytes_range(uint64_t smallest, uint64_t largest) {
    if (smallest == largest) return human_bytes(largest);
    return human_bytes(smallest) + " to " + human_bytes(largest);
}

std::pair<uint64_t, uint64_t> expert_bytes_range(const Anatomy& anatomy) {
    uint64_t smallest = UINT64_MAX, largest = 0;
    for (const auto& [layer, bytes] : anatomy.expert_bytes) {
        smallest = std::min(smallest, bytes);
        largest = std::max(largest, bytes);
    }
    return {largest == 0 ? 0 : smallest, largest};
}

double expert_share(const Anatomy& anatomy) {
    if (anatomy.model.n_bytes == 0) return 0;
    return static_cast<double>(anatomy.model.n_bytes_experts) / static_cast<double>(anatomy.model.n_bytes);
}

std::string what_it_is(const Anatomy& anatomy) {
    const moe::ModelInfo& model = anatomy.model;
    if (anatomy.kind == "slice") {
        return fmt::format("slice: layers {}:{}, experts {}:{} of {}", anatomy.slice.layer_begin,
                           anatomy.slice.layer_end, anatomy.slice.expert_begin, anatomy.slice.expert_end,
                           model.n_expert);
    }
    const std::string parts = model.n_files > 1 ? fmt::format(" in {} files", model.n_files) : "";
    if (anatomy.kind == "backbone") return "backbone" + parts + ": the experts were left out, holes are in their place";
    return (anatomy.kinds.empty() ? "dense model: no experts" : "mixture-of-experts model") + parts;
}

}  // namespace

Result<Anatomy> read_anatomy(const std::string& path) {
    auto slice = moe::SliceFile::open(path);
    if (slice.ok()) return anatomy_of(*slice, path);
    // Not a slice at all: then it is a model, or the error of opening it as one says what is wrong.
    if (slice.status().code() != Code::invalid_argument) return slice.status();
    auto model = moe::ModelFile::open(path);
    if (!model.ok()) return model.status();
    return anatomy_of(*model, path);
}

std::string anatomy_text(const Anatomy& anatomy) {
    const moe::ModelInfo& model = anatomy.model;
    std::string text = fmt::format("{}\n", anatomy.path);
    const auto line = [&text](const char* label, const std::string& value) {
        text += fmt::format("  {:<14}{}\n", label, value);
    };
    line("what", what_it_is(anatomy));
    line("architecture", printable(model.architecture + (model.name.empty() ? "" : ", \"" + model.name + "\"")));
    const bool slice = anatomy.kind == "slice";
    line("size",
         human_bytes(anatomy.file_bytes) +
             (anatomy.kind == "backbone" ? ", of which " + human_bytes(anatomy.disk_bytes) + " are on the disk" : ""));
    line("fingerprint", model.fingerprint.hex());
    if (slice) line("digest", anatomy.slice.digest.hex());
    const std::string with_experts = layer_list(anatomy.n_expert);
    if (anatomy.kinds.empty()) {
        line("layers", fmt::format("{}, all dense", model.n_layer));
        return text;
    }
    line("layers", slice ? with_experts : fmt::format("{}; with experts: {}", model.n_layer, with_experts));
    line("experts", fmt::format("{} per layer, {} used per token", model.n_expert, model.n_expert_used));
    line("widths", fmt::format("n_embd {}, n_ff_exp {}", model.n_embd, model.n_ff_exp));
    const auto [smallest, largest] = expert_bytes_range(anatomy);
    line("one expert", bytes_range(smallest, largest));
    if (!slice) {
        line("all experts", fmt::format("{}, {:.1f} % of the weights", human_bytes(model.n_bytes_experts),
                                        100 * expert_share(anatomy)));
    }
    for (const auto& [name, kind] : anatomy.kinds) {
        std::string types;
        for (const auto& [type, n] : kind.n_by_type)
            types += fmt::format("{}{} x {}", types.empty() ? "" : ", ", n, moe::tensor_type_name(type));
        text += fmt::format("  {:<24}{:>6} x {:<6} {:<22} {} per expert\n", name, kind.ne[0], kind.ne[1], types,
                            bytes_range(kind.slab_bytes_min, kind.slab_bytes_max));
    }
    return text;
}

std::string anatomy_json(const Anatomy& anatomy) {
    const moe::ModelInfo& model = anatomy.model;
    const bool slice = anatomy.kind == "slice";
    const auto [smallest, largest] = expert_bytes_range(anatomy);
    ordered_json record = {{"kind", anatomy.kind},
                           {"path", anatomy.path},
                           {"architecture", model.architecture},
                           {"name", model.name},
                           {"fingerprint", model.fingerprint.hex()}};
    if (slice) {
        record["digest"] = anatomy.slice.digest.hex();
        record["layer_begin"] = anatomy.slice.layer_begin;
        record["layer_end"] = anatomy.slice.layer_end;
        record["expert_begin"] = anatomy.slice.expert_begin;
        record["expert_end"] = anatomy.slice.expert_end;
    } else {
        record["n_files"] = model.n_files;
        record["n_layer"] = model.n_layer;
    }
    record["n_layer_expert"] = anatomy.n_expert.size();
    record["n_embd"] = model.n_embd;
    record["n_expert"] = model.n_expert;
    record["n_expert_used"] = model.n_expert_used;
    record["n_ff_exp"] = model.n_ff_exp;
    record["file_bytes"] = anatomy.file_bytes;
    record["disk_bytes"] = anatomy.disk_bytes;
    record["tensor_bytes"] = model.n_bytes;
    record["expert_tensor_bytes"] = model.n_bytes_experts;
    if (!slice) record["expert_share"] = expert_share(anatomy);
    record["expert_bytes_min"] = smallest;
    record["expert_bytes_max"] = largest;
    record["tensors"] = ordered_json::object();
    for (const auto& [name, kind] : anatomy.kinds) {
        ordered_json types = ordered_json::object();
        for (const auto& [type, n] : kind.n_by_type)
            types[moe::tensor_type_name(type)] = n;
        record["tensors"][name] = {{"types", types},
                                   {"ne", kind.ne},
                                   {"slab_bytes_min", kind.slab_bytes_min},
                                   {"slab_bytes_max", kind.slab_bytes_max}};
    }
    record["layers"] = ordered_json::array();
    for (const auto& [layer, bytes] : anatomy.expert_bytes) {
        record["layers"].push_back(
            {{"layer", layer}, {"n_expert", anatomy.n_expert.at(layer)}, {"expert_bytes", bytes}});
    }
    // Names come from the file and need not be UTF-8.
    return record.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace linkcpp::cmd
