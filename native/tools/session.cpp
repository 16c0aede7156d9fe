#include "session.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <unistd.h>

const std::vector<std::string> session_options = {"device", "gpu-layers", "threads", "threads-batch",   "poll",
                                                  "ctx",    "batch",      "kv",      "flash-attention", "mmap",
                                                  "repack", "verbosity"};

void check(syrinx_status status, const void * handle) {
    if (status != SYRINX_OK) {
        throw CallError(status, syrinx_last_error(handle));
    }
}

static int log_threshold = SYRINX_LOG_WARN;

static void on_log(syrinx_log_level level, const char * message, void *) {
    if (static_cast<int>(level) >= log_threshold) {
        std::fprintf(stderr, "%s\n", message);
    }
}

Engine::Engine() {
    const syrinx_status status = syrinx_engine_create(SYRINX_ABI_VERSION, on_log, nullptr, &handle);
    if (status != SYRINX_OK) {
        throw CallError(status, "the library and this program were built from different headers");
    }
}

// Calls a sizing function twice: for the size, then for the text.
template <class F>
static std::string sized_text(const void * handle, F && get) {
    size_t size = 0;
    check(get(nullptr, &size), handle);
    std::string text(size, '\0');
    check(get(&text[0], &size), handle);
    text.resize(size - 1);
    return text;
}

template <class F>
static std::vector<int32_t> sized_tokens(const void * handle, F && get) {
    int32_t n = 0;
    check(get(nullptr, &n), handle);
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    check(get(tokens.data(), &n), handle);
    return tokens;
}

Json Engine::devices() const {
    return Json::parse(
        sized_text(handle, [&](char * out, size_t * size) { return syrinx_engine_devices(handle, out, size); }));
}

std::string Engine::cpu_variant() const {
    for (const Json & device : devices()) {
        if (device.contains("cpu_variant")) {
            return device["cpu_variant"];
        }
    }
    return "";
}

// A bar on stderr for a person; a pipe gets none.
static int32_t on_progress(const char * stage, float fraction, void *) {
    std::fprintf(stderr, "\r%s %3d %%%s", stage, static_cast<int>(fraction * 100.0f), fraction >= 1.0f ? "\n" : "");
    return 0;
}

Model::Model(const Engine & engine, const Args & args) {
    log_threshold = args.integer("verbosity", SYRINX_LOG_WARN);
    const std::string device = args.text("device");
    syrinx_model_params params;
    syrinx_model_default_params(&params);
    params.device = device.c_str();
    params.n_gpu_layers = args.integer("gpu-layers", params.n_gpu_layers);
    params.use_mmap = args.integer("mmap", params.use_mmap);
    params.use_repack = args.integer("repack", params.use_repack);
    params.progress = isatty(STDERR_FILENO) ? on_progress : nullptr;
    const double start = now_ms();
    check(syrinx_model_open(engine.handle, args.model().c_str(), &params, &handle), engine.handle);
    load_ms = now_ms() - start;
}

Json Model::facts() const {
    return Json::parse(
        sized_text(handle, [&](char * out, size_t * size) { return syrinx_model_get_facts_json(handle, out, size); }));
}

std::vector<int32_t> Model::tokenize(const std::string & text) const {
    return sized_tokens(handle, [&](int32_t * out, int32_t * n) {
        return syrinx_tokenize(handle, text.data(), text.size(), /*add_special=*/1, /*parse_special=*/1, out, n);
    });
}

std::vector<int32_t> Model::apply_chat_template(const std::vector<std::string> & messages) const {
    std::vector<std::pair<std::string, std::string>> parts;
    for (const std::string & message : messages) {
        const size_t equals = message.find('=');
        if (equals == std::string::npos) {
            throw UsageError("--message: '" + message + "' is not ROLE=TEXT");
        }
        parts.emplace_back(message.substr(0, equals), message.substr(equals + 1));
    }
    std::vector<syrinx_message> list;
    for (const auto & [role, content] : parts) {
        list.push_back({role.c_str(), content.c_str()});
    }
    return sized_tokens(handle, [&](int32_t * out, int32_t * n) {
        return syrinx_apply_chat_template(handle, list.data(), static_cast<int32_t>(list.size()), 1, nullptr, nullptr,
                                          out, n);
    });
}

static syrinx_kv_type parse_kv(const std::string & name) {
    static const char * const names[] = {"f16", "f32", "bf16", "q8_0", "q4_0"};
    for (int i = 0; i < 5; ++i) {
        if (name == names[i]) {
            return static_cast<syrinx_kv_type>(i);
        }
    }
    throw UsageError("--kv: '" + name + "' is none of f16, f32, bf16, q8_0, q4_0");
}

syrinx_context_params context_params(const Args & args) {
    syrinx_context_params params;
    syrinx_context_default_params(&params);
    params.n_ctx = args.integer("ctx", params.n_ctx);
    params.n_batch = args.integer("batch", params.n_batch);
    params.n_threads = args.integer("threads", params.n_threads);
    params.n_threads_batch = args.integer("threads-batch", params.n_threads_batch);
    params.poll = args.integer("poll", params.poll);
    params.flash_attention = args.integer("flash-attention", params.flash_attention);
    if (args.has("kv")) {
        params.type_k = params.type_v = parse_kv(args.text("kv"));
    }
    params.embeds_are_scaled = 1;  // this program's rows all come from syrinx_embed_tokens
    return params;
}

Context::Context(const Model & model, const syrinx_context_params & params) {
    check(syrinx_context_open(model.handle, &params, &handle), model.handle);
}

bool print_json(const Json & value) {
    std::printf("%s\n", value.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    return std::fflush(stdout) == 0;
}

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The high-water mark of this process. getrusage would do, but its value survives exec on Linux.
uint64_t peak_rss_bytes() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.rfind("VmHWM:", 0) == 0) {
            return std::stoull(line.substr(6)) * 1024;
        }
    }
    return 0;
}
