// The same work through libsyrinx and through a bare libllama loop, in one process, turn about: what the engine adds.
// The two share no code at run time: libsyrinx hides the libllama inside it, and the loop links another copy of the
// same archives. Both get the same settings, and their last logits must be equal.
//   bare_llama MODEL tokens|embeds N_PROMPT N_GENERATE ROUNDS THREADS -> JSON on stdout
// With embeds, libsyrinx is asked for the hidden row as well as the logits, as a speech backbone is; the bare loop
// takes the logits only.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "llama.h"
#include "syrinx/syrinx.h"

namespace {

struct Work {
    bool embeds;
    int32_t width;
    std::vector<int32_t> prompt, generated;  // fixed pseudo-random ids: what they are changes nothing about the work
    std::vector<float> prompt_rows, generated_rows;
};

// Of the wall clock, and of the processor: other programs disturb the second less.
struct Clock {
    double wall_ms, cpu_ms;
};

struct Times {
    Clock prefill, decode;
    std::vector<float> logits;  // of the last step
};

Clock now() {
    timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    const auto wall = std::chrono::steady_clock::now().time_since_epoch();
    return {std::chrono::duration<double, std::milli>(wall).count(),
            static_cast<double>(cpu.tv_sec) * 1e3 + static_cast<double>(cpu.tv_nsec) / 1e6};
}

Clock operator-(const Clock & end, const Clock & start) {
    return {end.wall_ms - start.wall_ms, end.cpu_ms - start.cpu_ms};
}

void require(bool holds, const std::string & what) {
    if (!holds) {
        throw std::runtime_error(what);
    }
}

std::vector<int32_t> pseudo_random_tokens(int32_t n, int32_t n_vocab, uint32_t seed) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t & token : tokens) {
        seed = seed * 1664525u + 1013904223u;
        token = static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(n_vocab));
    }
    return tokens;
}

class Syrinx {
public:
    Syrinx(const char * path, int32_t n_ctx, int32_t n_threads) {
        check(syrinx_engine_create(SYRINX_ABI_VERSION, nullptr, nullptr, &engine_), nullptr);
        check(syrinx_model_open(engine_, path, nullptr, &model_), engine_);
        facts_.struct_size = sizeof facts_;
        check(syrinx_model_get_facts(model_, &facts_), model_);
        syrinx_context_default_params(&params_);
        params_.n_ctx = n_ctx;
        params_.n_threads = n_threads;
        params_.embeds_are_scaled = 1;
        check(syrinx_context_open(model_, &params_, &context_), model_);
    }
    ~Syrinx() {
        syrinx_context_close(context_);
        syrinx_model_close(model_);
        syrinx_engine_close(engine_);
    }
    Syrinx(const Syrinx &) = delete;
    Syrinx & operator=(const Syrinx &) = delete;

    const syrinx_model_facts & facts() const { return facts_; }
    const syrinx_context_params & params() const { return params_; }

    std::vector<float> embed(const std::vector<int32_t> & tokens) const {
        std::vector<float> rows(tokens.size() * static_cast<size_t>(facts_.n_embd));
        check(syrinx_embed_tokens(model_, tokens.data(), static_cast<int32_t>(tokens.size()), rows.data()), model_);
        return rows;
    }

    Times run(const Work & work) const {
        Times times = {{}, {}, std::vector<float>(static_cast<size_t>(facts_.n_vocab))};
        std::vector<float> hidden(static_cast<size_t>(facts_.n_embd_out));
        const int32_t n = static_cast<int32_t>(work.prompt.size());
        float * const logits = times.logits.data();
        check(syrinx_context_reset(context_), context_);
        const Clock start = now();
        check(work.embeds
                  ? syrinx_prefill_embeds(context_, work.prompt_rows.data(), n, nullptr, 1, hidden.data(), logits)
                  : syrinx_prefill_tokens(context_, work.prompt.data(), n, nullptr, 1, nullptr, logits),
              context_);
        const Clock prefilled = now();
        for (size_t i = 0; i < work.generated.size(); ++i) {
            const size_t at = i * static_cast<size_t>(work.width);
            check(work.embeds ? syrinx_decode_embed(context_, work.generated_rows.data() + at, logits, hidden.data())
                              : syrinx_decode_token(context_, work.generated[i], logits, nullptr),
                  context_);
        }
        times.prefill = prefilled - start;
        times.decode = now() - prefilled;
        return times;
    }

private:
    static void check(syrinx_status status, const void * handle) {
        require(status == SYRINX_OK, std::string(syrinx_status_name(status)) + ": " + syrinx_last_error(handle));
    }

    syrinx_engine * engine_ = nullptr;
    syrinx_model * model_ = nullptr;
    syrinx_context * context_ = nullptr;
    syrinx_model_facts facts_ = {};
    syrinx_context_params params_ = {};
};

class Bare {
public:
    Bare(const char * path, const syrinx_context_params & like, const syrinx_model_facts & facts) : facts_(facts) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_backend_init();
        model_ = llama_model_load_from_file(path, llama_model_default_params());
        require(model_, "llama.cpp cannot load the model");
        n_batch_ = std::min(like.n_batch, like.n_ctx);
        llama_context_params p = llama_context_default_params();
        p.n_ctx = static_cast<uint32_t>(like.n_ctx);
        p.n_batch = p.n_ubatch = static_cast<uint32_t>(n_batch_);
        p.n_outputs_max = 1;
        p.n_threads = p.n_threads_batch = like.n_threads;
        p.flash_attn_type = like.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
        p.kv_unified = like.kv_unified != 0;
        p.no_perf = true;
        context_ = llama_init_from_model(model_, p);
        require(context_, "llama.cpp cannot create the context");
        if (like.n_threads > 1) {
            ggml_threadpool_params pool = ggml_threadpool_params_default(like.n_threads);
            pool.poll = static_cast<uint32_t>(like.poll);
            pool_ = ggml_threadpool_new(&pool);
            llama_attach_threadpool(context_, pool_, pool_);
        }
        tokens_ = llama_batch_init(n_batch_, 0, 1);
        embeds_ = llama_batch_init(n_batch_, facts.n_embd, 1);
    }
    ~Bare() {
        llama_batch_free(tokens_);
        llama_batch_free(embeds_);
        llama_free(context_);
        if (pool_) {
            ggml_threadpool_free(pool_);
        }
        llama_model_free(model_);
    }
    Bare(const Bare &) = delete;
    Bare & operator=(const Bare &) = delete;

    Times run(const Work & work) {
        llama_memory_clear(llama_get_memory(context_), true);
        Times times = {{}, {}, std::vector<float>(static_cast<size_t>(facts_.n_vocab))};
        const int32_t n = static_cast<int32_t>(work.prompt.size());
        const Clock start = now();
        for (int32_t begin = 0; begin < n; begin += n_batch_) {
            const int32_t count = std::min(n_batch_, n - begin);
            decode(work, work.prompt, work.prompt_rows, begin, count, begin, begin + count == n);
        }
        copy_logits(times.logits);
        const Clock prefilled = now();
        for (int32_t i = 0; i < static_cast<int32_t>(work.generated.size()); ++i) {
            decode(work, work.generated, work.generated_rows, i, 1, n + i, true);
            copy_logits(times.logits);
        }
        times.prefill = prefilled - start;
        times.decode = now() - prefilled;
        return times;
    }

private:
    void decode(const Work & work, const std::vector<int32_t> & tokens, const std::vector<float> & rows, int32_t begin,
                int32_t count, int32_t position, bool wants_last) {
        llama_batch & batch = work.embeds ? embeds_ : tokens_;
        batch.n_tokens = count;
        for (int32_t i = 0; i < count; ++i) {
            if (!work.embeds) {
                batch.token[i] = tokens[static_cast<size_t>(begin + i)];
            }
            batch.pos[i] = position + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = wants_last && i + 1 == count;
        }
        if (work.embeds) {
            const size_t width = static_cast<size_t>(work.width);
            std::memcpy(batch.embd, rows.data() + width * static_cast<size_t>(begin),
                        width * static_cast<size_t>(count) * sizeof(float));
        }
        require(llama_decode(context_, batch) == 0, "llama_decode failed");
    }

    // A caller keeps the logits; libsyrinx hands them over as a copy too.
    void copy_logits(std::vector<float> & logits) const {
        const float * row = llama_get_logits_ith(context_, -1);
        require(row, "llama.cpp has no logits");
        std::copy(row, row + logits.size(), logits.begin());
    }

    const syrinx_model_facts facts_;
    int32_t n_batch_ = 0;
    llama_model * model_ = nullptr;
    llama_context * context_ = nullptr;
    ggml_threadpool * pool_ = nullptr;
    llama_batch tokens_ = {};
    llama_batch embeds_ = {};
};

float largest_difference(const std::vector<float> & one, const std::vector<float> & other) {
    float largest = 0.0f;
    for (size_t i = 0; i < one.size(); ++i) {
        const float difference = std::fabs(one[i] - other[i]);
        largest = difference <= largest ? largest : difference;  // a NaN stays
    }
    return largest;
}

void print_times(const char * name, const Times & times) {
    std::printf("\"%s\":{\"prefill_ms\":%.4f,\"prefill_cpu_ms\":%.4f,\"decode_ms\":%.4f,\"decode_cpu_ms\":%.4f}", name,
                times.prefill.wall_ms, times.prefill.cpu_ms, times.decode.wall_ms, times.decode.cpu_ms);
}

void run(char ** argv) {
    Work work = {};
    work.embeds = std::strcmp(argv[2], "embeds") == 0;
    const int32_t n_prompt = std::atoi(argv[3]), n_generate = std::atoi(argv[4]), rounds = std::atoi(argv[5]);
    require(n_prompt > 0 && n_generate > 0 && rounds > 0, "counts must be at least 1");
    const Syrinx syrinx(argv[1], n_prompt + n_generate, std::atoi(argv[6]));
    require(syrinx.facts().rope != SYRINX_ROPE_MROPE && syrinx.facts().rope != SYRINX_ROPE_IMROPE,
            "the bare loop knows one position a row: no M-RoPE models");
    Bare bare(argv[1], syrinx.params(), syrinx.facts());
    work.width = syrinx.facts().n_embd;
    work.prompt = pseudo_random_tokens(n_prompt, syrinx.facts().n_vocab, 1);
    work.generated = pseudo_random_tokens(n_generate, syrinx.facts().n_vocab, 2);
    if (work.embeds) {
        work.prompt_rows = syrinx.embed(work.prompt);
        work.generated_rows = syrinx.embed(work.generated);
    }
    std::printf("{\"schema\":1,\"version\":\"%s\",\"rounds\":[", syrinx_version());
    for (int32_t round = -1; round < rounds; ++round) {  // the first is the warm-up
        const bool bare_first = round % 2 == 0;
        Times a = bare_first ? bare.run(work) : syrinx.run(work);
        Times b = bare_first ? syrinx.run(work) : bare.run(work);
        const float difference = largest_difference(a.logits, b.logits);
        require(difference == 0.0f, "the two loops disagree by " + std::to_string(difference) + " logits");
        if (round >= 0) {
            std::printf("%s{", round ? "," : "");
            print_times("bare", bare_first ? a : b);
            std::printf(",");
            print_times("syrinx", bare_first ? b : a);
            std::printf(",\"bare_first\":%s}", bare_first ? "true" : "false");
        }
    }
    std::printf("]}\n");
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: bare_llama MODEL tokens|embeds N_PROMPT N_GENERATE ROUNDS THREADS\n");
        return 2;
    }
    try {
        run(argv);
        return 0;
    } catch (const std::exception & e) {
        std::fprintf(stderr, "bare_llama: %s\n", e.what());
        return 1;
    }
}
