// sequences MODEL OUT: decodes four sequences at once in each of two contexts of one model, the contexts in threads of
// their own, and writes all logits. Knows nothing of linkcpp; loads a plugin if the environment names one.

#include <array>
#include <cstdio>
#include <llama.h>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr int n_sequences = 4, n_prompt = 20, n_steps = 12;

struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
};

class Decode {
  public:
    Decode(llama_model* model, int salt) : n_vocab_(llama_vocab_n_tokens(llama_model_get_vocab(model))), salt_(salt) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 1024;
        params.n_seq_max = n_sequences;
        params.n_threads = params.n_threads_batch = 1;
        context_.reset(llama_init_from_model(model, params));
    }
    /// All sequences advance in one batch: prompts of different lengths first, then a token of each.
    bool run() {
        if (!context_) return false;
        llama_batch batch = llama_batch_init(n_sequences * (n_prompt + n_sequences), 0, 1);
        for (int sequence = 0; sequence < n_sequences; ++sequence) {
            for (int i = 0; i < n_prompt + sequence; ++i)
                add(batch, 3 + (salt_ + 37 * sequence + 11 * i) % (n_vocab_ - 3), sequence);
        }
        bool good = decode(batch);
        for (int step = 0; good && step < n_steps; ++step) {
            batch.n_tokens = 0;
            const std::array<llama_token, n_sequences> next = next_;
            for (int sequence = 0; sequence < n_sequences; ++sequence)
                add(batch, next[static_cast<size_t>(sequence)], sequence);
            good = decode(batch);
        }
        llama_batch_free(batch);
        return good;
    }
    const std::vector<float>& logits() const { return logits_; }

  private:
    void add(llama_batch& batch, llama_token token, int sequence) {
        const int i = batch.n_tokens++;
        batch.token[i] = token;
        batch.pos[i] = position_[static_cast<size_t>(sequence)]++;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = 1;
    }
    bool decode(const llama_batch& batch) {
        if (llama_decode(context_.get(), batch) != 0) return false;
        for (int i = 0; i < batch.n_tokens; ++i) {
            const float* row = llama_get_logits_ith(context_.get(), i);
            logits_.insert(logits_.end(), row, row + n_vocab_);
            int best = 0;
            for (int token = 1; token < n_vocab_; ++token)
                if (row[token] > row[best]) best = token;
            next_[static_cast<size_t>(batch.seq_id[i][0])] = best;
        }
        return true;
    }

    std::unique_ptr<llama_context, Free> context_;
    const int n_vocab_, salt_;
    std::array<llama_pos, n_sequences> position_{};
    std::array<llama_token, n_sequences> next_{};
    std::vector<float> logits_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    ggml_backend_load_all();
    const std::unique_ptr<llama_model, Free> model(llama_model_load_from_file(argv[1], llama_model_default_params()));
    if (!model) return 1;
    Decode first(model.get(), 1), second(model.get(), 2);
    bool first_good = false;
    std::thread thread([&] { first_good = first.run(); });
    const bool second_good = second.run();
    thread.join();
    if (!first_good || !second_good) return 1;
    FILE* out = std::fopen(argv[2], "wb");
    if (out == nullptr) return 1;
    for (const Decode* decode : {&first, &second}) {
        const auto& logits = decode->logits();
        if (std::fwrite(logits.data(), sizeof(float), logits.size(), out) != logits.size()) return 1;
    }
    return std::fclose(out) == 0 ? 0 : 1;
}
