#include "core/gguf_view.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "core/error.h"

namespace syrinx {

namespace {

constexpr uint32_t kOldestVersion = 2;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxAlignment = 1 << 20;
// The least that a key or a tensor takes up: length, a character, type, value; length, dims, one size, type, offset.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

// Bytes of one value; 0 for strings and what is no value type.
uint64_t value_bytes(int32_t type) {
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL:    return 1;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16:   return 2;
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_FLOAT32: return 4;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
        case GGUF_TYPE_FLOAT64: return 8;
        default:                return 0;
    }
}

template <class T> T load(const uint8_t * from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// What a file that does not begin with GGUF is instead; nullptr if nothing known.
const char * recognise(const uint8_t * data, uint64_t size) {
    struct Signature {
        const char * bytes;
        const char * what;
    };
    static const Signature signatures[] = {
        {"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded (git lfs pull)"},
        {"<!DOCTYPE", "a web page: the download went wrong"},
        {"<!doctype", "a web page: the download went wrong"},
        {"<html", "a web page: the download went wrong"},
        {"PK\x03\x04", "a zip archive or a PyTorch checkpoint: convert it first"},
        {"\x1f\x8b", "compressed with gzip: unpack it first"},
        {"\x80\x02", "a Python pickle: convert the checkpoint first"},
        {"lmgg", "an old GGML file: convert the checkpoint anew"},
        {"tjgg", "an old GGJT file: convert the checkpoint anew"},
        {"algg", "an old GGLA adapter: convert it anew"},
        {"FUGG", "a big-endian file: convert the checkpoint for little-endian machines"},
        {"{", "JSON"},
    };
    for (const Signature & s : signatures) {
        const size_t n = std::strlen(s.bytes);
        if (size >= n && std::memcmp(data, s.bytes, n) == 0) {
            return s.what;
        }
    }
    // safetensors: the length of a JSON header, then the header
    return size > 9 && data[8] == '{' ? "a safetensors file: convert the checkpoint first" : nullptr;
}

uint64_t pad(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

// Names come from the file: only what a terminal takes is shown.
std::string printable(std::string_view text) {
    std::string out(text.substr(0, 80));
    std::replace_if(out.begin(), out.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
    return out;
}

}  // namespace

bool GgufValue::is_integer() const {
    return type != GGUF_TYPE_STRING && type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64;
}

int64_t GgufValue::integer(uint64_t i) const {
    const uint8_t * at = data + i * value_bytes(type);
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_BOOL:   return *at;
        case GGUF_TYPE_INT8:   return load<int8_t>(at);
        case GGUF_TYPE_UINT16: return load<uint16_t>(at);
        case GGUF_TYPE_INT16:  return load<int16_t>(at);
        case GGUF_TYPE_UINT32: return load<uint32_t>(at);
        case GGUF_TYPE_INT32:  return load<int32_t>(at);
        case GGUF_TYPE_UINT64: return static_cast<int64_t>(std::min<uint64_t>(load<uint64_t>(at), INT64_MAX));
        default:               return load<int64_t>(at);
    }
}

std::string_view GgufValue::text() const { return {reinterpret_cast<const char *>(data) + 8, bytes - 8}; }

GgufView::GgufView(const uint8_t * data, uint64_t size, std::string name)
    : data_(data), size_(size), name_(std::move(name)) {
    check_magic();
    at_ = 4;
    version_ = read<uint32_t>("the version");
    if (version_ != 0 && (version_ & 0xffff) == 0) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' is a big-endian GGUF file: convert the checkpoint for little-endian machines",
             name_.c_str());
    }
    if (version_ < kOldestVersion || version_ > GGUF_VERSION) {
        fail(SYRINX_ERR_UNSUPPORTED, "'%s' has GGUF version %u; versions %u to %u are read: convert it anew",
             name_.c_str(), version_, kOldestVersion, GGUF_VERSION);
    }
    const int64_t n_tensors = read<int64_t>("the tensor count");
    const int64_t n_values = read<int64_t>("the key count");
    const uint64_t room = size_ - at_;
    if (n_values < 0 || static_cast<uint64_t>(n_values) > room / kMinKeyBytes) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' claims %lld keys, more than its %llu bytes can hold", name_.c_str(),
             static_cast<long long>(n_values), static_cast<unsigned long long>(size_));
    }
    if (n_tensors < 0 || static_cast<uint64_t>(n_tensors) > room / kMinTensorBytes) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' claims %lld tensors, more than its %llu bytes can hold", name_.c_str(),
             static_cast<long long>(n_tensors), static_cast<unsigned long long>(size_));
    }
    read_values(n_values);
    read_alignment();
    read_tensors(n_tensors);
    place_tensors();
}

void GgufView::check_magic() const {
    if (size_ == 0) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' is empty", name_.c_str());
    }
    if (size_ >= 4 && std::memcmp(data_, GGUF_MAGIC, 4) == 0) {
        return;
    }
    const char * what = recognise(data_, size_);
    fail(SYRINX_ERR_BAD_MODEL, "'%s' is no GGUF file but %s", name_.c_str(), what ? what : "something unknown");
}

void GgufView::require(uint64_t bytes, const char * what) const {
    if (bytes > size_ - at_) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' is cut: it ends inside %s, %llu bytes are missing", name_.c_str(), what,
             static_cast<unsigned long long>(bytes - (size_ - at_)));
    }
}

template <class T> T GgufView::read(const char * what) {
    require(sizeof(T), what);
    const T value = load<T>(data_ + at_);
    at_ += sizeof(T);
    return value;
}

std::string_view GgufView::read_string(const char * what) {
    const uint64_t length = read<uint64_t>(what);
    require(length, what);
    const std::string_view text(reinterpret_cast<const char *>(data_ + at_), length);
    at_ += length;
    return text;
}

void GgufView::read_values(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        const std::string_view key = read_string(format("key %lld", static_cast<long long>(i)).c_str());
        if (key.empty() || key.size() > kMaxKeyBytes) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': key %lld is %zu bytes long", name_.c_str(), static_cast<long long>(i),
                 key.size());
        }
        const std::string name = printable(key);
        if (!values_.emplace(std::string(key), read_value(name)).second) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': key '%s' is there twice", name_.c_str(), name.c_str());
        }
    }
}

GgufValue GgufView::read_value(const std::string & key) {
    const std::string what = "the value of key '" + key + "'";
    GgufValue value;
    int32_t type = read<int32_t>(what.c_str());
    value.is_array = type == GGUF_TYPE_ARRAY;
    if (value.is_array) {
        type = read<int32_t>(what.c_str());
        value.n = read<uint64_t>(what.c_str());
    }
    if (type < 0 || type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_ARRAY) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s': key '%s' has the unknown value type %d", name_.c_str(), key.c_str(), type);
    }
    value.type = static_cast<gguf_type>(type);
    value.data = data_ + at_;
    if (type == GGUF_TYPE_STRING) {
        const uint64_t start = at_;
        for (uint64_t i = 0; i < value.n; ++i) {
            read_string(what.c_str());
        }
        value.bytes = at_ - start;
        return value;
    }
    const uint64_t width = value_bytes(type);
    if (value.n > size_ / width) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s': %s claims %llu elements, more than the file can hold", name_.c_str(),
             what.c_str(), static_cast<unsigned long long>(value.n));
    }
    value.bytes = value.n * width;
    require(value.bytes, what.c_str());
    at_ += value.bytes;
    return value;
}

void GgufView::read_alignment() {
    const GgufValue * value = find("general.alignment");
    if (!value) {
        return;
    }
    const bool sound = value->type == GGUF_TYPE_UINT32 && !value->is_array;
    const uint64_t alignment = sound ? static_cast<uint64_t>(value->integer()) : 0;
    if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s': general.alignment must be an unsigned power of two up to %llu, as uint32",
             name_.c_str(), static_cast<unsigned long long>(kMaxAlignment));
    }
    alignment_ = alignment;
}

void GgufView::read_tensors(int64_t n) {
    std::unordered_set<std::string> names;
    for (int64_t i = 0; i < n; ++i) {
        tensors_.push_back(read_tensor(i));
        if (!names.insert(tensors_.back().name).second) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': tensor '%s' is there twice", name_.c_str(),
                 printable(tensors_.back().name).c_str());
        }
    }
}

GgufTensor GgufView::read_tensor(int64_t index) {
    GgufTensor tensor;
    tensor.name = read_string(format("the name of tensor %lld", static_cast<long long>(index)).c_str());
    const std::string name = printable(tensor.name);
    const std::string what = "the entry of tensor '" + name + "'";
    const auto refuse = [&](const std::string & reason) {
        fail(SYRINX_ERR_BAD_MODEL, "'%s': tensor '%s' %s", name_.c_str(), name.c_str(), reason.c_str());
    };
    if (tensor.name.empty() || tensor.name.size() >= GGML_MAX_NAME) {
        refuse(format("has a name of %zu bytes; 1 to %d are allowed", tensor.name.size(), GGML_MAX_NAME - 1));
    }
    const uint32_t n_dims = read<uint32_t>(what.c_str());
    if (n_dims > GGML_MAX_DIMS) {
        refuse(format("has %u dimensions; at most %d are allowed", n_dims, GGML_MAX_DIMS));
    }
    tensor.n_dims = static_cast<int>(n_dims);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < n_dims; ++i) {
        tensor.ne[i] = read<int64_t>(what.c_str());
        if (tensor.ne[i] <= 0 || static_cast<uint64_t>(tensor.ne[i]) > INT64_MAX / elements) {
            refuse(format("has the impossible size %lld in dimension %u", static_cast<long long>(tensor.ne[i]), i));
        }
        elements *= static_cast<uint64_t>(tensor.ne[i]);
    }
    const int32_t type = read<int32_t>(what.c_str());
    const bool known = type >= 0 && type < GGML_TYPE_COUNT && ggml_blck_size(static_cast<ggml_type>(type)) > 0 &&
                       ggml_type_size(static_cast<ggml_type>(type)) > 0;
    if (!known) {
        refuse(format("has the unknown or withdrawn type %d", type));
    }
    tensor.type = static_cast<ggml_type>(type);
    const int64_t block = ggml_blck_size(tensor.type);
    if (tensor.ne[0] % block != 0) {
        refuse(format("has rows of %lld values, which blocks of %lld (%s) do not divide",
                      static_cast<long long>(tensor.ne[0]), static_cast<long long>(block),
                      ggml_type_name(tensor.type)));
    }
    const uint64_t blocks = elements / static_cast<uint64_t>(block);
    if (blocks > INT64_MAX / ggml_type_size(tensor.type)) {
        refuse("is larger than any memory");
    }
    tensor.bytes = blocks * ggml_type_size(tensor.type);
    tensor.offset = read<uint64_t>(what.c_str());
    return tensor;
}

// llama.cpp takes only files whose tensors follow one another without a gap but padding, in the order of the table.
void GgufView::place_tensors() {
    data_offset_ = tensors_.empty() ? at_ : pad(at_, alignment_);
    uint64_t expected = 0;
    for (const GgufTensor & tensor : tensors_) {
        const std::string name = printable(tensor.name);
        if (tensor.offset != expected) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': tensor '%s' begins at %llu of the data where %llu is its place: it %s",
                 name_.c_str(), name.c_str(), static_cast<unsigned long long>(tensor.offset),
                 static_cast<unsigned long long>(expected),
                 tensor.offset < expected ? "overlaps the one before it" : "leaves a gap");
        }
        const uint64_t available = size_ > data_offset_ ? size_ - data_offset_ : 0;
        const uint64_t room = available > expected ? available - expected : 0;
        if (tensor.bytes > room) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s' is cut: tensor '%s' needs %llu bytes, %llu are missing", name_.c_str(),
                 name.c_str(), static_cast<unsigned long long>(tensor.bytes),
                 static_cast<unsigned long long>(tensor.bytes - room));
        }
        expected += pad(tensor.bytes, alignment_);  // both below the file's size: no overflow
    }
}

const GgufValue * GgufView::find(const std::string & key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

}  // namespace syrinx
