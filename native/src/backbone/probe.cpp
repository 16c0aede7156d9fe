#include "backbone/probe.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <sys/stat.h>
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

// Where a write to `path` ends up, links followed, after a look at what is there now.
static std::string resolve_output(const std::string & path, const std::string & model_path) {
    struct stat there, model;
    if (stat(path.c_str(), &there) != 0) {
        return path;
    }
    if (!S_ISREG(there.st_mode)) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "'%s' is a folder, device or pipe: give the name of a file", path.c_str());
    }
    if (stat(model_path.c_str(), &model) == 0 && model.st_dev == there.st_dev && model.st_ino == there.st_ino) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "'%s' is the model itself: give another name", path.c_str());
    }
    std::unique_ptr<char, void (*)(void *)> real(realpath(path.c_str(), nullptr), std::free);
    return real ? real.get() : path;
}

void Probe::write(const std::string & path, uint64_t fingerprint, const std::string & model_path) const {
    const std::string target = resolve_output(path, model_path);
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
    static std::atomic<unsigned> counter{0};  // two contexts may write at once
    const std::string temporary = format("%s.%d.%u.part", target.c_str(), static_cast<int>(getpid()), ++counter);
    if (!gguf_write_to_file(out.get(), temporary.c_str(), /*only_meta=*/false) ||
        std::rename(temporary.c_str(), target.c_str()) != 0) {
        const int error = errno;
        std::remove(temporary.c_str());
        fail(SYRINX_ERR_IO, "cannot write the probe file '%s': %s", path.c_str(), std::strerror(error));
    }
}

}  // namespace syrinx
