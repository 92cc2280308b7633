#pragma once
// libllama as our commands use it: one model, one context with one sequence, one pool of threads for life. For one thread at a time. `stop` may be set from anywhere: loading and
// computing then end soon, with an error.

#include "base/clock.h"
#include "base/status.h"
#include "cmd/model_options.h"
#include "moe/thread_pool.h"

#include <atomic>
#include <functional>
#include <llama.h>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace linkcpp::cmd {

/// Silences llama.cpp unless `verbose`; what it said about an error ends up in ours. Before anything of llama.cpp runs.
void set_llama_log(bool verbose);

/// Tensors whose names match `pattern` (a regular expression) lie in `buffers`.
struct BufferOverride {
    std::string pattern;
    ggml_backend_buffer_type_t buffers;
};

class LlamaModel {
  public:
    static Result<LlamaModel> load(const ModelOptions& options, const std::atomic<bool>& stop,
                                   const std::vector<BufferOverride>& overrides = {});

    llama_model* get() const { return model_.get(); }
    size_t n_vocab() const;
    uint32_t n_ctx_train() const;
    bool ends_text(llama_token token) const;  ///< end of text, of a turn, …
    /// Never empty. Errors: invalid_argument (no tokens come out of it).
    Result<std::vector<llama_token>> tokenize(const std::string& text) const;
    std::string piece(llama_token token) const;
    std::string text(std::span<const llama_token> tokens) const;
    /// `prompt` as a user's message, up to where the answer begins. Errors: unsupported (no template, or an unknown one).
    Result<std::string> chat_prompt(const std::string& prompt) const;

  private:
    struct Free {
        void operator()(llama_model* model) const { llama_model_free(model); }
    };
    explicit LlamaModel(llama_model* model) : model_(model) {}

    std::unique_ptr<llama_model, Free> model_;
};

/// Prompt of the options as tokens, in the chat template if asked for.
Result<std::vector<llama_token>> prompt_tokens(const LlamaModel& model, const PromptOptions& options);

class LlamaSession {
  public:
    using OnLogits = std::function<Status(std::span<const float>)>;

    /// The model must outlive the session.
    static Result<LlamaSession> open(const LlamaModel& model, const ModelOptions& options, uint32_t n_ctx,
                                     const std::atomic<bool>& stop);

    /// Adds tokens to the sequence. With `on_logits`, it is called for each of them in order; else only the last one's
    /// logits are computed. Errors: exhausted (the context is full), unavailable (not computed; the backend told why).
    Status decode(std::span<const llama_token> tokens, const OnLogits& on_logits = {});
    /// Of the token that was added last.
    std::span<const float> logits() const;
    /// llama_decode, until it is computed, by the threads of this session. Returns what llama_decode does.
    int32_t compute(const llama_batch& batch);
    /// Forgets the sequence.
    void clear();
    /// Lets the threads sleep until the next decode(). Without it they look busily for the next graph, and may take a
    /// processor from others for some tenths of a second.
    void rest();

    llama_context* get() const { return context_.get(); }
    uint32_t n_ctx() const { return llama_n_ctx(context_.get()); }
    /// Time that decode() computed, without what on_logits did.
    Duration computing() const { return computing_; }

  private:
    struct Free {
        void operator()(llama_context* context) const { llama_free(context); }
    };
    LlamaSession(llama_context* context, const LlamaModel& model) : context_(context), n_vocab_(model.n_vocab()) {}
    Status decode_batch(std::span<const llama_token> tokens, bool last, const OnLogits& on_logits);

    // Order matters: the context goes first, its threads after it.
    std::shared_ptr<moe::ThreadPool> threads_;
    std::unique_ptr<llama_context, Free> context_;
    const std::atomic<bool>* stop_ = nullptr;
    size_t n_vocab_ = 0;
    Duration computing_{};
};

}  // namespace linkcpp::cmd
