#include "text/tokenizer.h"

#include "backbone/runtime.h"
#include "core/error.h"
#include "core/utf8.h"
#include "llama.h"

namespace syrinx {

std::vector<int32_t> tokenize(const Model & model, const std::string & text, bool add_special, bool parse_special) {
    model.require_tokenizer();
    size_t bad = 0;
    if (!is_valid_utf8(text.data(), text.size(), &bad)) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "the text is not UTF-8 at byte %zu", bad);
    }
    if (text.size() > INT32_MAX / 2) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "the text of %zu bytes is too long to tokenize", text.size());
    }
    AbortGuard guard;
    const int32_t size = static_cast<int32_t>(text.size());
    std::vector<int32_t> tokens(text.size() + 8);
    int32_t n = llama_tokenize(model.vocab(), text.data(), size, tokens.data(), static_cast<int32_t>(tokens.size()),
                               add_special, parse_special);
    if (n < 0 && n != INT32_MIN) {
        tokens.resize(static_cast<size_t>(-n));
        n = llama_tokenize(model.vocab(), text.data(), size, tokens.data(), static_cast<int32_t>(tokens.size()),
                           add_special, parse_special);
    }
    if (n < 0) {
        fail(SYRINX_ERR_INTERNAL, "llama.cpp could not tokenize %d bytes (code %d)", size, n);
    }
    tokens.resize(static_cast<size_t>(n));
    return tokens;
}

std::string token_piece(const Model & model, int32_t token, bool special) {
    model.require_tokenizer();
    if (token < 0 || token >= model.facts().n_vocab) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "token %d is outside the vocabulary of %d", token, model.facts().n_vocab);
    }
    AbortGuard guard;
    std::string piece(32, '\0');
    int32_t n = llama_token_to_piece(model.vocab(), token, &piece[0], static_cast<int32_t>(piece.size()), 0, special);
    if (n < 0) {
        piece.resize(static_cast<size_t>(-n));
        n = llama_token_to_piece(model.vocab(), token, &piece[0], static_cast<int32_t>(piece.size()), 0, special);
    }
    piece.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return piece;
}

bool is_end_token(const Model & model, int32_t token) { return llama_vocab_is_eog(model.vocab(), token); }

}  // namespace syrinx
