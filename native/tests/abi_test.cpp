// The boundary itself: versions, closed handles, sizes, error texts.
#include <cstdio>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "backbone/runtime.h"
#include "core/error.h"
#include "ggml.h"
#include "tiny.h"

TEST_SUITE_BEGIN("abi");

TEST_CASE("another ABI version is refused") {
    syrinx_engine * engine = reinterpret_cast<syrinx_engine *>(1);
    CHECK(syrinx_engine_create(SYRINX_ABI_VERSION + 1, nullptr, nullptr, &engine) == SYRINX_ERR_ABI);
    CHECK(engine == nullptr);
    CHECK(syrinx_engine_create(SYRINX_ABI_VERSION, nullptr, nullptr, nullptr) == SYRINX_ERR_INVALID_ARGUMENT);
}

TEST_CASE("every status has a name") {
    for (int i = SYRINX_OK; i <= SYRINX_ERR_INTERNAL; ++i) {
        CHECK(std::string(syrinx_status_name(i)).rfind("SYRINX_", 0) == 0);
    }
    CHECK(std::string(syrinx_status_name(99)) == "unknown status");
}

TEST_CASE("closed, foreign and mistyped handles are answered, not read") {
    TestEngine engine;
    const TestModel model(engine, tiny("qwen3-a"));
    TestContext context(model);
    CHECK(syrinx_context_reset(nullptr) == SYRINX_ERR_CLOSED);
    CHECK(syrinx_context_reset(reinterpret_cast<syrinx_context *>(0x1234567)) == SYRINX_ERR_CLOSED);
    CHECK(syrinx_context_reset(reinterpret_cast<syrinx_context *>(model.handle)) == SYRINX_ERR_CLOSED);
    syrinx_context_close(reinterpret_cast<syrinx_context *>(model.handle));  // not a context: nothing happens
    CHECK(syrinx_context_reset(context.handle) == SYRINX_OK);
    syrinx_context_close(context.handle);
    syrinx_context_close(context.handle);
    CHECK(syrinx_context_reset(context.handle) == SYRINX_ERR_CLOSED);
    CHECK(syrinx_context_cancel(context.handle) == SYRINX_ERR_CLOSED);
    CHECK(syrinx_context_n_vocab(context.handle) == 0);
    CHECK(std::string(syrinx_last_error(context.handle)).find("closed") != std::string::npos);
}

TEST_CASE("handles close in any order, and contexts outlive their model's and engine's handles") {
    syrinx_engine * engine = nullptr;
    syrinx_engine * other = nullptr;
    syrinx_model * model = nullptr;
    syrinx_context * context = nullptr;
    REQUIRE(syrinx_engine_create(SYRINX_ABI_VERSION, nullptr, nullptr, &engine) == SYRINX_OK);
    REQUIRE(syrinx_engine_create(SYRINX_ABI_VERSION, nullptr, nullptr, &other) == SYRINX_OK);
    REQUIRE(syrinx_model_open(engine, tiny("llama-a").c_str(), nullptr, &model) == SYRINX_OK);
    const syrinx_context_params params = test_params();
    REQUIRE(syrinx_context_open(model, &params, &context) == SYRINX_OK);
    syrinx_engine_close(engine);
    syrinx_model_close(model);
    float logits[4096];
    REQUIRE(syrinx_context_n_vocab(context) <= 4096);
    CHECK(syrinx_decode_token(context, 3, logits, nullptr) == SYRINX_OK);
    syrinx_engine_close(other);
    CHECK(syrinx_decode_token(context, 4, logits, nullptr) == SYRINX_OK);
    syrinx_context_close(context);
}

TEST_CASE("structs of another size are an ABI error that names them") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-a"));
    syrinx_context_params params = test_params();
    params.struct_size -= 4;
    syrinx_context * context = nullptr;
    CHECK(syrinx_context_open(model.handle, &params, &context) == SYRINX_ERR_ABI);
    CHECK(context == nullptr);
    CHECK(std::string(syrinx_last_error(model.handle)).find("struct_size") != std::string::npos);
    syrinx_model_facts facts = {};
    CHECK(syrinx_model_get_facts(model.handle, &facts) == SYRINX_ERR_ABI);
}

TEST_CASE("options out of range are named") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-a"));
    const auto refused = [&](const char * name, auto && change) {
        syrinx_context_params params = test_params();
        change(params);
        syrinx_context * context = nullptr;
        CHECK_MESSAGE(syrinx_context_open(model.handle, &params, &context) == SYRINX_ERR_INVALID_ARGUMENT, name);
        CHECK_MESSAGE(std::string(syrinx_last_error(model.handle)).find(name) != std::string::npos,
                      std::string(syrinx_last_error(model.handle)));
    };
    refused("n_ctx", [](auto & p) { p.n_ctx = -1; });
    refused("n_batch", [](auto & p) { p.n_batch = 0; });
    refused("n_outputs", [](auto & p) { p.n_outputs = 0; });
    refused("n_seq_max", [](auto & p) { p.n_seq_max = 1 << 20; });
    refused("n_threads", [](auto & p) { p.n_threads = -2; });
    refused("flash_attention", [](auto & p) { p.flash_attention = 9; });
    refused("full_swa", [](auto & p) { p.full_swa = -1; });
    refused("poll", [](auto & p) { p.poll = 101; });
    refused("type_k", [](auto & p) { p.type_k = 77; });
    refused("type_v", [](auto & p) { p.type_v = SYRINX_KV_Q8_0; });
}

TEST_CASE("texts and token lists are sized first, and a small buffer is said so") {
    TestEngine engine;
    const TestModel model(engine, tiny("llama-a"));
    size_t size = 0;
    REQUIRE(syrinx_model_get_facts_json(model.handle, nullptr, &size) == SYRINX_OK);
    REQUIRE(size > 100);
    std::string json(size, '?');
    size_t small = size - 1;
    CHECK(syrinx_model_get_facts_json(model.handle, &json[0], &small) == SYRINX_ERR_BUFFER_TOO_SMALL);
    CHECK(small == size);
    CHECK(syrinx_model_get_facts_json(model.handle, &json[0], &size) == SYRINX_OK);
    CHECK(json.back() == '\0');
    CHECK(json.find("\"architecture\":\"llama\"") != std::string::npos);

    int32_t n = 0;
    REQUIRE(syrinx_tokenize(model.handle, "hello", 5, 0, 0, nullptr, &n) == SYRINX_OK);
    REQUIRE(n > 0);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    int32_t few = n - 1;
    CHECK(syrinx_tokenize(model.handle, "hello", 5, 0, 0, tokens.data(), &few) == SYRINX_ERR_BUFFER_TOO_SMALL);
    CHECK(syrinx_tokenize(model.handle, "hello", 5, 0, 0, tokens.data(), &n) == SYRINX_OK);
    char text[64];
    size_t bytes = sizeof text;
    REQUIRE(syrinx_detokenize(model.handle, tokens.data(), n, 0, text, &bytes) == SYRINX_OK);
    CHECK(std::string(text, bytes) == "hello");
    CHECK(syrinx_tokenize(model.handle, "a", SIZE_MAX, 0, 0, nullptr, &n) == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(syrinx_detokenize(model.handle, tokens.data(), -1, 0, text, &bytes) == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(syrinx_tokenize(model.handle, "a\xff", 2, 0, 0, nullptr, &n) == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(std::string(syrinx_last_error(model.handle)).find("byte 1") != std::string::npos);
}

TEST_CASE("a model without a tokenizer computes, and refuses text instead of aborting") {
    TestEngine engine;
    const TestModel model(engine, tiny("qwen3-none"));
    CHECK(model.facts.has_tokenizer == 0);
    int32_t n = 0;
    CHECK(syrinx_tokenize(model.handle, "a", 1, 0, 0, nullptr, &n) == SYRINX_ERR_UNSUPPORTED);
    const int32_t token = 1;
    size_t size = 0;
    CHECK(syrinx_detokenize(model.handle, &token, 1, 0, nullptr, &size) == SYRINX_ERR_UNSUPPORTED);
    const syrinx_message message = {"user", "hi"};
    CHECK(syrinx_apply_chat_template(model.handle, &message, 1, 1, nullptr, nullptr, nullptr, &n) ==
          SYRINX_ERR_UNSUPPORTED);
    TestContext context(model);
    CHECK(max_abs(context.prefill(model.tokens(9))) > 0);
}

TEST_CASE("opening what is no model is an error that names the file, and leaves nothing behind") {
    TestEngine engine;
    const std::string path = "/tmp/syrinx-abi-test-" + std::to_string(getpid());
    const auto status_of = [&](const std::string & bytes) {
        std::ofstream(path, std::ios::binary) << bytes;
        syrinx_model * model = nullptr;
        const syrinx_status status = syrinx_model_open(engine.handle, path.c_str(), nullptr, &model);
        CHECK(model == nullptr);
        CHECK(std::string(syrinx_last_error(engine.handle)).find(path) != std::string::npos);
        return status;
    };
    CHECK(status_of("") == SYRINX_ERR_BAD_MODEL);
    CHECK(status_of("<!DOCTYPE html><html>404</html>") == SYRINX_ERR_BAD_MODEL);
    CHECK(status_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n") == SYRINX_ERR_BAD_MODEL);
    const std::string sound = read_file(tiny("llama-a"));
    REQUIRE(sound.size() > 1000);
    CHECK(status_of(sound.substr(0, sound.size() - 1)) == SYRINX_ERR_BAD_MODEL);
    CHECK(status_of(sound.substr(0, sound.size() / 2)) == SYRINX_ERR_BAD_MODEL);
    std::remove(path.c_str());
    syrinx_model * model = nullptr;
    CHECK(syrinx_model_open(engine.handle, path.c_str(), nullptr, &model) == SYRINX_ERR_NOT_FOUND);
    CHECK(syrinx_model_open(engine.handle, nullptr, nullptr, &model) == SYRINX_ERR_INVALID_ARGUMENT);
}

TEST_CASE("loading reports progress and can be cancelled") {
    TestEngine engine;
    syrinx_model_params params;
    syrinx_model_default_params(&params);
    std::vector<float> seen;
    params.progress_user_data = &seen;
    params.progress = [](const char * stage, float fraction, void * user) -> int32_t {
        CHECK(std::string(stage) == "load");
        static_cast<std::vector<float> *>(user)->push_back(fraction);
        return 0;
    };
    syrinx_model * model = nullptr;
    REQUIRE(syrinx_model_open(engine.handle, tiny("llama-a").c_str(), &params, &model) == SYRINX_OK);
    syrinx_model_close(model);
    REQUIRE(seen.size() >= 2);
    CHECK(seen.back() == 1.0f);
    params.progress = [](const char *, float, void *) -> int32_t { return 1; };
    CHECK(syrinx_model_open(engine.handle, tiny("llama-a").c_str(), &params, &model) == SYRINX_ERR_CANCELLED);
    CHECK(model == nullptr);
    CHECK(engine.n_errors_logged == 0);  // it was asked for
}

TEST_CASE("the newest engine hears llama.cpp's log, line by line, and none after it is closed") {
    struct Lines {
        std::vector<std::string> all;
    };
    const syrinx_log_callback log = [](syrinx_log_level, const char * message, void * user) {
        static_cast<Lines *>(user)->all.push_back(message);
    };
    Lines first, second;
    syrinx_engine * one = nullptr;
    syrinx_engine * two = nullptr;
    REQUIRE(syrinx_engine_create(SYRINX_ABI_VERSION, log, &first, &one) == SYRINX_OK);
    REQUIRE(syrinx_engine_create(SYRINX_ABI_VERSION, log, &second, &two) == SYRINX_OK);
    syrinx_model * model = nullptr;
    REQUIRE(syrinx_model_open(one, tiny("llama-a").c_str(), nullptr, &model) == SYRINX_OK);
    syrinx_model_close(model);
    CHECK(first.all.empty());
    REQUIRE(second.all.size() > 10);
    for (const std::string & line : second.all) {
        CHECK(line.find('\n') == std::string::npos);
    }
    syrinx_engine_close(two);
    const size_t heard = second.all.size();
    REQUIRE(syrinx_model_open(one, tiny("llama-a").c_str(), nullptr, &model) == SYRINX_OK);
    syrinx_model_close(model);
    CHECK(second.all.size() == heard);
    syrinx_engine_close(one);
}

TEST_CASE("devices are listed, the CPU among them") {
    TestEngine engine;
    size_t size = 0;
    REQUIRE(syrinx_engine_devices(engine.handle, nullptr, &size) == SYRINX_OK);
    std::string json(size, '\0');
    REQUIRE(syrinx_engine_devices(engine.handle, &json[0], &size) == SYRINX_OK);
    CHECK(json.find("\"type\":\"cpu\"") != std::string::npos);
}

TEST_CASE("an unknown device is refused with the ones there are") {
    TestEngine engine;
    syrinx_model_params params;
    syrinx_model_default_params(&params);
    params.device = "Vulkan77";
    syrinx_model * model = nullptr;
    CHECK(syrinx_model_open(engine.handle, tiny("llama-a").c_str(), &params, &model) == SYRINX_ERR_INVALID_ARGUMENT);
    CHECK(std::string(syrinx_last_error(engine.handle)).find("CPU") != std::string::npos);
}

TEST_CASE("facts say what the loaded model is") {
    TestEngine engine;
    const auto structure = [&](const char * name) { return TestModel(engine, tiny(name)).facts.structure; };
    CHECK(structure("llama-a") == SYRINX_DENSE);
    CHECK(structure("falcon-h1-a") == SYRINX_HYBRID);
    CHECK(structure("qwen3next-a") == SYRINX_HYBRID);
    CHECK(structure("qwen35-a") == SYRINX_HYBRID);
    CHECK(structure("mamba-a") == SYRINX_RECURRENT);
    CHECK(TestModel(engine, tiny("qwen35-a")).facts.rope == SYRINX_ROPE_IMROPE);
    CHECK(TestModel(engine, tiny("llama-a")).facts.rope == SYRINX_ROPE_NORM);
    CHECK(TestModel(engine, tiny("qwen3-a")).facts.rope == SYRINX_ROPE_NEOX);
    const TestModel gemma(engine, tiny("gemma3-a"));
    CHECK(gemma.facts.n_swa > 0);
    CHECK(gemma.facts.embedding_scale == SYRINX_SCALE_TOKENS_ONLY);
    CHECK(TestModel(engine, tiny("falcon-h1-a")).facts.embedding_scale == SYRINX_SCALE_FOLDED);
    CHECK(TestModel(engine, tiny("llama-a")).facts.fingerprint != TestModel(engine, tiny("llama-b")).facts.fingerprint);
}

TEST_CASE("a failed check inside llama.cpp is thrown on a guarded thread") {
    const syrinx::AbortGuard guard;
    syrinx::start_runtime();
    try {
        GGML_ASSERT(1 == 2 && "planted");
        FAIL("the check did not throw");
    } catch (const syrinx::Error & e) {
        CHECK(e.status() == SYRINX_ERR_INTERNAL);
        CHECK(std::string(e.what()).find("planted") != std::string::npos);
    }
}

TEST_SUITE_END();
