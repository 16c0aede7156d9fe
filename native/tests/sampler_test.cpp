#include "core/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"

using namespace syrinx;

// The sanitizers bring their own operator new, which checks more than ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#  define SYRINX_COUNT_ALLOCATIONS 0
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#    define SYRINX_COUNT_ALLOCATIONS 0
#  endif
#endif
#if !defined(SYRINX_COUNT_ALLOCATIONS)
#  define SYRINX_COUNT_ALLOCATIONS 1
static thread_local size_t g_allocations = 0;

void * operator new(size_t size) {
    ++g_allocations;
    if (void * memory = std::malloc(size > 0 ? size : 1)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void * memory) noexcept { std::free(memory); }
void operator delete(void * memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

syrinx_sampler_params make_params(float temperature = 1.0f, int32_t top_k = 0, float top_p = 1.0f, float penalty = 1.0f,
                                  int32_t window = 0, uint64_t seed = 1) {
    return {sizeof(syrinx_sampler_params), temperature, top_k, top_p, penalty, window, seed};
}

using Row = std::vector<float>;

int32_t sample(Sampler & sampler, const Row & logits) {
    return sampler.sample(logits.data(), static_cast<int32_t>(logits.size()));
}

std::vector<float> probs(Sampler & sampler, const Row & logits) {
    std::vector<float> out(logits.size(), -1.0f);
    sampler.probs(logits.data(), static_cast<int32_t>(logits.size()), out.data());
    return out;
}

std::vector<float> probs(const syrinx_sampler_params & params, const Row & logits) {
    Sampler sampler(params);
    return probs(sampler, logits);
}

std::vector<int32_t> kept(const std::vector<float> & p) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < p.size(); ++i) {
        if (p[i] > 0.0f) {
            ids.push_back(static_cast<int32_t>(i));
        }
    }
    return ids;
}

using Ids = std::vector<int32_t>;

std::string error_of(const std::function<void()> & call) {
    try {
        call();
    } catch (const Error & error) {
        CHECK(error.status() == SYRINX_ERR_INVALID_ARGUMENT);
        return error.what();
    }
    return "no error";
}

// The ids that the rules of sampler.h leave, by sorting everything.
Ids find_kept_by_sorting(const Row & logits, const syrinx_sampler_params & p) {
    std::vector<double> scores;
    Ids ids(logits.size());
    for (const float logit : logits) {
        scores.push_back(static_cast<double>(logit) / static_cast<double>(p.temperature));
    }
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return scores[a] < scores[b]; });
    const auto first_finite = [&](int32_t id) { return !std::isinf(scores[id]); };
    ids.erase(ids.begin(), std::find_if(ids.begin(), ids.end(), first_finite));
    const size_t k = static_cast<size_t>(p.top_k);
    if (k > 0 && k < ids.size()) {
        const double kth = scores[ids[ids.size() - k]];
        ids.erase(ids.begin(), std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return scores[id] >= kth; }));
    }
    double total = 0.0, sum = 0.0;
    for (const int32_t id : ids) {
        total += std::exp(scores[id] - scores[ids.back()]);
    }
    size_t n_removed = 0;
    while (p.top_p < 1.0f && n_removed + 1 < ids.size()) {
        sum += std::exp(scores[ids[n_removed]] - scores[ids.back()]) / total;
        if (sum > 1.0 - static_cast<double>(p.top_p)) {
            break;
        }
        ++n_removed;
    }
    ids.erase(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n_removed));
    std::sort(ids.begin(), ids.end());
    return ids;
}

Row random_row(Pcg32 & random, size_t n) {
    const uint32_t kind = random.next() % 4;
    const float scale = std::ldexp(1.0f, static_cast<int>(random.next() % 12) - 4);
    Row row;
    for (size_t i = 0; i < n; ++i) {
        const float unit = static_cast<float>(static_cast<int32_t>(random.next())) * 0x1p-31f;
        const bool out = kind == 3 && random.next() % 2 == 0;
        const float stepped = kind == 1 ? std::floor(unit * 4.0f) : kind == 2 ? 0.0f : unit;
        row.push_back(out ? -kInf : stepped * scale);
    }
    row[random.next() % n] = 0.5f;
    return row;
}

struct Golden {
    float temperature;
    int32_t top_k;
    float top_p, penalty;
    int32_t window;
    uint64_t seed;
    int32_t n;
    Ids tokens;
};

const Golden kGolden[] = {
#include "data/sampler_golden.inc"
};

}  // namespace

TEST_SUITE_BEGIN("sampler");

TEST_CASE("the reference's published sequence") {
    Pcg32 random(42);
    for (const uint32_t expected : {0xa15c02b7u, 0x7b47f409u, 0xba1d3330u, 0x83d2f293u, 0xbfa4784bu, 0xcbed606eu}) {
        CHECK(random.next() == expected);
    }
    Pcg32 again(42);
    CHECK(again.next64() == 0xa15c02b77b47f409u);
    Pcg32 other(42, 55);
    CHECK(other.next() != 0xa15c02b7u);
}

TEST_CASE("multiply_high is the high half of the whole product") {
    const uint64_t most = ~uint64_t{0};
    CHECK(multiply_high(most, most) == most - 1);
    CHECK(multiply_high(most, 1) == 0);
    CHECK(multiply_high(uint64_t{1} << 63u, 6) == 3);
    CHECK(multiply_high(0x100000001u, most) == 0x100000000u);
    CHECK(multiply_high(0xfedcba9876543210u, 0x123456789abcdef0u) == 0x121fa00ad77d7422u);
    CHECK(multiply_high(0x123456789abcdef0u, 0xfedcba9876543210u) == 0x121fa00ad77d7422u);
}

TEST_CASE("its exp is good to 1e-15 and the same to the bit on every target") {
    double worst = 0.0;
    Pcg32 random(4);
    for (int i = 0; i < 200000; ++i) {
        const double unit = static_cast<double>(random.next()) * 0x1p-32;
        const double x = -std::ldexp(unit, static_cast<int>(random.next() % 64) - 54);
        if (x >= -700.0) {
            worst = std::max(worst, std::fabs(exp_portable(x) / std::exp(x) - 1.0));
        }
    }
    CHECK(worst < 1e-15);
    CHECK(exp_portable(0.0) == 1.0);
    CHECK(exp_portable(-700.0) > 0.0);
    CHECK(exp_portable(-701.0) == 0.0);
    CHECK(exp_portable(-std::numeric_limits<double>::infinity()) == 0.0);
    // All bits of many values in one number: a fused multiply-add or another libm would change it.
    uint64_t digest = 0;
    for (int i = 0; i < 1000; ++i) {
        digest = digest * 31 + static_cast<uint64_t>(exp_portable(-i * 0.0337) * 0x1p62);
    }
    CHECK(digest == 8187151119914718277u);
}

TEST_CASE("draws the golden tokens") {
    for (const Golden & golden : kGolden) {
        CAPTURE(golden.seed);
        CAPTURE(golden.n);
        Sampler sampler(
            make_params(golden.temperature, golden.top_k, golden.top_p, golden.penalty, golden.window, golden.seed));
        Pcg32 random(golden.seed, 1);
        Row row(static_cast<size_t>(golden.n));
        Ids tokens;
        while (tokens.size() < golden.tokens.size()) {
            for (float & logit : row) {
                logit = static_cast<float>(static_cast<int32_t>(random.next() >> 8u) - (1 << 23)) * 0x1p-20f;
            }
            tokens.push_back(sample(sampler, row));
            sampler.accept(tokens.back());
        }
        CHECK(tokens == golden.tokens);
    }
}

TEST_CASE("keeps what sorting everything would keep") {
    Pcg32 random(5);
    for (int round = 0; round < 4000; ++round) {
        CAPTURE(round);
        const size_t n = round % 100 == 0 ? 20000 : 1 + random.next() % 300;
        const Row row = random_row(random, n);
        const float temperatures[] = {0.01f, 0.7f, 1.0f, 3.0f, 100.0f};
        const float top_ps[] = {0.0f, 0.1f, 0.25f, 0.5f, 0.9f, 0.999f, 1.0f - 0x1p-24f, 1.0f};
        const int32_t top_ks[] = {0, 1, 2, 10, static_cast<int32_t>(n) - 1, static_cast<int32_t>(n), 1 << 30};
        const auto params =
            make_params(temperatures[random.next() % 5], top_ks[random.next() % 7], top_ps[random.next() % 8]);
        const std::vector<float> p = probs(params, row);
        REQUIRE(kept(p) == find_kept_by_sorting(row, params));
        REQUIRE(std::accumulate(p.begin(), p.end(), 0.0) == doctest::Approx(1.0).epsilon(1e-5));
    }
}

TEST_CASE("temperature 0 is the highest logit after the penalty, the lowest id among equals") {
    Sampler sampler(make_params(0.0f, 1, 0.0f, 2.0f, -1));
    const Row row = {-kInf, 3.0f, 4.0f, 4.0f, -1.0f};
    CHECK(sample(sampler, row) == 2);
    CHECK(probs(sampler, row) == Row{0, 0, 1, 0, 0});
    sampler.accept(2);
    CHECK(sample(sampler, row) == 3);
    sampler.accept(3);
    CHECK(sample(sampler, row) == 1);
    CHECK(sample(sampler, {-1.0f, -1.5f, -1.2f, -1.3f}) == 0);
}

TEST_CASE("the penalty multiplies negative logits and divides others, once per distinct id") {
    Sampler sampler(make_params(1.0f, 0, 1.0f, 2.0f, -1));
    for (const int32_t token : {0, 1, 1, 1, 0, 1}) {
        sampler.accept(token);
    }
    const Row penalized = probs(sampler, {-1.0f, 1.0f, 0.25f, 0.0f});
    CHECK(penalized == probs(make_params(), {-2.0f, 0.5f, 0.25f, 0.0f}));
}

TEST_CASE("the window is the last n accepted tokens") {
    const Row row = {1.0f, 1.0f, 1.0f, 1.0f};
    const auto penalized = [&](int32_t window, const Ids & history) {
        Sampler sampler(make_params(1.0f, 0, 1.0f, 2.0f, window));
        for (const int32_t token : history) {
            sampler.accept(token);
        }
        const std::vector<float> p = probs(sampler, row);
        const float highest = *std::max_element(p.begin(), p.end());
        Ids ids;
        for (int32_t id = 0; id < 4; ++id) {
            if (p[id] < highest) {
                ids.push_back(id);
            }
        }
        return ids;
    };
    CHECK(penalized(0, {0, 1, 2}).empty());
    CHECK(penalized(1, {0, 1, 2}) == Ids{2});
    CHECK(penalized(2, {0, 1, 2}) == Ids{1, 2});
    CHECK(penalized(2, {0, 1, 2, 3, 0}) == Ids{0, 3});
    CHECK(penalized(3, {3, 0, 0, 0}) == Ids{0});
    CHECK(penalized(100, {0, 1, 2}) == Ids{0, 1, 2});
    CHECK(penalized(-1, {0, 1, 2}) == Ids{0, 1, 2});
    CHECK(penalized(-1, {}).empty());
    CHECK(penalized(2, {0, 1, 4}) == Ids{1});  // an id without a logit takes its place in the window
    CHECK(penalized(-1, {2147483647, 1}) == Ids{1});
}

TEST_CASE("a history outlives rows of other lengths") {
    Sampler sampler(make_params(0.0f, 0, 1.0f, 4.0f, -1));
    sampler.accept(1);
    sampler.accept(5);
    CHECK(sample(sampler, {1, 2}) == 0);
    CHECK(sample(sampler, {1, 2, 0, 0, 0, 3}) == 0);
    CHECK(sample(sampler, {1}) == 0);
    CHECK(sample(sampler, {1, 2, 0, 0, 0, 9, 0}) == 5);
}

TEST_CASE("top-k is off at 0, everything beyond n, and keeps ties at the k-th") {
    const Row row = {1, 3, 2, 2, 0, -kInf};
    CHECK(kept(probs(make_params(1, 0), row)) == Ids{0, 1, 2, 3, 4});
    CHECK(kept(probs(make_params(1, 1), row)) == Ids{1});
    CHECK(kept(probs(make_params(1, 2), row)) == Ids{1, 2, 3});
    CHECK(kept(probs(make_params(1, 3), row)) == Ids{1, 2, 3});
    CHECK(kept(probs(make_params(1, 4), row)) == Ids{0, 1, 2, 3});
    CHECK(kept(probs(make_params(1, 6), row)) == Ids{0, 1, 2, 3, 4});
    CHECK(kept(probs(make_params(1, 2147483647), row)) == Ids{0, 1, 2, 3, 4});
    CHECK(kept(probs(make_params(1, 2), {7, 7, 7, 7})) == Ids{0, 1, 2, 3});
}

TEST_CASE("top-p removes while the sum from below is at most 1 - p; the higher id of equals stays") {
    const Row equal = {0, 0, 0, 0};
    CHECK(kept(probs(make_params(1, 0, 0.5f), equal)) == Ids{2, 3});
    CHECK(kept(probs(make_params(1, 0, 0.51f), equal)) == Ids{1, 2, 3});
    CHECK(kept(probs(make_params(1, 0, 0.0f), equal)) == Ids{3});
    CHECK(kept(probs(make_params(1, 0, 0.0f), {1, 5, 2})) == Ids{1});
    CHECK(kept(probs(make_params(1, 0, 1.0f), {0, 500})) == Ids{0, 1});
    CHECK(kept(probs(make_params(1, 0, 1.0f - 0x1p-24f), {0, 500})) == Ids{1});
    CHECK(kept(probs(make_params(1, 2, 0.5f), {0, 1, 1})) == Ids{2});
}

TEST_CASE("every kept token can be drawn, no other is, and probs draws nothing") {
    const auto params = make_params(1.0f, 3, 1.0f, 1.0f, 0, 77);
    const Row row = {0.5f, -kInf, 1.0f, 0.7f, 0.2f};
    Sampler sampler(params), other(params);
    const std::vector<float> p = probs(sampler, row);
    std::vector<int> counts(row.size(), 0);
    for (int i = 0; i < 20000; ++i) {
        const int32_t token = sample(sampler, row);
        probs(sampler, row);
        REQUIRE(token == sample(other, row));
        ++counts[token];
    }
    for (size_t i = 0; i < row.size(); ++i) {
        CHECK(counts[i] == doctest::Approx(20000 * static_cast<double>(p[i])).epsilon(0.05));
    }
    CHECK(counts[1] + counts[4] == 0);
}

TEST_CASE("extreme logits and temperatures stay finite") {
    const float most = std::numeric_limits<float>::max();
    const float least = std::numeric_limits<float>::denorm_min();
    for (const float temperature : {least, 1e-30f, 1.0f, most}) {
        for (const float penalty : {least, 1.0f, most}) {
            Sampler sampler(make_params(temperature, 0, 0.9f, penalty, -1));
            sampler.accept(0);
            sampler.accept(1);
            const std::vector<float> p = probs(sampler, {most, -most, 0.0f, -0.0f, least});
            CHECK(std::accumulate(p.begin(), p.end(), 0.0) == doctest::Approx(1.0));
            CHECK(sample(sampler, {most, -most, 0.0f, -0.0f, least}) >= 0);
        }
    }
}

TEST_CASE("reset gives history and random state of creation") {
    Sampler sampler(make_params(1.0f, 0, 1.0f, 1.5f, -1, 9));
    const Row row = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    const auto run = [&] {
        Ids tokens;
        for (int i = 0; i < 50; ++i) {
            tokens.push_back(sample(sampler, row));
            sampler.accept(tokens.back());
        }
        return tokens;
    };
    const Ids first = run();
    CHECK(run() != first);
    sampler.reset();
    CHECK(run() == first);
}

TEST_CASE("refuses options out of range, by name and value") {
    const auto refusal = [](const syrinx_sampler_params & params) { return error_of([&] { Sampler s(params); }); };
    CHECK(refusal(make_params(-0.5f)).find("temperature is -0.5:") == 0);
    CHECK(refusal(make_params(kNan)).find("temperature is nan:") == 0);
    CHECK(refusal(make_params(kInf)).find("temperature is inf:") == 0);
    CHECK(refusal(make_params(1, -1)).find("top_k is -1:") == 0);
    CHECK(refusal(make_params(1, 0, -0.1f)).find("top_p is -0.1:") == 0);
    CHECK(refusal(make_params(1, 0, 1.5f)).find("top_p is 1.5:") == 0);
    CHECK(refusal(make_params(1, 0, kNan)).find("top_p is nan:") == 0);
    CHECK(refusal(make_params(1, 0, 1, 0.0f)).find("repetition_penalty is 0:") == 0);
    CHECK(refusal(make_params(1, 0, 1, -1.0f)).find("repetition_penalty is -1:") == 0);
    CHECK(refusal(make_params(1, 0, 1, kNan)).find("repetition_penalty is nan:") == 0);
    CHECK(refusal(make_params(1, 0, 1, kInf)).find("repetition_penalty is inf:") == 0);
    CHECK(refusal(make_params(1, 0, 1, 1, -2)).find("penalty_window is -2:") == 0);
    CHECK(refusal(make_params(-0.0f, 0, 0, 1, -1)) == "no error");
}

TEST_CASE("refuses logits it cannot choose from, and is as before") {
    for (const float temperature : {0.0f, 1.0f}) {
        Sampler sampler(make_params(temperature)), untouched(make_params(temperature));
        const auto refusal = [&](const Row & row) {
            const std::string text = error_of([&] { sample(sampler, row); });
            CHECK(error_of([&] { probs(sampler, row); }) == text);
            return text;
        };
        CHECK(refusal({}).find("n is 0:") == 0);
        CHECK(error_of([&] { sampler.sample(nullptr, -3); }).find("n is -3:") == 0);
        CHECK(refusal({0, 1, kNan}).find("logit 2 of 3 is NaN:") == 0);
        CHECK(refusal({0, kInf, kNan}).find("logit 1 of 3 is +Inf:") == 0);
        CHECK(refusal({-kInf, -kInf}).find("all 2 logits are -Inf:") == 0);
        CHECK(error_of([&] { sampler.accept(-1); }).find("token -1 ") == 0);
        const Row row = {0.1f, 0.2f, 0.3f, 0.4f};
        for (int i = 0; i < 20; ++i) {
            CHECK(sample(sampler, row) == sample(untouched, row));
        }
    }
}

#if SYRINX_COUNT_ALLOCATIONS
TEST_CASE("allocates nothing after the first call with some n") {
    const syrinx_sampler_params all[] = {make_params(0.0f, 0, 1, 1.2f, 8), make_params(1.0f, 5, 1, 1.2f, 8),
                                         make_params(1.0f, 0, 0.9f, 1.2f, 8), make_params(3.0f, 500, 0.9f, 1.2f, 8)};
    for (const syrinx_sampler_params & params : all) {
        Sampler sampler(params);
        Pcg32 random(6);
        Row row = random_row(random, 1000), p(1000);
        for (int32_t i = 0; i < 8; ++i) {
            sampler.accept(sample(sampler, row));
        }
        size_t n_before = g_allocations;
        row = random_row(random, 1000);
        REQUIRE(g_allocations > n_before);  // the count works
        for (int i = 0; i < 50; ++i) {
            Row next = random_row(random, 1000);
            n_before = g_allocations;
            sampler.accept(sampler.sample(next.data(), 1000));
            sampler.probs(next.data(), 1000, p.data());
            CHECK(g_allocations == n_before);
        }
    }
}
#endif

TEST_SUITE_END();
