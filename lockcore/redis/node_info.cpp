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

bool syncs_every_write(const node_look& look, const command_marks& marks) {
    // What INFO says counts too: the configuration may not be what is done.
    if (look.persistence != "appendonly yes appendfsync always no-appendfsync-on-rewrite no " ||
        info_field(look.info, "aof_enabled") != "1" || info_field(look.info, "aof_last_write_status") != "ok")
        return false;
    // Where settings were changed, a rewrite may be the one that begins a new file: until it has ended, a crash brings
    // back the file of before.
    const bool rewriting = info_field(look.info, "aof_rewrite_in_progress") != "0" ||
                           info_field(look.info, "aof_rewrite_scheduled") != "0" ||
                           info_field(look.info, "aof_last_bgrewrite_status") != "ok";
    return !rewriting || marks.text == command_marks().text;
}

}  // namespace

node_facts facts_from(const node_look& look) {
    node_facts f;
    f.run_id = info_field(look.info, "run_id");
    const std::string_view mode = info_field(look.info, "redis_mode");
    f.role = mode == "sentinel" ? mode : info_field(look.info, "role");
    f.cluster_mode = mode == "cluster" || info_field(look.info, "cluster_enabled") == "1";
    const std::string_view version = info_field(look.info, "redis_version");
    if (number_from(version) < 7) f.too_old = version;
    f.maxmemory_policy = info_field(look.info, "maxmemory_policy");
    if (look.record.size() == record_fields) {
        f.marks = marks_from(look.record[0], info_field(look.info, "evicted_keys"));
        f.admitted_run_id = look.record[1];
        f.admitted_epoch = epoch{number_from(look.record[2]) / tokens_per_epoch};
        f.claim = look.record[3];
        f.admitted_marks = marks_from(look.record[4], look.record[5]);
        f.kept_unsynced = look.record[6] == "no";
    }
    f.syncs_every_write = syncs_every_write(look, f.marks);
    return f;
}

}  // namespace lockcore::redis
