// UTF-8: checking what comes in, and repairing what a model says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace syrinx {

// U+FFFD, which stands for bytes that are not UTF-8.
constexpr char kReplacement[] = "\xEF\xBF\xBD";

// Well-formed by the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF. `first_bad` (may be
// null) receives where the first ill-formed sequence begins; an incomplete one at the end counts. `bytes` if none.
bool is_valid_utf8(const char * text, size_t bytes, size_t * first_bad = nullptr);

// Turns bytes, in pieces of any size, into whole UTF-8 characters. Each maximal subpart of an ill-formed sequence (the
// Unicode standard's and WHATWG's rule) becomes one U+FFFD, as soon as the byte that proves it wrong has been seen.
class Utf8Repairer {
public:
    // Appends to `out` what the bytes complete; an incomplete character at their end waits for the next call.
    void push(const char * text, size_t bytes, std::string & out);

    // Appends one U+FFFD to `out` if a character was left incomplete, and is ready for a new text.
    void finish(std::string & out);

private:
    void push_byte(uint8_t byte, std::string & out);

    char pending_[4] = {};
    size_t n_pending_ = 0;
    size_t n_missing_ = 0;   // bytes that the pending character still needs
    uint8_t lowest_ = 0x80;  // range of the next one
    uint8_t highest_ = 0xBF;
};

}  // namespace syrinx
