#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace syrinx {

TextStream::TextStream(std::vector<std::string> stops, Sink sink) : sink_(std::move(sink)) {
    stops_.reserve(stops.size());
    for (size_t i = 0; i < stops.size(); ++i) {
        stops_.push_back(make_stop(std::move(stops[i]), i));
    }
}

TextStream::Stop TextStream::make_stop(std::string text, size_t index) {
    size_t first_bad = 0;
    if (text.empty()) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "stop string %zu is empty: leave it out", index);
    }
    if (!is_valid_utf8(text.data(), text.size(), &first_bad)) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "stop string %zu is not UTF-8 from its byte %zu on", index, first_bad);
    }
    Stop stop{std::move(text), {}, 0};
    stop.fallback.assign(stop.text.size(), 0);
    for (size_t i = 1, n = 0; i < stop.text.size(); ++i) {
        while (n > 0 && stop.text[i] != stop.text[n]) {
            n = stop.fallback[n - 1];
        }
        n += stop.text[i] == stop.text[n] ? 1 : 0;
        stop.fallback[i] = n;
    }
    return stop;
}

// True when the byte completes the stop string.
bool TextStream::advance(Stop & stop, char byte) {
    size_t & n = stop.n_matched;
    if (n == stop.text.size()) {
        n = 0;  // it was found: one that overlaps it lies further right and does not matter
    }
    while (n > 0 && byte != stop.text[n]) {
        n = stop.fallback[n - 1];
    }
    n += byte == stop.text[n] ? 1 : 0;
    return n == stop.text.size();
}

StreamStatus TextStream::push(const char * text, size_t bytes) {
    if (status_ != StreamStatus::kContinue || finished_) {
        return status_;
    }
    const size_t first = held_.size();
    repairer_.push(text, bytes, held_);
    if (find_stop(first)) {
        return emit(stop_start_, StreamStatus::kStopped);
    }
    return emit(undecided_start(), StreamStatus::kContinue);
}

StreamStatus TextStream::finish() {
    if (status_ != StreamStatus::kContinue || finished_) {
        return status_;
    }
    finished_ = true;
    const size_t first = held_.size();
    repairer_.finish(held_);
    if (find_stop(first) || stop_start_ != std::string::npos) {
        return emit(stop_start_, StreamStatus::kStopped);
    }
    return emit(held_.size(), StreamStatus::kContinue);
}

// Matches held_ from `first` on. True when the leftmost stop string is known.
bool TextStream::find_stop(size_t first) {
    for (size_t i = first; i < held_.size(); ++i) {
        size_t undecided = i + 1;
        for (Stop & stop : stops_) {
            if (advance(stop, held_[i])) {
                stop_start_ = std::min(stop_start_, i + 1 - stop.text.size());
            } else {
                undecided = std::min(undecided, i + 1 - stop.n_matched);
            }
        }
        if (stop_start_ != std::string::npos && undecided >= stop_start_) {
            return true;
        }
    }
    return false;
}

// Where in held_ the leftmost beginning of a stop string lies; its end if there is none.
size_t TextStream::undecided_start() const {
    size_t start = held_.size();
    for (const Stop & stop : stops_) {
        start = std::min(start, held_.size() - stop.n_matched);
    }
    return start;
}

// Gives the first bytes of held_ to the sink.
StreamStatus TextStream::emit(size_t bytes, StreamStatus next) {
    status_ = next;
    if (bytes > 0 && sink_ && sink_(held_.data(), bytes) != 0) {
        status_ = StreamStatus::kCancelled;
    }
    held_.erase(0, bytes);
    if (stop_start_ != std::string::npos) {
        stop_start_ -= bytes;
    }
    return status_;
}

}  // namespace syrinx
