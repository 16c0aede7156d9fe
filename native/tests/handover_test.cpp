// Sequence state: moved bit-exactly, refused with a reason, never destructive.
#include <fstream>
#include <string>

#include "tiny.h"

namespace {

const char * const models[] = {"llama-a",     "qwen3-b",     "qwen3-none",  "gemma3-a",    "gemma3-b",
                               "falcon-h1-a", "falcon-h1-b", "qwen3next-a", "qwen3next-b", "qwen35-a",
                               "qwen35-b",    "qwen2vl-a",   "mamba-a"};

std::vector<uint8_t> save(const TestContext & context) {
    size_t size = 0;
    context.require(syrinx_state_save(context.handle, nullptr, &size));
    std::vector<uint8_t> blob(size);
    context.require(syrinx_state_save(context.handle, blob.data(), &size));
    return blob;
}

void check_refused(const TestContext & context, syrinx_status got, syrinx_status expected, const char * words) {
    CHECK(got == expected);
    CHECK_MESSAGE(std::string(syrinx_last_error(context.handle)).find(words) != std::string::npos,
                  std::string(syrinx_last_error(context.handle)));
}

size_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    size_t total = 0, resident = 0;
    statm >> total >> resident;
    return resident * 4096;
}

}  // namespace

TEST_SUITE_BEGIN("handover");

TEST_CASE("a handed-over sequence goes on to the bit as if it had never moved") {
    TestEngine engine;
    for (const char * name : models) {
        for (int32_t flash : {0, 1}) {
            CAPTURE(std::string(name));
            CAPTURE(flash);
            const TestModel model(engine, tiny(name));
            syrinx_context_params params = test_params();
            params.flash_attention = flash;
            if (flash) {
                params.type_k = params.type_v = SYRINX_KV_F16;
            }
            const TestContext prefill(model, params), decode(model, params), alone(model, params);
            decode.greedy(decode.prefill(model.tokens(40, 99)), 3);  // what it held before must not matter
            const std::vector<int32_t> prompt = model.tokens(45);
            const std::vector<float> logits = prefill.prefill(prompt);
            syrinx_handover_report report = {};
            report.struct_size = sizeof report;
            decode.require(syrinx_handover(prefill.handle, decode.handle, &report));
            CHECK(report.bytes > 64);
            CHECK(report.n_past == 45);
            CHECK(syrinx_context_n_past(decode.handle) == 45);
            const std::vector<float> expected = alone.greedy(alone.prefill(prompt), 20);
            CHECK(max_abs_difference(decode.greedy(logits, 20), expected) == 0);
            // The sender keeps its copy.
            CHECK(max_abs_difference(prefill.greedy(logits, 20), expected) == 0);
        }
    }
}

TEST_CASE("a sliding window goes on to the bit after its ring has wrapped, once and several times") {
    TestEngine engine;
    for (const char * name : {"gemma3-a", "gemma3-b"}) {
        const TestModel model(engine, tiny(name));
        for (int32_t flash : {0, 1}) {
            for (int32_t n_prompt : {70, 129, 300}) {
                CAPTURE(std::string(name));
                CAPTURE(flash);
                CAPTURE(n_prompt);
                syrinx_context_params params = test_params();
                params.n_ctx = 1024;
                params.n_batch = 16;
                params.n_outputs = 16;
                params.flash_attention = flash;
                const TestContext prefill(model, params), decode(model, params), alone(model, params);
                decode.prefill(model.tokens(90, 5));
                const std::vector<int32_t> prompt = model.tokens(n_prompt);
                const std::vector<float> logits = prefill.prefill(prompt);
                decode.require(syrinx_handover(prefill.handle, decode.handle, nullptr));
                // Far enough that the ring wraps again in the receiver.
                CHECK(max_abs_difference(decode.greedy(logits, 300), alone.greedy(alone.prefill(prompt), 300)) == 0);
            }
        }
    }
}

TEST_CASE("two model handles of one file count as the same weights") {
    TestEngine engine;
    const TestModel one(engine, tiny("falcon-h1-a")), two(engine, tiny("falcon-h1-a"));
    const TestContext from(one), to(two), alone(two);
    const std::vector<int32_t> prompt = one.tokens(20);
    const std::vector<float> logits = from.prefill(prompt);
    to.require(syrinx_handover(from.handle, to.handle, nullptr));
    CHECK(max_abs_difference(to.greedy(logits, 8), alone.greedy(alone.prefill(prompt), 8)) == 0);
}

TEST_CASE("what does not fit is refused with its name, and the receiver keeps its sequence") {
    TestEngine engine;
    for (const char * name : {"qwen3-a", "gemma3-a", "qwen35-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext to(model), alone(model);
        const std::vector<int32_t> held = model.tokens(11, 3);
        to.prefill(held);
        alone.prefill(held);
        const auto refused = [&](const char * words, auto && change) {
            syrinx_context_params params = test_params();
            change(params);
            const TestContext from(model, params);
            from.prefill(model.tokens(9));
            check_refused(to, syrinx_handover(from.handle, to.handle, nullptr), SYRINX_ERR_INCOMPATIBLE, words);
            const std::vector<uint8_t> blob = save(from);
            check_refused(to, syrinx_state_load(to.handle, blob.data(), blob.size()), SYRINX_ERR_INCOMPATIBLE, words);
        };
        refused("type_k", [](auto & p) { p.type_k = SYRINX_KV_F16; });
        refused("type_v", [](auto & p) { p.type_v = SYRINX_KV_F16; });
        refused("flash_attention", [](auto & p) { p.flash_attention = 1; });
        refused("n_seq_max", [](auto & p) { p.n_seq_max = 2; });
        refused("kv_unified", [](auto & p) { p.kv_unified = 0; });
        if (model.facts.n_swa > 0) {
            refused("full_swa", [](auto & p) { p.full_swa = 1; });
            refused("n_batch", [](auto & p) { p.n_batch = 100; });
            refused("n_batch", [](auto & p) { p.n_batch = 32; });
        }
        CHECK(max_abs_difference(to.decode(4), alone.decode(4)) == 0);
    }
    const TestModel a(engine, tiny("llama-a")), b(engine, tiny("llama-b"));
    const TestContext from(a), to(b);
    from.prefill(a.tokens(5));
    check_refused(to, syrinx_handover(from.handle, to.handle, nullptr), SYRINX_ERR_INCOMPATIBLE, "weights");
    check_refused(to, syrinx_handover(to.handle, to.handle, nullptr), SYRINX_ERR_INVALID_ARGUMENT, "same context");
    syrinx_context_params small = test_params();
    small.n_ctx = 16;
    const TestContext narrow(a, small);
    from.prefill(a.tokens(30));
    check_refused(narrow, syrinx_handover(from.handle, narrow.handle, nullptr), SYRINX_ERR_INCOMPATIBLE, "positions");
}

TEST_CASE("truncated, garbage and flipped blobs are found out before the sequence is touched") {
    TestEngine engine;
    for (const char * name : {"qwen3-a", "gemma3-a", "falcon-h1-a", "qwen35-b", "qwen3next-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext from(model), to(model), alone(model);
        from.prefill(model.tokens(13));
        const std::vector<uint8_t> blob = save(from);
        to.prefill(model.tokens(8, 5));
        alone.prefill(model.tokens(8, 5));
        for (size_t size :
             {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, blob.size() / 2, blob.size() - 1}) {
            CHECK(syrinx_state_load(to.handle, blob.data(), size) == SYRINX_ERR_BAD_STATE);
        }
        uint32_t seed = 1;
        for (size_t i = 0; i < 200; ++i) {
            std::vector<uint8_t> flipped = blob;
            seed = seed * 1664525u + 1013904223u;
            const size_t at = i < 64 ? i : seed % blob.size();
            flipped[at] ^= static_cast<uint8_t>(1u << (i % 8));
            CHECK(syrinx_state_load(to.handle, flipped.data(), flipped.size()) == SYRINX_ERR_BAD_STATE);
        }
        std::vector<uint8_t> longer = blob;
        longer.push_back(0);
        CHECK(syrinx_state_load(to.handle, longer.data(), longer.size()) == SYRINX_ERR_BAD_STATE);
        const std::string garbage(5000, 'x');
        CHECK(syrinx_state_load(to.handle, garbage.data(), garbage.size()) == SYRINX_ERR_BAD_STATE);
        CHECK(syrinx_context_n_past(to.handle) == 8);
        CHECK(max_abs_difference(to.decode(6), alone.decode(6)) == 0);
        // And the sound one still loads.
        to.require(syrinx_state_load(to.handle, blob.data(), blob.size()));
        CHECK(max_abs_difference(to.decode(6), from.decode(6)) == 0);
    }
}

TEST_CASE("an empty sequence can be handed over") {
    TestEngine engine;
    const TestModel model(engine, tiny("qwen35-a"));
    const TestContext from(model), to(model), alone(model);
    to.prefill(model.tokens(7));
    to.require(syrinx_handover(from.handle, to.handle, nullptr));
    CHECK(syrinx_context_n_past(to.handle) == 0);
    CHECK(max_abs_difference(to.prefill(model.tokens(5)), alone.prefill(model.tokens(5))) == 0);
}

TEST_CASE("both contexts of a pair use one copy of the weights") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-large"));
    REQUIRE(model.facts.n_bytes > (24u << 20));
    const TestContext one(model);
    one.prefill(model.tokens(4));
    const size_t before = resident_bytes();
    const TestContext two(model);
    two.prefill(model.tokens(4));
    CHECK(resident_bytes() - before < model.facts.n_bytes * 3 / 4);  // caches and buffers, but no second copy
}

TEST_SUITE_END();
