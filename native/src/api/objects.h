// The four kinds of object behind the handles.
#pragma once

#include <algorithm>
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

// Copies n items out as the header describes for sized results: `*size` receives what is needed, `out` may be NULL to
// ask for that only.
template <class T, class Size>
void write_sized(const T * items, size_t n, T * out, Size * size, const char * unit) {
    const size_t capacity = static_cast<size_t>(*size);
    *size = static_cast<Size>(n);
    if (!out) {
        return;
    }
    if (capacity < n) {
        fail(SYRINX_ERR_BUFFER_TOO_SMALL, "%zu %s are needed, the buffer has %zu", n, unit, capacity);
    }
    std::copy(items, items + n, out);
}

// With a final NUL: JSON and prompts.
inline void write_text(const std::string & text, char * out, size_t * size) {
    require_pointer(size, "size");
    write_sized(text.c_str(), text.size() + 1, out, size, "bytes");
}

inline void write_tokens(const std::vector<int32_t> & tokens, int32_t * out, int32_t * n) {
    require_pointer(n, "n");
    write_sized(tokens.data(), tokens.size(), out, n, "tokens");
}

}  // namespace syrinx
