// What the metadata must say for llama.cpp's loader to be safe with it.
#pragma once

#include "core/gguf_view.h"

namespace syrinx {

// Throws Error(BAD_MODEL or UNSUPPORTED) that names the key. Gives the architecture.
std::string check_rules(const GgufView & file);

}  // namespace syrinx
