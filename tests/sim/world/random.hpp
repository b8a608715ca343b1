#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <span>

namespace sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// The only random number generator of a run: xoshiro256**, seeded by splitmix64, integers only. The distributions of
/// the standard library differ between implementations, so a seed would not give the same run everywhere.
class random {
  public:
    explicit random(std::uint64_t seed) {
        for (std::uint64_t& word : state_) {
            seed += 0x9e3779b97f4a7c15ULL;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
            word = z ^ (z >> 31);
        }
    }

    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// Returns a number from 0 to n - 1.
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(((next() >> 32) * n) >> 32); }

    /// Returns a number from low to high, both included.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint32_t>(high - low + 1)));
    }
    microseconds between(microseconds low, microseconds high) {
        return microseconds{between(low.count(), high.count())};
    }
    milliseconds between(milliseconds low, milliseconds high) {
        return milliseconds{between(low.count(), high.count())};
    }

    bool chance(std::uint32_t per_thousand) { return below(1'000) < per_thousand; }

    /// Returns a span around `mean`, sometimes several times as long: a piecewise linear approximation of the
    /// exponential distribution.
    microseconds draw_around(microseconds mean) {
        const std::uint64_t bits = next();
        const auto halvings = static_cast<std::uint64_t>(std::countl_zero(bits | 1));
        const std::uint64_t steps = (halvings << 16) + (bits & 0xffff);
        constexpr std::uint64_t two_thirds = 43'691;  // of 2^16: makes the mean 1
        return microseconds{
            static_cast<std::int64_t>(((static_cast<std::uint64_t>(mean.count()) * steps >> 16) * two_thirds) >> 16)};
    }

    template <class T>
    T pick(std::span<const T> items) {
        return items[below(static_cast<std::uint32_t>(items.size()))];
    }
    template <class T, std::size_t N>
    T pick(const T (&items)[N]) {
        return items[below(N)];
    }

  private:
    std::array<std::uint64_t, 4> state_{};
};

}  // namespace sim
