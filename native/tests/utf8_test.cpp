#include "core/utf8.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/random.h"

using namespace syrinx;

namespace {

struct Case {
    const char * bytes;
    const char * repaired;
    size_t first_bad;
};

const Case kCases[] = {
#include "data/utf8_cases.inc"
};

std::string from_hex(const std::string & hex) {
    std::string bytes;
    for (size_t i = 0; i < hex.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

std::string encode(uint32_t code) {
    const auto tail = [code](uint32_t shift) { return static_cast<char>(0x80u | ((code >> shift) & 0x3fu)); };
    if (code < 0x80) {
        return {static_cast<char>(code)};
    }
    if (code < 0x800) {
        return {static_cast<char>(0xC0u | (code >> 6u)), tail(0)};
    }
    if (code < 0x10000) {
        return {static_cast<char>(0xE0u | (code >> 12u)), tail(6), tail(0)};
    }
    return {static_cast<char>(0xF0u | (code >> 18u)), tail(12), tail(6), tail(0)};
}

// Pushes `bytes` in pieces of at most `longest`, and checks that each answer is whole characters.
std::string repair(const std::string & bytes, size_t longest, Pcg32 & random) {
    Utf8Repairer repairer;
    std::string all;
    for (size_t at = 0; at < bytes.size();) {
        const size_t n = std::min(bytes.size() - at, 1 + random.next() % longest);
        std::string piece;
        repairer.push(bytes.data() + at, n, piece);
        REQUIRE(is_valid_utf8(piece.data(), piece.size()));
        all += piece;
        at += n;
    }
    repairer.finish(all);
    return all;
}

}  // namespace

TEST_SUITE_BEGIN("utf8");

TEST_CASE("agrees with Python's decoder, however the bytes are cut") {
    Pcg32 random(1);
    for (const Case & c : kCases) {
        CAPTURE(c.bytes);
        const std::string bytes = from_hex(c.bytes);
        const std::string repaired = from_hex(c.repaired);
        size_t first_bad = 0;
        CHECK(is_valid_utf8(bytes.data(), bytes.size(), &first_bad) == (c.first_bad == bytes.size()));
        CHECK(first_bad == c.first_bad);
        CHECK(is_valid_utf8(repaired.data(), repaired.size()));
        for (const size_t longest : {1, 2, 3, 100}) {
            CHECK(repair(bytes, longest, random) == repaired);
        }
    }
}

TEST_CASE("every character passes, every surrogate and everything above U+10FFFF does not") {
    Pcg32 random(2);
    for (uint32_t code = 0; code < 0x110800; ++code) {
        const std::string bytes = encode(code);
        const bool sound = (code < 0xD800 || code > 0xDFFF) && code <= 0x10FFFF;
        size_t first_bad = 99;
        if (is_valid_utf8(bytes.data(), bytes.size(), &first_bad) != sound || first_bad != (sound ? bytes.size() : 0) ||
            (repair(bytes, 1, random) == bytes) != sound) {
            FAIL("code point ", code);
        }
    }
}

TEST_CASE("an error is reported by the byte that proves it, a cut character not before the end") {
    Utf8Repairer repairer;
    std::string out;
    const auto push = [&](const char * bytes) {
        out.clear();
        repairer.push(bytes, std::char_traits<char>::length(bytes), out);
        return out;
    };
    CHECK(push("\xFF") == kReplacement);
    CHECK(push("\xE2").empty());
    CHECK(push("\x82").empty());
    CHECK(push("\xAC") == "\xE2\x82\xAC");
    CHECK(push("\xE0").empty());
    CHECK(push("\x9F") == std::string(kReplacement) + kReplacement);
    CHECK(push("\xF0\x90").empty());
    CHECK(push("x") == std::string(kReplacement) + "x");
    CHECK(push("\xF0\x9F\x98").empty());
    repairer.finish(out);
    CHECK(out == kReplacement);
    out.clear();
    repairer.finish(out);
    CHECK(out.empty());
    CHECK(push("\x80") == kReplacement);
}

TEST_CASE("nothing is read beyond the end") {
    size_t first_bad = 99;
    CHECK_FALSE(is_valid_utf8("a\u00e9", 2, &first_bad));
    CHECK(first_bad == 1);
    const std::vector<char> cut = {'\xF0', '\x9F'};
    CHECK_FALSE(is_valid_utf8(cut.data(), cut.size()));
}

TEST_CASE("empty text, and NUL bytes, are sound") {
    size_t first_bad = 99;
    CHECK(is_valid_utf8(nullptr, 0, &first_bad));
    CHECK(first_bad == 0);
    CHECK(is_valid_utf8("a\0b", 3, &first_bad));
    CHECK(first_bad == 3);
}

TEST_SUITE_END();
