// Between a model's bytes and the user's callback: whole characters only, and an end at a stop string.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/utf8.h"

namespace syrinx {

enum class StreamStatus {
    kContinue,   // go on
    kStopped,    // a stop string was found; nothing more will be emitted
    kCancelled,  // the sink asked to stop; nothing more will be emitted
};

// Repairs UTF-8 (see Utf8Repairer), finds stop strings in the repaired text, and gives what lies before them to `sink`.
// The text emitted does not depend on how the bytes were cut into pushes: it ends where the leftmost stop string begins.
// Text that could still turn out to be the beginning of a stop string is held back. Where one stop string is complete
// and another, which began further left, may yet be, push answers kContinue until that is decided.
class TextStream {
public:
    // Whole UTF-8 characters, at least one. Returns 0 to go on, anything else to cancel.
    using Sink = std::function<int(const char * text, size_t bytes)>;

    // Errors: INVALID_ARGUMENT for a stop string that is empty or not UTF-8 (its index is named).
    TextStream(std::vector<std::string> stops, Sink sink);

    // Calls the sink at most once. After kStopped or kCancelled it answers the same and does nothing.
    StreamStatus push(const char * text, size_t bytes);

    // The end of the text: emits what was held back, as far as no stop string begins. Does nothing the second time.
    StreamStatus finish();

private:
    // Knuth-Morris-Pratt: after each byte, how much of the stop string's beginning the text ends with.
    struct Stop {
        std::string text;
        std::vector<size_t> fallback;  // [i]: longest proper prefix of text[0..i] that also ends it
        size_t n_matched = 0;
    };

    static Stop make_stop(std::string text, size_t index);
    static bool advance(Stop & stop, char byte);
    bool find_stop(size_t first);
    size_t undecided_start() const;
    StreamStatus emit(size_t bytes, StreamStatus next);

    std::vector<Stop> stops_;
    Sink sink_;
    Utf8Repairer repairer_;
    std::string held_;                       // repaired, not yet emitted
    size_t stop_start_ = std::string::npos;  // in held_: the leftmost complete stop string so far
    StreamStatus status_ = StreamStatus::kContinue;
    bool finished_ = false;
};

}  // namespace syrinx
