// What must hold of a GGUF file before llama.cpp may open it. llama.cpp answers much of what is wrong with a file by
// ending the process (GGML_ASSERT, also on its compute threads), by dividing by zero, by indexing past an array, or by
// never returning; none of that may reach a host application. So a file is refused here if
//   1. its structure is unsound (see gguf_file.h), or
//   2. a value in it would have that effect: sizes, counts and ids out of range, tables of unequal length, weights of a
//      type that the operation they feed cannot take, a vocabulary its tokenizer cannot work with.
// Whatever llama.cpp itself refuses with an error (an architecture it does not know, a missing or misshapen tensor) is
// left to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/gguf_file.h"

namespace syrinx {

// What the rest of the engine needs to know of a checked file.
struct GgufSummary {
    uint32_t version = 0;
    uint64_t alignment = 0;
    uint64_t data_offset = 0;  // where tensor data begins
    uint64_t file_size = 0;
    uint64_t header_xxh64 = 0;  // of every byte before data_offset
    std::string architecture;
    std::vector<GgufTensor> tensors;
};

// Errors: those of GgufFile::read, and UNSUPPORTED for a sound file that this engine cannot drive (one part of a split
// model, a vision projector, a draft model without its target). The text names the key or tensor, and what to do.
GgufSummary check_gguf(const std::string & path);

// The same for a file in memory; `name` stands for it in error texts.
GgufSummary check_gguf(const uint8_t * data, size_t size, const std::string & name);

// Rule 2 alone. Errors: BAD_MODEL, UNSUPPORTED.
void check_llama_rules(const GgufFile & file);

}  // namespace syrinx
