#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fencegate::bench {

/// What a client of `fencegate bench` does in one operation.
enum class bench_work {
    pair,   ///< Acquires and releases a lease on a resource of its own.
    hot,    ///< The same on one resource for all clients; the latency is the wait for the lease.
    write,  ///< Sells one piece of an article of its own under a lease that it keeps.
    job,    ///< Acquires a lease on any article, sells one piece, releases: three calls.
    sale,   ///< The same in one call.
    late,   ///< A job that may sleep until its lease has expired, before it sells: the guard refuses that.
};
inline constexpr std::array<std::string_view, 6> bench_works{"pair", "hot", "write", "job", "sale", "late"};

struct bench_options {
    std::map<bench_work, unsigned> mix;        ///< What clients do, and how often in proportion.
    std::string conninfo;                      ///< PostgreSQL, for the table of the articles; empty: nothing is sold.
    unsigned clients = 16;                     ///< Connections, each with one request at a time.
    unsigned articles = 1000;                  ///< Articles that job, sale and late choose from.
    std::uint64_t stock = 1'000'000'000;       ///< Pieces of each article.
    std::chrono::milliseconds length{10'000};  ///< What is measured, after `warm_up`.
    std::chrono::milliseconds warm_up{1'000};
    std::chrono::milliseconds ttl{10'000};
    std::chrono::milliseconds wait{10'000};  ///< How long a client waits for a lease.
    std::string name;                        ///< Part of the names of resources and table; empty: a random one.
    std::optional<std::uint64_t> seed;       ///< Of the clients' choices; empty: random.
    bool keyed = false;                      ///< Each write and each acquisition has an Idempotency-Key.
};

}  // namespace fencegate::bench
