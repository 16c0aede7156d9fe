// The model's own Jinja chat template, rendered by llama.cpp's Jinja engine.
#pragma once

#include <string>
#include <vector>

#include "backbone/model.h"

namespace syrinx {

struct Message {
    std::string role;
    std::string content;
};

struct Prompt {
    std::string text;
    std::vector<int32_t> tokens;
};

// Throws UNSUPPORTED (no template; the template refuses these messages, with its reason), INVALID_ARGUMENT (a role
// that is no plain word, content that is not UTF-8).
Prompt apply_chat_template(const Model & model, const std::vector<Message> & messages, bool add_generation_prompt);

}  // namespace syrinx
