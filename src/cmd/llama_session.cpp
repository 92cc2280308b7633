#include "cmd/llama_session.h"

#include "base/threads.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <mutex>

namespace linkcpp::cmd {

namespace {

/// What llama.cpp said about errors. Its log is one for the process.
struct LlamaLog {
    std::mutex mutex;
    bool verbose = false;
    std::string errors;
};

LlamaLog& llama_log() {
    static LlamaLog log;
    return log;
}

void on_llama_log(ggml_log_level level, const char* text, void*) {
    LlamaLog& log = llama_log();
    const std::lock_guard lock(log.mutex);
    if (log.verbose) std::fputs(text, stderr);
    // "function: what happened"; the function's name means nothing to the user.
    if (level == GGML_LOG_LEVEL_ERROR) log.errors = text;
}

/// The latest error of llama.cpp as the end of a sentence, "" when it said nothing.
std::string llama_said() {
    LlamaLog& log = llama_log();
    const std::lock_guard lock(log.mutex);
    std::string text = std::exchange(log.errors, {});
    while (!text.empty() && text.back() == '\n')
        text.pop_back();
    return text.empty() ? "" : " (" + text + ")";
}

std::shared_ptr<moe::ThreadPool> new_threads(int n_threads, bool sleep_between_graphs) {
    using Idle = moe::ThreadPool::Idle;
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (device == nullptr) return nullptr;
    return moe::ThreadPool::create(device, n_threads, sleep_between_graphs ? Idle::sleeps : Idle::looks_for_work);
}

const llama_vocab* vocab_of(const LlamaModel& model) { return llama_model_get_vocab(model.get()); }

bool is_set(const std::atomic<bool>* stop) { return stop != nullptr && *stop; }

}  // namespace

void set_llama_log(bool verbose) {
    llama_log().verbose = verbose;
    llama_log_set(on_llama_log, nullptr);
}

Result<LlamaModel> LlamaModel::load(const ModelOptions& options, const std::atomic<bool>& stop,
                                    const std::vector<BufferOverride>& overrides) {
    llama_model_params params = llama_model_default_params();
    std::vector<llama_model_tensor_buft_override> rules;
    for (const BufferOverride& rule : overrides)
        rules.push_back({rule.pattern.c_str(), rule.buffers});
    rules.push_back({nullptr, nullptr});
    params.tensor_buft_overrides = rules.data();
    params.n_gpu_layers = options.n_gpu_layers;
    params.progress_callback = [](float, void* flag) { return !*static_cast<const std::atomic<bool>*>(flag); };
    params.progress_callback_user_data = const_cast<std::atomic<bool>*>(&stop);
    llama_model* model = llama_model_load_from_file(options.model.c_str(), params);
    if (model != nullptr) return LlamaModel(model);
    if (stop) return {Code::unavailable, "interrupted"};
    return {Code::corrupt, options.model + ": llama.cpp cannot load it" + llama_said()};
}

size_t LlamaModel::n_vocab() const { return static_cast<size_t>(llama_vocab_n_tokens(vocab_of(*this))); }

uint32_t LlamaModel::n_ctx_train() const {
    return static_cast<uint32_t>(std::max(0, llama_model_n_ctx_train(model_.get())));
}

bool LlamaModel::ends_text(llama_token token) const { return llama_vocab_is_eog(vocab_of(*this), token); }

Result<std::vector<llama_token>> LlamaModel::tokenize(const std::string& text) const {
    const auto run = [&](std::vector<llama_token>& tokens) {
        return llama_tokenize(vocab_of(*this), text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                              static_cast<int32_t>(tokens.size()), true, true);
    };
    if (text.size() > INT32_MAX / 2) return {Code::invalid_argument, "the prompt is too long"};
    // Hardly more tokens than bytes; otherwise the answer says how many.
    std::vector<llama_token> tokens(text.size() + 8);
    int32_t count = run(tokens);
    if (count < 0 && count != INT32_MIN) {
        tokens.resize(static_cast<size_t>(-count));
        count = run(tokens);
    }
    if (count <= 0) return {Code::invalid_argument, "the prompt has no tokens in this model's vocabulary"};
    tokens.resize(static_cast<size_t>(count));
    return tokens;
}

std::string LlamaModel::piece(llama_token token) const {
    std::string text(64, '\0');
    const auto run = [&] {
        return llama_token_to_piece(vocab_of(*this), token, text.data(), static_cast<int32_t>(text.size()), 0, false);
    };
    int32_t size = run();
    if (size < 0) {
        text.resize(static_cast<size_t>(-size));
        size = run();
    }
    text.resize(static_cast<size_t>(std::max(0, size)));
    return text;
}

std::string LlamaModel::text(std::span<const llama_token> tokens) const {
    std::string text;
    for (const llama_token token : tokens)
        text += piece(token);
    return text;
}

Result<std::string> LlamaModel::chat_prompt(const std::string& prompt) const {
    const char* chat_template = llama_model_chat_template(model_.get(), nullptr);
    if (chat_template == nullptr) return {Code::unsupported, "the model has no chat template; leave --chat away"};
    const llama_chat_message message = {"user", prompt.c_str()};
    std::string text(2 * prompt.size() + 1024, '\0');
    for (int attempt = 0; attempt < 2; ++attempt) {
        const int32_t size =
            llama_chat_apply_template(chat_template, &message, 1, true, text.data(), static_cast<int32_t>(text.size()));
        if (size < 0) return {Code::unsupported, "llama.cpp does not know the model's chat template"};
        const bool fits = static_cast<size_t>(size) <= text.size();
        text.resize(static_cast<size_t>(size));
        if (fits) break;
    }
    return text;
}

Result<std::vector<llama_token>> prompt_tokens(const LlamaModel& model, const PromptOptions& options) {
    auto prompt = read_prompt(options);
    if (!prompt.ok()) return prompt.status();
    if (options.chat) {
        prompt = model.chat_prompt(*prompt);
        if (!prompt.ok()) return prompt.status();
    }
    return model.tokenize(*prompt);
}

Result<LlamaSession> LlamaSession::open(const LlamaModel& model, const ModelOptions& options, uint32_t n_ctx,
                                        const std::atomic<bool>& stop) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = options.n_batch;
    params.n_seq_max = options.n_sequences;
    params.n_ubatch = std::min(options.n_ubatch, options.n_batch);
    params.flash_attn_type = options.flash_attention == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                             : options.flash_attention == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                                : LLAMA_FLASH_ATTN_TYPE_AUTO;
    params.n_threads = params.n_threads_batch = options.threads();
    params.abort_callback = [](void* flag) { return static_cast<const std::atomic<bool>*>(flag)->load(); };
    params.abort_callback_data = const_cast<std::atomic<bool>*>(&stop);
    llama_context* context = llama_init_from_model(model.get(), params);
    if (context == nullptr) {
        return {Code::exhausted, fmt::format("no context of {} tokens can be made{}", n_ctx, llama_said())};
    }
    LlamaSession session(context, model);
    session.stop_ = &stop;
    session.threads_ = new_threads(options.threads(), options.sleep_between_graphs);
    if (session.threads_ != nullptr) {
        llama_attach_threadpool(context, session.threads_->get(), session.threads_->get());
    }
    return session;
}

Status LlamaSession::decode(std::span<const llama_token> tokens, const OnLogits& on_logits) {
    const size_t n_batch = llama_n_batch(context_.get());
    while (!tokens.empty()) {
        const auto batch = tokens.first(std::min(n_batch, tokens.size()));
        tokens = tokens.subspan(batch.size());
        LINKCPP_TRY(decode_batch(batch, tokens.empty(), on_logits));
    }
    return {};
}

Status LlamaSession::decode_batch(std::span<const llama_token> tokens, bool last, const OnLogits& on_logits) {
    std::vector<llama_token> copy(tokens.begin(), tokens.end());
    std::vector<int8_t> wanted(tokens.size(), on_logits ? 1 : 0);
    wanted.back() = static_cast<int8_t>(on_logits || last);
    llama_batch batch = llama_batch_get_one(copy.data(), static_cast<int32_t>(copy.size()));
    batch.logits = wanted.data();

    const SteadyClock clock;
    const Instant begin = clock.now();
    const int32_t error = compute(batch);
    computing_ += clock.now() - begin;
    if (is_set(stop_)) return {Code::unavailable, "interrupted"};
    if (error == 1) return {Code::exhausted, fmt::format("the context of {} tokens is full", n_ctx())};
    if (error != 0) {
        return {Code::unavailable, fmt::format("the model could not be computed{}", llama_said())};
    }
    if (!on_logits) return {};
    for (int32_t i = 0; i < batch.n_tokens; ++i) {
        LINKCPP_TRY(on_logits({llama_get_logits_ith(context_.get(), i), n_vocab_}));
    }
    return {};
}

int32_t LlamaSession::compute(const llama_batch& batch) {
    const StayOnCpu here(threads_ == nullptr ? -1 : threads_->caller_cpu());
    const int32_t error = llama_decode(context_.get(), batch);
    if (error == 0) llama_synchronize(context_.get());
    return error;
}

std::span<const float> LlamaSession::logits() const { return {llama_get_logits_ith(context_.get(), -1), n_vocab_}; }

void LlamaSession::clear() { llama_memory_clear(llama_get_memory(context_.get()), true); }

void LlamaSession::rest() {
    if (threads_ != nullptr) threads_->rest();
}

}  // namespace linkcpp::cmd
