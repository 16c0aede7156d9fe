#include "backbone/model.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "backbone/runtime.h"
#include "core/error.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

namespace syrinx {

namespace {

struct LoadProgress {
    const Progress * report;
    bool cancelled;
};

bool on_load_progress(float fraction, void * user_data) {
    auto * state = static_cast<LoadProgress *>(user_data);
    if (*state->report && !(*state->report)(fraction)) {
        state->cancelled = true;
    }
    return !state->cancelled;
}

// The device called `name`; nullptr for the CPU, which llama.cpp wants left out of its list.
ggml_backend_dev_t find_device(const std::string & name) {
    if (name.empty() || name == "CPU") {
        return nullptr;
    }
    ggml_backend_dev_t device = ggml_backend_dev_by_name(name.c_str());
    if (!device) {
        std::string known;
        for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
            known += (i ? ", " : "") + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
        }
        fail(SYRINX_ERR_INVALID_ARGUMENT, "there is no device '%s' here; the devices are: %s", name.c_str(),
             known.c_str());
    }
    return device;
}

syrinx_rope to_rope(llama_rope_type type) {
    switch (type) {
        case LLAMA_ROPE_TYPE_NORM:   return SYRINX_ROPE_NORM;
        case LLAMA_ROPE_TYPE_NEOX:   return SYRINX_ROPE_NEOX;
        case LLAMA_ROPE_TYPE_MROPE:  return SYRINX_ROPE_MROPE;
        case LLAMA_ROPE_TYPE_IMROPE: return SYRINX_ROPE_IMROPE;
        case LLAMA_ROPE_TYPE_VISION: return SYRINX_ROPE_VISION;
        default:                     return SYRINX_ROPE_NONE;
    }
}

// Which architectures treat looked-up and given rows differently. The rest either scale neither or both in the graph
// (Gemma 1 and 2, Granite, MiniCPM, Grok), so that raw rows of the token table are right.
void set_embedding_scale(syrinx_model_facts & facts) {
    const std::string arch = facts.architecture;
    facts.embedding_scale = SYRINX_SCALE_NONE;
    facts.embedding_multiplier = 1.0f;
    if (arch == "gemma3" || arch == "gemma3n" || arch == "gemma4" || arch == "gemma-embedding") {
        facts.embedding_scale = SYRINX_SCALE_TOKENS_ONLY;
        facts.embedding_multiplier = std::sqrt(static_cast<float>(facts.n_embd));
    } else if (arch == "falcon-h1") {
        facts.embedding_scale = SYRINX_SCALE_FOLDED;
    }
}

llama_model_params to_llama(const syrinx_model_params & params, ggml_backend_dev_t * devices, LoadProgress & progress) {
    llama_model_params out = llama_model_default_params();
    out.devices = devices;
    out.n_gpu_layers = devices[0] ? params.n_gpu_layers : 0;
    out.load_mode = params.use_mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
    out.use_extra_bufts = params.use_repack != 0;
    out.check_tensors = params.check_tensors != 0;
    out.progress_callback = on_load_progress;
    out.progress_callback_user_data = &progress;
    return out;
}

}  // namespace

std::shared_ptr<Model> Model::open(const std::string & path, const syrinx_model_params & params,
                                   const Progress & progress) {
    std::shared_ptr<Model> self(new Model);
    self->file_ = check_gguf(path);
    self->path_ = path;
    self->device_ = params.device && params.device[0] ? params.device : "CPU";

    start_runtime();
    ggml_backend_dev_t devices[2] = {find_device(self->device_), nullptr};
    LoadProgress state = {&progress, false};
    ErrorCapture errors([&state] { return state.cancelled; });
    AbortGuard guard;
    self->model_ = llama_model_load_from_file(path.c_str(), to_llama(params, devices, state));
    if (!self->model_) {
        if (state.cancelled) {
            fail(SYRINX_ERR_CANCELLED, "opening '%s' was cancelled", path.c_str());
        }
        const std::string cause = errors.text("no reason was logged");
        const bool memory = cause.find("alloc") != std::string::npos;
        fail(memory ? SYRINX_ERR_OUT_OF_MEMORY : SYRINX_ERR_BAD_MODEL, "llama.cpp could not load '%s': %s",
             path.c_str(), cause.c_str());
    }
    self->vocab_ = llama_model_get_vocab(self->model_);
    self->read_facts();
    return self;
}

Model::~Model() {
    if (model_) {
        llama_model_free(model_);
    }
}

void Model::read_facts() {
    syrinx_model_facts & f = facts_;
    f.struct_size = sizeof f;
    std::snprintf(f.architecture, sizeof f.architecture, "%s", file_.architecture.c_str());
    f.structure = llama_model_is_recurrent(model_) ? SYRINX_RECURRENT
                  : llama_model_is_hybrid(model_)  ? SYRINX_HYBRID
                                                   : SYRINX_DENSE;
    f.rope = to_rope(llama_model_rope_type(model_));
    f.n_layer = llama_model_n_layer(model_);
    f.n_embd = llama_model_n_embd_inp(model_);
    f.n_embd_out = llama_model_n_embd_out(model_);
    f.n_head = llama_model_n_head(model_);
    f.n_head_kv = llama_model_n_head_kv(model_);
    f.n_vocab = llama_vocab_n_tokens(vocab_);
    f.n_ctx_train = llama_model_n_ctx_train(model_);
    f.n_swa = llama_model_n_swa(model_);
    f.has_tokenizer = llama_vocab_type(vocab_) != LLAMA_VOCAB_TYPE_NONE;
    f.has_chat_template = llama_model_chat_template(model_, nullptr) != nullptr;
    f.n_params = llama_model_n_params(model_);
    f.n_bytes = 0;
    for (const GgufTensor & tensor : file_.tensors) {
        f.n_bytes += tensor.bytes;
    }
    f.fingerprint = file_.header_xxh64;
    set_embedding_scale(f);
}

int Model::positions_per_row() const {
    const bool several =
        facts_.rope == SYRINX_ROPE_MROPE || facts_.rope == SYRINX_ROPE_IMROPE || facts_.rope == SYRINX_ROPE_VISION;
    return several ? 4 : 1;
}

void Model::require_tokenizer() const {
    if (!facts_.has_tokenizer) {
        fail(SYRINX_ERR_UNSUPPORTED,
             "'%s' has no tokenizer (tokenizer.ggml.model is \"none\" or missing): give token "
             "ids or embedding rows instead of text",
             path_.c_str());
    }
}

void Model::embed_tokens(const int32_t * tokens, int32_t n, float * embds) const {
    const GgufTensor * table = nullptr;
    for (const GgufTensor & tensor : file_.tensors) {
        if (tensor.name == "token_embd.weight") {
            table = &tensor;
        }
    }
    if (!table || table->ne[0] != facts_.n_embd) {
        fail(SYRINX_ERR_UNSUPPORTED, "'%s' holds no token_embd.weight with rows of %d values to look ids up in",
             path_.c_str(), facts_.n_embd);
    }
    const ggml_type_traits * traits = ggml_get_type_traits(table->type);
    if (table->type != GGML_TYPE_F32 && !traits->to_float) {
        fail(SYRINX_ERR_UNSUPPORTED, "rows of type %s cannot be expanded", traits->type_name);
    }
    const size_t width = static_cast<size_t>(facts_.n_embd);
    const size_t row_bytes = ggml_row_size(table->type, table->ne[0]);
    // Read through the file rather than llama.cpp's tensor: it may lie on an accelerator, or in a repacked layout.
    std::unique_ptr<FILE, int (*)(FILE *)> in(std::fopen(path_.c_str(), "rb"), &std::fclose);
    if (!in) {
        fail(SYRINX_ERR_IO, "cannot read '%s' again: %s", path_.c_str(), std::strerror(errno));
    }
    std::vector<uint8_t> row(row_bytes);
    for (int32_t i = 0; i < n; ++i) {
        if (tokens[i] < 0 || tokens[i] >= table->ne[1]) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "token %d at index %d is outside the table's %lld rows", tokens[i], i,
                 static_cast<long long>(table->ne[1]));
        }
        const uint64_t offset = file_.data_offset + table->offset + row_bytes * static_cast<uint64_t>(tokens[i]);
        if (fseeko(in.get(), static_cast<off_t>(offset), SEEK_SET) != 0 ||
            std::fread(row.data(), 1, row_bytes, in.get()) != row_bytes) {
            fail(SYRINX_ERR_IO, "'%s' became shorter since it was opened", path_.c_str());
        }
        float * out = embds + width * static_cast<size_t>(i);
        if (table->type == GGML_TYPE_F32) {
            std::memcpy(out, row.data(), row_bytes);
        } else {
            traits->to_float(row.data(), out, table->ne[0]);
        }
        for (size_t j = 0; j < width; ++j) {
            out[j] *= facts_.embedding_multiplier;
        }
    }
}

}  // namespace syrinx
