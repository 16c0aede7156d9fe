// libFuzzer target: any bytes at all must be accepted or refused with an Error of the documented statuses, and what is
// accepted must be the same file to ggml's own reader.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/error.h"
#include "core/gguf_check.h"
#include "gguf_differential.h"

using namespace syrinx;

namespace {

[[noreturn]] void stop(const char * what, const char * text) {
    std::fprintf(stderr, "%s: %s\n", what, text);
    std::abort();
}

bool is_documented(syrinx_status status) { return status == SYRINX_ERR_BAD_MODEL || status == SYRINX_ERR_UNSUPPORTED; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    try {
        const GgufFile file = GgufFile::parse(data, size, "fuzz");
        const std::string difference = differ_from_ggml(file, data, size);
        if (!difference.empty()) {
            stop("ggml sees another file", difference.c_str());
        }
        check_llama_rules(file);
    } catch (const Error & error) {
        if (!is_documented(error.status())) {
            stop("undocumented status", error.what());
        }
        // Texts go to JSON and to a terminal.
        for (const char * c = error.what(); *c; ++c) {
            if (static_cast<unsigned char>(*c) < 0x20 || static_cast<unsigned char>(*c) > 0x7e) {
                stop("unprintable error text", error.what());
            }
        }
    }
    return 0;
}
