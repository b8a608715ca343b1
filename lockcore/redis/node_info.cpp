#include <redis/node_info.hpp>

#include <charconv>

namespace lockcore::redis {

std::string_view info_field(std::string_view info, std::string_view key) {
    for (std::size_t at = 0; at < info.size();) {
        const std::size_t end = std::min(info.find('\n', at), info.size());
        std::string_view line = info.substr(at, end - at);
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ':')
            return line.substr(key.size() + 1);
        at = end + 1;
    }
    return {};
}

std::uint64_t number_from(std::string_view text) {
    std::uint64_t n = 0;
    std::from_chars(text.data(), text.data() + text.size(), n);
    return n;
}

node_facts facts_from(const node_look& look) {
    node_facts f;
    f.run_id = info_field(look.info, "run_id");
    const std::string_view mode = info_field(look.info, "redis_mode");
    f.role = mode == "sentinel" ? mode : info_field(look.info, "role");
    f.cluster_mode = mode == "cluster" || info_field(look.info, "cluster_enabled") == "1";
    f.maxmemory_policy = info_field(look.info, "maxmemory_policy");
    f.syncs_every_write = look.persistence == "yes always ";
    return f;
}

}  // namespace lockcore::redis
