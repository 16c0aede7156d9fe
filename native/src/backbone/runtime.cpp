#include "backbone/runtime.h"

#include <cstdio>

#include "backbone/cpu_variant.h"
#include "core/error.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

namespace syrinx {

namespace {

std::mutex sink_mutex;
std::shared_ptr<LogSink> current_sink;

thread_local ErrorCapture * error_capture = nullptr;
thread_local int abort_guards = 0;

syrinx_log_level to_level(ggml_log_level level) {
    switch (level) {
        case GGML_LOG_LEVEL_ERROR: return SYRINX_LOG_ERROR;
        case GGML_LOG_LEVEL_WARN:  return SYRINX_LOG_WARN;
        case GGML_LOG_LEVEL_INFO:  return SYRINX_LOG_INFO;
        default:                   return SYRINX_LOG_DEBUG;
    }
}

void write_line(syrinx_log_level level, const std::string & line) {
    std::shared_ptr<LogSink> sink;
    {
        std::lock_guard<std::mutex> lock(sink_mutex);
        sink = current_sink;
    }
    if (sink) {
        sink->write(level, line);
    }
}

}  // namespace

// Whether the line tells of a failure that nobody asked for.
bool capture_error(const std::string & line) {
    if (!error_capture) {
        return true;
    }
    if (error_capture->first_.empty()) {
        error_capture->first_ = line;
    }
    return !error_capture->expected_ || !error_capture->expected_();
}

// llama.cpp logs in pieces; whole lines are put together per thread.
static void on_llama_log(ggml_log_level level, const char * text, void *) {
    thread_local std::string pending;
    thread_local ggml_log_level pending_level = GGML_LOG_LEVEL_INFO;
    if (level != GGML_LOG_LEVEL_CONT) {
        pending_level = level;
    }
    pending += text;
    size_t end;
    while ((end = pending.find('\n')) != std::string::npos) {
        const std::string line = pending.substr(0, end);
        pending.erase(0, end + 1);
        const bool asked_for = pending_level == GGML_LOG_LEVEL_ERROR && !capture_error(line);
        write_line(asked_for ? SYRINX_LOG_DEBUG : to_level(pending_level), line);
    }
}

static void on_ggml_abort(const char * message) {
    write_line(SYRINX_LOG_ERROR, message);
    if (abort_guards > 0) {
        throw Error(SYRINX_ERR_INTERNAL, std::string("llama.cpp stopped at a failed check: ") + message);
    }
    std::fprintf(stderr, "%s\n", message);
}

void LogSink::write(syrinx_log_level level, const std::string & line) {
    if (callback_) {
        std::lock_guard<std::mutex> lock(mutex_);
        callback_(level, line.c_str(), user_data_);
    }
}

void start_runtime() {
    // No call_once: its exceptions would have to pass the C library's frames.
    static std::mutex mutex;
    static bool started = false;
    std::lock_guard<std::mutex> lock(mutex);
    if (!started) {
        llama_log_set(on_llama_log, nullptr);
        ggml_set_abort_callback(on_ggml_abort);
        load_cpu_variant();
        llama_backend_init();
        started = true;
    }
}

void * cpu_function(const char * name) {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    void * address = device ? ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), name) : nullptr;
    if (!address) {
        fail(SYRINX_ERR_INTERNAL, "the CPU backend has no function '%s'", name);
    }
    return address;
}

void set_log_sink(std::shared_ptr<LogSink> sink) {
    std::lock_guard<std::mutex> lock(sink_mutex);
    current_sink = std::move(sink);
}

void remove_log_sink(const std::shared_ptr<LogSink> & sink) {
    std::lock_guard<std::mutex> lock(sink_mutex);
    if (current_sink == sink) {
        current_sink.reset();
    }
}

ErrorCapture::ErrorCapture(std::function<bool()> expected) : outer_(error_capture), expected_(std::move(expected)) {
    error_capture = this;
}

ErrorCapture::~ErrorCapture() { error_capture = outer_; }

std::string ErrorCapture::text(const std::string & otherwise) const { return first_.empty() ? otherwise : first_; }

AbortGuard::AbortGuard() { ++abort_guards; }
AbortGuard::~AbortGuard() { --abort_guards; }

}  // namespace syrinx
