// The one exception type of the native code. It is thrown with a status and a sentence for the user, and turned into
// a status code at the C ABI (src/api); nothing else may leave a function there.
#pragma once

#include <cstdarg>
#include <stdexcept>
#include <string>

#include "syrinx/syrinx.h"

namespace syrinx {

class Error : public std::runtime_error {
public:
    Error(syrinx_status status, const std::string & text) : std::runtime_error(text), status_(status) {}
    syrinx_status status() const { return status_; }

private:
    syrinx_status status_;
};

// printf-style formatting into a std::string.
std::string format(const char * fmt, ...) __attribute__((format(printf, 1, 2)));

// throw Error(status, format(...)); says what happened and what to do about it.
[[noreturn]] void fail(syrinx_status status, const char * fmt, ...) __attribute__((format(printf, 2, 3)));

}  // namespace syrinx
