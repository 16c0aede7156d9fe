// Random numbers that are the same on every target: PCG32, XSH-RR 64/32 (O'Neill, https://www.pcg-random.org).
//
//   state' = state * 6364136223846793005 + increment (mod 2^64), increment = 2 * stream + 1
//   output = rotate_right32(((state >> 18) ^ state) >> 27, state >> 59), of the state before the step
//
// Seeded as the reference does: from state 0 one step, add the seed, one step. Stream 54 with seed 42 is the reference's
// published test sequence: a15c02b7 7b47f409 ba1d3330 83d2f293 bfa4784b cbed606e.
#pragma once

#include <cstdint>

namespace syrinx {

class Pcg32 {
public:
    explicit Pcg32(uint64_t seed, uint64_t stream = 54) : increment_((stream << 1u) | 1u) {
        next();
        state_ += seed;
        next();
    }

    uint32_t next() {
        const uint64_t old = state_;
        state_ = old * 6364136223846793005u + increment_;
        const auto mixed = static_cast<uint32_t>(((old >> 18u) ^ old) >> 27u);
        const auto turn = static_cast<uint32_t>(old >> 59u);
        return (mixed >> turn) | (mixed << ((32u - turn) & 31u));
    }

    // Two outputs; the first is the high half.
    uint64_t next64() {
        const uint64_t high = next();
        return (high << 32u) | next();
    }

private:
    uint64_t state_ = 0;
    uint64_t increment_;
};

// floor(a * b / 2^64), without a 128-bit type: not every target's compiler has one.
inline uint64_t multiply_high(uint64_t a, uint64_t b) {
    const uint64_t a_low = a & 0xffffffffu, a_high = a >> 32u;
    const uint64_t b_low = b & 0xffffffffu, b_high = b >> 32u;
    const uint64_t low = (a_low * b_low) >> 32u;
    const uint64_t middle = a_high * b_low + low;
    const uint64_t middle2 = a_low * b_high + (middle & 0xffffffffu);
    return a_high * b_high + (middle >> 32u) + (middle2 >> 32u);
}

}  // namespace syrinx
