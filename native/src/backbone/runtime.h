// What llama.cpp keeps once per process: start-up, its one log sink, and its abort callback.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "syrinx/syrinx.h"

namespace syrinx {

// Where log lines go. Calls of one sink never overlap.
class LogSink {
public:
    LogSink(syrinx_log_callback callback, void * user_data) : callback_(callback), user_data_(user_data) {}
    void write(syrinx_log_level level, const std::string & line);

private:
    std::mutex mutex_;
    syrinx_log_callback callback_;
    void * user_data_;
};

// Starts llama.cpp's backends; the first call does the work, and one that failed is tried anew.
// Errors: UNSUPPORTED (no CPU variant for this processor, see cpu_variant.h).
void start_runtime();

// A function of the CPU backend, which may be a module that nothing is linked with.
void * cpu_function(const char * name);

// llama.cpp's lines go to `sink` from now on (the newest wins); removing one that is not current does nothing.
void set_log_sink(std::shared_ptr<LogSink> sink);
void remove_log_sink(const std::shared_ptr<LogSink> & sink);

// Collects what llama.cpp logs as errors on this thread while it lives, for the text of our own error.
class ErrorCapture {
public:
    ErrorCapture() : ErrorCapture(nullptr) {}
    // While `expected` says so, errors are what was asked for (a cancel): they reach the log as debug lines.
    explicit ErrorCapture(std::function<bool()> expected);
    ~ErrorCapture();
    ErrorCapture(const ErrorCapture &) = delete;
    ErrorCapture & operator=(const ErrorCapture &) = delete;
    // The first error line (the cause; later ones only wrap it), or `otherwise` if there was none.
    std::string text(const std::string & otherwise) const;

private:
    friend bool capture_error(const std::string & line);
    ErrorCapture * outer_;
    std::function<bool()> expected_;
    std::string first_;
};

// While one lives, a failed GGML_ASSERT or GGML_ABORT on this thread throws Error(SYRINX_ERR_INTERNAL) instead of
// ending the process. The second line of defence behind our own checks, for code that is built to unwind: loading a
// model, creating a context, tokenizing, saving and loading state. Not for computing: there other threads wait at a
// barrier for the one that throws.
class AbortGuard {
public:
    AbortGuard();
    ~AbortGuard();
    AbortGuard(const AbortGuard &) = delete;
    AbortGuard & operator=(const AbortGuard &) = delete;
};

}  // namespace syrinx
