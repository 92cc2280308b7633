#include "recipe.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <set>
#include <span>

namespace linkcpp::maker {

namespace {

const std::set<std::string> latent_attention = {"deepseek2", "deepseek32",  "glm-dsa",  "dots3note",
                                                "kimi-k3",   "kimi-linear", "mistral4", "bailingmoe3"};

/// Layers that alternate attention with something recurrent, told by zero heads.
const std::set<std::string> zero_heads_are_recurrent = {"jamba",  "granitehybrid", "lfm2moe", "nemotron_h_moe",
                                                        "plamo2", "kimi-linear",   "kimi-k3", "bailingmoe3"};

uint32_t default_layers(const std::string& arch) {
    if (arch == "llama4") return 4;  // every fourth layer has no position encoding
    if (arch == "deepseek4") return 4;
    if (arch == "nemotron_h_moe") return 3;
    if (arch == "gemma4") return 5;
    return 2;
}

class MetadataWriter {
  public:
    explicit MetadataWriter(const Recipe& recipe)
        : recipe_(recipe), metadata_(gguf_init_empty()),
          n_layer_(recipe.n_layer > 0 ? recipe.n_layer : default_layers(recipe.arch)) {}

    Result<Metadata> write() {
        if (recipe_.n_embd == 0 || recipe_.n_head == 0 || recipe_.n_head_kv == 0 ||
            recipe_.n_head % recipe_.n_head_kv != 0)
            return {Code::invalid_argument,
                    "embedding and heads have to be positive, and heads a multiple of KV heads"};
        if (recipe_.n_expert == 0 || recipe_.n_expert_used == 0 || recipe_.n_expert_used > recipe_.n_expert)
            return {Code::invalid_argument, "a model needs experts, and cannot use more than it has"};
        string("general.architecture", recipe_.arch);
        string("general.name", "random " + recipe_.arch);
        u32("general.quantization_version", 2);
        shape();
        attention();
        experts();
        recurrent();
        special();
        vocabulary();
        for (const std::string& text : recipe_.set)
            LINKCPP_TRY(apply(text).in("--set " + text));
        return std::move(metadata_);
    }

  private:
    std::string key(const std::string& name) const {
        if (name.starts_with("general.") || name.starts_with("tokenizer.") || name.starts_with(recipe_.arch + "."))
            return name;
        return recipe_.arch + "." + name;
    }
    void u32(const std::string& name, uint32_t value) { gguf_set_val_u32(metadata_.get(), key(name).c_str(), value); }
    void f32(const std::string& name, float value) { gguf_set_val_f32(metadata_.get(), key(name).c_str(), value); }
    void boolean(const std::string& name, bool value) { gguf_set_val_bool(metadata_.get(), key(name).c_str(), value); }
    void string(const std::string& name, const std::string& value) {
        gguf_set_val_str(metadata_.get(), key(name).c_str(), value.c_str());
    }
    void u32s(const std::string& name, std::span<const uint32_t> values) {
        gguf_set_arr_data(metadata_.get(), key(name).c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
    }
    /// One value per layer.
    template <typename Of>
    void per_layer(const std::string& name, Of of) {
        std::vector<uint32_t> values(n_layer_);
        for (uint32_t layer = 0; layer < n_layer_; ++layer)
            values[layer] = of(layer);
        u32s(name, values);
    }

    uint32_t head() const { return recipe_.n_embd_head > 0 ? recipe_.n_embd_head : recipe_.n_embd / recipe_.n_head; }

    /// These normalise keys over the width that queries have.
    uint32_t n_head_kv() const {
        return recipe_.arch == "olmoe" || recipe_.arch == "dots1" ? recipe_.n_head : recipe_.n_head_kv;
    }

    void shape() {
        u32("vocab_size", recipe_.n_vocab);
        u32("context_length", recipe_.n_ctx_train);
        u32("embedding_length", recipe_.n_embd);
        u32("block_count", n_layer_);
        u32("feed_forward_length", recipe_.n_ff);
        f32("logit_scale", 1.0f);
        f32("residual_scale", 0.5f);
        f32("embedding_scale", 2.0f);
        boolean("use_parallel_residual", false);
    }

    void attention() {
        if (zero_heads_are_recurrent.contains(recipe_.arch)) {
            per_layer("attention.head_count", [&](uint32_t layer) { return layer == 1 ? 0 : recipe_.n_head; });
            per_layer("attention.head_count_kv", [&](uint32_t layer) { return layer == 1 ? 0 : recipe_.n_head_kv; });
        } else {
            u32("attention.head_count", recipe_.n_head);
            u32("attention.head_count_kv", n_head_kv());
        }
        f32("attention.layer_norm_epsilon", 1e-5f);
        f32("attention.layer_norm_rms_epsilon", 1e-5f);
        f32("attention.clamp_kqv", 8.0f);
        u32("attention.sliding_window", 128);
        u32("attention.sliding_window_pattern", 2);
        f32("rope.freq_base", 10000.0f);
        f32("rope.freq_base_swa", 10000.0f);
        if (latent_attention.contains(recipe_.arch)) {
            latent();
        } else {
            u32("attention.key_length", head());
            u32("attention.value_length", head());
            u32("rope.dimension_count", head());
            u32s("rope.dimension_sections", std::vector<uint32_t>{head() / 8, head() / 8, head() / 8, head() / 8});
        }
        u32("attention.indexer.head_count", 4);
        u32("attention.indexer.key_length", 128);
        u32("attention.indexer.top_k", 8);
        u32("attention.indexer.block_size", 4);
        u32("attention.indexer.local_blocks", 1);
    }

    /// Multi-head latent attention as deepseek2's: keys and values are cached as one compressed row.
    void latent() {
        constexpr uint32_t rank = 128, rope = 32, key = 64, value = 64;
        u32("attention.kv_lora_rank", rank);
        u32("attention.q_lora_rank", rank);
        u32("attention.key_length", rank + rope);
        u32("attention.value_length", rank);
        u32("attention.key_length_mla", key + rope);
        u32("attention.value_length_mla", value);
        u32("rope.dimension_count", rope);
        u32("attention.head_count_kv", 1);
    }

    void experts() {
        u32("expert_count", recipe_.n_expert);
        u32("expert_used_count", recipe_.n_expert_used);
        u32("expert_feed_forward_length", recipe_.n_ff_exp);
        u32("expert_shared_feed_forward_length", recipe_.n_ff_shexp);
        u32("expert_chunk_feed_forward_length", recipe_.n_ff_exp);
        u32("expert_shared_count", 1);
        u32("leading_dense_block_count", recipe_.n_layer_dense);
        u32("interleave_moe_layer_step", recipe_.arch == "llama4" ? 2 : 1);
        u32("moe_every_n_layers", 1);
        u32("expert_gating_func", 2);  // sigmoid, where it is read
        boolean("expert_weights_norm", true);
        f32("expert_weights_scale", 1.0f);
        f32("expert_group_scale", 1.0f);
        u32("experts_per_group", 1);
        u32("expert_latent_length", recipe_.n_embd);
    }

    void recurrent() {
        constexpr uint32_t state = 64;
        u32("full_attention_interval", 2);
        u32("ssm.conv_kernel", 4);
        u32("ssm.state_size", state);
        u32("ssm.group_count", 2);
        u32("ssm.time_step_rank", recipe_.n_head);
        u32("ssm.inner_size", state * recipe_.n_head);
        u32("kda.head_dim", state);
        u32("shortconv.l_cache", 3);
    }

    void special() {
        if (recipe_.arch == "granitehybrid" || recipe_.arch == "jamba" || recipe_.arch == "plamo2" ||
            recipe_.arch == "nemotron_h_moe") {
            u32("ssm.inner_size", 2 * recipe_.n_embd);
            u32("ssm.time_step_rank", recipe_.arch == "jamba" ? 16 : 2 * recipe_.n_embd / 64);
        }
        if (recipe_.arch == "granitehybrid")
            per_layer("attention.head_count_kv", [&](uint32_t layer) { return layer == 1 ? recipe_.n_head_kv : 0; });
        if (recipe_.arch == "mimo2" || recipe_.arch == "cohere2moe" || recipe_.arch == "step35" ||
            recipe_.arch == "granite_swa" || recipe_.arch == "dots3note")
            per_layer("attention.sliding_window_pattern", [](uint32_t layer) { return layer % 2; });
        if (recipe_.arch == "nemotron_h_moe")
            per_layer("feed_forward_length", [&](uint32_t layer) { return layer <= 1 ? 0 : recipe_.n_ff; });
        if (recipe_.arch == "minimax-m3") u32("attention.indexer.head_count", recipe_.n_head_kv);
    }

    /// A SentencePiece vocabulary without merges: text falls apart into its bytes, so that any prompt can be tokenised.
    void vocabulary() {
        if (!recipe_.has_vocab) {
            string("tokenizer.ggml.model", "no_vocab");
            return;
        }
        enum : int32_t { normal = 1, unknown = 2, control = 3, byte = 6 };
        std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
        std::vector<int32_t> kinds = {unknown, control, control};
        for (int value = 0; value < 256; ++value) {
            tokens.push_back(fmt::format("<0x{:02X}>", value));
            kinds.push_back(byte);
        }
        for (size_t word = 0; tokens.size() < recipe_.n_vocab; ++word) {
            tokens.push_back(fmt::format("\u2581word{}", word));
            kinds.push_back(normal);
        }
        std::vector<const char*> texts;
        for (const std::string& token : tokens)
            texts.push_back(token.c_str());
        const std::vector<float> scores(tokens.size(), -1000.0f);
        string("tokenizer.ggml.model", "llama");
        gguf_set_arr_str(metadata_.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
        gguf_set_arr_data(metadata_.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
        gguf_set_arr_data(metadata_.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(), kinds.size());
        u32("tokenizer.ggml.bos_token_id", 1);
        u32("tokenizer.ggml.eos_token_id", 2);
        u32("tokenizer.ggml.unknown_token_id", 0);
        boolean("tokenizer.ggml.add_bos_token", true);
        boolean("tokenizer.ggml.add_space_prefix", false);
    }

    template <typename T>
    static Result<T> number(std::string_view text) {
        T value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size())
            return {Code::invalid_argument, fmt::format("'{}' is no number of this type", text)};
        return value;
    }

    /// "key=u32:7", "key=f32:0.5", "key=bool:true", "key=str:text", "key=u32s:1,2,3"
    Status apply(const std::string& text) {
        const size_t equals = text.find('='), colon = text.find(':', equals);
        if (equals == 0 || equals == std::string::npos || colon == std::string::npos)
            return {Code::invalid_argument, "it should look like key=u32:7 (or f32:, bool:, str:, u32s:1,2,3)"};
        const std::string name = text.substr(0, equals), type = text.substr(equals + 1, colon - equals - 1),
                          value = text.substr(colon + 1);
        if (type == "u32") {
            const auto parsed = number<uint32_t>(value);
            if (!parsed.ok()) return parsed.status();
            u32(name, *parsed);
        } else if (type == "f32") {
            const auto parsed = number<float>(value);
            if (!parsed.ok()) return parsed.status();
            f32(name, *parsed);
        } else if (type == "bool" && (value == "true" || value == "false")) {
            boolean(name, value == "true");
        } else if (type == "str") {
            string(name, value);
        } else if (type == "u32s") {
            std::vector<uint32_t> values;
            for (size_t begin = 0; begin <= value.size();) {
                const size_t end = std::min(value.find(',', begin), value.size());
                const auto parsed = number<uint32_t>(std::string_view(value).substr(begin, end - begin));
                if (!parsed.ok()) return parsed.status();
                values.push_back(*parsed);
                begin = end + 1;
            }
            u32s(name, values);
        } else {
            return {Code::invalid_argument, "the type can be u32, f32, bool (true or false), str or u32s"};
        }
        return {};
    }

    const Recipe& recipe_;
    Metadata metadata_;
    const uint32_t n_layer_;
};

}  // namespace

Result<Metadata> make_metadata(const Recipe& recipe) {
    if (recipe.has_vocab && recipe.n_vocab < 259)
        return {Code::invalid_argument, "a vocabulary has at least 259 tokens: three special ones and all bytes"};
    return MetadataWriter(recipe).write();
}

}  // namespace linkcpp::maker
