#include "text/generate.h"

#include <chrono>

#include "core/error.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace syrinx {

namespace {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void check(const Context & prefill, const Context & decode, const syrinx_generate_params & params) {
    if (params.max_tokens < 1) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "max_tokens is %d; it must be at least 1", params.max_tokens);
    }
    if (params.n_stop < 0 || (params.n_stop > 0 && !params.stop)) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "n_stop is %d with stop %s", params.n_stop, params.stop ? "given" : "NULL");
    }
    if (prefill.model().facts().fingerprint != decode.model().facts().fingerprint) {
        fail(SYRINX_ERR_INCOMPATIBLE, "the prefill and the decode context have different weights");
    }
    decode.model().require_tokenizer();
}

std::vector<std::string> stop_strings(const syrinx_generate_params & params) {
    std::vector<std::string> stops;
    for (int32_t i = 0; i < params.n_stop; ++i) {
        if (!params.stop[i]) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "stop[%d] is NULL", i);
        }
        stops.emplace_back(params.stop[i]);
    }
    return stops;
}

// A cancel of the decode context must also end a prefill that runs in the other one.
class Following {
public:
    Following(Context & follower, const Context & followed) : follower_(follower) {
        follower_.follow(&follower == &followed ? nullptr : &followed);
    }
    ~Following() { follower_.follow(nullptr); }
    Following(const Following &) = delete;
    Following & operator=(const Following &) = delete;

private:
    Context & follower_;
};

class Generation {
public:
    Generation(Context & decode, Sampler & sampler, const syrinx_generate_params & params, int32_t * out_tokens,
               syrinx_generate_result & result)
        : decode_(decode), sampler_(sampler), params_(params), out_tokens_(out_tokens), result_(result),
          stream_(stop_strings(params), [this](const char * text, size_t bytes) { return emit(text, bytes); }),
          logits_(static_cast<size_t>(decode.model().facts().n_vocab)) {}

    // Prefills and hands over; leaves the logits of the last prompt row.
    void run_prompt(Context & prefill, const std::vector<int32_t> & prompt) {
        const auto start = std::chrono::steady_clock::now();
        const Following following(prefill, decode_);
        const int32_t n = static_cast<int32_t>(prompt.size());
        const int32_t last = n - 1;
        result_.n_prompt = n;
        prefill.reset();
        prefill.prefill({prompt.data(), nullptr, n}, {&last, 1, nullptr, logits_.data()});
        result_.prefill_ms = milliseconds_since(start);
        if (&prefill != &decode_) {
            const syrinx_handover_report report = hand_over(prefill, decode_);
            result_.handover_ms = report.save_ms + report.load_ms;
            result_.handover_bytes = report.bytes;
        }
        sampler_.reset();
        for (int32_t token : prompt) {
            sampler_.accept(token);  // Hugging Face's repetition penalty sees the prompt too
        }
    }

    void run_tokens() {
        const auto start = std::chrono::steady_clock::now();
        while (step()) {
            result_.decode_ms = milliseconds_since(start);
            const int32_t token = last_token_;
            const int32_t row = 0;
            decode_.prefill({&token, nullptr, 1}, {&row, 1, nullptr, logits_.data()});
        }
        result_.decode_ms = milliseconds_since(start);
        if (result_.finish != SYRINX_FINISH_STOP && flushed(stream_.finish())) {
            result_.finish = SYRINX_FINISH_STOP;
        }
    }

private:
    int32_t emit(const char * text, size_t bytes) {
        return params_.on_text ? params_.on_text(text, bytes, params_.user_data) : 0;
    }

    // Whether a stop string ended the text.
    bool flushed(StreamStatus pushed) const {
        if (pushed == StreamStatus::kCancelled) {
            fail(SYRINX_ERR_CANCELLED, "the text callback ended the generation after %d tokens", result_.n_generated);
        }
        return pushed == StreamStatus::kStopped;
    }

    // Chooses and emits one token; false when the generation is over, and result.finish says why.
    bool step() {
        if (decode_.cancelled()) {
            fail(SYRINX_ERR_CANCELLED, "the generation was cancelled after %d tokens", result_.n_generated);
        }
        last_token_ = sampler_.sample(logits_.data(), static_cast<int32_t>(logits_.size()));
        if (is_end_token(decode_.model(), last_token_)) {
            result_.finish = SYRINX_FINISH_EOS;
            return false;
        }
        sampler_.accept(last_token_);
        if (out_tokens_) {
            out_tokens_[result_.n_generated] = last_token_;
        }
        ++result_.n_generated;
        const std::string piece = token_piece(decode_.model(), last_token_, /*special=*/false);
        const bool stopped = flushed(stream_.push(piece.data(), piece.size()));
        result_.finish = stopped                                     ? SYRINX_FINISH_STOP
                         : result_.n_generated == params_.max_tokens ? SYRINX_FINISH_LENGTH
                                                                     : SYRINX_FINISH_CONTEXT;
        return !stopped && result_.n_generated < params_.max_tokens && decode_.n_past() < decode_.n_ctx();
    }

    Context & decode_;
    Sampler & sampler_;
    const syrinx_generate_params & params_;
    int32_t * out_tokens_;
    syrinx_generate_result & result_;
    TextStream stream_;
    std::vector<float> logits_;
    int32_t last_token_ = 0;
};

}  // namespace

void generate(Context & prefill, Context & decode, Sampler & sampler, const std::vector<int32_t> & prompt,
              const syrinx_generate_params & params, int32_t * out_tokens, syrinx_generate_result & result) {
    check(prefill, decode, params);
    Generation generation(decode, sampler, params, out_tokens, result);
    generation.run_prompt(prefill, prompt);
    generation.run_tokens();
}

}  // namespace syrinx
