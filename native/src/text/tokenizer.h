// Text to token ids and back, with the checks that llama.cpp leaves to its callers.
#pragma once

#include <string>
#include <vector>

#include "backbone/model.h"

namespace syrinx {

// Throws UNSUPPORTED without a tokenizer, INVALID_ARGUMENT (with the byte offset) where the text is not UTF-8.
std::vector<int32_t> tokenize(const Model & model, const std::string & text, bool add_special, bool parse_special);

// The bytes of one token; they may end inside a UTF-8 character. special: show control tokens.
std::string token_piece(const Model & model, int32_t token, bool special);

// Ends a turn or the text: generation stops there.
bool is_end_token(const Model & model, int32_t token);

}  // namespace syrinx
