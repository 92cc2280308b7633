#include "shapes.h"

#include "unbacked.h"

#include <fmt/format.h>
#include <llama.h>
#include <memory>
#include <optional>
#include <regex>

namespace linkcpp::maker {

namespace {

std::string llama_said;

void keep_errors(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_ERROR) llama_said += text;
}

/// Every tensor that llama.cpp would look for, optional ones included.
Result<std::vector<TensorPlan>> all_tensors(gguf_context* metadata) {
    struct FreeModel {
        void operator()(llama_model* model) const { llama_model_free(model); }
    };
    llama_said.clear();
    llama_log_set(keep_errors, nullptr);
    ggml_backend_load_all();
    std::vector<TensorPlan> plans;
    const auto note = [](ggml_tensor* tensor, void* user) {
        TensorPlan plan{tensor->name, {}, GGML_TYPE_F32};
        std::copy_n(tensor->ne, GGML_MAX_DIMS, plan.ne.begin());
        static_cast<std::vector<TensorPlan>*>(user)->push_back(std::move(plan));
    };
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    const llama_model_tensor_buft_override all_unbacked[] = {{".", unbacked_buffer_type()}, {nullptr, nullptr}};
    params.tensor_buft_overrides = all_unbacked;
    params.progress_callback = [](float, void*) { return true; };
    const std::unique_ptr<llama_model, FreeModel> model(llama_model_init_from_user(metadata, note, &plans, params));
    if (model == nullptr) return {Code::unsupported, "llama.cpp makes no model of this: " + llama_said};
    return plans;
}

bool is_expert_weight(const std::string& name) { return name.find("_exps.weight") != std::string::npos; }

/// Leaves out what the recipe does not want, and takes merged tensors apart.
class Chooser {
  public:
    explicit Chooser(const Recipe& recipe) : recipe_(recipe) {
        if (!recipe.without.empty()) without_.emplace(recipe.without);
    }

    void choose(const TensorPlan& plan, std::vector<TensorPlan>& chosen) const {
        const bool scale = plan.name.ends_with("scale");
        const bool expert_scale = plan.name.ends_with("_exps.scale");
        if ((scale && !(expert_scale && recipe_.expert_scales)) || plan.name.starts_with("rope_f") ||
            plan.name.find(".rope_f") != std::string::npos)
            return;
        if (without_ && std::regex_search(plan.name, *without_)) return;
        const size_t merged = plan.name.find("ffn_gate_up_exps.");
        if (merged == std::string::npos || recipe_.merged_gate_up) {
            chosen.push_back(plan);
            return;
        }
        for (const char* half : {"ffn_gate_exps.", "ffn_up_exps."}) {
            TensorPlan part = plan;
            part.name = plan.name.substr(0, merged) + half + plan.name.substr(merged + 17);
            part.ne[plan.name.ends_with(".weight") ? 1 : 0] /= 2;
            chosen.push_back(std::move(part));
        }
    }

  private:
    const Recipe& recipe_;
    std::optional<std::regex> without_;
};

/// What llama-quantize leaves in f32: everything small, and what decides the routing.
bool stays_f32(const TensorPlan& plan) {
    for (const char* part :
         {"norm", "ffn_gate_inp", "ssm_", "shortconv", ".bias", "exp_probs", "scale", "altup", "indexer"}) {
        if (plan.name.find(part) != std::string::npos) return true;
    }
    return plan.ne[1] == 1;
}

Status give_type(const Recipe& recipe, TensorPlan& plan) {
    bool asked = is_expert_weight(plan.name);
    plan.type = asked ? recipe.expert_type : stays_f32(plan) ? GGML_TYPE_F32 : recipe.dense_type;
    for (const TypeRule& rule : recipe.types) {
        if (!std::regex_search(plan.name, std::regex(rule.expression))) continue;
        plan.type = rule.type;
        asked = true;
        break;
    }
    if (plan.ne[0] % ggml_blck_size(plan.type) == 0) return {};
    if (asked) {
        return {Code::invalid_argument,
                fmt::format("{} has rows of {} values, which is not a multiple of the {} that a block of {} holds",
                            plan.name, plan.ne[0], ggml_blck_size(plan.type), ggml_type_name(plan.type))};
    }
    plan.type = GGML_TYPE_F32;
    return {};
}

}  // namespace

Result<std::vector<TensorPlan>> plan_tensors(const Recipe& recipe, gguf_context* metadata) {
    auto all = all_tensors(metadata);
    if (!all.ok()) return all;
    std::vector<TensorPlan> chosen;
    try {
        const Chooser chooser(recipe);
        for (const TensorPlan& plan : *all)
            chooser.choose(plan, chosen);
        for (TensorPlan& plan : chosen)
            LINKCPP_TRY(give_type(recipe, plan));
    } catch (const std::regex_error& error) {
        return {Code::invalid_argument, std::string("not a regular expression: ") + error.what()};
    }
    return chosen;
}

}  // namespace linkcpp::maker
