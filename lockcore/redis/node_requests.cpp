#include <redis/node_requests.hpp>

#include <proto/lease_record.hpp>
#include <redis/resp.hpp>
#include <redis/script_set.hpp>

#include <algorithm>
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

/// `counts`: 'lost resets set'; empty: none was recorded.
command_marks marks_from(const std::string& counts, std::string_view evicted) {
    command_marks m;
    if (!counts.empty()) {
        m.text = counts;
        m.lost = counts.substr(0, counts.rfind(' '));
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
    // After a change of settings, which the marks count, a rewrite may be the one that begins a new append-only file: a
    // crash before its end restores the old file.
    const bool settings_changed = marks.text != command_marks().text;
    const bool rewriting = find_info_field(raw.info, "aof_rewrite_in_progress") != "0" ||
                           find_info_field(raw.info, "aof_rewrite_scheduled") != "0" ||
                           find_info_field(raw.info, "aof_last_bgrewrite_status") != "ok";
    return !rewriting || !settings_changed;
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

namespace {

std::string error_of(const reply& r) {
    return r.is_error() ? r.text : std::string();
}

std::string eval_on_node(const script& s, std::initializer_list<std::string_view> arguments) {
    resp_command out;
    out.arg("EVAL").arg(s.text).arg(std::uint64_t{1}).arg("fg:node");
    for (const std::string_view a : arguments)
        out.arg(a);
    return out.finish();
}

/// The commands that search for scripts. Where a node wants credentials and gets none, Redis answers NOAUTH to a
/// command of at most ten words, and closes the connection at a longer one.
constexpr std::size_t scripts_searched = 8;
constexpr std::size_t kinds_searched = scripts_searched / script_variants;
constexpr std::size_t searches = (command_kinds + kinds_searched - 1) / kinds_searched;

std::string format_script_search(std::size_t search) {
    resp_command out;
    out.arg("SCRIPT").arg("EXISTS");
    const std::size_t end = std::min((search + 1) * kinds_searched, command_kinds);
    for (std::size_t k = search * kinds_searched; k < end; ++k) {
        for (const bool shared : {false, true})
            out.arg(script_for(static_cast<command_kind>(k), shared).sha1);
    }
    return out.finish();
}

struct formatter {
    std::vector<std::string> operator()(const node_request::identify&) const {
        std::vector<std::string> out;
        for (std::size_t search = 0; search < searches; ++search)
            out.push_back(format_script_search(search));
        // The marks are read before the settings: a later change of the settings changes the marks too.
        out.push_back(eval_on_node(identify_script(), {}));
        out.push_back(resp_command().arg("INFO").finish());
        for (const std::string_view setting : sync_settings)
            out.push_back(resp_command().arg("CONFIG").arg("GET").arg(setting).finish());
        resp_command question;
        for (const std::string_view word : replay_question)
            question.arg(word);
        out.push_back(question.finish());
        return out;
    }
    std::vector<std::string> operator()(const node_request::write_claim& request) const {
        return {resp_command().arg("HSETNX").arg("fg:node").arg("claim").arg(request.claim).finish(),
                resp_command().arg("HGET").arg("fg:node").arg("claim").finish()};
    }
    std::vector<std::string> operator()(const node_request::load_scripts& request) const {
        std::vector<std::string> out;
        for (const command_kind kind : request.commands) {
            for (const bool shared : {false, true})
                out.push_back(resp_command().arg("SCRIPT").arg("LOAD").arg(script_for(kind, shared).text).finish());
        }
        return out;
    }
    std::vector<std::string> operator()(const node_request::delete_admission&) const {
        return {resp_command().arg("HDEL").arg("fg:node").arg("run").arg("claim").arg("mark").finish()};
    }
    std::vector<std::string> operator()(const node_request::readmit& request) const {
        return {eval_on_node(readmit_script(),
                             {request.run_id, std::to_string(value_of(request.drawn) * tokens_per_epoch), request.claim,
                              request.marks, request.syncs_every_write ? "yes" : "no", request.mark})};
    }
    std::vector<std::string> operator()(const node_request::announce& request) const {
        return {eval_on_node(announce_script(),
                             {request.run_id, std::to_string(value_of(request.floor.value)), request.floor.change_id,
                              std::to_string(floor_distance), std::to_string(value_of(request.seen))})};
    }
    std::vector<std::string> operator()(const node_request::ping&) const {
        return {resp_command().arg("PING").finish()};
    }
    std::vector<std::string> operator()(const node_request::mark& request) const {
        return {eval_on_node(mark_script(), {request.digits})};
    }
    std::vector<std::string> operator()(const node_request::read_leases& request) const {
        return {eval_on_node(read_leases_script(),
                             {request.run_id, request.base, request.cursor, std::to_string(request.page_size)})};
    }
    std::vector<std::string> operator()(const node_request::install& request) const {
        resp_command out;
        out.arg("EVAL").arg(install_script().text).arg(std::uint64_t{request.leases.size() + 1}).arg("fg:node");
        for (const lease_copy& lease : request.leases)
            out.arg("fg:lease:", lease.resource);
        out.arg(request.run_id).arg(request.mark);
        for (const lease_copy& lease : request.leases)
            out.arg(lease.value).arg(static_cast<std::uint64_t>(lease.remaining.count()));
        return {out.finish()};
    }
};

node_response::identified parse_identification(std::span<const reply> replies) {
    node_response::identified out;
    raw_node_facts raw;
    for (std::size_t search = 0; search < searches; ++search) {
        const std::vector<reply>& known_scripts = replies[search].elements;
        for (std::size_t i = 0; i < std::min(known_scripts.size(), scripts_searched); ++i) {
            const std::size_t k = search * kinds_searched + i / script_variants;
            if (k >= command_kinds || known_scripts[i].number == 1) continue;
            const auto kind = static_cast<command_kind>(k);
            if (out.missing_scripts.empty() || out.missing_scripts.back() != kind) out.missing_scripts.push_back(kind);
        }
    }
    // The order is that of the commands of format_request.
    const reply& record = replies[searches];
    const reply& info = replies[searches + 1];
    const std::span<const reply> settings = replies.subspan(searches + 2, sync_settings.size());
    const reply& replay = replies[searches + 2 + sync_settings.size()];
    out.record_refusal = error_of(record);
    for (const reply& field : record.elements)
        raw.record.push_back(field.text);
    out.refusal = error_of(info);
    raw.info = info.text;
    for (std::size_t i = 0; i < sync_settings.size(); ++i) {
        if (settings[i].elements.size() == 2)  // name and value
            raw.persistence += std::string(sync_settings[i]) + ' ' + settings[i].elements[1].text + ' ';
    }
    raw.replays_transactions = replay.text == "OK";
    out.facts = parse_node_facts(raw);
    out.has_record = raw.record.size() == record_fields;
    out.info_begin = raw.info.substr(0, 100);
    return out;
}

node_response::lease_page parse_page(const reply& answer) {
    node_response::lease_page out;
    out.refusal = error_of(answer);
    if (!out.refusal.empty()) return out;
    const std::vector<reply>& parts = answer.elements;  // base and cursor, then three parts for each lease
    if (parts.size() < 2 || parts.size() % 3 != 2) {
        out.refusal = "READ did not answer with a page";
        return out;
    }
    out.base = parts[0].text;
    out.cursor = parts[1].text;
    out.leases.reserve(parts.size() / 3);
    for (std::size_t i = 2; i < parts.size(); i += 3)
        out.leases.push_back({parts[i].text, limit_foreign_time(parts[i + 1].number), parts[i + 2].text});
    return out;
}

}  // namespace

std::vector<std::string> format_request(const node_request::any& request) {
    return std::visit(formatter{}, request);
}

node_response::any parse_response(const node_request::any& request, std::span<const reply> replies) {
    if (std::holds_alternative<node_request::identify>(request)) return parse_identification(replies);
    if (std::holds_alternative<node_request::read_leases>(request)) return parse_page(replies.front());
    node_response::text out;
    for (const reply& r : replies) {
        if (out.refusal.empty()) out.refusal = error_of(r);
    }
    out.value = replies.back().text;
    return out;
}

batch_reply parse_batch(command_kind kind, const reply& answer) {
    batch_reply out;
    if (answer.type != reply::kind::array) {
        out.error = answer.is_error() ? answer.text : "a script did not answer with a list";
        return out;
    }
    out.replies.reserve(answer.elements.size());
    for (const reply& item : answer.elements)
        out.replies.push_back(parse_reply(kind, item.text));
    return out;
}

std::optional<lease_end> parse_lease_end(const reply& message) {
    if (message.elements.size() != 3 || message.elements[0].text != "message") return std::nullopt;
    const std::string_view text = message.elements[2].text;
    const auto ended = nonce::parse(text.substr(0, nonce::size));
    if (!ended || text.size() <= nonce::size + 1) return std::nullopt;
    constexpr std::string_view revoked = " revoked";
    std::string_view resource = text.substr(nonce::size + 1);
    const bool is_revoked = resource.ends_with(revoked);
    if (is_revoked) resource.remove_suffix(revoked.size());
    return lease_end{*ended, resource, is_revoked};
}

}  // namespace lockcore::redis
