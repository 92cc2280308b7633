// The ggml backend instance: walks a split of the graph, hands regions to their model, and computes what is left here.

#include "backend/buffer.h"
#include "backend/device.h"
#include "base/log.h"

#include <fmt/format.h>
#include <list>
#include <set>

namespace linkcpp::backend {

namespace {

/// One per llama_context, used by its thread only.
struct BackendContext {
    /// Graphs that were cut already. ggml gives every split of a graph a number of its own and keeps it while the graph
    /// is reused, so that a decode cuts each split once. 0 means no number (a part of a graph): never kept.
    std::list<std::pair<uint64_t, std::vector<GraphPart>>> cuts;
    std::set<std::string> warned;
    Model* last_model = nullptr;
};

constexpr size_t max_cuts = 512;

const std::vector<GraphPart>& cut(BackendContext& context, const ggml_cgraph* graph, std::vector<GraphPart>& once) {
    if (graph->uid == 0) return once = cut_graph(graph);
    for (const auto& [uid, parts] : context.cuts) {
        if (uid == graph->uid) return parts;
    }
    context.cuts.emplace_front(graph->uid, cut_graph(graph));
    if (context.cuts.size() > max_cuts) context.cuts.pop_back();
    return context.cuts.front().second;
}

bool is_empty(const ggml_tensor* node) {
    return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

/// The model that can compute [begin, end): the one whose weights are used there, else the one that was used last.
Model* local_model(BackendContext& context, const ggml_cgraph* graph, int begin, int end) {
    Model* model = context.last_model;
    for (int i = begin; i < end; ++i) {
        const ggml_tensor* node = graph->nodes[i];
        for (const ggml_tensor* source : {node->src[0], node->src[1]}) {
            if (is_ours(source) && !is_kept(source)) model = &model_of(source->buffer);
        }
    }
    return model;
}

Status compute_local_part(BackendContext& context, const ggml_cgraph* graph, const GraphPart& part) {
    const ggml_tensor* first = nullptr;
    for (int i = part.begin; i < part.end; ++i) {
        if (first == nullptr && !is_empty(graph->nodes[i])) first = graph->nodes[i];
    }
    if (first == nullptr) return {};  // views are no work
    Model* model = local_model(context, graph, part.begin, part.end);
    if (model == nullptr) return {Code::unsupported, fmt::format("operation {} without a model", ggml_op_desc(first))};
    if (context.warned.insert(ggml_op_desc(first)).second) {
        log_warning("{} ({}) does not fit an expert program: it is computed here", ggml_op_desc(first), first->name);
    }
    return model->compute_locally(graph, part.begin, part.end);
}

ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
    auto& context = *static_cast<BackendContext*>(backend->context);
    std::vector<GraphPart> once;
    if (const std::string& error = Runtime::get().config().error; !error.empty()) {
        log_error("decode failed: {}", error);
        return GGML_STATUS_FAILED;
    }
    for (const GraphPart& part : cut(context, graph, once)) {
        Status status;
        if (part.is_region) {
            context.last_model = &model_of(part.region.buffer);
            status = context.last_model->compute(part.region);
        } else {
            status = compute_local_part(context, graph, part);
        }
        if (const auto* stop = Runtime::get().config().stop; !status.ok() && stop != nullptr && *stop) {
            return GGML_STATUS_FAILED;  // who asked for that knows
        }
        if (!status.ok()) {
            // FAILED, not ABORTED: llama-server takes the latter for a full KV cache.
            log_error("decode failed: {}", status.message());
            return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

const char* backend_name(ggml_backend_t) { return "linkcpp"; }

void free_backend(ggml_backend_t backend) {
    delete static_cast<BackendContext*>(backend->context);
    delete backend;
}

ggml_guid_t guid() {
    static ggml_guid value = {0x6c, 0x69, 0x6e, 0x6b, 0x63, 0x70, 0x70, 0x00,
                              0x9e, 0x4a, 0x51, 0x0b, 0x7d, 0x30, 0xc2, 0x15};
    return &value;
}

}  // namespace

ggml_backend_t new_backend() {
    ggml_backend_i interface {};
    interface.get_name = backend_name;
    interface.free = free_backend;
    interface.graph_compute = graph_compute;
    return new ggml_backend{guid(), interface, hidden_device(), new BackendContext};
}

}  // namespace linkcpp::backend
