#include "backbone/probe.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "core/error.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"

namespace syrinx {

void Probe::capture(const std::string & stage, const ggml_tensor * tensor, bool replace) {
    if (tensor->type != GGML_TYPE_F32 || ggml_nrows(tensor) != tensor->ne[1] || !ggml_is_contiguous(tensor)) {
        return;  // not the [width, rows] result of a stage, whatever its name
    }
    Rows & rows = captured_[stage];
    if (rows.width != 0 && rows.width != tensor->ne[0]) {
        return;
    }
    rows.width = tensor->ne[0];
    const size_t n = static_cast<size_t>(ggml_nelements(tensor));
    if (!replace || rows.values.size() < n) {
        rows.values.resize(rows.values.size() + n);
    }
    ggml_backend_tensor_get(tensor, rows.values.data() + rows.values.size() - n, 0, ggml_nbytes(tensor));
}

void Probe::add_rows(const std::string & stage, const float * rows, int64_t n, int64_t width) {
    Rows & kept = captured_[stage];
    kept.width = width;
    kept.values.insert(kept.values.end(), rows, rows + n * width);
}

int64_t Probe::n_rows(const std::string & stage) const {
    const auto found = captured_.find(stage);
    return found == captured_.end() ? 0 : static_cast<int64_t>(found->second.values.size()) / found->second.width;
}

void Probe::add_ids(const int32_t * tokens, int32_t n) { prompt_ids_.insert(prompt_ids_.end(), tokens, tokens + n); }

void Probe::write(const std::string & path, uint64_t fingerprint) const {
    struct Free {
        void operator()(gguf_context * c) const { gguf_free(c); }
        void operator()(ggml_context * c) const { ggml_free(c); }
    };
    std::unique_ptr<gguf_context, Free> out(gguf_init_empty());
    const size_t overhead = ggml_tensor_overhead() * (captured_.size() + 1);
    std::unique_ptr<ggml_context, Free> tensors(ggml_init({overhead, nullptr, /*no_alloc=*/true}));
    if (!out || !tensors) {
        fail(SYRINX_ERR_OUT_OF_MEMORY, "no memory to write the probe file '%s'", path.c_str());
    }
    gguf_set_val_u64(out.get(), "syrinx.model.fingerprint", fingerprint);
    gguf_set_val_str(out.get(), "syrinx.version", syrinx_version());
    if (!prompt_ids_.empty()) {
        gguf_set_arr_data(out.get(), "syrinx.prompt_ids", GGUF_TYPE_INT32, prompt_ids_.data(), prompt_ids_.size());
    }
    for (const auto & [stage, rows] : captured_) {
        const int64_t n_rows = static_cast<int64_t>(rows.values.size()) / rows.width;
        ggml_tensor * tensor = ggml_new_tensor_2d(tensors.get(), GGML_TYPE_F32, rows.width, n_rows);
        ggml_set_name(tensor, stage.c_str());
        tensor->data = const_cast<float *>(rows.values.data());
        gguf_add_tensor(out.get(), tensor);
    }
    const std::string temporary = format("%s.%d.part", path.c_str(), static_cast<int>(getpid()));
    if (!gguf_write_to_file(out.get(), temporary.c_str(), /*only_meta=*/false) ||
        std::rename(temporary.c_str(), path.c_str()) != 0) {
        const int error = errno;
        std::remove(temporary.c_str());
        fail(SYRINX_ERR_IO, "cannot write the probe file '%s': %s", path.c_str(), std::strerror(error));
    }
}

}  // namespace syrinx
