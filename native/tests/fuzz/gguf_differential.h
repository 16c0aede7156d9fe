// Whether ggml's own reader sees the same file as ours: what we accept it must accept, tensor for tensor.
#pragma once

#include <string>

#include "core/gguf_file.h"
#include "ggml.h"
#include "gguf.h"

namespace syrinx {

// "" or the first difference.
inline std::string differ_from_ggml(const GgufFile & file, const gguf_context * other) {
    if (gguf_get_version(other) != file.version() || gguf_get_alignment(other) != file.alignment() ||
        gguf_get_data_offset(other) != file.data_offset()) {
        return "version, alignment or data offset";
    }
    if (static_cast<size_t>(gguf_get_n_kv(other)) != file.n_keys() ||
        static_cast<size_t>(gguf_get_n_tensors(other)) != file.tensors().size()) {
        return "number of keys or tensors";
    }
    for (int64_t i = 0; i < gguf_get_n_kv(other); ++i) {
        const auto field = file.find(gguf_get_key(other, i));
        const bool is_array = gguf_get_kv_type(other, i) == GGUF_TYPE_ARRAY;
        const int type = is_array ? gguf_get_arr_type(other, i) : gguf_get_kv_type(other, i);
        if (!field || field->is_array() != is_array || static_cast<int>(field->type()) != type ||
            (is_array && field->size() != gguf_get_arr_n(other, i))) {
            return std::string("key ") + gguf_get_key(other, i);
        }
    }
    for (size_t i = 0; i < file.tensors().size(); ++i) {
        const GgufTensor & tensor = file.tensors()[i];
        const auto id = static_cast<int64_t>(i);
        if (tensor.name != gguf_get_tensor_name(other, id) || tensor.type != gguf_get_tensor_type(other, id) ||
            tensor.offset != gguf_get_tensor_offset(other, id) || tensor.bytes != gguf_get_tensor_size(other, id) ||
            file.data_offset() + tensor.offset + tensor.bytes > file.file_size()) {
            return "tensor " + tensor.name;
        }
    }
    return "";
}

inline std::string differ_from_ggml(const GgufFile & file, const void * data, size_t size) {
    ggml_context * tensors = nullptr;
    gguf_context * other = gguf_init_from_buffer(data, size, {/*.no_alloc =*/true, /*.ctx =*/&tensors});
    if (!other) {
        return "ggml refuses the file";
    }
    const std::string difference = differ_from_ggml(file, other);
    gguf_free(other);
    ggml_free(tensors);
    return difference;
}

}  // namespace syrinx
