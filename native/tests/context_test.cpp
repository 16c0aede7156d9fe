// Embeds-only and token decode, for every rope type and structure.
#include <cmath>
#include <limits>
#include <numeric>

#include "tiny.h"

namespace {

const char * const all_models[] = {
    "llama-a",     "llama-b",     "qwen3-a",     "qwen3-b",     "qwen3-none", "gemma3-a",     "gemma3-b",
    "falcon-h1-a", "falcon-h1-b", "qwen3next-a", "qwen3next-b", "qwen35-a",   "qwen35-b",     "qwen2vl-a",
    "qwen2vl-b",   "mamba-a",     "mamba-b",     "qwen3vl-a",   "qwen3vl-b",  "starcoder2-a", "starcoder2-b"};

struct Rows {
    std::vector<float> hidden, logits;
};

// All rows' results of one prefill, by tokens or by embedding rows, in chunks.
Rows prefill_all(const TestModel & model, const TestContext & context, const std::vector<int32_t> & tokens,
                 int32_t chunk, bool embeds) {
    const size_t n_embd = static_cast<size_t>(model.facts.n_embd);
    const size_t n_out = static_cast<size_t>(model.facts.n_embd_out);
    const size_t n_vocab = static_cast<size_t>(model.facts.n_vocab);
    const std::vector<float> rows = model.embed(tokens);
    Rows out = {std::vector<float>(tokens.size() * n_out), std::vector<float>(tokens.size() * n_vocab)};
    const int32_t n = static_cast<int32_t>(tokens.size());
    for (int32_t begin = 0; begin < n; begin += chunk) {
        const int32_t count = std::min(chunk, n - begin);
        std::vector<int32_t> wanted(static_cast<size_t>(count));
        std::iota(wanted.begin(), wanted.end(), 0);
        const size_t at = static_cast<size_t>(begin);
        float * hidden = out.hidden.data() + at * n_out;
        float * logits = out.logits.data() + at * n_vocab;
        context.require(embeds ? syrinx_prefill_embeds(context.handle, rows.data() + at * n_embd, count, wanted.data(),
                                                       count, hidden, logits)
                               : syrinx_prefill_tokens(context.handle, tokens.data() + at, count, wanted.data(), count,
                                                       hidden, logits));
    }
    return out;
}

}  // namespace

TEST_SUITE_BEGIN("context");

TEST_CASE("rows of syrinx_embed_tokens give what the tokens give, to the bit, in every architecture") {
    TestEngine engine;
    for (const char * name : all_models) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext a(model), b(model);
        const std::vector<int32_t> tokens = model.tokens(23);
        const Rows by_token = prefill_all(model, a, tokens, 64, false);
        const Rows by_embd = prefill_all(model, b, tokens, 64, true);
        CHECK(max_abs(by_token.logits) > 0.1);
        CHECK(max_abs_difference(by_token.logits, by_embd.logits) == 0);
        CHECK(max_abs_difference(by_token.hidden, by_embd.hidden) == 0);
    }
}

TEST_CASE("any chunking gives the same rows") {
    TestEngine engine;
    for (const char * name : all_models) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const std::vector<int32_t> tokens = model.tokens(37);
        const TestContext whole(model);
        const Rows expected = prefill_all(model, whole, tokens, 64, true);
        // ggml looks GELU up in a table of F16 steps: a difference in the last bit can become one of a step.
        const bool gelu_table = std::string(name).rfind("starcoder2", 0) == 0;
        const double tolerance = gelu_table ? 5e-4 : 2e-5;
        const double scale = max_abs(expected.logits);
        for (int32_t chunk : {1, 2, 7, 16, 36}) {
            CAPTURE(chunk);
            const TestContext context(model);
            const Rows rows = prefill_all(model, context, tokens, chunk, true);
            CHECK(max_abs_difference(expected.logits, rows.logits) <= tolerance * scale);
            CHECK(max_abs_difference(expected.hidden, rows.hidden) <= tolerance * max_abs(expected.hidden));
        }
        // A context whose n_batch is smaller than the prompt splits it by itself.
        syrinx_context_params params = test_params();
        params.n_batch = 5;
        const TestContext small(model, params);
        CHECK(max_abs_difference(expected.logits, prefill_all(model, small, tokens, 37, true).logits) <=
              tolerance * scale);
        // One with room for few results computes in smaller batches.
        params = test_params();
        params.n_outputs = 3;
        const TestContext tight(model, params);
        const Rows rows = prefill_all(model, tight, tokens, 37, true);
        CHECK(max_abs_difference(expected.logits, rows.logits) <= tolerance * scale);
        CHECK(max_abs_difference(expected.hidden, rows.hidden) <= tolerance * max_abs(expected.hidden));
    }
}

TEST_CASE("only the rows asked for come out, and they are the right ones") {
    TestEngine engine;
    for (const char * name : {"qwen3-a", "qwen35-a", "gemma3-b"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const std::vector<int32_t> tokens = model.tokens(20);
        const TestContext a(model), b(model);
        const Rows all = prefill_all(model, a, tokens, 64, false);
        const std::vector<int32_t> wanted = {0, 7, 19};
        const size_t n_vocab = static_cast<size_t>(model.facts.n_vocab);
        const size_t n_out = static_cast<size_t>(model.facts.n_embd_out);
        Rows some = {std::vector<float>(3 * n_out), std::vector<float>(3 * n_vocab)};
        b.require(syrinx_prefill_tokens(b.handle, tokens.data(), 20, wanted.data(), 3, some.hidden.data(),
                                        some.logits.data()));
        for (size_t i = 0; i < 3; ++i) {
            const size_t row = static_cast<size_t>(wanted[i]);
            for (size_t j = 0; j < n_vocab; ++j) {
                REQUIRE(some.logits[i * n_vocab + j] ==
                        doctest::Approx(all.logits[row * n_vocab + j]).epsilon(1e-4).scale(1));
            }
            for (size_t j = 0; j < n_out; ++j) {
                REQUIRE(some.hidden[i * n_out + j] ==
                        doctest::Approx(all.hidden[row * n_out + j]).epsilon(1e-4).scale(1));
            }
        }
        // No row at all is fine: the sequence grows, nothing is output.
        CHECK(syrinx_prefill_tokens(b.handle, tokens.data(), 5, nullptr, 0, nullptr, nullptr) == SYRINX_OK);
        CHECK(syrinx_context_n_past(b.handle) == 25);
    }
}

TEST_CASE("positions matter: the same rows in another order give something else") {
    TestEngine engine;
    for (const char * name : {"qwen35-a", "qwen2vl-a", "llama-a", "qwen3-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        // One token repeated: without positions every row would be equal.
        const TestContext context(model);
        std::vector<int32_t> tokens(12, 5);
        tokens[0] = 9;
        const Rows rows = prefill_all(model, context, tokens, 64, true);
        const size_t n = static_cast<size_t>(model.facts.n_vocab);
        const std::vector<float> early(rows.logits.begin() + 2 * n, rows.logits.begin() + 3 * n);
        const std::vector<float> late(rows.logits.end() - n, rows.logits.end());
        CHECK(max_abs_difference(early, late) > 1e-3);
    }
}

TEST_CASE("after a reset B equals B alone") {
    TestEngine engine;
    for (const char * name : all_models) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext used(model), fresh(model);
        const std::vector<int32_t> a = model.tokens(31, 1);
        const std::vector<int32_t> b = model.tokens(17, 2);
        used.greedy(used.prefill(a), 5);
        used.require(syrinx_context_reset(used.handle));
        CHECK(syrinx_context_n_past(used.handle) == 0);
        CHECK(max_abs_difference(used.greedy(used.prefill(b), 5), fresh.greedy(fresh.prefill(b), 5)) == 0);
    }
}

TEST_CASE("bad input is refused by row, and changes nothing") {
    TestEngine engine;
    const TestModel model(engine, tiny("qwen3-a"));
    const TestContext context(model);
    const std::vector<int32_t> tokens = model.tokens(8);
    context.prefill(tokens);
    const auto refused = [&](syrinx_status expected, syrinx_status got, const char * words) {
        CHECK(got == expected);
        CHECK_MESSAGE(std::string(syrinx_last_error(context.handle)).find(words) != std::string::npos,
                      std::string(syrinx_last_error(context.handle)));
        CHECK(syrinx_context_n_past(context.handle) == 8);
    };
    std::vector<float> rows = model.embed(tokens);
    rows[static_cast<size_t>(model.facts.n_embd) * 3 + 2] = std::nanf("");
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_embeds(context.handle, rows.data(), 8, nullptr, 1, nullptr, nullptr), "row 3");
    rows[static_cast<size_t>(model.facts.n_embd) * 3 + 2] = std::numeric_limits<float>::infinity();
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_embeds(context.handle, rows.data(), 8, nullptr, 1, nullptr, nullptr), "column 2");
    rows[static_cast<size_t>(model.facts.n_embd) * 3 + 2] = 1e20f;
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_embeds(context.handle, rows.data(), 8, nullptr, 1, nullptr, nullptr), "row 3 is too large");
    std::vector<int32_t> outside = tokens;
    outside[5] = model.facts.n_vocab;
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, outside.data(), 8, nullptr, 1, nullptr, nullptr), "index 5");
    outside[5] = -1;
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, outside.data(), 8, nullptr, 1, nullptr, nullptr), "index 5");
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, tokens.data(), 0, nullptr, 0, nullptr, nullptr), "n is 0");
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, nullptr, 3, nullptr, 1, nullptr, nullptr), "NULL");
    const int32_t backwards[] = {3, 1};
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, tokens.data(), 8, backwards, 2, nullptr, nullptr), "rows[1]");
    const int32_t beyond[] = {8};
    refused(SYRINX_ERR_INVALID_ARGUMENT,
            syrinx_prefill_tokens(context.handle, tokens.data(), 8, beyond, 1, nullptr, nullptr), "rows[0]");
    const std::vector<int32_t> many = model.tokens(121);
    refused(SYRINX_ERR_CONTEXT_FULL,
            syrinx_prefill_tokens(context.handle, many.data(), 121, nullptr, 1, nullptr, nullptr), "121 rows");
    // And after all that, the sequence goes on as if nothing had been.
    const TestContext fresh(model);
    fresh.prefill(tokens);
    CHECK(max_abs_difference(context.decode(3), fresh.decode(3)) == 0);
}

TEST_CASE("embedding rows without the model's multiplier are refused unless the caller vouches for them") {
    TestEngine engine;
    for (const char * name : {"gemma3-a", "falcon-h1-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        syrinx_context_params params = test_params();
        params.embeds_are_scaled = 0;
        const TestContext context(model, params);
        const std::vector<float> rows = model.embed({1, 2, 3});
        CHECK(syrinx_prefill_embeds(context.handle, rows.data(), 3, nullptr, 1, nullptr, nullptr) ==
              SYRINX_ERR_UNSUPPORTED);
        CHECK(std::string(syrinx_last_error(context.handle)).find("embeds_are_scaled") != std::string::npos);
        context.prefill({1, 2, 3});  // tokens need no vouching
    }
}

TEST_CASE("tokens and embedding rows may follow one another in a sequence") {
    TestEngine engine;
    for (const char * name : {"qwen3-a", "qwen35-b", "gemma3-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext mixed(model), plain(model);
        const std::vector<int32_t> tokens = model.tokens(14);
        const std::vector<float> rows = model.embed({tokens.begin(), tokens.begin() + 9});
        mixed.require(syrinx_prefill_embeds(mixed.handle, rows.data(), 9, nullptr, 0, nullptr, nullptr));
        plain.require(syrinx_prefill_tokens(plain.handle, tokens.data(), 9, nullptr, 0, nullptr, nullptr));
        const std::vector<int32_t> rest(tokens.begin() + 9, tokens.end());
        CHECK(max_abs_difference(mixed.prefill(rest), plain.prefill(rest)) == 0);
    }
}

TEST_CASE("a probe keeps the stages asked for, by name, and is whole or absent") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-a"));
    const TestContext context(model);
    CHECK(syrinx_probe_start(context.handle, "layer.99.hidden") == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(syrinx_probe_write(context.handle, "/tmp/x.gguf") == SYRINX_ERR_INVALID_ARGUMENT);
    REQUIRE(syrinx_probe_start(context.handle, "all") == SYRINX_OK);
    context.prefill(model.tokens(6));
    CHECK(syrinx_probe_write(context.handle, "/nonexistent/folder/x.gguf") == SYRINX_ERR_IO);
    CHECK(std::string(syrinx_last_error(context.handle)).find("/nonexistent/folder/x.gguf") != std::string::npos);
    // Neither the model itself nor a device is ever replaced.
    const std::string sound = read_file(tiny("llama-a"));
    CHECK(syrinx_probe_write(context.handle, tiny("llama-a").c_str()) == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(read_file(tiny("llama-a")) == sound);
    CHECK(syrinx_probe_write(context.handle, "/dev/null") == SYRINX_ERR_INVALID_ARGUMENT);
}

TEST_SUITE_END();
