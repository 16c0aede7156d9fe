#include "core/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "core/error.h"

#if defined(__FAST_MATH__)
#  error "sampler.cpp promises the same token on every target: compile it without -ffast-math"
#endif
static_assert(std::numeric_limits<double>::is_iec559 && FLT_EVAL_METHOD == 0,
              "sampler.cpp needs IEEE doubles without excess precision");

namespace syrinx {

double exp_portable(double x) {
    // Below, a result could be denormal, and threads differ in whether they flush those to zero.
    if (x < -700.0) {
        return 0.0;
    }
    // x = k ln 2 + r with |r| <= 0.35. The high part of ln 2 has 21 zero bits at its end: k * ln2_high is exact.
    constexpr double ln2_high = 0x1.62e42fee00000p-1;
    constexpr double ln2_low = 0x1.a39ef35793c76p-33;
    constexpr double inverse_ln2 = 0x1.71547652b82fep+0;
    const auto k = static_cast<int32_t>(x * inverse_ln2 - 0.5);
    const double r = (x - k * ln2_high) - k * ln2_low;
    // Taylor series: the first term left out, r^14 / 14!, is below 5e-18.
    constexpr double coefficients[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                                       1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                                       1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
    double tail = 0.0;
    for (const double coefficient : coefficients) {
        tail = tail * r + coefficient;
    }
    const double mantissa = 1.0 + (r + r * r * tail);
    const uint64_t bits = static_cast<uint64_t>(k + 1023) << 52u;
    double power;
    std::memcpy(&power, &bits, sizeof(power));
    return mantissa * power;
}

namespace {

void check_params(const syrinx_sampler_params & p) {
    const syrinx_status bad = SYRINX_ERR_INVALID_ARGUMENT;
    if (!(p.temperature >= 0.0f) || std::isinf(p.temperature)) {
        fail(bad, "temperature is %g: give 0 for greedy choice, or a finite number above 0", p.temperature);
    }
    if (p.top_k < 0) {
        fail(bad, "top_k is %d: give 0 to turn it off, or the number of tokens to keep", p.top_k);
    }
    if (!(p.top_p >= 0.0f && p.top_p <= 1.0f)) {
        fail(bad, "top_p is %g: give a number from 0 to 1 (1 turns it off)", p.top_p);
    }
    if (!(p.repetition_penalty > 0.0f) || std::isinf(p.repetition_penalty)) {
        fail(bad, "repetition_penalty is %g: give a finite number above 0 (1 turns it off)", p.repetition_penalty);
    }
    if (p.penalty_window < -1) {
        fail(bad, "penalty_window is %d: give a number of tokens, 0 to turn it off, or -1 for the whole history",
             p.penalty_window);
    }
}

}  // namespace

void TokenHistory::push(int32_t token) {
    if (window_ == 0) {
        return;
    }
    if (window_ < 0 || tokens_.size() < static_cast<size_t>(window_)) {
        tokens_.push_back(token);
        return;
    }
    tokens_[oldest_] = token;
    oldest_ = (oldest_ + 1) % tokens_.size();
}

void TokenHistory::clear() {
    tokens_.clear();
    oldest_ = 0;
}

Sampler::Sampler(const syrinx_sampler_params & params)
    : params_(params), history_(params.penalty_window), random_(params.seed) {
    check_params(params);
}

int32_t Sampler::sample(const float * logits, int32_t n) {
    load_scores(logits, n);
    if (params_.temperature == 0.0f) {
        return static_cast<int32_t>(find_best());
    }
    find_candidates();
    uint64_t left = multiply_high(random_.next64(), quantize_weights());
    size_t i = 0;
    for (; quanta_[i] <= left; ++i) {
        left -= quanta_[i];
    }
    return candidates_[i].id;
}

void Sampler::probs(const float * logits, int32_t n, float * probs) {
    load_scores(logits, n);
    std::fill_n(probs, n, 0.0f);
    if (params_.temperature == 0.0f) {
        probs[find_best()] = 1.0f;
        return;
    }
    find_candidates();
    const auto total = static_cast<double>(quantize_weights());
    for (size_t i = 0; i < candidates_.size(); ++i) {
        probs[candidates_[i].id] = static_cast<float>(static_cast<double>(quanta_[i]) / total);
    }
}

void Sampler::accept(int32_t token) {
    if (token < 0) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "token %d cannot be accepted: ids start at 0", token);
    }
    history_.push(token);
}

void Sampler::reset() {
    history_.clear();
    random_ = Pcg32(params_.seed);
}

// Fills scores_ with the penalized logits.
void Sampler::load_scores(const float * logits, int32_t n) {
    if (n < 1) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "n is %d: there must be at least one logit to choose from", n);
    }
    scores_.resize(static_cast<size_t>(n));
    bool any = false;
    for (int32_t i = 0; i < n; ++i) {
        const float logit = logits[i];
        if (!(logit <= FLT_MAX)) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "logit %d of %d is %s: check the model and its input", i, n,
                 std::isnan(logit) ? "NaN" : "+Inf");
        }
        any = any || logit >= -FLT_MAX;
        scores_[i] = static_cast<double>(logit);
    }
    if (!any) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "all %d logits are -Inf: nothing is left to choose from", n);
    }
    penalize(n);
}

void Sampler::penalize(int32_t n) {
    if (params_.repetition_penalty == 1.0f || history_.tokens().empty()) {
        return;
    }
    penalized_.resize(static_cast<size_t>(n));
    const double penalty = params_.repetition_penalty;
    for (const int32_t token : history_.tokens()) {
        if (token < n && penalized_[token] == 0) {
            penalized_[token] = 1;
            scores_[token] = scores_[token] < 0.0 ? scores_[token] * penalty : scores_[token] / penalty;
        }
    }
    for (const int32_t token : history_.tokens()) {
        if (token < n) {
            penalized_[token] = 0;
        }
    }
}

size_t Sampler::find_best() const {
    return static_cast<size_t>(std::max_element(scores_.begin(), scores_.end()) - scores_.begin());
}

// Fills candidates_ with the tokens that temperature, top-k and top-p leave, and their weights.
void Sampler::find_candidates() {
    const double temperature = params_.temperature;
    double highest = -std::numeric_limits<double>::infinity();
    for (double & score : scores_) {
        score /= temperature;
        highest = std::max(highest, score);
    }
    const size_t k = static_cast<size_t>(params_.top_k);
    const double kth = k > 0 && k < scores_.size() ? find_kth_score() : -std::numeric_limits<double>::infinity();
    candidates_.clear();
    candidates_.reserve(scores_.size());
    for (size_t i = 0; i < scores_.size(); ++i) {
        if (scores_[i] >= kth && scores_[i] >= -DBL_MAX) {
            candidates_.push_back({static_cast<int32_t>(i), scores_[i], exp_portable(scores_[i] - highest)});
        }
    }
    if (params_.top_p < 1.0f) {
        apply_top_p();
    }
}

// The top_k-th highest score; 0 < top_k < n. Collects what beats the best k so far and shrinks when it has twice as
// many: one pass of comparisons that mostly fail, instead of sorting the vocabulary.
double Sampler::find_kth_score() {
    const size_t k = static_cast<size_t>(params_.top_k);
    const size_t capacity = std::min(scores_.size(), 2 * k + 64);
    highest_.reserve(capacity);
    highest_.clear();
    const auto shrink = [&] {
        std::nth_element(highest_.begin(), highest_.begin() + static_cast<ptrdiff_t>(k - 1), highest_.end(),
                         std::greater<double>());
        highest_.resize(k);
    };
    double kth = -std::numeric_limits<double>::infinity();
    for (const double score : scores_) {
        if (highest_.size() < k || score > kth) {
            highest_.push_back(score);
        }
        if (highest_.size() == capacity) {
            shrink();
            kth = highest_[k - 1];
        }
    }
    shrink();
    return highest_[k - 1];
}

void Sampler::apply_top_p() {
    const Boundary boundary = find_boundary();
    size_t ties = 0;
    const auto removed = [&](const Candidate & c) {
        return c.score < boundary.score || (c.score == boundary.score && ties++ < boundary.ties_removed);
    };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), removed), candidates_.end());
}

// Finds where the running sum of probabilities, from the lowest score up, passes 1 - top_p, by selection as in
// quickselect: each round splits the undecided scores at a pivot and goes on in the part that holds the boundary. A run
// of equal scores is summed one by one as a sort would, so that a row of ties ends where Hugging Face's does to the bit.
// (Where different scores sum to within 1e-15 of the limit, the order of summation decides, there as here.)
Sampler::Boundary Sampler::find_boundary() {
    const double limit = 1.0 - static_cast<double>(params_.top_p);
    const double total = sum_weights();
    undecided_.reserve(scores_.size());
    undecided_ = candidates_;
    for (Candidate & c : undecided_) {
        c.weight /= total;
    }
    const auto drop = [&](auto condition) {
        undecided_.erase(std::remove_if(undecided_.begin(), undecided_.end(), condition), undecided_.end());
    };
    Pcg32 pivots(0);   // no input is slow on purpose; the choice does not change the result
    double sum = 0.0;  // of all that is decided to go
    Boundary lowest_kept{-1.0, 0};
    bool any_kept = false;
    while (true) {
        const double pivot = undecided_[pivots.next() % undecided_.size()].score;
        double below = sum;
        size_t ties = 0;
        for (const Candidate & c : undecided_) {
            below += c.score < pivot ? c.weight : 0.0;
        }
        if (below > limit) {
            lowest_kept = {pivot, 0};
            any_kept = true;
            drop([&](const Candidate & c) { return c.score >= pivot; });
            continue;
        }
        sum = below;
        for (const Candidate & c : undecided_) {
            if (c.score == pivot) {
                sum += c.weight;
                if (sum > limit) {
                    return {pivot, ties};
                }
                ++ties;
            }
        }
        drop([&](const Candidate & c) { return c.score <= pivot; });
        if (undecided_.empty()) {  // with some kept: rounding, for the parts were summed in another order
            return any_kept ? lowest_kept : Boundary{pivot, ties - 1};
        }
    }
}

double Sampler::sum_weights() const {
    double sum = 0.0;
    for (const Candidate & c : candidates_) {
        sum += c.weight;
    }
    return sum;
}

// Fills quanta_ and returns its sum, which is below 2^63. The highest score's weight is 1, so the sum of n weights lies
// in 1..n, and scaled by a power of two just below 2^62.
uint64_t Sampler::quantize_weights() {
    const double sum = sum_weights();
    double scale = 0x1p62;
    for (double bound = 1.0; bound < sum; bound *= 2.0) {
        scale /= 2.0;
    }
    uint64_t total = 0;
    quanta_.reserve(scores_.size());
    quanta_.resize(candidates_.size());
    for (size_t i = 0; i < candidates_.size(); ++i) {
        quanta_[i] = std::max<uint64_t>(1, static_cast<uint64_t>(candidates_[i].weight * scale));
        total += quanta_[i];
    }
    return total;
}

}  // namespace syrinx
