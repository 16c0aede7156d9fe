// Facts as JSON, for people and for the Python side.
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "backbone/cpu_variant.h"
#include "backbone/model.h"
#include "backbone/runtime.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "llama.h"

namespace syrinx {

using Json = nlohmann::ordered_json;

// Longer values (templates, vocabularies printed as arrays) are left out of "metadata".
static constexpr size_t kMaxMetadataValue = 256;

static const char * device_type_name(enum ggml_backend_dev_type type) {
    switch (type) {
        case GGML_BACKEND_DEVICE_TYPE_CPU:  return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU:  return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU: return "igpu";
        default:                            return "accel";
    }
}

static std::string dump(const Json & json) {
    // A damaged string in a model's metadata must not make its facts unreadable.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string devices_json() {
    start_runtime();
    Json list = Json::array();
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        size_t free_bytes = 0;
        size_t total_bytes = 0;
        ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
        list.push_back({{"name", ggml_backend_dev_name(device)},
                        {"description", ggml_backend_dev_description(device)},
                        {"type", device_type_name(ggml_backend_dev_type(device))},
                        {"memory_total", total_bytes},
                        {"memory_free", free_bytes}});
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
            list.back()["cpu_variant"] = cpu_variant();
        }
    }
    return dump(list);
}

static Json bytes_by_type(const GgufSummary & file) {
    struct TypeTotal {
        uint64_t tensors = 0, params = 0, bytes = 0;
    };
    std::map<std::string, TypeTotal> totals;
    for (const GgufTensor & tensor : file.tensors) {
        uint64_t params = 1;
        for (int64_t n : tensor.ne) {
            params *= static_cast<uint64_t>(n);
        }
        TypeTotal & total = totals[ggml_type_name(tensor.type)];
        total.tensors += 1;
        total.params += params;
        total.bytes += tensor.bytes;
    }
    Json types = Json::object();
    for (const auto & [name, total] : totals) {
        types[name] = {{"tensors", total.tensors}, {"params", total.params}, {"bytes", total.bytes}};
    }
    return types;
}

static Json metadata(const llama_model * model) {
    Json out = Json::object();
    for (int32_t i = 0; i < llama_model_meta_count(model); ++i) {
        char key[256];
        char value[kMaxMetadataValue];
        const int32_t key_size = llama_model_meta_key_by_index(model, i, key, sizeof key);
        const int32_t size = llama_model_meta_val_str_by_index(model, i, value, sizeof value);
        if (key_size > 0 && size >= 0 && static_cast<size_t>(size) < sizeof value) {
            out[key] = value;
        }
    }
    return out;
}

std::string facts_json(const Model & model) {
    static const char * const structures[] = {"dense", "recurrent", "hybrid"};
    static const char * const ropes[] = {"none", "norm", "neox", "mrope", "imrope", "vision"};
    static const char * const scales[] = {"none", "tokens_only", "folded"};
    const syrinx_model_facts & f = model.facts();
    char fingerprint[17];
    std::snprintf(fingerprint, sizeof fingerprint, "%016llx", static_cast<unsigned long long>(f.fingerprint));
    const Json json = {
        {"path", model.path()},
        {"architecture", f.architecture},
        {"structure", structures[f.structure]},
        {"rope", ropes[f.rope]},
        {"n_layer", f.n_layer},
        {"n_embd", f.n_embd},
        {"n_embd_out", f.n_embd_out},
        {"n_head", f.n_head},
        {"n_head_kv", f.n_head_kv},
        {"n_vocab", f.n_vocab},
        {"n_ctx_train", f.n_ctx_train},
        {"n_swa", f.n_swa},
        {"has_tokenizer", f.has_tokenizer != 0},
        {"has_chat_template", f.has_chat_template != 0},
        {"embedding_scale", scales[f.embedding_scale]},
        {"embedding_multiplier", f.embedding_multiplier},
        {"n_params", f.n_params},
        {"n_bytes", f.n_bytes},
        {"fingerprint", fingerprint},
        {"device", model.device()},
        {"bytes_by_type", bytes_by_type(model.file())},
        {"metadata", metadata(model.get())},
    };
    return dump(json);
}

}  // namespace syrinx
