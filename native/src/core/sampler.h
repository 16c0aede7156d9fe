// Logits -> token, with the order and the rules of Hugging Face's logits processors:
//
//   1. repetition penalty, once per distinct id of the history: negative logits multiplied, others divided
//   2. temperature; 0 ends here with the highest logit, the lowest id among equals
//   3. top-k: every score below the k-th highest goes; ties with it stay
//   4. top-p: scores are summed as probabilities from the lowest up, and go as long as the sum is <= 1 - top_p; among
//      equal scores the lower id goes first; the highest score always stays (the highest id among equals)
//   5. multinomial over what is left
//
// The same logits, history and seed give the same token on every target. Scores are doubles and computed with nothing
// but +, -, *, / and comparisons, which IEEE 754 fixes to the bit (libm's exp differs between C libraries). The draw is
// on integers: a kept token weighs trunc(exp(score - highest) * 2^s), at least 1, with s such that the weights sum to
// about 2^62; sample takes 64 bits r from the generator and returns the lowest id whose running sum of weights, in order
// of ids, exceeds floor(r * total / 2^64). Each sample that is not greedy takes exactly one such r.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "syrinx/syrinx.h"

namespace syrinx {

// The tokens that the repetition penalty looks at: the last `window` ones; none for 0; all for -1.
class TokenHistory {
public:
    explicit TokenHistory(int32_t window) : window_(window) {}
    void push(int32_t token);
    void clear();
    const std::vector<int32_t> & tokens() const { return tokens_; }  // in no particular order

private:
    int32_t window_;
    std::vector<int32_t> tokens_;
    size_t oldest_ = 0;  // where the next token goes once the window is full
};

// Not safe for two threads at once. Working memory is kept: after a first call with some n, later calls with that n
// allocate nothing.
class Sampler {
public:
    // Errors: INVALID_ARGUMENT, naming the option and its value.
    explicit Sampler(const syrinx_sampler_params & params);

    // logits[n]; -Inf rules a token out. Errors: INVALID_ARGUMENT for n < 1, NaN or +Inf (the index is named), or no
    // finite logit; nothing has changed then.
    int32_t sample(const float * logits, int32_t n);

    // What sample would draw from, into probs[n]: above 0 for every kept token, exactly 0 for the others.
    void probs(const float * logits, int32_t n, float * probs);

    // Puts a token into the history. An id of n or more (another vocabulary's) is no error: it takes its place in the
    // window and has no logit to change. Errors: INVALID_ARGUMENT for a negative id.
    void accept(int32_t token);

    // History and random state as at creation.
    void reset();

private:
    struct Candidate {
        int32_t id;
        double score;
        double weight;  // exp(score - highest score), 0..1
    };
    // The highest score that top-p removes tokens of, and how many of its ties go (the lowest ids); lower scores all go.
    struct Boundary {
        double score;
        size_t ties_removed;
    };

    void load_scores(const float * logits, int32_t n);
    void penalize(int32_t n);
    size_t find_best() const;
    void find_candidates();
    double find_kth_score();
    void apply_top_p();
    Boundary find_boundary();
    double sum_weights() const;
    uint64_t quantize_weights();

    syrinx_sampler_params params_;
    TokenHistory history_;
    Pcg32 random_;

    std::vector<double> scores_;         // [n]
    std::vector<uint8_t> penalized_;     // [n], all 0 between calls
    std::vector<double> highest_;        // find_kth_score's
    std::vector<Candidate> candidates_;  // in order of ids
    std::vector<Candidate> undecided_;   // find_boundary's; weights are probabilities
    std::vector<uint64_t> quanta_;       // of candidates_
};

// exp(x) for x <= 0, to 1e-15 relative, from IEEE operations alone; 0 below -700.
double exp_portable(double x);

}  // namespace syrinx
