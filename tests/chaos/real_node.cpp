#include <chaos/real_node.hpp>
#include <proto/lease_record.hpp>

#include <algorithm>

namespace sim {

std::string hex16(std::uint64_t n) {
    return std::string(lockcore::nonce::from_bits(n, 0).str().substr(0, 16));
}

std::vector<lockcore::resource_name> make_names() {
    std::vector<lockcore::resource_name> out;
    const auto name = [](std::uint32_t i) { return *lockcore::resource_name::parse("d" + std::to_string(i)); };
    std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;
    for (std::uint32_t i = 0; out.size() < 4; ++i) {
        const std::uint32_t bucket = name(i).bucket();
        const auto same = std::find_if(seen.begin(), seen.end(), [&](const auto& s) { return s.first == bucket; });
        if (same != seen.end()) {
            out.push_back(name(same->second));
            out.push_back(name(i));
        }
        seen.emplace_back(bucket, i);
    }
    out.push_back(*lockcore::resource_name::parse("alone"));
    return out;
}

std::string text(const redisReply* r) {
    return r && r->str ? std::string(r->str, r->len) : std::string();
}

lease_parts split_lease(const std::string& lease, const std::vector<lockcore::resource_name>& names) {
    lease_parts out;
    const auto record = lockcore::lease_record::parse(lease);
    if (!record) return {lease, {}, {}, {}};
    out.head = std::string(record->attempt_id.str()) + ' ' + std::to_string(lockcore::value_of(record->token)) + ' ' +
               std::to_string(record->renewals) + ' ' + record->keys + ' ' + record->holder.principal + ' ' +
               record->holder.owner;
    for (const auto& r : record->resources) {
        const auto known = std::find(names.begin(), names.end(), r);
        out.head += known == names.end() ? ' ' + r.str() : " r" + std::to_string(known - names.begin());
    }
    std::size_t holds = 0;  // after the line of resources: holds, tombstones, CLOSE mark, marks
    for (int line = 0; line < 4; ++line)
        holds = lease.find('\n', holds) + 1;
    out.rest = lease.substr(holds);
    out.ttl = record->ttl;
    out.held = record->held;
    return out;
}

bool is_close(milliseconds a, milliseconds b) {
    return a - b < clock_tolerance && b - a < clock_tolerance;
}

lockcore::redis::lease_call make_call(const request& q, const std::vector<lockcore::resource_name>& names) {
    lockcore::redis::lease_call call;
    for_each_resource(q.resources, [&](std::uint32_t r) { call.resources.push_back(names[r]); });
    call.attempt_id = lockcore::nonce::from_bits(0, q.nonce);
    call.ttl = q.ttl;
    lockcore::lease_claims claims;
    claims.resources = call.resources;
    claims.holder.principal = "p" + std::to_string(q.holder.principal);
    if (q.holder.owner != 0) claims.holder.owner = "o" + std::to_string(q.holder.owner);
    const std::string key = q.key.key_hash == 0 ? "" : hex16(q.key.key_hash) + hex16(q.key.request_hash).substr(8);
    const std::string initial_mark = q.initial_mark == 0 ? "" : hex16(q.initial_mark);
    claims.hold = call.hold = lockcore::hold_id::from_bits(q.hold);
    const std::string close_mark = q.closed_by == 0 ? "" : hex16(q.closed_by) + hex16(q.closed_mark);
    call.tail = lockcore::lease_tail(claims, {q.ttl, q.renewals, q.held, key, initial_mark, close_mark});
    if (q.mark != 0) call.wake_mark = hex16(q.mark);
    call.hint = lockcore::fencing_token{q.hint};
    if (q.previous != 0) call.previous = lockcore::nonce::from_bits(0, q.previous);
    call.previous_hold = lockcore::hold_id::from_bits(q.previous_hold);
    call.close_mark = hex16(q.close_mark);
    call.lift = q.lift;
    call.renewals_max = q.renewals_max;
    call.hold_max = q.hold_max;
    using scope = lockcore::redis::release_scope;
    call.scope = q.whole_lease ? scope::whole_lease : q.undone ? scope::undone_hold : scope::hold;
    call.key = key;
    return call;
}

}  // namespace sim
