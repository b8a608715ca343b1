#include <sim/parts/sim_node.hpp>

#include <proto/lease_record.hpp>
#include <redis/script_set.hpp>

#include <algorithm>
#include <charconv>

namespace sim {
namespace {

constexpr std::size_t copies_max = 8;
constexpr std::chrono::hours wall_at_start{480'000};
constexpr std::string_view lease_prefix = "fg:lease:";

lockcore::redis::reply convert(redis_reply&& from) {
    using to = lockcore::redis::reply::kind;
    // In the order of redis_reply::kind; the product does not tell a status from a text.
    constexpr to kinds[] = {to::nil, to::text, to::error, to::number, to::text, to::array};
    lockcore::redis::reply out;
    out.type = kinds[static_cast<std::size_t>(from.type)];
    out.text = std::move(from.text);
    out.number = from.number;
    if (from.type != redis_reply::kind::array) return out;
    out.elements.reserve(from.elements.size());
    for (redis_reply& element : from.elements)
        out.elements.push_back(convert(std::move(element)));
    return out;
}

std::string run_id_of(run_number run) {
    std::string out = std::to_string(run);
    return out.insert(0, 40 - out.size(), '0');
}

std::uint64_t hash_of(std::string_view text) {
    return std::hash<std::string_view>()(text);
}

}  // namespace

sim_node::sim_node(context& ctx, checkers& check, std::uint32_t index, bool syncs_every_write, drifting_clock clock)
    : ctx_(ctx),
      check_(check),
      index_(index),
      configured_to_sync_(syncs_every_write),
      syncs_every_write_(syncs_every_write),
      clock_(clock) {
    server_.before_write = [this](std::string_view key) {
        if (!key.starts_with(lease_prefix)) return;
        const bool known = std::ranges::any_of(touched_, [key](const auto& entry) { return entry.first == key; });
        if (!known) touched_.emplace_back(key, head_of(key));
    };
}

// --- process

void sim_node::apply_settings() {
    server_.config["appendonly"] = syncs_every_write_ ? "yes" : "no";
    server_.config["appendfsync"] = syncs_every_write_ ? "always" : "everysec";
}

void sim_node::start(run_number run) {
    run_ = run;
    server_.restart(run_id_of(run));
    apply_settings();
    if (std::exchange(sets_at_start_, false)) server_.execute({"CONFIG", "SET", "appendfsync", "always"});
    paused_until_ = sim_time{0};
}

void sim_node::crash(restart kind) {
    run_ = 0;
    syncs_every_write_ = configured_to_sync_;
    has_forgotten_ = has_forgotten_ || kind != restart::keeping;
    switch (kind) {
        case restart::keeping:
            ctx_.hit(probe::node_kept_data);
            break;
        case restart::losing:
            ctx_.hit(probe::node_lost_data);
            server_.data = {};
            copies_.clear();
            has_older_data_ = false;
            break;
        case restart::older_file:
            ctx_.hit(probe::node_loaded_older_file);
            restore_copy();
            has_older_data_ = true;
            sets_at_start_ = true;
            break;
        case restart::rolled_back:
            ctx_.hit(probe::node_rolled_back);
            restore_copy();
            // After a loss of data its operator may set appendfsync to `always`.
            if (ctx_.rng.chance(ctx_.config.fsync_switched_per_thousand)) {
                ctx_.hit(probe::fsync_switched);
                configured_to_sync_ = syncs_every_write_ = true;
            }
            break;
    }
}

void sim_node::flush() {
    save_copy();
    has_forgotten_ = true;
    server_.execute({"FLUSHALL"});
    ctx_.hit(probe::node_flushed);
}

void sim_node::replace_data() {
    save_copy();
    has_older_data_ = has_older_data_ || field_of_node("run") != server_.run_id;
    ctx_.hit(probe::node_data_replaced);
    if (ctx_.rng.chance(500)) {
        server_.count_call("debug");  // DEBUG RELOAD
        server_.data = copies_[ctx_.rng.below(static_cast<std::uint32_t>(copies_.size()))];
    } else {  // with another maxmemory-policy for a while
        server_.execute({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
        server_.execute({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
        ++server_.evicted_keys;
        server_.data.erase_if([](const std::string& key) { return key != "fg:node"; });
    }
    require_comparison();
}

void sim_node::end_sync() {
    if (!syncs_every_write_) return;
    ctx_.hit(probe::sync_ended);
    // With appendfsync `always` the disk has only the newest state.
    copies_.clear();
    save_copy();
    syncs_every_write_ = false;
    server_.execute({"CONFIG", "SET", "appendfsync", "everysec"});
    require_comparison();
}

/// Has the next script compare the marks. A node compares them once in each 10 ms, and what happens between a command
/// and the end of those 10 ms is not promised (docs/protocol.md, "Not promised").
void sim_node::require_comparison() {
    server_.execute({"HDEL", "fg:node", "compared"});
}

std::string sim_node::field_of_node(std::string_view name) {
    set_clock();
    redis_value* node = server_.data.find("fg:node", server_.now());
    const std::string* value = node ? node->find_field(name) : nullptr;
    return value ? *value : std::string();
}

bool sim_node::is_admitted_as(run_number run) {
    return field_of_node("run") == run_id_of(run);
}

void sim_node::load_script(lockcore::command_kind kind) {
    for (const bool shared : {false, true})
        server_.execute({"SCRIPT", "LOAD", lockcore::redis::script_for(kind, shared).text});
}

bool sim_node::has_unnoticed_loss() {
    if (field_of_node("run") != server_.run_id) return false;
    const redis_reply stats = server_.execute({"INFO", "commandstats"});
    std::uint64_t lost = 0;
    for (const char* name : {"cmdstat_flushall:calls=", "cmdstat_debug:calls="}) {
        const std::size_t at = stats.text.find(name);
        if (at != std::string::npos)
            lost += std::strtoull(stats.text.c_str() + at + std::string_view(name).size(), nullptr, 10);
    }
    const std::string evicted = field_of_node("evicted");
    return std::strtoull(field_of_node("marks").c_str(), nullptr, 10) != lost ||
           std::strtoull(evicted.c_str(), nullptr, 10) != server_.evicted_keys;
}

void sim_node::restore_copy() {
    if (copies_.empty()) {
        server_.data = {};
        return;
    }
    const std::size_t back_to = ctx_.rng.below(static_cast<std::uint32_t>(copies_.size()));
    server_.data = copies_[back_to];
    copies_.resize(back_to + 1);  // later states are lost for good
}

void sim_node::save_copy() {
    if (copies_.size() == copies_max) copies_.erase(copies_.begin() + ctx_.rng.below(copies_max));
    copies_.push_back(server_.data);
}

void sim_node::set_clock() {
    server_.set_clock(wall_at_start + clock_.of(ctx_.now()) + jumped_);
}

// --- data

sim_node::lease_head sim_node::head_of(std::string_view key) {
    lease_head out;
    const redis_value* value = server_.data.find(key, server_.now());
    if (!value) return out;
    const std::string_view text = value->text;
    out.nonce = nonce_of_lease(text);
    if (out.nonce == 0) return out;
    // 'nonce stamp …', or 'nonce stamp:token …' if the two differ.
    const char* const end = text.data() + text.size();
    const auto stamp = std::from_chars(text.data() + lockcore::nonce::size + 1, end, out.stamp);
    out.token = out.stamp;
    if (stamp.ptr < end && *stamp.ptr == ':') std::from_chars(stamp.ptr + 1, end, out.token);
    return out;
}

void sim_node::for_each_lease(std::uint32_t resource, const std::function<void(const std::string&)>& f) {
    set_clock();
    const std::string key = std::string(lease_prefix) + name_of(ctx_.config, resource).str();
    std::vector<std::string> keys;
    for (auto found = server_.data.keys().lower_bound(key); found != server_.data.keys().end(); ++found) {
        if (!found->first.starts_with(key)) break;
        if (found->first == key || found->first[key.size()] == '\t') keys.push_back(found->first);
    }
    for (const std::string& found : keys) {
        if (head_of(found).nonce != 0) f(found);
    }
}

std::vector<sim_nonce> sim_node::holders_of(std::uint32_t resource) {
    std::vector<sim_nonce> out;
    for_each_lease(resource, [&](const std::string& key) { out.push_back(head_of(key).nonce); });
    return out;
}

bool sim_node::has_lease_of(const lockcore::acquire_request& granted, std::uint32_t resource) {
    bool out = false;
    for_each_lease(resource, [&](const std::string& key) {
        const redis_value* value = server_.data.find(key, server_.now());
        out = out || value->text.find(lockcore::make_idempotency_digest(granted).text) != std::string::npos;
    });
    return out;
}

bool sim_node::outlives(std::uint32_t resource, milliseconds longest) {
    bool out = false;
    for_each_lease(resource, [&](const std::string& key) {
        const redis_value* value = server_.data.find(key, server_.now());
        out = out || value->expires_at == redis_value::never || value->expires_at - server_.now() > longest;
    });
    return out;
}

void sim_node::report_stamps() {
    for (const auto& [key, before] : touched_) {
        const lease_head after = head_of(key);
        if (before.nonce != 0 && after.nonce == 0) check_.lease_deleted(index_, before.nonce);
        // A lease that was installed has the stamp 0, which is none.
        if (after.nonce == 0 || after.stamp == 0 || (after.nonce == before.nonce && after.stamp == before.stamp))
            continue;
        check_.stamped(index_, resource_of(std::string_view(key).substr(lease_prefix.size())),
                       key.find('\t') != std::string::npos, after.nonce, after.stamp, after.token);
    }
    touched_.clear();
}

// --- commands

reply sim_node::execute(const request& q) {
    set_clock();
    reply out;
    redis_arguments command;
    for (const std::string& text : *q.commands) {
        std::string_view rest = text;
        parse_command(rest, command);
        const bool is_script = command[0].starts_with("EVAL");
        if (is_script && ctx_.rng.chance(120)) save_copy();
        const bool may_admit = command[0] == "EVAL";  // READMIT is sent with its text
        const std::string admitted = may_admit ? field_of_node("run") : std::string();
        redis_reply answer = server_.execute(command);
        if (is_script) report_stamps();
        touched_.clear();
        if (may_admit && admitted != server_.run_id && field_of_node("run") == server_.run_id) {  // READMIT
            has_older_data_ = has_forgotten_ = false;
            if (ctx_.rng.chance(500)) save_copy();
            for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
                if (!holders_of(r).empty()) ctx_.hit(probe::old_lease_survived_readmission);
            }
        }
        if (is_script) {
            const std::string& first = answer.elements.empty() ? answer.text : answer.elements[0].text;
            ctx_.note("node runs", index_, hash_of(text), hash_of(first), answer.elements.size());
            if (ctx_.record.prints()) ctx_.record.print(text, first);
        }
        out.answers.push_back(convert(std::move(answer)));
    }
    for (const sim_nonce undone : q.undone) {
        for (std::uint32_t r = 0; r < ctx_.config.resources; ++r) {
            const std::vector<sim_nonce> left = holders_of(r);
            const bool remains = std::ranges::find(left, undone) != left.end();
            if (!out.answers[0].is_error() && remains && !check_.has_hold_request(undone))
                check_.key_left(index_, r, undone, "the attempt failed and was undone here");
        }
    }
    return out;
}

}  // namespace sim
