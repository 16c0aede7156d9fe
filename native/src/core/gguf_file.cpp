#include "core/gguf_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "core/error.h"
#include "xxhash.h"

namespace syrinx {

namespace {

// Limits far above any real model (whose largest headers hold a vocabulary of 260 thousand tokens in 16 MB), but small
// enough that what llama.cpp makes of a header at the limit still fits a phone.
constexpr uint64_t kMaxHeader = uint64_t{1} << 27;  // bytes before the tensor data
constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's
constexpr uint64_t kMaxTensors = uint64_t{1} << 18;
constexpr uint64_t kMaxStrings = uint64_t{1} << 22;  // elements of a string array
constexpr uint64_t kMaxNumbers = uint64_t{1} << 24;  // elements of any other array
constexpr uint64_t kMaxAlignment = uint64_t{1} << 26;
constexpr uint64_t kDefaultAlignment = 32;        // the format's
constexpr size_t kFixedHeader = 24;               // magic, version, number of tensors, number of keys
constexpr uint64_t kSmallestKey = 8 + 1 + 4 + 1;  // bytes of a one-letter key with a uint8
constexpr uint64_t kSmallestTensor = 8 + 1 + 4 + 4 + 8;
constexpr size_t kReadAhead = size_t{1} << 16;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are read as they lie in the file");

template <typename T>
T load(const uint8_t * data) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

// 0: not a type with a fixed size.
size_t size_of(GgufType type) {
    switch (type) {
        case GgufType::Uint8:
        case GgufType::Int8:
        case GgufType::Bool:    return 1;
        case GgufType::Uint16:
        case GgufType::Int16:   return 2;
        case GgufType::Uint32:
        case GgufType::Int32:
        case GgufType::Float32: return 4;
        case GgufType::Uint64:
        case GgufType::Int64:
        case GgufType::Float64: return 8;
        case GgufType::String:
        case GgufType::Array:   return 0;
    }
    return 0;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// What the first bytes of something that is no GGUF file are, and what to do about it; "" for unknown.
std::string recognise(std::string_view head, uint64_t file_size) {
    static constexpr struct {
        std::string_view magic;
        const char * what;
    } kKnown[] = {
        {"lmgg", "a model of the format before GGUF ('ggml'): convert the original checkpoint again"},
        {"fmgg", "a model of the format before GGUF ('ggmf'): convert the original checkpoint again"},
        {"tjgg", "a model of the format before GGUF ('ggjt'): convert the original checkpoint again"},
        {"algg", "an adapter of the format before GGUF ('ggla'): convert the original checkpoint again"},
        {"PK\x03\x04", "a zip archive, such as a PyTorch checkpoint: convert it to GGUF, or unpack it"},
        {"\x80\x02", "a Python pickle, such as a PyTorch checkpoint: convert it to GGUF"},
        {"\x1f\x8b", "compressed with gzip: unpack it first"},
        {"\xfd"
         "7zXZ",
         "compressed with xz: unpack it first"},
        {"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"},
        {"BZh", "compressed with bzip2: unpack it first"},
        {"7z\xbc\xaf", "a 7z archive: unpack it first"},
    };
    for (const auto & known : kKnown) {
        if (starts_with(head, known.magic)) {
            return known.what;
        }
    }
    if (starts_with(head, "version https://git-lfs.github.com")) {
        const size_t at = head.find("\nsize ");
        const std::string size(at == head.npos ? "" : head.substr(at + 6, head.find('\n', at + 6) - at - 6));
        return "a Git LFS pointer" + (size.empty() ? "" : " to " + printable(size) + " bytes") +
               ", not the file itself: run 'git lfs pull', or download the file from its web page";
    }
    if (head.size() >= 9 && head[8] == '{' &&
        load<uint64_t>(reinterpret_cast<const uint8_t *>(head.data())) < file_size) {
        return "a safetensors checkpoint: convert it to GGUF";
    }
    if (head.size() >= 262 && head.substr(257, 5) == "ustar") {
        return "a tar archive: unpack it first";
    }
    std::string text(head.substr(0, 64));
    text.erase(0, text.find_first_not_of(" \t\r\n\xef\xbb\xbf"));
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    if (starts_with(text, "<!doctype") || starts_with(text, "<html") || starts_with(text, "<?xml")) {
        return "a web page: the download gave an error or a login page in place of the model; download it again";
    }
    if (starts_with(text, "{") || starts_with(text, "[")) {
        return "JSON text: perhaps the error message of a download, or the configuration beside a checkpoint";
    }
    if (head.find_first_not_of('\0') == head.npos) {
        return "zeros where the magic should be: the download or copy was broken off; fetch it again";
    }
    return "";
}

std::string format_magic(std::string_view head) { return printable(head.substr(0, 4)); }

}  // namespace

const char * type_name(GgufType type) {
    switch (type) {
        case GgufType::Uint8:   return "uint8";
        case GgufType::Int8:    return "int8";
        case GgufType::Uint16:  return "uint16";
        case GgufType::Int16:   return "int16";
        case GgufType::Uint32:  return "uint32";
        case GgufType::Int32:   return "int32";
        case GgufType::Float32: return "float32";
        case GgufType::Bool:    return "bool";
        case GgufType::String:  return "string";
        case GgufType::Array:   return "array";
        case GgufType::Uint64:  return "uint64";
        case GgufType::Int64:   return "int64";
        case GgufType::Float64: return "float64";
    }
    return "unknown";
}

std::string printable(std::string_view text) {
    constexpr size_t kLongest = 80;
    std::string out;
    for (char c : text) {
        if (out.size() >= kLongest) {
            return out + "...";
        }
        const auto byte = static_cast<unsigned char>(c);
        out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : format("\\x%02x", byte);
    }
    return out;
}

std::optional<int64_t> GgufField::integer(uint64_t i) const {
    if (i >= size_) {
        return std::nullopt;
    }
    const uint8_t * at = data_ + i * size_of(type_);
    switch (type_) {
        case GgufType::Bool:   return load<uint8_t>(at) != 0;
        case GgufType::Uint8:  return load<uint8_t>(at);
        case GgufType::Int8:   return load<int8_t>(at);
        case GgufType::Uint16: return load<uint16_t>(at);
        case GgufType::Int16:  return load<int16_t>(at);
        case GgufType::Uint32: return load<uint32_t>(at);
        case GgufType::Int32:  return load<int32_t>(at);
        case GgufType::Int64:  return load<int64_t>(at);
        case GgufType::Uint64: {
            const auto value = load<uint64_t>(at);
            return value > INT64_MAX ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(value));
        }
        default: return std::nullopt;
    }
}

std::optional<double> GgufField::real(uint64_t i) const {
    if (i >= size_) {
        return std::nullopt;
    }
    const uint8_t * at = data_ + i * size_of(type_);
    switch (type_) {
        case GgufType::Float32: return static_cast<double>(load<float>(at));
        case GgufType::Float64: return load<double>(at);
        default:                return std::nullopt;
    }
}

std::optional<std::string_view> GgufField::text() const {
    if (type_ != GgufType::String || is_array_) {
        return std::nullopt;
    }
    return texts().front();
}

std::vector<std::string_view> GgufField::texts() const {
    std::vector<std::string_view> out;
    if (type_ != GgufType::String) {
        return out;
    }
    out.reserve(size_);
    const uint8_t * at = data_;
    for (uint64_t i = 0; i < size_; ++i) {
        const size_t length = load<uint64_t>(at);
        out.emplace_back(reinterpret_cast<const char *>(at + 8), length);
        at += 8 + length;
    }
    return out;
}

std::string GgufField::describe() const { return (is_array_ ? "array of " : "") + std::string(type_name(type_)); }

namespace {

// Where a header is read from.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    virtual uint64_t size() const = 0;
    // Bytes offset .. offset + n, which lie inside size().
    virtual void read(uint64_t offset, uint8_t * out, size_t n) = 0;
};

class MemorySource : public ByteSource {
public:
    MemorySource(const uint8_t * data, size_t size) : data_(data), size_(size) {}
    uint64_t size() const override { return size_; }
    void read(uint64_t offset, uint8_t * out, size_t n) override { std::memcpy(out, data_ + offset, n); }

private:
    const uint8_t * data_;
    size_t size_;
};

// A regular file. Opening must not hang on a pipe, or read a device that never ends.
class DiskSource : public ByteSource {
public:
    explicit DiskSource(const std::string & path) : path_(path) {
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (fd_ < 0) {
            fail_open(errno);
        }
        try {
            inspect();
        } catch (...) {
            ::close(fd_);
            throw;
        }
    }
    ~DiskSource() override { ::close(fd_); }
    DiskSource(const DiskSource &) = delete;
    DiskSource & operator=(const DiskSource &) = delete;

    uint64_t size() const override { return size_; }

    void read(uint64_t offset, uint8_t * out, size_t n) override {
        while (n > 0) {
            const ssize_t got = ::pread(fd_, out, n, static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got <= 0) {
                fail(SYRINX_ERR_IO, "cannot read '%s' at byte %" PRIu64 ": %s", path_.c_str(), offset,
                     got < 0 ? std::strerror(errno) : "it became shorter while it was read");
            }
            out += got;
            offset += static_cast<uint64_t>(got);
            n -= static_cast<size_t>(got);
        }
    }

private:
    [[noreturn]] void fail_open(int error) const {
        if (error == ENOENT || error == ENOTDIR) {
            fail(SYRINX_ERR_NOT_FOUND, "there is no file '%s'", path_.c_str());
        }
        if (error == ENXIO) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s' is a socket or device, not a GGUF file", path_.c_str());
        }
        fail(SYRINX_ERR_IO, "cannot open '%s': %s", path_.c_str(), std::strerror(error));
    }

    void inspect() {
        struct stat info;
        if (::fstat(fd_, &info) != 0) {
            fail(SYRINX_ERR_IO, "cannot inspect '%s': %s", path_.c_str(), std::strerror(errno));
        }
        if (!S_ISREG(info.st_mode)) {
            const char * kind = S_ISDIR(info.st_mode)    ? "directory: name the .gguf file in it"
                                : S_ISFIFO(info.st_mode) ? "pipe, not a GGUF file"
                                                         : "device, not a GGUF file";
            fail(SYRINX_ERR_BAD_MODEL, "'%s' is a %s", path_.c_str(), kind);
        }
        size_ = static_cast<uint64_t>(info.st_size);
    }

    std::string path_;
    int fd_ = -1;
    uint64_t size_ = 0;
};

uint64_t pad(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

// a * b, if it fits.
bool multiply(uint64_t a, uint64_t b, uint64_t & product) { return !__builtin_mul_overflow(a, b, &product); }

}  // namespace

// One pass over the bytes, front to back.
class GgufParser {
public:
    GgufParser(ByteSource & source, const std::string & name) : source_(source) {
        file_.name_ = name;
        file_.file_size_ = source.size();
    }

    GgufFile run() {
        check_magic();
        const auto n_tensors = take_number<uint64_t>("the number of tensors");
        const auto n_keys = take_number<uint64_t>("the number of keys");
        check_count("keys", n_keys, kMaxKeys, kSmallestKey);
        check_count("tensors", n_tensors, kMaxTensors, kSmallestTensor);
        for (uint64_t i = 0; i < n_keys; ++i) {
            parse_key(i);
        }
        set_alignment();
        file_.tensors_.reserve(n_tensors);
        for (uint64_t i = 0; i < n_tensors; ++i) {
            parse_tensor(i);
        }
        set_data_offset();
        check_layout();
        file_.header_ = std::move(bytes_);
        return std::move(file_);
    }

private:
    [[noreturn]] void bad(const std::string & text) const {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' %s", file_.name_.c_str(), text.c_str());
    }

    // The next n bytes, valid until the next call.
    const uint8_t * take(uint64_t n, const char * what) {
        if (n > file_.file_size_ - offset_) {
            bad(format("ends inside its header: %s%s at byte %" PRIu64 " takes %" PRIu64
                       " bytes, and the file has %" PRIu64 ". It is truncated or damaged: fetch it again",
                       what, place_.c_str(), offset_, n, file_.file_size_));
        }
        if (n > kMaxHeader - offset_) {
            bad(format("has a header of more than %" PRIu64 " bytes (%s%s at byte %" PRIu64 " takes %" PRIu64
                       "): it is damaged",
                       kMaxHeader, what, place_.c_str(), offset_, n));
        }
        const uint64_t end = offset_ + n;
        if (end > bytes_.size()) {
            const uint64_t ahead = std::max<uint64_t>(end, 2 * bytes_.size() + kReadAhead);
            const size_t begin = bytes_.size();
            bytes_.resize(std::min({ahead, file_.file_size_, kMaxHeader}));
            source_.read(begin, bytes_.data() + begin, bytes_.size() - begin);
        }
        const uint8_t * data = bytes_.data() + offset_;
        offset_ = end;
        return data;
    }

    template <typename T>
    T take_number(const char * what) {
        return load<T>(take(sizeof(T), what));
    }

    std::string take_string(const char * what) {
        const auto length = take_number<uint64_t>(what);
        const uint8_t * data = take(length, what);
        return std::string(reinterpret_cast<const char *>(data), length);
    }

    void check_magic() {
        const size_t n = std::min<uint64_t>(file_.file_size_, 512);
        if (n == 0) {
            bad("is empty: the download or copy failed; fetch it again");
        }
        const uint8_t * data = take(n, "the magic");
        const std::string_view head(reinterpret_cast<const char *>(data), n);
        if (!starts_with(head, "GGUF")) {
            const std::string what = recognise(head, file_.file_size_);
            bad(what.empty()
                    ? format("is not a GGUF file: it begins with '%s' instead of 'GGUF'", format_magic(head).c_str())
                    : "is " + what);
        }
        offset_ = 4;
        if (n < kFixedHeader) {
            bad(format("ends after %zu bytes, inside the first %zu that every GGUF file has: it is truncated; fetch it "
                       "again",
                       n, kFixedHeader));
        }
        file_.version_ = take_number<uint32_t>("the version");
        if (file_.version_ != 0 && (file_.version_ & 0xffffu) == 0) {
            bad("is a big-endian GGUF file, which this machine cannot read: convert it without --bigendian");
        }
        if (file_.version_ < 2 || file_.version_ > 3) {
            bad(format("is GGUF version %u; versions 2 and 3 are supported: convert the original checkpoint again",
                       file_.version_));
        }
    }

    void check_count(const char * what, uint64_t n, uint64_t most, uint64_t smallest) const {
        const uint64_t room = (file_.file_size_ - offset_) / smallest;
        if (n > most || n > room) {
            bad(format("claims %" PRIu64 " %s; %s: it is damaged or truncated", n, what,
                       n > most
                           ? format("at most %" PRIu64 " are supported", most).c_str()
                           : format("its %" PRIu64 " bytes hold at most %" PRIu64, file_.file_size_, room).c_str()));
        }
    }

    void parse_key(uint64_t index) {
        place_ = format(" of key number %" PRIu64, index);
        std::string key = take_string("the name");
        if (key.empty() || key.size() > kMaxKeyBytes || key.find('\0') != key.npos) {
            bad(format("has a key (number %" PRIu64 ") whose name is %s", index,
                       key.empty()                 ? "empty"
                       : key.size() > kMaxKeyBytes ? "longer than 65535 bytes"
                                                   : "cut by a NUL byte"));
        }
        place_ = " of key '" + printable(key) + "'";
        GgufFile::Entry entry = {take_type(), false, 1, 0};
        if (entry.type == GgufType::Array) {
            entry.is_array = true;
            entry.type = take_type();
            entry.size = take_number<uint64_t>("the array length");
            if (entry.type == GgufType::Array) {
                bad(format("holds an array of arrays%s, which llama.cpp cannot read", place_.c_str()));
            }
        }
        entry.offset = offset_;
        skip_elements(entry);
        if (!file_.entries_.emplace(std::move(key), entry).second) {
            bad(format("has two values%s", place_.c_str()));
        }
    }

    GgufType take_type() {
        const auto number = take_number<uint32_t>("the value type");
        if (number > static_cast<uint32_t>(GgufType::Float64)) {
            bad(format("has the unknown value type %u%s", number, place_.c_str()));
        }
        return static_cast<GgufType>(number);
    }

    void skip_elements(const GgufFile::Entry & entry) {
        const bool strings = entry.type == GgufType::String;
        const uint64_t element = strings ? 8 : size_of(entry.type);
        const uint64_t room = (file_.file_size_ - offset_) / element;
        const uint64_t most = strings ? kMaxStrings : kMaxNumbers;
        if (entry.size > room || entry.size > most) {
            bad(format("claims %" PRIu64 " elements in the array%s; %s %" PRIu64 ": it is damaged or truncated",
                       entry.size, place_.c_str(),
                       entry.size > room ? "the rest of the file holds at most" : "supported are at most",
                       std::min(room, most)));
        }
        if (!strings) {
            take(entry.size * element, "the value");
            return;
        }
        for (uint64_t i = 0; i < entry.size; ++i) {
            const auto length = take_number<uint64_t>("the length of a string");
            take(length, "a string");
        }
    }

    void set_alignment() {
        file_.alignment_ = kDefaultAlignment;
        const auto entry = file_.entries_.find("general.alignment");
        if (entry == file_.entries_.end()) {
            return;
        }
        const GgufFile::Entry & e = entry->second;
        if (e.is_array || e.type != GgufType::Uint32) {
            bad("has a general.alignment that is not a uint32");
        }
        const uint64_t value = load<uint32_t>(bytes_.data() + e.offset);
        if (value == 0 || (value & (value - 1)) != 0 || value > kMaxAlignment) {
            bad(format("has general.alignment %" PRIu64 "; it must be a power of two", value));
        }
        file_.alignment_ = value;
    }

    void parse_tensor(uint64_t index) {
        place_ = format(" of tensor number %" PRIu64, index);
        GgufTensor tensor;
        tensor.name = take_string("the name");
        const bool too_long = tensor.name.size() >= GGML_MAX_NAME;
        if (tensor.name.empty() || too_long || tensor.name.find('\0') != std::string::npos) {
            bad(format("has a tensor (number %" PRIu64 ") whose name '%s' is %s", index, printable(tensor.name).c_str(),
                       tensor.name.empty() ? "empty"
                       : too_long          ? "longer than 63 bytes"
                                           : "cut by a NUL byte"));
        }
        place_ = " of tensor '" + printable(tensor.name) + "'";
        parse_shape(tensor);
        parse_tensor_type(tensor);
        tensor.offset = take_number<uint64_t>("the offset");
        if (!file_.tensor_index_.emplace(tensor.name, index).second) {
            bad(format("has two tensors called '%s'", printable(tensor.name).c_str()));
        }
        file_.tensors_.push_back(std::move(tensor));
    }

    void parse_shape(GgufTensor & tensor) {
        const auto n_dims = take_number<uint32_t>("the number of dimensions");
        if (n_dims > GGML_MAX_DIMS) {
            bad(format("claims %u dimensions%s; at most %d exist", n_dims, place_.c_str(), GGML_MAX_DIMS));
        }
        tensor.n_dims = static_cast<int>(n_dims);
        uint64_t elements = 1;
        for (int i = 0; i < GGML_MAX_DIMS; ++i) {
            tensor.ne[i] = i < tensor.n_dims ? take_number<int64_t>("a dimension") : 1;
            if (tensor.ne[i] <= 0) {
                bad(format("has a dimension of %" PRId64 "%s", tensor.ne[i], place_.c_str()));
            }
            if (!multiply(elements, static_cast<uint64_t>(tensor.ne[i]), elements) || elements > INT64_MAX) {
                bad(format("claims dimensions%s whose product overflows", place_.c_str()));
            }
        }
    }

    void parse_tensor_type(GgufTensor & tensor) {
        const auto number = take_number<uint32_t>("the type");
        if (number >= GGML_TYPE_COUNT) {
            bad(format("has the unknown data type %u%s: it is damaged, or needs a newer llama.cpp", number,
                       place_.c_str()));
        }
        tensor.type = static_cast<ggml_type>(number);
        const int64_t block = ggml_blck_size(tensor.type);
        const size_t block_bytes = ggml_type_size(tensor.type);
        if (block <= 0 || block_bytes == 0) {
            bad(format("has data type %u%s, which llama.cpp has removed: convert the model again", number,
                       place_.c_str()));
        }
        if (tensor.ne[0] % block != 0) {
            bad(format("has rows of %" PRId64 " values%s, but type %s comes in blocks of %" PRId64, tensor.ne[0],
                       place_.c_str(), ggml_type_name(tensor.type), block));
        }
        uint64_t blocks = static_cast<uint64_t>(tensor.ne[0] / block);
        for (int i = 1; i < GGML_MAX_DIMS; ++i) {
            blocks *= static_cast<uint64_t>(tensor.ne[i]);  // below the number of elements, which fits
        }
        if (!multiply(blocks, block_bytes, tensor.bytes) || tensor.bytes > INT64_MAX) {
            bad(format("claims a size in bytes%s that overflows", place_.c_str()));
        }
    }

    void set_data_offset() {
        place_.clear();
        file_.data_offset_ = offset_;
        if (!file_.tensors_.empty()) {
            file_.data_offset_ = pad(offset_, file_.alignment_);
            take(file_.data_offset_ - offset_, "the padding before the tensor data");
        }
        bytes_.resize(file_.data_offset_);
    }

    void check_layout() const {
        uint64_t expected = 0;
        for (size_t i = 0; i < file_.tensors_.size(); ++i) {
            const GgufTensor & tensor = file_.tensors_[i];
            if (tensor.offset != expected) {
                bad_offset(i, expected);
            }
            const uint64_t room = file_.file_size_ - file_.data_offset_;
            if (expected > room || tensor.bytes > room - expected) {
                bad_end(tensor, room);
            }
            expected = pad(expected + tensor.bytes, file_.alignment_);
        }
    }

    [[noreturn]] void bad_offset(size_t index, uint64_t expected) const {
        const GgufTensor & tensor = file_.tensors_[index];
        const std::string before = index == 0 ? "" : printable(file_.tensors_[index - 1].name);
        std::string how;
        if (tensor.offset % file_.alignment_ != 0) {
            how = format("is not a multiple of the alignment %" PRIu64, file_.alignment_);
        } else if (tensor.offset < expected) {
            how = "overlaps tensor '" + before + "'";
        } else {
            how = "leaves a gap after " + (index == 0 ? "the header" : "tensor '" + before + "'");
        }
        bad(format("puts tensor '%s' at offset %" PRIu64 " of the tensor data, which %s; it belongs at %" PRIu64
                   ": the file is damaged",
                   printable(tensor.name).c_str(), tensor.offset, how.c_str(), expected));
    }

    [[noreturn]] void bad_end(const GgufTensor & tensor, uint64_t room) const {
        uint64_t total = 0;  // of all tensors; only for the message, so an overflow just leaves it out
        bool fits = true;
        for (const GgufTensor & t : file_.tensors_) {
            fits = fits && !__builtin_add_overflow(pad(total, file_.alignment_), t.bytes, &total);
        }
        const uint64_t here = tensor.offset > room ? tensor.bytes : tensor.bytes - (room - tensor.offset);
        const std::string all = fits && total > here
                                    ? format("; with the tensors behind it %" PRIu64 " bytes are missing", total - room)
                                    : "";
        bad(format("is truncated: tensor '%s' is missing %" PRIu64 " of its %" PRIu64 " bytes (the file has %" PRIu64
                   " bytes)%s. Fetch it again",
                   printable(tensor.name).c_str(), here, tensor.bytes, file_.file_size_, all.c_str()));
    }

    ByteSource & source_;
    GgufFile file_;
    std::vector<uint8_t> bytes_;  // read so far
    uint64_t offset_ = 0;         // of the next byte to parse
    std::string place_;           // " of key 'x'", for error texts
};

GgufFile GgufFile::read(const std::string & path) {
    DiskSource source(path);
    return GgufParser(source, path).run();
}

GgufFile GgufFile::parse(const uint8_t * data, size_t size, const std::string & name) {
    MemorySource source(data, size);
    return GgufParser(source, name).run();
}

uint64_t GgufFile::header_xxh64() const { return XXH64(header_.data(), header_.size(), 0); }

const GgufTensor * GgufFile::find_tensor(const std::string & name) const {
    const auto found = tensor_index_.find(name);
    return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

std::optional<GgufField> GgufFile::find(const std::string & key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
        return std::nullopt;
    }
    const Entry & e = found->second;
    return GgufField(e.type, e.is_array, e.size, header_.data() + e.offset);
}

}  // namespace syrinx
