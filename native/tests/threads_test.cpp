// Cancel, close and concurrent use from several threads. Run under ThreadSanitizer too.
#include <atomic>
#include <chrono>
#include <thread>

#include "tiny.h"

namespace {

void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

// Long enough that the other thread gets in between: many single-row decodes, again and again.
struct LongRun {
    explicit LongRun(const TestModel & model, syrinx_context * context) : tokens(model.tokens(100)), handle(context) {}
    syrinx_status operator()() {
        for (;;) {
            syrinx_status status = syrinx_context_reset(handle);
            if (status == SYRINX_OK) {
                started = true;
                status = syrinx_prefill_tokens(handle, tokens.data(), 100, nullptr, 1, nullptr, nullptr);
            }
            // Busy: the other thread's call came between two of ours.
            if (status != SYRINX_OK && status != SYRINX_ERR_BUSY) {
                return status;
            }
        }
    }
    std::vector<int32_t> tokens;
    syrinx_context * handle;
    std::atomic<bool> started{false};
};

}  // namespace

TEST_SUITE_BEGIN("threads");

TEST_CASE("closing from another thread ends the running call, waits for it, and later calls are told") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-large"));
    for (int round = 0; round < 5; ++round) {
        const TestContext context(model);
        LongRun run(model, context.handle);
        syrinx_status status = SYRINX_OK;
        std::thread worker([&] { status = run(); });
        while (!run.started) {
            std::this_thread::yield();
        }
        pause_briefly();
        syrinx_context_close(context.handle);
        worker.join();
        CHECK((status == SYRINX_ERR_CANCELLED || status == SYRINX_ERR_CLOSED));
        CHECK(syrinx_context_reset(context.handle) == SYRINX_ERR_CLOSED);
    }
}

TEST_CASE("a cancelled prefill leaves the sequence as it was") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-large"));
    syrinx_context_params params = test_params();
    params.n_ctx = 4096;
    params.n_batch = 32;
    const TestContext context(model, params), fresh(model, params);
    const std::vector<int32_t> first = model.tokens(20);
    const std::vector<int32_t> rest = model.tokens(4000);
    context.prefill(first);
    fresh.prefill(first);
    std::atomic<bool> entered{false};
    std::atomic<syrinx_status> status{SYRINX_OK};
    std::thread worker([&] {
        entered = true;
        status = syrinx_prefill_tokens(context.handle, rest.data(), 4000, nullptr, 1, nullptr, nullptr);
    });
    while (!entered) {
        std::this_thread::yield();
    }
    pause_briefly();
    while (status == SYRINX_OK && syrinx_context_n_past(context.handle) <= 20) {
        std::this_thread::yield();  // until some of it is computed
    }
    CHECK(syrinx_context_cancel(context.handle) == SYRINX_OK);
    worker.join();
    CHECK(status == SYRINX_ERR_CANCELLED);
    CHECK(engine.n_errors_logged == 0);  // it was asked for
    CHECK(syrinx_context_n_past(context.handle) == 20);
    CHECK(max_abs_difference(context.decode(3), fresh.decode(3)) == 0);
}

TEST_CASE("a cancelled prefill of a model that cannot go back empties the sequence and says so") {
    TestEngine engine;
    const TestModel model(engine, tiny("falcon-h1-a"));
    syrinx_context_params params = test_params();
    params.n_ctx = 8192;
    params.n_batch = 16;
    const TestContext context(model, params);
    context.prefill(model.tokens(20));
    const std::vector<int32_t> rest = model.tokens(8000);
    std::atomic<bool> done{false};
    std::atomic<syrinx_status> status{SYRINX_OK};
    std::thread worker([&] {
        status = syrinx_prefill_tokens(context.handle, rest.data(), 8000, nullptr, 1, nullptr, nullptr);
        done = true;
    });
    while (!done && syrinx_context_n_past(context.handle) <= 20) {
        std::this_thread::yield();
    }
    syrinx_context_cancel(context.handle);
    worker.join();
    REQUIRE(status == SYRINX_ERR_CANCELLED);
    CHECK(syrinx_context_n_past(context.handle) == 0);
    CHECK(std::string(syrinx_last_error(context.handle)).find("emptied") != std::string::npos);
    const TestContext fresh(model, params);
    CHECK(max_abs_difference(context.prefill(model.tokens(9)), fresh.prefill(model.tokens(9))) == 0);
}

TEST_CASE("a second call on a busy context is refused at once") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-large"));
    const TestContext context(model);
    LongRun run(model, context.handle);
    std::thread worker([&] { run(); });
    while (!run.started) {
        std::this_thread::yield();
    }
    // The other thread is between two calls now and then, and on a busy machine may be kept there for long.
    syrinx_status status = SYRINX_OK;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (status != SYRINX_ERR_BUSY && std::chrono::steady_clock::now() < deadline) {
        status = syrinx_probe_write(context.handle, "/nonexistent");
        std::this_thread::yield();
    }
    CHECK(status == SYRINX_ERR_BUSY);
    syrinx_context_close(context.handle);
    worker.join();
}

TEST_CASE("contexts of one model run side by side, and errors stay with their handle") {
    TestEngine engine;
    const TestModel model(engine, tiny("qwen35-a"));
    const TestContext reference(model);
    const std::vector<int32_t> prompt = model.tokens(30);
    const std::vector<float> expected = reference.greedy(reference.prefill(prompt), 10);
    std::vector<std::vector<float>> results(3);
    std::vector<std::thread> workers;
    for (auto & result : results) {
        workers.emplace_back([&] {
            syrinx_context * context = nullptr;
            const syrinx_context_params params = test_params();
            if (syrinx_context_open(model.handle, &params, &context) != SYRINX_OK) {
                return;
            }
            const size_t n_vocab = static_cast<size_t>(model.facts.n_vocab);
            result.resize(n_vocab * 11);
            float * row = result.data();
            syrinx_prefill_tokens(context, prompt.data(), 30, nullptr, 1, nullptr, row);
            for (int i = 0; i < 10; ++i, row += n_vocab) {
                const int32_t token = TestContext::argmax({row, row + n_vocab});
                syrinx_decode_token(context, token, row + n_vocab, nullptr);
                syrinx_decode_token(context, -1, nullptr, nullptr);
            }
            syrinx_context_close(context);
        });
    }
    for (std::thread & worker : workers) {
        worker.join();
    }
    for (const auto & result : results) {
        CHECK(max_abs_difference(result, expected) == 0);
    }
    CHECK(std::string(syrinx_last_error(reference.handle)).empty());
}

TEST_CASE("several threads of computation change nothing but the time") {
    TestEngine engine;
    for (const char * name : {"llama-a", "qwen3next-a"}) {
        CAPTURE(std::string(name));
        const TestModel model(engine, tiny(name));
        const TestContext one(model);
        syrinx_context_params params = test_params();
        params.n_threads = 2;
        params.n_threads_batch = 3;
        const TestContext several(model, params);
        const std::vector<int32_t> prompt = model.tokens(33);
        CHECK(max_abs_difference(one.greedy(one.prefill(prompt), 6), several.greedy(several.prefill(prompt), 6)) == 0);
    }
}

TEST_CASE("a context closed out of its own callback ends without waiting for itself") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-a"));
    const TestContext context(model);
    syrinx_sampler_params sampling;
    syrinx_sampler_default_params(&sampling);
    sampling.temperature = 1.5f;
    syrinx_sampler * sampler = nullptr;
    REQUIRE(syrinx_sampler_create(engine.handle, &sampling, &sampler) == SYRINX_OK);
    syrinx_generate_params params;
    syrinx_generate_default_params(&params);
    params.max_tokens = 100;
    params.user_data = context.handle;
    params.on_text = [](const char *, size_t, void * user) -> int32_t {
        syrinx_context_close(static_cast<syrinx_context *>(user));
        return 0;
    };
    syrinx_generate_result result = {};
    result.struct_size = sizeof result;
    const std::vector<int32_t> prompt = model.tokens(5);
    CHECK(syrinx_generate(context.handle, context.handle, sampler, prompt.data(), 5, &params, nullptr, &result) ==
          SYRINX_ERR_CANCELLED);
    CHECK(syrinx_context_reset(context.handle) == SYRINX_ERR_CLOSED);
    syrinx_sampler_close(sampler);
}

TEST_SUITE_END();
