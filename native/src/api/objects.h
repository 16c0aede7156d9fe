// The four kinds of object behind the handles.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "api/handle.h"
#include "backbone/context.h"
#include "backbone/model.h"
#include "backbone/runtime.h"
#include "core/sampler.h"

namespace syrinx {

class EngineObject : public Object {
public:
    static constexpr Kind kKind = Kind::kEngine;
    explicit EngineObject(std::shared_ptr<LogSink> sink) : Object(kKind, false), sink_(std::move(sink)) {
        start_runtime();
        set_log_sink(sink_);
    }
    ~EngineObject() override { remove_log_sink(sink_); }
    // Ends the opens that are under way.
    void cancel() override { cancelled_ = true; }
    bool cancelled() const { return cancelled_; }

private:
    std::shared_ptr<LogSink> sink_;
    std::atomic<bool> cancelled_{false};
};

class ModelObject : public Object {
public:
    static constexpr Kind kKind = Kind::kModel;
    explicit ModelObject(std::shared_ptr<Model> opened) : Object(kKind, false), model(std::move(opened)) {}
    const std::shared_ptr<Model> model;
};

class ContextObject : public Object {
public:
    static constexpr Kind kKind = Kind::kContext;
    ContextObject(std::shared_ptr<Model> model, const syrinx_context_params & params)
        : Object(kKind, true), context(std::move(model), params) {}
    void cancel() override { context.cancel(); }
    void arm() override {
        context.arm();
        if (closed()) {
            context.cancel();  // closed between entering and here
        }
    }
    Context context;
};

class SamplerObject : public Object {
public:
    static constexpr Kind kKind = Kind::kSampler;
    explicit SamplerObject(const syrinx_sampler_params & params) : Object(kKind, true), sampler(params) {}
    Sampler sampler;
};

// Argument checks that every function shares.

inline void require_pointer(const void * pointer, const char * name) {
    if (!pointer) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    }
}

inline void require_count(int32_t n) {
    if (n < 0) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "n is %d; it cannot be negative", n);
    }
}

// 0 or 1, so that a misplaced number is noticed.
inline void require_flag(const char * option, int32_t value) {
    if (value != 0 && value != 1) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "%s is %d; it must be 0 or 1", option, value);
    }
}

// A struct from a caller that was compiled with another header has another size.
template <class T>
void require_struct(const T * params, const char * name) {
    require_pointer(params, name);
    if (params->struct_size != sizeof(T)) {
        fail(SYRINX_ERR_ABI,
             "%s.struct_size is %u, this library expects %zu: initialise it with the default-params "
             "function, and compile against the header that came with the library",
             name, params->struct_size, sizeof(T));
    }
}

// Writes `text` with a final NUL as the header describes for JSON and error texts.
inline void write_text(const std::string & text, char * out, size_t * size) {
    require_pointer(size, "size");
    const size_t needed = text.size() + 1;
    const size_t capacity = *size;
    *size = needed;
    if (!out) {
        return;
    }
    if (capacity < needed) {
        fail(SYRINX_ERR_BUFFER_TOO_SMALL, "%zu bytes are needed, the buffer has %zu", needed, capacity);
    }
    std::memcpy(out, text.c_str(), needed);
}

inline void write_tokens(const std::vector<int32_t> & tokens, int32_t * out, int32_t * n) {
    require_pointer(n, "n");
    const int32_t needed = static_cast<int32_t>(tokens.size());
    const int32_t capacity = *n;
    *n = needed;
    if (!out) {
        return;
    }
    if (capacity < needed) {
        fail(SYRINX_ERR_BUFFER_TOO_SMALL, "%d tokens are needed, the buffer has %d", needed, capacity);
    }
    std::copy(tokens.begin(), tokens.end(), out);
}

}  // namespace syrinx
