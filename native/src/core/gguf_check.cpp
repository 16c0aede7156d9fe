#include "core/gguf_check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "core/error.h"
#include "core/gguf_rules.h"

namespace syrinx {

namespace {

// A regular file, mapped read-only: only the pages of its header are ever touched.
class MappedFile {
public:
    explicit MappedFile(const std::string & path) {
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // NONBLOCK: a FIFO must not hang the open
        struct stat info;
        if (fd_ < 0 || fstat(fd_, &info) != 0) {
            refuse(path, errno == ENOENT || errno == ENOTDIR ? SYRINX_ERR_NOT_FOUND : SYRINX_ERR_IO,
                   std::strerror(errno));
        }
        if (!S_ISREG(info.st_mode)) {
            refuse(path, SYRINX_ERR_IO, S_ISDIR(info.st_mode) ? "it is a folder" : "it is no regular file");
        }
        size_ = static_cast<uint64_t>(info.st_size);
        if (size_ > 0) {
            void * mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
            if (mapped == MAP_FAILED) {
                refuse(path, SYRINX_ERR_IO, std::strerror(errno));
            }
            data_ = static_cast<const uint8_t *>(mapped);
        }
    }
    ~MappedFile() { release(); }
    MappedFile(const MappedFile &) = delete;
    MappedFile & operator=(const MappedFile &) = delete;

    const uint8_t * data() const { return data_; }
    uint64_t size() const { return size_; }

private:
    [[noreturn]] void refuse(const std::string & path, syrinx_status status, const std::string & why) {
        release();
        fail(status, "cannot read '%s': %s", path.c_str(), why.c_str());
    }
    void release() {
        if (data_) {
            munmap(const_cast<uint8_t *>(data_), size_);
        }
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }

    int fd_ = -1;
    uint64_t size_ = 0;
    const uint8_t * data_ = nullptr;
};

}  // namespace

GgufSummary check_gguf(const uint8_t * data, uint64_t size, const std::string & name) {
    const GgufView file(data, size, name);
    GgufSummary summary;
    summary.architecture = check_rules(file);
    summary.version = file.version();
    summary.alignment = file.alignment();
    summary.data_offset = file.data_offset();
    summary.file_size = size;
    summary.header_xxh64 = XXH64(data, std::min(file.data_offset(), size), 0);
    summary.tensors = file.tensors();
    return summary;
}

GgufSummary check_gguf(const std::string & path) {
    const MappedFile file(path);
    return check_gguf(file.data(), file.size(), path);
}

}  // namespace syrinx
