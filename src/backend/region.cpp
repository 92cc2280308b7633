#include "backend/region.h"

#include "backend/buffer.h"

#include <cstring>
#include <map>
#include <optional>

namespace linkcpp::backend {

namespace {

bool is_view(const ggml_tensor* t) {
    return t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

float param_f32(const ggml_tensor* t, int index) {
    float value;
    std::memcpy(&value, reinterpret_cast<const char*>(t->op_params) + sizeof(float) * static_cast<size_t>(index),
                sizeof(value));
    return value;
}

std::optional<moe::Op> unary_op(const ggml_tensor* t) {
    switch (ggml_get_unary_op(t)) {
        case GGML_UNARY_OP_SILU: return moe::Op::silu;
        case GGML_UNARY_OP_GELU: return moe::Op::gelu;
        case GGML_UNARY_OP_RELU: return moe::Op::relu;
        case GGML_UNARY_OP_SIGMOID: return moe::Op::sigmoid;
        case GGML_UNARY_OP_TANH: return moe::Op::tanh;
        case GGML_UNARY_OP_GELU_QUICK: return moe::Op::gelu_quick;
        case GGML_UNARY_OP_GELU_ERF: return moe::Op::gelu_erf;
        default: return std::nullopt;
    }
}

std::optional<moe::Op> gated_op(const ggml_tensor* t) {
    if (t->src[1] == nullptr) return std::nullopt;
    switch (ggml_get_glu_op(t)) {
        case GGML_GLU_OP_SWIGLU: return moe::Op::swiglu;
        case GGML_GLU_OP_GEGLU: return moe::Op::geglu;
        case GGML_GLU_OP_REGLU: return moe::Op::reglu;
        case GGML_GLU_OP_GEGLU_ERF: return moe::Op::geglu_erf;
        case GGML_GLU_OP_GEGLU_QUICK: return moe::Op::geglu_quick;
        case GGML_GLU_OP_SWIGLU_OAI: return moe::Op::swiglu_oai;
        case GGML_GLU_OP_SWIGLU_CLAMP: return moe::Op::swiglu_clamp;
        default: return std::nullopt;
    }
}

/// Reads a region node by node. Values are the graph's own pair-level tensors [n, n_used, n_tokens]; after the weighting
/// come the views of single experts' rows and the chain of additions over them.
class RegionReader {
  public:
    RegionReader(const ggml_cgraph* graph, int begin) : graph_(graph) { region_.begin = region_.end = begin; }

    /// The longest region from `begin` on that has exactly one value anybody else looks at.
    Region read() {
        Region best;
        for (int i = region_.begin; i < graph_->n_nodes && region_.program.steps.size() < moe::max_program_steps; ++i) {
            ggml_tensor* node = graph_->nodes[i];
            if (!take(node)) {
                // A view of something else is no computation; it may stand between our nodes.
                if (is_view(node) && !belongs(node->view_src)) continue;
                break;
            }
            inside_.push_back(i);
            region_.end = i + 1;
            if (is_complete(node)) {
                best = region_;
                best.out = node;
                best.n_summed = n_summed_;
            }
        }
        return best;
    }

  private:
    bool take(ggml_tensor* node) {
        if (is_view(node)) return take_view(node);
        switch (node->op) {
            case GGML_OP_MUL_MAT_ID: return take_matmul(node);
            case GGML_OP_ADD_ID: return take_bias(node);
            case GGML_OP_UNARY: return take_unary(node, unary_op(node), 0);
            case GGML_OP_SQR: return take_unary(node, moe::Op::sqr, 0);
            case GGML_OP_CLAMP: return take_unary(node, moe::Op::clamp, 0);
            case GGML_OP_SCALE: return take_unary(node, moe::Op::scale, 0);
            case GGML_OP_GLU: return take_binary(node, gated_op(node));
            case GGML_OP_MUL: return take_weighting(node) || take_binary(node, moe::Op::mul);
            case GGML_OP_ADD: return take_sum(node) || take_binary(node, moe::Op::add);
            case GGML_OP_CONT: return take_single_row(node);
            default: return false;
        }
    }

    bool take_matmul(ggml_tensor* node) {
        const ggml_tensor* w = node->src[0];
        if (!is_ours(w)) return false;
        const auto name = moe::ExpertTensorName::parse(w->name);
        if (!name || name->kind.role != moe::Role::weight) return false;
        const ggml_tensor* x = node->src[1];
        if (region_.x == nullptr) {  // the first one decides which layer, model, rows and experts these are
            if (x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) || node->src[2]->type != GGML_TYPE_I32 ||
                x->ne[3] != 1)
                return false;
            region_.x = x;
            region_.expert = node->src[2];
            region_.layer = name->layer;
            region_.buffer = w->buffer;
            values_[x] = 0;
        }
        if (name->layer != region_.layer || w->buffer != region_.buffer || node->src[2] != region_.expert ||
            !values_.contains(x))
            return false;
        return add_step(node, {moe::Op::matmul, name->kind.matrix, values_[x], 0, {0, 0}});
    }

    bool take_bias(ggml_tensor* node) {
        const ggml_tensor* bias = node->src[1];
        if (!values_.contains(node->src[0]) || node->src[0] == region_.x || !is_ours(bias) ||
            node->src[2] != region_.expert)
            return false;
        const auto name = moe::ExpertTensorName::parse(bias->name);
        if (!name || name->kind.role != moe::Role::bias || name->layer != region_.layer ||
            bias->buffer != region_.buffer)
            return false;
        return add_step(node, {moe::Op::add_bias, name->kind.matrix, values_[node->src[0]], 0, {0, 0}});
    }

    bool take_unary(ggml_tensor* node, std::optional<moe::Op> op, int first_param) {
        if (!op || !values_.contains(node->src[0]) || node->src[0] == region_.x) return false;
        moe::Step step{*op, moe::Matrix::up, values_[node->src[0]], 0, {0, 0}};
        if (*op == moe::Op::clamp || *op == moe::Op::scale)
            step.p = {param_f32(node, first_param), param_f32(node, first_param + 1)};
        return add_step(node, step);
    }

    bool take_binary(ggml_tensor* node, std::optional<moe::Op> op) {
        if (!op || node->src[1] == nullptr || !values_.contains(node->src[0]) || !values_.contains(node->src[1]))
            return false;
        if (node->src[0] == region_.x || node->src[1] == region_.x || !ggml_are_same_shape(node->src[0], node->src[1]))
            return false;
        moe::Step step{*op, moe::Matrix::up, values_[node->src[0]], values_[node->src[1]], {0, 0}};
        if (*op == moe::Op::swiglu_oai) step.p = {param_f32(node, 2), param_f32(node, 3)};
        if (*op == moe::Op::swiglu_clamp) step.p = {param_f32(node, 3), 0};
        return add_step(node, step);
    }

    bool take_view(ggml_tensor* node) {
        const ggml_tensor* base = node->view_src;
        if (base == nullptr || base->op == GGML_OP_NONE || node->op != GGML_OP_VIEW) return false;
        const auto value = values_.find(base);
        if (value != values_.end() && base != region_.x && node->ne[0] * 2 == base->ne[0] &&
            node->ne[1] == base->ne[1] && node->ne[2] == base->ne[2] && node->nb[1] == base->nb[1] &&
            node->nb[2] == base->nb[2]) {
            const size_t half = static_cast<size_t>(node->ne[0]) * sizeof(float);
            if (node->view_offs == 0)
                return add_step(node, {moe::Op::first_half, moe::Matrix::up, value->second, 0, {0, 0}});
            if (node->view_offs == half)
                return add_step(node, {moe::Op::second_half, moe::Matrix::up, value->second, 0, {0, 0}});
        }
        return take_row_view(node, base);
    }

    /// The rows of expert slot i of all tokens: [n_out, n_tokens].
    bool take_row_view(ggml_tensor* node, const ggml_tensor* base) {
        if (base != last_ || base->nb[1] == 0 || node->view_offs % base->nb[1] != 0) return false;
        if (node->ne[0] != base->ne[0] || node->ne[1] != base->ne[2] || node->ne[2] != 1 || node->nb[1] != base->nb[2])
            return false;
        const size_t slot = node->view_offs / base->nb[1];
        if (slot >= static_cast<size_t>(base->ne[1])) return false;
        row_views_[node] = static_cast<int>(slot);
        return true;
    }

    bool take_weighting(ggml_tensor* node) {
        const ggml_tensor* rows = node->src[0];
        const ggml_tensor* w = node->src[1];
        if (region_.weight != nullptr || rows != last_ || rows == region_.x || values_.contains(w) ||
            w->type != GGML_TYPE_F32)
            return false;
        if (w->ne[0] != 1 || w->ne[1] != rows->ne[1] || w->ne[2] != rows->ne[2] || w->ne[3] != 1) return false;
        region_.weight = w;
        region_.program.weighted = true;
        last_ = node;
        return true;
    }

    /// (row 0 + row 1), then (sum + row 2) and so on: the only order that is taken.
    bool take_sum(ggml_tensor* node) {
        const auto right = row_views_.find(node->src[1]);
        if (right == row_views_.end()) return false;
        const auto left = row_views_.find(node->src[0]);
        const bool starts = left != row_views_.end() && left->second == 0 && right->second == 1 && n_summed_ == 0;
        const bool goes_on = node->src[0] == sum_ && right->second == n_summed_;
        if (!starts && !goes_on) return false;
        n_summed_ = starts ? 2 : n_summed_ + 1;
        sum_ = node;
        return true;
    }

    bool take_single_row(ggml_tensor* node) {
        const auto row = row_views_.find(node->src[0]);
        if (row == row_views_.end() || row->second != 0 || n_summed_ != 0) return false;
        n_summed_ = 1;
        sum_ = node;
        return true;
    }

    bool add_step(ggml_tensor* node, moe::Step step) {
        if (region_.weight != nullptr || n_summed_ != 0 || node->type != GGML_TYPE_F32) return false;
        region_.program.steps.push_back(step);
        values_[node] = static_cast<uint8_t>(region_.program.steps.size());
        last_ = node;
        return true;
    }

    bool belongs(const ggml_tensor* t) const {
        return t != nullptr && t != region_.x && (values_.contains(t) || t == last_);
    }

    /// Is `node` the only value so far that is used outside, and one that a worker can send?
    bool is_complete(const ggml_tensor* node) const {
        if (is_view(node)) return false;
        if (node == sum_ ? false : node != last_ || region_.weight != nullptr) return false;
        for (int i : inside_) {
            const ggml_tensor* other = graph_->nodes[i];
            if (other != node && (other->flags & GGML_TENSOR_FLAG_OUTPUT || uses_outside(i))) return false;
        }
        return true;
    }

    bool uses_outside(int index) const {
        const ggml_tensor* node = graph_->nodes[index];
        int uses = ggml_node_get_use_count(graph_, index);
        for (int i : inside_) {
            for (const ggml_tensor* source : graph_->nodes[i]->src)
                uses -= source == node ? 1 : 0;
        }
        return uses != 0;
    }

    const ggml_cgraph* graph_;
    Region region_;
    std::map<const ggml_tensor*, uint8_t> values_;  // pair-level values by index in the program
    std::map<const ggml_tensor*, int> row_views_;   // views of one expert slot's rows
    const ggml_tensor* last_ = nullptr;             // newest pair-level value, weighted or not
    const ggml_tensor* sum_ = nullptr;              // newest sum
    int n_summed_ = 0;
    std::vector<int> inside_;
};

}  // namespace

bool is_ours(const ggml_tensor* tensor) {
    if (tensor == nullptr) return false;
    const ggml_tensor* base = tensor->view_src != nullptr ? tensor->view_src : tensor;
    return base->buffer != nullptr && base->buffer->buft == expert_buffer_type();
}

std::vector<GraphPart> cut_graph(const ggml_cgraph* graph) {
    std::vector<GraphPart> parts;
    for (int i = 0; i < graph->n_nodes;) {
        const ggml_tensor* node = graph->nodes[i];
        if (node->op == GGML_OP_MUL_MAT_ID && is_ours(node->src[0])) {
            Region region = RegionReader(graph, i).read();
            if (region.out != nullptr) {
                i = region.end;
                parts.push_back({true, std::move(region), 0, 0});
                continue;
            }
        }
        if (parts.empty() || parts.back().is_region) parts.push_back({false, {}, i, i});
        parts.back().end = ++i;
    }
    return parts;
}

bool continues_region(const ggml_tensor* op) {
    // Bounded depth: a routed FFN is a few dozen operations deep (one addition per selected expert).
    int budget = 512;
    const auto traces = [&](const auto& self, const ggml_tensor* t) -> bool {
        if (t == nullptr || --budget < 0) return false;
        switch (t->op) {
            case GGML_OP_MUL_MAT_ID: return is_ours(t->src[0]);
            case GGML_OP_ADD: return self(self, t->src[0]) && self(self, t->src[1]);
            case GGML_OP_VIEW: return self(self, t->src[0]);
            case GGML_OP_GLU: return gated_op(t).has_value() && self(self, t->src[0]) && self(self, t->src[1]);
            case GGML_OP_UNARY: return unary_op(t).has_value() && self(self, t->src[0]);
            case GGML_OP_MUL:
            case GGML_OP_ADD_ID:
            case GGML_OP_SQR:
            case GGML_OP_CLAMP:
            case GGML_OP_SCALE:
            case GGML_OP_CONT: return self(self, t->src[0]);
            default: return false;
        }
    };
    switch (op->op) {
        case GGML_OP_ADD_ID:
        case GGML_OP_MUL:
        case GGML_OP_ADD:
        case GGML_OP_GLU:
        case GGML_OP_UNARY:
        case GGML_OP_SQR:
        case GGML_OP_CLAMP:
        case GGML_OP_SCALE:
        case GGML_OP_CONT: return op->type == GGML_TYPE_F32 && traces(traces, op);
        default: return false;
    }
}

}  // namespace linkcpp::backend
