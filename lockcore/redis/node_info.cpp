#include <redis/node_info.hpp>

#include <charconv>

namespace lockcore::redis {

std::string_view find_info_field(std::string_view info, std::string_view key) {
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

std::uint64_t parse_number(std::string_view text) {
    std::uint64_t n = 0;
    std::from_chars(text.data(), text.data() + text.size(), n);
    return n;
}

namespace {

command_marks marks_from(const std::string& text, std::string_view evicted) {
    command_marks m;
    if (!text.empty()) {
        m.text = text;
        m.lost = text.substr(0, text.rfind(' '));
    }
    if (!evicted.empty()) m.evicted = evicted;
    return m;
}

bool syncs_every_write(const raw_node_facts& raw, const command_marks& marks) {
    // INFO is checked too, for it shows whether the configuration is in effect.
    if (raw.persistence != "appendonly yes appendfsync always no-appendfsync-on-rewrite no " ||
        !raw.replays_transactions || find_info_field(raw.info, "aof_enabled") != "1" ||
        find_info_field(raw.info, "aof_last_write_status") != "ok")
        return false;
    // After a change of settings, a rewrite may be the one that begins a new append-only file: a crash before its end
    // restores the old file.
    const bool rewriting = find_info_field(raw.info, "aof_rewrite_in_progress") != "0" ||
                           find_info_field(raw.info, "aof_rewrite_scheduled") != "0" ||
                           find_info_field(raw.info, "aof_last_bgrewrite_status") != "ok";
    return !rewriting || marks.text == command_marks().text;
}

}  // namespace

node_facts parse_node_facts(const raw_node_facts& raw) {
    node_facts f;
    f.run_id = find_info_field(raw.info, "run_id");
    const std::string_view mode = find_info_field(raw.info, "redis_mode");
    f.role = mode == "sentinel" ? mode : find_info_field(raw.info, "role");
    f.cluster_mode = mode == "cluster" || find_info_field(raw.info, "cluster_enabled") == "1";
    const std::string_view version = find_info_field(raw.info, "redis_version");
    if (parse_number(version) < 7) f.outdated_version = version;
    f.maxmemory_policy = find_info_field(raw.info, "maxmemory_policy");
    if (raw.record.size() == record_fields) {
        f.marks = marks_from(raw.record[0], find_info_field(raw.info, "evicted_keys"));
        f.admitted_run_id = raw.record[1];
        f.admitted_epoch = epoch{parse_number(raw.record[2]) / tokens_per_epoch};
        f.claim = raw.record[3];
        f.admitted_marks = marks_from(raw.record[4], raw.record[5]);
        f.kept_unsynced = raw.record[6] == "no";
        f.floor_epoch = epoch{parse_number(raw.record[7])};
    }
    f.syncs_every_write = syncs_every_write(raw, f.marks);
    return f;
}

}  // namespace lockcore::redis
