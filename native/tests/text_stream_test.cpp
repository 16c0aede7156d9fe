#include "text/text_stream.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"

using namespace syrinx;

namespace {

struct Sink {
    std::string text;
    size_t n_calls = 0;
    size_t cancel_at = 0;  // the call that answers non-zero; 0 none

    int operator()(const char * piece, size_t bytes) {
        REQUIRE(bytes > 0);
        REQUIRE(is_valid_utf8(piece, bytes));
        text.append(piece, bytes);
        return ++n_calls == cancel_at ? 1 : 0;
    }
};

StreamStatus push(TextStream & stream, const std::string & bytes) { return stream.push(bytes.data(), bytes.size()); }

// Where the leftmost stop string begins in the whole text; npos if there is none.
size_t find_leftmost(const std::string & text, const std::vector<std::string> & stops) {
    size_t at = std::string::npos;
    for (const std::string & stop : stops) {
        at = std::min(at, text.find(stop));
    }
    return at;
}

// How much of `text` may be given out: up to the first place where a stop string may be beginning.
size_t find_safe_length(const std::string & text, const std::vector<std::string> & stops) {
    for (size_t at = 0; at < text.size(); ++at) {
        for (const std::string & stop : stops) {
            if (stop.compare(0, text.size() - at, text, at) == 0) {
                return at;
            }
        }
    }
    return text.size();
}

std::string repair(const std::string & bytes, bool finish) {
    Utf8Repairer repairer;
    std::string out;
    repairer.push(bytes.data(), bytes.size(), out);
    if (finish) {
        repairer.finish(out);
    }
    return out;
}

std::string random_pieces(Pcg32 & random, const std::vector<std::string> & pieces, size_t longest) {
    std::string text;
    for (size_t n = 1 + random.next() % longest; n > 0; --n) {
        text += pieces[random.next() % pieces.size()];
    }
    return text;
}

}  // namespace

TEST_SUITE_BEGIN("text_stream");

TEST_CASE("gives the text before the leftmost stop string, at once, however the bytes are cut") {
    Pcg32 random(3);
    const std::vector<std::string> sound = {"a", "b", "a", "b", "é", "è", "😀", kReplacement};
    const std::vector<std::string> bytes = {"a", "b", "a", "b", "é", "è", "😀", "\xC3", "\xF0\x9F", "\xFF"};
    size_t n_stopped = 0, n_ended = 0;
    for (int round = 0; round < 30000; ++round) {
        std::vector<std::string> stops;
        for (size_t n = random.next() % 4; n > 0; --n) {
            stops.push_back(random_pieces(random, sound, 5));
        }
        const std::string text = random_pieces(random, bytes, 30);
        Sink sink;
        TextStream stream(stops, std::ref(sink));
        StreamStatus status = StreamStatus::kContinue;
        std::string pushed;
        while (status == StreamStatus::kContinue && pushed.size() < text.size()) {
            const std::string piece = text.substr(pushed.size(), 1 + random.next() % 6);
            status = push(stream, piece);
            pushed += piece;
            const std::string known = repair(pushed, false);
            const size_t safe = std::min(find_safe_length(known, stops), find_leftmost(known, stops));
            REQUIRE(sink.text == known.substr(0, safe));
            // Stopped exactly when the leftmost stop string is complete and nothing further left is undecided.
            REQUIRE((status == StreamStatus::kStopped) == (find_leftmost(known, stops) == safe));
        }
        const std::string whole = repair(text, true);
        const size_t at = find_leftmost(whole, stops);
        status = stream.finish();
        REQUIRE(status == (at == std::string::npos ? StreamStatus::kContinue : StreamStatus::kStopped));
        REQUIRE(sink.text == whole.substr(0, at));
        (status == StreamStatus::kStopped ? n_stopped : n_ended) += 1;
    }
    CHECK(n_stopped > 5000);
    CHECK(n_ended > 5000);
}

TEST_CASE("a beginning of a stop string that comes to nothing is given out") {
    Sink sink;
    TextStream stream({"\n\nUser:"}, std::ref(sink));
    CHECK(push(stream, "Hi\n") == StreamStatus::kContinue);
    CHECK(sink.text == "Hi");
    CHECK(push(stream, "\nUse") == StreamStatus::kContinue);
    CHECK(sink.text == "Hi");
    CHECK(push(stream, "ful\n\n") == StreamStatus::kContinue);
    CHECK(sink.text == "Hi\n\nUseful");
    CHECK(push(stream, "\nUser") == StreamStatus::kContinue);
    CHECK(sink.text == "Hi\n\nUseful\n");
    SUBCASE("stop") {
        CHECK(push(stream, ": more") == StreamStatus::kStopped);
        CHECK(push(stream, "more") == StreamStatus::kStopped);
        CHECK(stream.finish() == StreamStatus::kStopped);
        CHECK(sink.text == "Hi\n\nUseful\n");
    }
    SUBCASE("end") {
        CHECK(stream.finish() == StreamStatus::kContinue);
        CHECK(stream.finish() == StreamStatus::kContinue);
        CHECK(push(stream, "late") == StreamStatus::kContinue);
        CHECK(sink.text == "Hi\n\nUseful\n\n\nUser");
    }
}

TEST_CASE("the leftmost stop string wins, also when another is complete before it") {
    for (const bool left_completes : {true, false}) {
        Sink sink;
        TextStream stream({"bc", "abcd"}, std::ref(sink));
        CHECK(push(stream, "xabc") == StreamStatus::kContinue);
        CHECK(sink.text == "x");
        CHECK(push(stream, left_completes ? "d" : "e") == StreamStatus::kStopped);
        CHECK(sink.text == (left_completes ? "x" : "xa"));
    }
    Sink sink;
    TextStream stream({"bc", "abcd"}, std::ref(sink));
    push(stream, "xabc");
    CHECK(stream.finish() == StreamStatus::kStopped);
    CHECK(sink.text == "xa");
}

TEST_CASE("a stop string may contain what invalid bytes become, and complete at the end") {
    Sink sink;
    TextStream stream({std::string("x") + kReplacement}, std::ref(sink));
    CHECK(push(stream, "ax\xE2\x82") == StreamStatus::kContinue);
    CHECK(sink.text == "a");
    CHECK(stream.finish() == StreamStatus::kStopped);
    CHECK(sink.text == "a");
}

TEST_CASE("the sink cancels") {
    Sink sink;
    sink.cancel_at = 2;
    TextStream stream({"stop"}, std::ref(sink));
    CHECK(push(stream, "one") == StreamStatus::kContinue);
    CHECK(push(stream, "two") == StreamStatus::kCancelled);
    CHECK(push(stream, "three") == StreamStatus::kCancelled);
    CHECK(stream.finish() == StreamStatus::kCancelled);
    CHECK(sink.text == "onetwo");
    SUBCASE("with the text before a stop string") {
        Sink last;
        last.cancel_at = 1;
        TextStream other({"stop"}, std::ref(last));
        CHECK(push(other, "one stop") == StreamStatus::kCancelled);
    }
    SUBCASE("with the text held back until the end") {
        Sink last;
        last.cancel_at = 1;
        TextStream other({"stop"}, std::ref(last));
        CHECK(push(other, "st") == StreamStatus::kContinue);
        CHECK(other.finish() == StreamStatus::kCancelled);
    }
}

TEST_CASE("works without a sink and without stop strings") {
    TextStream silent({"b"}, nullptr);
    CHECK(push(silent, "a") == StreamStatus::kContinue);
    CHECK(push(silent, "b") == StreamStatus::kStopped);
    Sink sink;
    TextStream plain({}, std::ref(sink));
    CHECK(plain.push(nullptr, 0) == StreamStatus::kContinue);
    CHECK(push(plain, "all of it") == StreamStatus::kContinue);
    CHECK(plain.finish() == StreamStatus::kContinue);
    CHECK(sink.text == "all of it");
}

TEST_CASE("refuses stop strings that cannot be matched") {
    const auto text_of = [](std::vector<std::string> stops) -> std::string {
        try {
            TextStream stream(std::move(stops), nullptr);
        } catch (const Error & error) {
            CHECK(error.status() == SYRINX_ERR_INVALID_ARGUMENT);
            return error.what();
        }
        return "accepted";
    };
    CHECK(text_of({"a", ""}) == "stop string 1 is empty: leave it out");
    CHECK(text_of({"a", "b", "c\xC3"}) == "stop string 2 is not UTF-8 from its byte 1 on");
    CHECK(text_of({"a", "é"}) == "accepted");
}

TEST_SUITE_END();
