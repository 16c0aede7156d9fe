#include "core/error.h"

#include <cstdio>

namespace syrinx {

static std::string vformat(const char * fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    const int n = std::vsnprintf(nullptr, 0, fmt, args);
    std::string text(n > 0 ? static_cast<size_t>(n) : 0, '\0');
    if (n > 0) {
        std::vsnprintf(&text[0], text.size() + 1, fmt, again);
    }
    va_end(again);
    return text;
}

std::string format(const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    std::string text = vformat(fmt, args);
    va_end(args);
    return text;
}

void fail(syrinx_status status, const char * fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const std::string text = vformat(fmt, args);
    va_end(args);
    throw Error(status, text);
}

}  // namespace syrinx
