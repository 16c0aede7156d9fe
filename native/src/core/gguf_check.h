// What must hold of a GGUF file before llama.cpp sees it.
//
// llama.cpp checks much of a file's structure, and throws or logs where it finds fault. It trusts what the numbers mean:
// a head count of zero is divided by, a scores array shorter than the vocabulary is read past its end, a layer count of
// a million is allocated. Everything of that kind is refused here, with the key's or the tensor's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/gguf_view.h"

namespace syrinx {

// What is kept of a sound file.
struct GgufSummary {
    uint32_t version = 0;
    uint64_t alignment = 0;
    uint64_t data_offset = 0;  // of the data section in the file
    uint64_t file_size = 0;
    uint64_t header_xxh64 = 0;  // of everything before the data section
    std::string architecture;
    std::vector<GgufTensor> tensors;
};

// Reads no tensor data. Throws Error: NOT_FOUND, IO (no regular file, no permission), BAD_MODEL, UNSUPPORTED.
GgufSummary check_gguf(const std::string & path);

// The same for bytes in memory; `name` is for the texts.
GgufSummary check_gguf(const uint8_t * data, uint64_t size, const std::string & name);

}  // namespace syrinx
