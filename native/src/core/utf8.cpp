#include "core/utf8.h"

namespace syrinx {

namespace {

// What a lead byte asks for: how many bytes follow, and the range of the first of them (the others are 80..BF).
struct Lead {
    size_t n_missing;
    uint8_t lowest;
    uint8_t highest;
    bool valid;
};

Lead classify_lead(uint8_t byte) {
    if (byte < 0x80) {
        return {0, 0x80, 0xBF, true};
    }
    if (byte >= 0xC2 && byte <= 0xDF) {
        return {1, 0x80, 0xBF, true};
    }
    if (byte >= 0xE0 && byte <= 0xEF) {
        return {2, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF),
                true};
    }
    if (byte >= 0xF0 && byte <= 0xF4) {
        return {3, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF),
                true};
    }
    return {0, 0x80, 0xBF, false};
}

}  // namespace

bool is_valid_utf8(const char * text, size_t bytes, size_t * first_bad) {
    size_t start = 0;
    bool valid = true;
    while (start < bytes && valid) {
        const Lead lead = classify_lead(static_cast<uint8_t>(text[start]));
        valid = lead.valid && lead.n_missing < bytes - start;
        for (size_t i = 1; valid && i <= lead.n_missing; ++i) {
            const auto byte = static_cast<uint8_t>(text[start + i]);
            valid = byte >= (i == 1 ? lead.lowest : 0x80) && byte <= (i == 1 ? lead.highest : 0xBF);
        }
        start += valid ? lead.n_missing + 1 : 0;
    }
    if (first_bad != nullptr) {
        *first_bad = start;
    }
    return valid;
}

void Utf8Repairer::push(const char * text, size_t bytes, std::string & out) {
    for (size_t i = 0; i < bytes; ++i) {
        push_byte(static_cast<uint8_t>(text[i]), out);
    }
}

void Utf8Repairer::finish(std::string & out) {
    if (n_missing_ > 0) {
        out += kReplacement;
    }
    n_pending_ = 0;
    n_missing_ = 0;
}

void Utf8Repairer::push_byte(uint8_t byte, std::string & out) {
    if (n_missing_ > 0 && (byte < lowest_ || byte > highest_)) {
        finish(out);  // the byte itself begins anew
    }
    if (n_missing_ > 0) {
        --n_missing_;
        lowest_ = 0x80;
        highest_ = 0xBF;
    } else {
        const Lead lead = classify_lead(byte);
        if (!lead.valid) {
            out += kReplacement;
            return;
        }
        n_missing_ = lead.n_missing;
        lowest_ = lead.lowest;
        highest_ = lead.highest;
    }
    pending_[n_pending_++] = static_cast<char>(byte);
    if (n_missing_ == 0) {
        out.append(pending_, n_pending_);
        n_pending_ = 0;
    }
}

}  // namespace syrinx
