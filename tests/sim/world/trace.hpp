#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace sim {

/// The name of a trace entry. Its hash is computed at compile time; the text is used only when the trace is printed.
struct label {
    // NOLINTNEXTLINE(google-explicit-constructor): callers pass a string literal
    consteval label(const char* words) : text(words), hash(14695981039346656037ULL) {
        for (char c : std::string_view(words))
            hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    }
    const char* text;
    std::uint64_t hash;
};

/// A hash over all events of a run: two runs of one seed must have the same one.
class trace {
  public:
    explicit trace(bool prints) : prints_(prints) {}

    void note(std::chrono::microseconds at, label name, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
              std::uint64_t d = 0) {
        mix(name.hash + static_cast<std::uint64_t>(at.count()));
        mix(a ^ (b << 20) ^ (c << 40));
        mix(d);
        if (prints_)
            std::printf("%10.3f ms  %-34s %llu %llu %llu %llu\n", static_cast<double>(at.count()) / 1'000.0, name.text,
                        static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                        static_cast<unsigned long long>(c), static_cast<unsigned long long>(d));
    }
    std::uint64_t hash() const { return hash_; }
    bool prints() const { return prints_; }
    /// Prints what is not part of the hash: a command without the text of its script, and its answer.
    void print(std::string_view command, std::string_view answer) const {
        std::string text;
        for (int line = 0; !command.empty(); ++line) {  // the number of arguments, then a length before each of them
            const std::size_t end = std::min(command.find("\r\n"), command.size());
            if (line > 0 && line % 2 == 0 && end < 400) text.append(command.substr(0, end)).append(" | ");
            command.remove_prefix(std::min(end + 2, command.size()));
        }
        text.append("-> ").append(answer);
        for (char& c : text) {
            if (c == '\n') c = '/';
        }
        std::printf("               %s\n", text.c_str());
    }

  private:
    void mix(std::uint64_t v) {
        hash_ = (hash_ ^ v) * 0x9fb21c651e98df25ULL;
        hash_ ^= hash_ >> 32;
    }

    std::uint64_t hash_ = 0x6a09e667f3bcc908ULL;
    bool prints_;
};

}  // namespace sim
