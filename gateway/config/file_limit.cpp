#include <gateway/config/file_limit.hpp>

#include <sys/resource.h>

#include <algorithm>

namespace fencegate {
namespace {

/// More files than any configuration needs; a higher limit counts as this.
constexpr rlim_t files_useful = rlim_t{1} << 22U;
/// Fewest HTTP connections with which a gateway starts.
constexpr std::size_t connections_min = 16;

}  // namespace

file_limit divide_files(std::size_t files, const config& cfg) {
    constexpr std::size_t per_worker = 4;       // writes, isolated writes, reads, and one that is reconnecting
    constexpr std::size_t single_purposes = 8;  // history, group commit, idempotency keys, catalog, start and stop
    constexpr std::size_t per_node = 3;         // requests, messages, and one that is reconnecting
    constexpr std::size_t per_thread = 6;       // event loop and listening socket
    constexpr std::size_t process_itself = 32;  // standard streams, name resolution, a connection that is being refused
    const std::size_t threads = cfg.http.threads;
    file_limit out;
    out.files = files;
    out.reserved = per_worker * cfg.postgres.connections + single_purposes +
                   per_node * cfg.protocol.nodes.size() * threads + per_thread * threads + process_itself;
    const std::size_t left = files - std::min(files, out.reserved);
    if (left >= std::min(connections_min, cfg.http.connections_max))
        out.connections = std::min(left, cfg.http.connections_max);
    return out;
}

file_limit raise_file_limit(const config& cfg) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return divide_files(0, cfg);
    const rlim_t wanted = std::min(limit.rlim_max, std::max(limit.rlim_cur, files_useful));
    if (wanted > limit.rlim_cur) {
        rlimit raised = limit;
        raised.rlim_cur = wanted;
        if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
    }
    return divide_files(static_cast<std::size_t>(std::min(limit.rlim_cur, files_useful)), cfg);
}

std::string file_limit::describe(const config& cfg) const {
    const std::string files_text = std::to_string(files) + " open files allowed, of them " + std::to_string(reserved) +
                                   " reserved for PostgreSQL, Redis and the process";
    if (connections == 0) return files_text + "; too few are left for HTTP: raise the hard limit (ulimit -Hn)";
    std::string text = "http.connections_max is " + std::to_string(cfg.http.connections_max);
    if (connections < cfg.http.connections_max)
        text += ", of which " + std::to_string(connections) + " fit; raise the hard limit of open files (ulimit -Hn)";
    return text + "; " + files_text;
}

}  // namespace fencegate
