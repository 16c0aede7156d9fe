// A GGUF file's header and tables, read in place with every access checked. Structure only: what the numbers mean is
// gguf_check's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ggml.h"
#include "gguf.h"

namespace syrinx {

struct GgufTensor {
    std::string name;
    ggml_type type = GGML_TYPE_F32;
    int n_dims = 0;
    int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
    uint64_t offset = 0;  // in the data section
    uint64_t bytes = 0;
};

// One metadata value. Points into the bytes that the view was made of.
struct GgufValue {
    gguf_type type = GGUF_TYPE_UINT8;  // of the elements, for an array
    bool is_array = false;
    uint64_t n = 1;
    const uint8_t * data = nullptr;
    uint64_t bytes = 0;

    bool is_integer() const;
    // Element i as a number. Only for is_integer().
    int64_t integer(uint64_t i = 0) const;
    // Only for a scalar string.
    std::string_view text() const;
};

// Throws Error(BAD_MODEL or UNSUPPORTED) that names the file, the key or tensor, and the bytes missing.
class GgufView {
public:
    GgufView(const uint8_t * data, uint64_t size, std::string name);

    const std::string & name() const { return name_; }
    uint32_t version() const { return version_; }
    uint64_t alignment() const { return alignment_; }
    uint64_t data_offset() const { return data_offset_; }
    uint64_t size() const { return size_; }
    const uint8_t * data() const { return data_; }
    const std::vector<GgufTensor> & tensors() const { return tensors_; }

    const GgufValue * find(const std::string & key) const;
    const std::unordered_map<std::string, GgufValue> & values() const { return values_; }

private:
    template <class T> T read(const char * what);
    std::string_view read_string(const char * what);
    void require(uint64_t bytes, const char * what) const;
    void check_magic() const;
    void read_values(int64_t n);
    GgufValue read_value(const std::string & key);
    void read_alignment();
    void read_tensors(int64_t n);
    GgufTensor read_tensor(int64_t index);
    void place_tensors();

    const uint8_t * data_;
    uint64_t size_;
    uint64_t at_ = 0;
    std::string name_;
    uint32_t version_ = 0;
    uint64_t alignment_ = 32;
    uint64_t data_offset_ = 0;
    std::unordered_map<std::string, GgufValue> values_;
    std::vector<GgufTensor> tensors_;
};

}  // namespace syrinx
