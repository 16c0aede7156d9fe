// The header of a GGUF file: metadata and tensor table, read and proven sound before anything relies on them.
//
// What is accepted is what ggml's own reader accepts, or less: GGUF 2 and 3, little-endian; keys and tensor names unique
// and without NUL; no arrays of arrays; every tensor of a type that exists, with whole blocks in a row, right behind the
// one before it (padded to the alignment) and entirely inside the file. Beyond that there are limits far above any real
// model, so that a few damaged bytes cannot make a reader allocate gigabytes. Tensor data is never read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ggml.h"

namespace syrinx {

// Numbers are the format's.
enum class GgufType : uint32_t {
    Uint8 = 0,
    Int8 = 1,
    Uint16 = 2,
    Int16 = 3,
    Uint32 = 4,
    Int32 = 5,
    Float32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    Uint64 = 10,
    Int64 = 11,
    Float64 = 12
};

// "uint32" and the like.
const char * type_name(GgufType type);

// A name that came from a file, for an error text: bytes that are not printable ASCII as \xNN, cut after 80 characters.
std::string printable(std::string_view text);

struct GgufTensor {
    std::string name;
    ggml_type type = GGML_TYPE_F32;
    int n_dims = 0;
    int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
    uint64_t offset = 0;  // from GgufFile::data_offset
    uint64_t bytes = 0;
};

// One value of the metadata: a scalar or an array of scalars. A view into its GgufFile, which must outlive it.
class GgufField {
public:
    GgufField(GgufType type, bool is_array, uint64_t size, const uint8_t * data)
        : type_(type), is_array_(is_array), size_(size), data_(data) {}

    GgufType type() const { return type_; }  // of an array: of its elements
    bool is_array() const { return is_array_; }
    uint64_t size() const { return size_; }  // elements; 1 for a scalar

    // Element i as an integer (a bool is 0 or 1); nullopt for other types, and above INT64_MAX.
    std::optional<int64_t> integer(uint64_t i = 0) const;
    // Element i of float32 or float64; nullopt for other types.
    std::optional<double> real(uint64_t i = 0) const;
    // A scalar string; nullopt for other types.
    std::optional<std::string_view> text() const;
    // Every element of a string array, or the one string; empty for other types.
    std::vector<std::string_view> texts() const;
    // The elements of a numeric type as they lie in the file: size() times the type's bytes, of any alignment.
    const uint8_t * bytes() const { return data_; }
    // "uint32", "array of string".
    std::string describe() const;

private:
    GgufType type_;
    bool is_array_;
    uint64_t size_;
    const uint8_t * data_;
};

class GgufFile {
public:
    // Errors: NOT_FOUND; IO (no permission, a failed read); BAD_MODEL, naming key or tensor and what is wrong (also for
    // directories, pipes and devices); OUT_OF_MEMORY.
    static GgufFile read(const std::string & path);
    // The same for a file that is already in memory; `name` stands for it in error texts. Nothing of `data` is kept.
    static GgufFile parse(const uint8_t * data, size_t size, const std::string & name);

    GgufFile(GgufFile &&) = default;
    GgufFile & operator=(GgufFile &&) = default;
    GgufFile(const GgufFile &) = delete;
    GgufFile & operator=(const GgufFile &) = delete;

    const std::string & name() const { return name_; }
    uint32_t version() const { return version_; }
    uint64_t alignment() const { return alignment_; }
    uint64_t data_offset() const { return data_offset_; }  // where tensor data begins
    uint64_t file_size() const { return file_size_; }
    uint64_t header_xxh64() const;  // XXH64, seed 0, of every byte before data_offset

    const std::vector<GgufTensor> & tensors() const { return tensors_; }
    const GgufTensor * find_tensor(const std::string & name) const;  // nullptr: none
    std::optional<GgufField> find(const std::string & key) const;
    size_t n_keys() const { return entries_.size(); }

private:
    friend class GgufParser;
    struct Entry {
        GgufType type;
        bool is_array;
        uint64_t size;
        size_t offset;  // of the first element in header_
    };

    GgufFile() = default;

    std::string name_;
    uint32_t version_ = 0;
    uint64_t alignment_ = 0;
    uint64_t data_offset_ = 0;
    uint64_t file_size_ = 0;
    std::vector<uint8_t> header_;  // [data_offset_]
    std::unordered_map<std::string, Entry> entries_;
    std::vector<GgufTensor> tensors_;
    std::unordered_map<std::string, size_t> tensor_index_;
};

}  // namespace syrinx
