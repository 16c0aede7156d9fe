// Tiny models for the native tests, and owners of handles that check as they go.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "syrinx/syrinx.h"

inline std::string tiny_dir() {
    const char * dir = std::getenv("SYRINX_TINY_DIR");
    if (!dir) {
        FAIL("SYRINX_TINY_DIR is not set: make the models with `python -m tests.tiny_models --out DIR`");
    }
    return dir;
}

inline std::string tiny(const std::string & name) { return tiny_dir() + "/" + name + ".gguf"; }

inline std::string read_file(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

struct TestEngine {
    TestEngine() { REQUIRE(syrinx_engine_create(SYRINX_ABI_VERSION, on_log, this, &handle) == SYRINX_OK); }
    ~TestEngine() { syrinx_engine_close(handle); }
    TestEngine(const TestEngine &) = delete;
    static void on_log(syrinx_log_level level, const char *, void * self) {
        static_cast<TestEngine *>(self)->n_errors_logged += level == SYRINX_LOG_ERROR ? 1 : 0;
    }
    syrinx_engine * handle = nullptr;
    std::atomic<int> n_errors_logged{0};
};

struct TestModel {
    TestModel(const TestEngine & engine, const std::string & path) {
        const syrinx_status status = syrinx_model_open(engine.handle, path.c_str(), nullptr, &handle);
        REQUIRE_MESSAGE(status == SYRINX_OK, path << ": " << std::string(syrinx_last_error(engine.handle)));
        facts.struct_size = sizeof facts;
        REQUIRE(syrinx_model_get_facts(handle, &facts) == SYRINX_OK);
    }
    ~TestModel() { syrinx_model_close(handle); }
    TestModel(const TestModel &) = delete;

    std::vector<float> embed(const std::vector<int32_t> & tokens) const {
        std::vector<float> rows(tokens.size() * static_cast<size_t>(facts.n_embd));
        REQUIRE(syrinx_embed_tokens(handle, tokens.data(), static_cast<int32_t>(tokens.size()), rows.data()) ==
                SYRINX_OK);
        return rows;
    }
    // Ids all over the vocabulary; which ones does not matter.
    std::vector<int32_t> tokens(int32_t n, uint32_t seed = 7) const {
        std::vector<int32_t> out;
        for (int32_t i = 0; i < n; ++i) {
            seed = seed * 1664525u + 1013904223u;
            out.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(facts.n_vocab)));
        }
        return out;
    }
    syrinx_model * handle = nullptr;
    syrinx_model_facts facts = {};
};

// Small, one thread, F32 KV: differences between two runs are then the code's own.
inline syrinx_context_params test_params() {
    syrinx_context_params params;
    syrinx_context_default_params(&params);
    params.n_ctx = 128;
    params.n_batch = 64;
    params.n_outputs = 64;
    params.n_threads = 1;
    params.type_k = params.type_v = SYRINX_KV_F32;
    params.flash_attention = 0;
    params.embeds_are_scaled = 1;
    return params;
}

struct TestContext {
    explicit TestContext(const TestModel & model, const syrinx_context_params & params = test_params())
        : facts(model.facts) {
        const syrinx_status status = syrinx_context_open(model.handle, &params, &handle);
        REQUIRE_MESSAGE(status == SYRINX_OK, std::string(syrinx_last_error(model.handle)));
    }
    ~TestContext() { syrinx_context_close(handle); }
    TestContext(const TestContext &) = delete;

    void require(syrinx_status status) const {
        REQUIRE_MESSAGE(status == SYRINX_OK, std::string(syrinx_status_name(status))
                                                 << ": " << std::string(syrinx_last_error(handle)));
    }
    // Logits of the last row.
    std::vector<float> prefill(const std::vector<int32_t> & tokens) const {
        std::vector<float> logits(static_cast<size_t>(facts.n_vocab));
        require(syrinx_prefill_tokens(handle, tokens.data(), static_cast<int32_t>(tokens.size()), nullptr, 1, nullptr,
                                      logits.data()));
        return logits;
    }
    std::vector<float> decode(int32_t token) const { return prefill({token}); }
    // Greedy continuation of n tokens after logits; all logits rows, one after the other.
    std::vector<float> greedy(std::vector<float> logits, int32_t n) const {
        std::vector<float> all = logits;
        for (int32_t i = 0; i < n; ++i) {
            logits = decode(argmax(logits));
            all.insert(all.end(), logits.begin(), logits.end());
        }
        return all;
    }
    static int32_t argmax(const std::vector<float> & row) {
        size_t best = 0;
        for (size_t i = 1; i < row.size(); ++i) {
            best = row[i] > row[best] ? i : best;
        }
        return static_cast<int32_t>(best);
    }
    syrinx_context * handle = nullptr;
    syrinx_model_facts facts = {};
};

inline double max_abs_difference(const std::vector<float> & a, const std::vector<float> & b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = std::abs(static_cast<double>(a[i]) - b[i]);
        worst = d > worst || d != d ? d : worst;
    }
    return worst;
}

inline double max_abs(const std::vector<float> & a) { return max_abs_difference(a, std::vector<float>(a.size())); }
